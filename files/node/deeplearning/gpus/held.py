"""Whether this node is held: kept out of runs, since a GPU of it was at fault in one.

The file is lost at a reboot, after which the node's GPUs have been reset.
"""

from __future__ import annotations

from deeplearning.contract import atomic_file, paths


def hold(reason: str) -> None:
    atomic_file.write_if_changed(paths.HELD, reason)


def release() -> bool:
    """Return False if it was not held."""
    return atomic_file.remove(paths.HELD)


def reason() -> str:
    """Return why this node is held; empty if it is not."""
    return atomic_file.read_or_none(paths.HELD) or ""
