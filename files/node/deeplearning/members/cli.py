"""`deeplearning members`, as quick as it can be for a tick of the timer that finds nothing to do."""

from __future__ import annotations

from deeplearning.members.standing import stands


def main(argv: list[str]) -> int:
    if argv == ["apply", "--repeated"] and stands():
        return 0
    from deeplearning.members import commands

    return commands.main(argv)
