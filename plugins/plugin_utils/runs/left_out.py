# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What was not sent or not written, in a sentence of limited length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MOST_NAMED = 5


@dataclass(frozen=True)
class LeftOut:
    """Files and folders that are left out: their number, and the names of some."""

    count: int = 0
    names: tuple[str, ...] = ()
    """Each with its reason, for people."""

    def __bool__(self) -> bool:
        return self.count > 0

    def with_refused(self, refused: Mapping[str, str]) -> LeftOut:
        """Add names with the reasons why they are refused."""
        names = [f"{name} ({reason})" for name, reason in refused.items()]
        return LeftOut(self.count + len(refused), (*self.names, *names)[:MOST_NAMED])

    @property
    def text(self) -> str:
        """Return the names, or some of them and how many more there are."""
        shown = ", ".join(self.names[:MOST_NAMED])
        more = self.count - len(self.names[:MOST_NAMED])
        return f"{shown} and {more:,} more" if more > 0 else shown
