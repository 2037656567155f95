# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The form of a node's load file: how busy a node is. Each node writes its own to the shared file system.

Root on any node can write there, so a load file is what some member states, and proves nothing.
"""

from __future__ import annotations

from typing import Any

from . import schema

MAX_BYTES = 16 * 1024
MAX_ERRORS = 8
MAX_ERROR = 200

GPU = {"busy_percent": schema.between(0, 100), "memory_percent": schema.between(0, 100)}
FIELDS = {
    "instance_id": schema.instance,
    "at": schema.uint32,
    "load": schema.number(0, 10**6),
    "processors": schema.between(1, 4096),
    "memory_percent": schema.between(0, 100),
    "disk_percent": schema.between(0, 100),
    "gpus": schema.list_of(schema.part(GPU, "a GPU"), most=schema.MAX_GPUS),
    "logins": schema.uint32,
    "jobs": schema.uint32,
    "errors": schema.list_of(schema.text(MAX_ERROR), most=MAX_ERRORS),
}


def parse(body: bytes | str, name: str) -> dict[str, Any]:
    """Return a node's load. Raise UserError if the file of this name is malformed."""
    return schema.parse(body, MAX_BYTES, FIELDS, name)
