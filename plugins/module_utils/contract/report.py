# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A machine's report on itself, in the cluster's bucket: members/<user id>/report.json.

The user id consists of the role's id and the instance's, and the role lets a machine write under its own only. So a
report is the statement of that machine alone. Addresses never come from it.
"""

from __future__ import annotations

from typing import Any

from . import schema
from .errors import UserError

PREFIX = "members/"
MAX_BYTES = 64 * 1024
MEMBER_STATES = READY, FAULTY, HELD = ("ready", "faulty", "held")
"""The states of a machine that is configured. One that is held is kept out of runs."""
CONFIGURING, FAILED = ("configuring", "failed")
STATES = (*MEMBER_STATES, CONFIGURING, FAILED)
MAX_STEP = 120
MAX_LINES = 20
MAX_LINE = 300

# `bundle`: by which the machine is or was configured; empty if by none. `step` and the last lines of the `log` are of
# a machine that configures itself, or has failed to; of one that is held, the last line of the `log` is the reason.
FIELDS = {
    "instance_id": schema.instance,
    "host_keys": schema.list_of(schema.host_key, least=1),
    "gpus": schema.gpus,
    "state": schema.one_of(*STATES),
    "bundle": schema.or_empty(schema.sha256),
    "step": schema.text(MAX_STEP),
    "log": schema.list_of(schema.text(MAX_LINE), most=MAX_LINES),
    "reported_at": schema.timestamp,
}


def key_of(user_id: str) -> str:
    """Return the key of a report in the bucket. `user_id`: what STS calls a session of the machine's role."""
    return f"{PREFIX}{user_id}/report.json"


def instance_of(key: str) -> str:
    """Return the id of the instance that may write under a key."""
    return key.split("/")[1].rpartition(":")[2]


def parse(body: bytes | str, key: str, bucket: str) -> dict[str, Any]:
    """Return a report. Raise UserError if it is malformed, or not about the instance that may write it."""
    name = f"s3://{bucket}/{key}"
    report = schema.parse(body, MAX_BYTES, FIELDS, name)
    if report["instance_id"] != instance_of(key):
        raise UserError(f"{name} is about {report['instance_id']}, which may not write there.")
    return report
