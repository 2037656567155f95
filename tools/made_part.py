"""The part of a page that a tool makes, between two comments that name it and the tool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MadePart:
    page: Path
    name: str
    tool: str

    def read(self) -> str:
        """Return the page as it is."""
        return self.page.read_text(encoding="utf-8")

    def renewed(self, made: str, page: str | None = None) -> str:
        """Return the page with what the tool has made as the part."""
        begin, end = f"<!-- {self.name}: made by tools/{self.tool}.py -->", f"<!-- end of {self.name} -->"
        before, begun, rest = (self.read() if page is None else page).partition(begin)
        _former, ended, after = rest.partition(end)
        if not begun or not ended:
            raise ValueError(f"{self.page} needs the lines {begin} and {end}.")
        return f"{before}{begin}\n{made}\n{end}{after}"

    def write(self, page: str) -> None:
        self.page.write_text(page, encoding="utf-8")
