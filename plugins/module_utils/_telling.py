# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""How several messages are told as one.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Sequence


def told(problems: Sequence[str], title: str) -> str:
    """One by itself, more of them as a list below a title, which counts them: "{} settings are wrong"."""
    unique = list(dict.fromkeys(problems))
    if len(unique) == 1:
        return unique[0]
    return title.format(len(unique)) + "\n" + "\n".join(f"- {problem}" for problem in unique)


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names with commas between, not too many of them."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
