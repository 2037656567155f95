# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The SHA-256 of files whose publishers name none, as they were when this operator fetched them first."""

from __future__ import annotations

import json
from pathlib import Path

from ...module_utils.contract import atomic_file, schema
from ...module_utils.contract.datasets import DatasetFile
from ...module_utils.contract.errors import UserError

FILE = "first-fetches.json"


class FirstFetches:
    """A file in the operator's folder, with a SHA-256 for each URL."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE

    def expected(self, part: DatasetFile) -> str:
        """Return the SHA-256 that a file must have: the published one, or that of the first fetch. Empty: unknown."""
        return part.sha256 or (self._read().get(part.url, "") if part.url and not part.is_published else "")

    def compare(self, url: str, file: Path, sha256: str) -> None:
        """Record the first SHA-256 of what a URL has. Raise UserError if another one is recorded."""
        recorded = self._read()
        if recorded.setdefault(url, sha256) != sha256:
            raise UserError(
                f"{file} has the SHA-256 {sha256}, and {url} had {recorded[url]} when it was fetched first. If its "
                f"publisher has replaced it, remove this URL from {self.file}."
            )
        self.file.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"schema": schema.VERSION, "sha256": recorded}, indent=1)
        atomic_file.write_if_changed(str(self.file), f"{content}\n")

    def _read(self) -> dict[str, str]:
        text = atomic_file.read_or_none(str(self.file))
        if text is None:
            return {}
        try:
            return dict(schema.validate_part(json.loads(text), FIELDS, str(self.file))["sha256"])
        except (ValueError, RecursionError, UserError) as error:
            raise UserError(
                f"{self.file} is damaged ({error}): remove it. Each file that it lists is then fetched again."
            ) from None


FIELDS = {"schema": schema.one_of(schema.VERSION), "sha256": schema.map_of(schema.string, schema.sha256)}
