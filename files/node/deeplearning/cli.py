"""The command `deeplearning`. Timers start it every few seconds, so a group is imported only when it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module

from deeplearning import Refusal

GROUPS = {
    "members": ("deeplearning.members.cli", "who is in the cluster: report, publish, apply, wait, show"),
    "run": ("deeplearning.run.cli", "training runs"),
    "data": ("deeplearning.data.cli", "data sets: stage, show"),
    "unpack": ("deeplearning.unpacking.cli", "staged data sets to the shared file system: show, share, finish"),
    "tensorboard": ("deeplearning.tensorboard", "TensorBoard on this node: start, stop, show"),
    "env": ("deeplearning.environment", "the line that activates a framework"),
    "health": ("deeplearning.health.cli", "is this node fit for work"),
}
HELP = "usage: deeplearning GROUP …\n\n" + "\n".join(f"  {name:<12} {group[1]}" for name, group in GROUPS.items())


def main(argv: list[str]) -> int:
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(HELP)
        return 0
    if name not in GROUPS:
        return refused(f"{name} is no group of commands. There are: {', '.join(GROUPS)}.")
    try:
        return int(import_module(GROUPS[name][0]).main(rest))
    except Refusal as refusal:
        return refused(str(refusal))
    except PermissionError as error:
        return refused(f"{error.filename} is not for this user ({error.strerror}): use sudo.")
    except KeyboardInterrupt:
        return 130


def refused(sentence: str) -> int:
    print(f"deeplearning: {sentence}", file=sys.stderr)
    return 2
