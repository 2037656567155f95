# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Whether a file system can be reached from here, what is in the way if not, and where else it has been mounted.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

# run_command of a module would wait for a process that the kernel does not let die.
# pylint: disable=ansible-bad-function

PORT = 2049
FSTAB = "/etc/fstab"
ATTEMPT_SECONDS = 5
LOOK = ("stat", "--file-system")

DNS, NO_TARGET, SECURITY_GROUP, STALLED = "dns", "mount_target", "security_group", "stalled"
ENCRYPTED = "127.0.0.1:/"
"""What mount.efs mounts instead of the file system: the near end of a tunnel to it."""


@dataclass(frozen=True)
class Obstacle:
    cause: str
    """one of the four above"""
    words: str


def obstacle(name: str, own_name: str, seconds: float) -> Obstacle | None:
    """What is in the way at this moment. `own_name` is one that DNS here knows if it works at all."""
    try:
        address = _address(name)
    except OSError as error:
        return _unresolved(name, own_name, error)
    try:
        socket.create_connection((address, PORT), timeout=max(1, min(seconds, ATTEMPT_SECONDS))).close()
    except OSError as error:
        return Obstacle(
            SECURITY_GROUP,
            f"{address}, the mount target of {name}, does not answer on port {PORT} ({error}). A security group is in "
            f"the way: let the members' security group in at TCP {PORT} of the mount target's (site.yml does this for "
            "a cluster's own), and let members go out to it.",
        )
    return None


def _unresolved(name: str, own_name: str, error: OSError) -> Obstacle:
    mend = "Switch on both DNS resolution and DNS hostnames of the VPC, and let its machines ask its own resolver."
    # A machine often knows its own name without DNS, from /etc/hosts for one, so that alone does not tell.
    if error.errno == socket.EAI_AGAIN:
        return Obstacle(DNS, f"No name server answers for {name}: DNS is what is wrong. {mend}")
    try:
        _address(own_name)
    except OSError:
        return Obstacle(
            DNS,
            f"Neither {name} nor this machine's own name, {own_name}, can be resolved: DNS is what is wrong. {mend}",
        )
    return Obstacle(
        NO_TARGET,
        f"{name} cannot be resolved, though this machine's own name can: the file system has no mount target in this "
        "machine's zone. Make one there (site.yml does this for a cluster's own), and see that the file system exists.",
    )


def _address(name: str) -> str:
    return str(socket.getaddrinfo(name, PORT, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def stalled(name: str, path: str, seconds: float) -> Obstacle | None:
    """Where it is mounted, and whoever looks at it waits without end."""
    if answers(path, seconds):
        return None
    return Obstacle(
        STALLED,
        f"{name} is mounted at {path} and does not answer, though its mount target does: the file system stands still. "
        "What uses it goes on by itself as soon as it is back; AWS's health dashboard may tell when. Run this again "
        "then.",
    )


def answers(path: str, seconds: float) -> bool:
    """Whether a look at it comes back: another process looks, as one that waits for a file system cannot be left."""
    looking = subprocess.Popen(
        [*LOOK, path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        looking.wait(seconds)
    except subprocess.TimeoutExpired:
        # It may not even die before the file system is back, so nobody waits for that.
        looking.kill()
        return False
    return True


@dataclass(frozen=True)
class Place:
    path: str
    mounted: bool
    """the very file system of its line is mounted there, and not somebody else's"""
    taken: bool = False
    """something else is mounted there"""


def former(fstab: str, mounts: str, mark: str, source: str, path: str) -> list[Place]:
    """The places where lines that bear our mark mount anything but `source` at `path`.

    A line that was taken out of use is kept as a comment until all is done that follows from it.
    """
    unused = f"#{mark} "
    lines = [line.removeprefix(unused).split() for line in fstab.splitlines()]
    lines = [line for line in lines if len(line) > 3 and not line[0].startswith("#")]
    ours = [line for line in lines if mark in line[3].split(",") and line[:2] != [source, path]]
    return [_place(line[0], line[1], mounted_at(mounts, line[1])) for line in ours]


def _place(source: str, path: str, mounted: str) -> Place:
    own = _is_of(source, mounted)
    return Place(path, own, bool(mounted) and not own)


def systemd_follows(fstab: str, source: str, path: str) -> bool:
    """Return whether systemd has read /etc/fstab since it was changed, so that it mounts by it what is missing."""
    if "yes" in _shown("NeedDaemonReload", "*.mount"):
        return False
    listed = any(line.split()[:2] == [source, path] for line in fstab.splitlines())
    return not listed or FSTAB in _shown("SourcePath", path)


def _shown(name: str, units: str) -> Sequence[str]:
    """Return a property of units. A path stands for the unit that mounts there."""
    command = ["systemctl", "show", f"--property={name}", "--value", units]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _is_of(source: str, mounted: str) -> bool:
    """Whether what is mounted is the file system that a line names: by its id, which both ways to mount begin with."""
    return mounted == ENCRYPTED or source.partition(":")[0].partition(".")[0] in mounted


def mounted_at(mounts: str, path: str) -> str:
    """What is mounted there, by the kernel's list: the last is on top. Asking the place itself may take for ever."""
    found: Sequence[str] = [line.split()[0] for line in mounts.splitlines() if line.split()[1] == path]
    return found[-1] if found else ""
