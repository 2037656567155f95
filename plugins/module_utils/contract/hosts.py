# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The names by which members of a cluster reach each other, and by which the inventory lists them; and the network
interface that has their address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MASTER = "deeplearning-worker1"
"""The master's canonical name in files, logs and code. It trains too, so it counts as a worker."""
MASTER_ALIAS = "deeplearning-master"
"""Its name in the inventory, and an alias for people on the members."""


def host_name(rank: int) -> str:
    """Return the canonical name of the member of a rank."""
    return f"deeplearning-worker{rank}"


def aliases(rank: int) -> tuple[str, ...]:
    """Return all names of the member of a rank, the canonical one first."""
    return (MASTER, MASTER_ALIAS) if rank == 1 else (host_name(rank),)


def inventory_name(rank: int) -> str:
    """Return the inventory's name of the member of a rank."""
    return aliases(rank)[-1]


def primary_interface(instance: Mapping[str, Any]) -> str:
    """Return the id of a machine's first network interface."""
    return next(
        str(interface["NetworkInterfaceId"])
        for interface in instance["NetworkInterfaces"]
        if interface["Attachment"]["DeviceIndex"] == 0 and not interface["Attachment"].get("NetworkCardIndex")
    )
