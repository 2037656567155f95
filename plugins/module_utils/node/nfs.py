# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Find out whether a file system can be reached from this machine, why not, and where it was mounted before."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..contract import ports
from . import services

# run_command of a module would wait for a process that cannot be killed while it is blocked on NFS.
# pylint: disable=ansible-bad-function

FSTAB = "/etc/fstab"
ATTEMPT_SECONDS = 5
PROBE = ("stat", "--file-system")
FLUSH = ("resolvectl", "flush-caches")

DNS, NO_TARGET, SECURITY_GROUP, STALLED = "dns", "mount_target", "security_group", "stalled"
ENCRYPTED = "127.0.0.1:/"
"""What mount.efs mounts instead of the file system: the local end of a tunnel to it."""


@dataclass(frozen=True)
class Obstacle:
    cause: str
    """one of the four above"""
    message: str


def find_obstacle(name: str, own_name: str, seconds: float) -> Obstacle | None:
    """Return why the file system cannot be reached now. `own_name` is a name that DNS resolves if it works at all."""
    try:
        address = _address(name)
    except OSError as error:
        return _unresolved(name, own_name, error)
    try:
        socket.create_connection((address, ports.NFS), timeout=max(1, min(seconds, ATTEMPT_SECONDS))).close()
    except OSError as error:
        return Obstacle(
            SECURITY_GROUP,
            f"{address}, the mount target of {name}, does not answer on port {ports.NFS} ({error}). A security group "
            f"is in the way: allow the members' security group to reach the mount target's at TCP {ports.NFS} "
            "(site.yml does this for a cluster's own), and allow members outgoing traffic to it.",
        )
    return None


def forget_names() -> None:
    """Let systemd-resolved forget that a name did not exist, which it remembers for as long as the zone allows."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(FLUSH, timeout=ATTEMPT_SECONDS, check=False, stdin=subprocess.DEVNULL, capture_output=True)


def _unresolved(name: str, own_name: str, error: OSError) -> Obstacle:
    advice = "Enable DNS resolution and DNS hostnames of the VPC, and let its machines use its own resolver."
    # A machine often knows its own name without DNS, for example from /etc/hosts, so its own name does not tell.
    if error.errno == socket.EAI_AGAIN:
        return Obstacle(DNS, f"No name server answers for {name}: DNS is what is wrong. {advice}")
    try:
        _address(own_name)
    except OSError:
        return Obstacle(
            DNS,
            f"Neither {name} nor this machine's own name, {own_name}, can be resolved: DNS is what is wrong. {advice}",
        )
    return Obstacle(
        NO_TARGET,
        f"{name} cannot be resolved, though this machine's own name can: the file system has no mount target in this "
        "machine's zone. Create one there (site.yml does this for a cluster's own), and check that the file system "
        "exists.",
    )


def _address(name: str) -> str:
    return str(socket.getaddrinfo(name, ports.NFS, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def find_stall(name: str, path: str, seconds: float) -> Obstacle | None:
    """Return an obstacle if the file system is mounted and does not respond."""
    if responds(path, seconds):
        return None
    return Obstacle(
        STALLED,
        f"{name} is mounted at {path} and does not answer, though its mount target does: the file system stalls. "
        "Processes that use it continue by themselves when it is back; AWS's health dashboard may tell when. Then run "
        "this again.",
    )


def responds(path: str, seconds: float) -> bool:
    """Return whether `stat` returns in time. It runs in a child: a process blocked on NFS cannot be stopped."""
    probe = subprocess.Popen(
        [*PROBE, path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        probe.wait(seconds)
    except subprocess.TimeoutExpired:
        # It may not end before the file system is back, so do not wait for that.
        probe.kill()
        return False
    return True


def former_mounts(fstab: str, mounts: str, mark: str, source: str, path: str) -> list[dict[str, Any]]:
    """Return the mounts by lines of /etc/fstab with our mark, except the one of `source` at `path`.

    `mounted`: whether the file system of the line is mounted at the `path` of the line; `taken`: whether another one
    is. A line that was disabled is kept as a comment until its mount is removed completely.
    """
    disabled = f"#{mark} "
    lines = [line.removeprefix(disabled).split() for line in fstab.splitlines()]
    lines = [line for line in lines if len(line) > 3 and not line[0].startswith("#")]
    ours = [line for line in lines if mark in line[3].split(",") and line[:2] != [source, path]]
    former = []
    for line in ours:
        mounted = mounted_at(mounts, line[1])
        is_own = _is_same_file_system(line[0], mounted)
        former.append({"path": line[1], "mounted": is_own, "taken": bool(mounted) and not is_own})
    return former


def systemd_follows(fstab: str, source: str, path: str) -> bool:
    """Return whether systemd has read /etc/fstab since it was changed. It mounts what is missing by that file."""
    if "yes" in services.values_of("NeedDaemonReload", "*.mount"):
        return False
    listed = any(line.split()[:2] == [source, path] for line in fstab.splitlines())
    return not listed or FSTAB in services.values_of("SourcePath", path)


def _is_same_file_system(source: str, mounted: str) -> bool:
    """Compare the source in /etc/fstab with what is mounted, by the file system's id, which both begin with."""
    return mounted == ENCRYPTED or source.partition(":")[0].partition(".")[0] in mounted


def mounted_at(mounts: str, path: str) -> str:
    """Return what is mounted at a path, by the kernel's list: the last is on top. A `stat` of the path might block."""
    sources: Sequence[str] = [line.split()[0] for line in mounts.splitlines() if line.split()[1] == path]
    return sources[-1] if sources else ""
