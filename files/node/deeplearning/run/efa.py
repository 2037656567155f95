"""EFA, AWS's fast network between machines: which node has it, what a run on such nodes is told, and how one is found
out that goes by TCP after all. TCP works too, at a tenth of the speed: nobody would notice.

NCCL reaches EFA through aws-ofi-nccl and libfabric, both on AWS's images.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping

from deeplearning import files
from deeplearning.run.plan import WORKER, Plan

DEVICES = "/sys/bus/pci/devices"
_AMAZON = "0x1d0f"
_EFA = "0xefa"
OVER_NCCL = ("ddp", "horovod")


def count(devices: str = DEVICES) -> int:
    """On the bus: one without its driver was promised as well."""
    found = (
        [files.text_of(f"{one}/{what}") or "" for what in ("vendor", "device")] for one in glob.glob(f"{devices}/*")
    )
    return sum(vendor.strip() == _AMAZON and device.startswith(_EFA) for vendor, device in found)


def promised(plan: Plan, environment: Mapping[str, str]) -> bool:
    """GPUs on several nodes, each with EFA. Who names NCCL's network has chosen another way."""
    nodes = [node for node in plan.nodes if any(process.role == WORKER for process in plan.on(node.name))]
    everywhere = len(nodes) > 1 and all(node.efa and node.gpus for node in nodes)
    return everywhere and plan.distribution in OVER_NCCL and "NCCL_NET" not in environment


def variables(plan: Plan) -> dict[str, str]:
    """All else that used to be set (FI_PROVIDER, FI_EFA_USE_DEVICE_RDMA, NCCL_PROTO, RDMAV_*) aws-ofi-nccl chooses by
    itself since 1.7, by the type of the machine, and better than a fixed value."""
    if not promised(plan, {}):
        return {}
    return {
        # Huge pages cannot be copied in part, so that a data loader's fork would run out of them.
        "FI_EFA_USE_HUGE_PAGE": "0",
        # Says which network NCCL has taken, some dozen lines a process.
        "NCCL_DEBUG": "INFO",
    }


_NETWORK = re.compile(r"NCCL INFO Using network (Socket)\b")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?!efa\b)([\w.;-]+)")


def fallback(line: str) -> str:
    """What a line of NCCL's or its plugin's log says was taken instead; empty if it says no such thing.

    With EFA they say `NET/OFI Selected Provider is efa (found 4 nics)` and `Using network AWS Libfabric` (later ones:
    `Libfabric`).
    """
    found = _NETWORK.search(line) or _PROVIDER.search(line)
    return found[1] if found else ""


def sentence(taken: str) -> str:
    return (
        f"all its nodes have EFA, and NCCL has taken {taken}: look for libnccl-net.so (aws-ofi-nccl) and libfabric on "
        'the nodes (`fi_info -p efa`), or say that TCP is meant. Example: -e \'{"env": {"NCCL_NET": "Socket"}}\''
    )
