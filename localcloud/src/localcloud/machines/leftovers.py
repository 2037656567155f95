"""Removal of what a dead service has left. The command line imports this, and nothing of the API."""

from __future__ import annotations

from pathlib import Path

from localcloud.machines import cgroups, filesystem, network
from localcloud.machines.host import mounts_below, unmount
from localcloud.machines.nspawn import Limits, Machine


def sweep(folder: Path) -> None:
    """Remove all machines, file systems, mounts and links of a local cloud, whichever process has left them."""
    cgroups.remove_all()
    for machine in _folders(folder / "machines"):
        leftover = Machine(machine, machine.name, (), Limits())
        leftover.clean()
        leftover.remove_disk()
    for file_system in _folders(folder / "efs"):
        filesystem.remove(file_system)
    for mount_point in mounts_below(folder):
        unmount(mount_point)
    network.sweep(folder)


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
