# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: schedule_once
short_description: Make the schedule of an action that runs once
version_added: 1.0.0
description:
  - Returns the times of M(community.aws.autoscaling_scheduled_action), which requires a recurrence. The action runs at
    the first suitable minute that is not before the time, and its recurrence ends ten minutes later.
  - Two actions of a group must not have the same time, so each kind gets every third minute.
positional: kind
options:
  _input:
    description: The time, in seconds since the epoch.
    type: float
    required: true
  kind:
    description: What the action is for.
    type: str
    choices: [ttl, idle, setup]
    required: true
"""

EXAMPLES = r"""
- name: Print the schedule of an action in eight hours
  ansible.builtin.debug:
    msg: "{{ (now().timestamp() + 8 * 3600) | deeplearning.aws.schedule_once('ttl') }}"
"""

RETURN = r"""
_value:
  description: The C(start_time), the C(end_time) and the C(recurrence).
  type: dict
"""

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
