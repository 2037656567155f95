# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Tables for terminals, on the operator's machine and on nodes."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]], indent: str = "", numbers: bool = False) -> list[str]:
    """Return a line for each row, with aligned columns. `numbers`: all columns but the first are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    aligns = [str.ljust, *[str.rjust if numbers else str.ljust] * (len(widths) - 1)]
    cells = [[align(cell, width) for align, cell, width in zip(aligns, row, widths)] for row in rows]
    return [indent + "  ".join(row).rstrip() for row in cells]


def join_names(names: Sequence[str], most: int = 12) -> str:
    """Return the names separated by commas, and only the number of those beyond `most`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
