# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Whether a file system can be reached from here, and what is in the way if not.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

PORT = 2049
ATTEMPT_SECONDS = 5

DNS, NO_TARGET, SECURITY_GROUP = "dns", "mount_target", "security_group"


@dataclass(frozen=True)
class Obstacle:
    cause: str
    """one of the three above"""
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
