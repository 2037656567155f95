"""The commands of the local cloud, and their refusals."""

from __future__ import annotations

import pytest

from localcloud import cli

COMMANDS = ("up", "down", "env", "status", "calls", "exec", "console", "fault", "image")
FAULTS = (
    "capacity", "quota", "default-quotas", "throttle", "error", "late-iam", "kill", "freeze", "cut", "stall", "expire",
    "late-reads", "late-tags", "keep-fields", "skew", "foreign-bucket", "fail-nat", "deprecate-image", "ebs-key",
    "clear", "thaw", "mend", "resume",
)  # fmt: skip


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of argparse, or of our own, that ends a command that cannot be."""
    try:
        assert cli.main(words) == 2
    except SystemExit as ended:
        assert ended.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err.strip().splitlines()[-1]
