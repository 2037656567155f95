"""`deeplearning members`, as fast as possible for a tick of the timer that has nothing to do."""

from __future__ import annotations

import os

from deeplearning.contract import paths
from deeplearning.members.unchanged import is_unchanged


def main(argv: list[str]) -> None:
    if argv == ["report", "--repeated"] and os.path.exists(paths.CONFIGURING):
        return
    if argv == ["apply", "--repeated"]:
        if os.path.exists(paths.MASTER_ADDRESS):
            from deeplearning.upkeep import commands

            commands.main(["address", "--repeated"])
        if is_unchanged():
            return
    if argv == ["publish", "--repeated"]:
        from deeplearning.members.check_times import should_check

        if not should_check():
            return
    from deeplearning.upkeep import commands

    commands.main(argv)
    if argv == ["report", "--repeated"]:
        commands.main(["load", "--repeated"])
