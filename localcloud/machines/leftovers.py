"""Ending and removing what a service that died has left. The command line imports this, and nothing of the API."""

from __future__ import annotations

import subprocess
from pathlib import Path

from localcloud.machines import cgroups, filesystem, network
from localcloud.machines.host import mounts_below
from localcloud.machines.nspawn import Limits, Machine


def sweep(folder: Path) -> None:
    """Machines, file systems, mounts, wires: all that bears our name, whoever left it."""
    cgroups.remove_all()
    for machine in _folders(folder / "machines"):
        left = Machine(machine, machine.name, (), Limits())
        left.clean()
        left.remove_disk()
    for shared in _folders(folder / "efs"):
        filesystem.remove(shared)
    for mounted in mounts_below(folder):
        subprocess.run(["umount", "--lazy", mounted], check=False, capture_output=True)
    network.sweep(folder)


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
