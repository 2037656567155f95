# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What the checks of a plan report: problems, which prevent the plan, and notes, which do not."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Finding(NamedTuple):
    text: str
    is_problem: bool = True


def setting_problem(setting: str, value: Any, problem: str, example: Any = None) -> Finding:
    """Return a problem with a setting: its value, what is wrong with it, and an example of a better value."""
    shown = value if isinstance(value, str) else json.dumps(value)
    return Finding(f"cluster_{setting} is {shown}: {problem}.{_option(setting, example)}")


def note(text: str) -> Finding:
    return Finding(text, is_problem=False)


def _option(setting: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return f" Example: -e '{json.dumps({f'cluster_{setting}': value})}'"
    return f" Example: -e cluster_{setting}={value if isinstance(value, str) else json.dumps(value)}"
