"""The command `deeplearning`. Timers start it every few seconds, so only the group that is called is imported."""

from __future__ import annotations

import sys
from importlib import import_module

from deeplearning.contract.errors import UserError

GROUPS = {
    "members": ("deeplearning.upkeep.cli", "the cluster's members: report, publish, apply, wait, show, forget"),
    "run": ("deeplearning.runs.cli", "training runs"),
    "data": ("deeplearning.data.cli", "data sets: stage, show, receive"),
    "unpack": ("deeplearning.data.unpack_cli", "staged data sets, to the shared file system: show, share, finish"),
    "tensorboard": ("deeplearning.views.tensorboard", "TensorBoard on this node: check, start, stop"),
    "page": ("deeplearning.views.page", "the status page of this cluster: start, stop, serve"),
    "env": ("deeplearning.environment", "print the line that activates a framework"),
    "status": ("deeplearning.views.status", "describe members, load and runs"),
    "gpus": ("deeplearning.gpus.cli", "this node's GPUs: faults, hold, release"),
    "health": ("deeplearning.health.cli", "check whether this node is fit for training"),
}
HELP = "usage: deeplearning GROUP …\n\n" + "\n".join(f"  {name:<12} {group[1]}" for name, group in GROUPS.items())


def main(argv: list[str]) -> int:
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(HELP)
        return 0
    if name not in GROUPS:
        return _fail(f"{name} is no group of commands: give one of {', '.join(GROUPS)}.")
    try:
        # Commands whose code does not vary return none.
        return int(import_module(GROUPS[name][0]).main(rest) or 0)
    except UserError as error:
        return _fail(str(error))
    except PermissionError as error:
        return _fail(f"{error.filename} is not for this user ({error.strerror}): use sudo.")
    except OSError as error:
        return _fail(f"{error.filename or 'the system'} reports an error: {error.strerror or error}.")
    except KeyboardInterrupt:
        return 130


def _fail(message: str) -> int:
    print(f"deeplearning: {message}", file=sys.stderr)
    return 2
