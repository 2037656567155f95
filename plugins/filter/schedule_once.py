# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import once
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.schema import format_time


def schedule_once(seconds: float | str, kind: str) -> dict[str, str]:
    action = once(kind, float(seconds))
    return {
        "start_time": format_time(action["StartTime"].timestamp()),
        "end_time": format_time(action["EndTime"].timestamp()),
        "recurrence": action["Recurrence"],
    }


class FilterModule:
    def filters(self) -> dict[str, Callable[..., dict[str, str]]]:
        return {"schedule_once": schedule_once}
