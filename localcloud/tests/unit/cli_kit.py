"""The commands of the local cloud."""

from __future__ import annotations

COMMANDS = ("up", "down", "env", "status", "calls", "exec", "console", "fault", "image")
FAULTS = (
    "capacity", "quota", "throttle", "error", "late-iam", "kill", "freeze", "cut", "stall", "expire",
    "late-reads", "skew", "foreign-bucket", "fail-nat", "clear", "thaw", "mend", "resume",
)  # fmt: skip
