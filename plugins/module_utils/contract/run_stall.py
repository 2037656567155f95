# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The form of a stall in a run's state: since when no process has reported anything, and which processes are named.

Training code can write the state of its run, so this is what a node states, and proves nothing.
"""

from __future__ import annotations

from typing import Any

from . import schema
from .errors import UserError

STALLED = "stalled"
"""The state of such a run."""
ROLES = ("worker", "chief", "ps", "server", "scheduler")
MOST_NAMED = 8
"""The most processes that are named."""
SILENT = {
    "node": schema.host_name,
    "role": schema.one_of(*ROLES),
    "rank": schema.uint32,
    "what": schema.text(100),
}
"""A process, and what is known about it; empty if nothing is."""
FIELDS = {
    "since": schema.timestamp,
    "silent": schema.list_of(schema.part(SILENT, "a process"), most=MOST_NAMED),
    # What its machines cost an hour.
    "hourly": schema.optional(schema.number(0, 1e9)),
}


def find(state: Any) -> dict[str, Any] | None:
    """Return the stall in a run's state, or None if there is none or it is malformed."""
    try:
        return schema.validate_part(state["stall"], FIELDS, "the stall of a run")
    except (UserError, KeyError, TypeError):
        return None
