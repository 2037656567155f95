"""EFA, AWS's fast network between machines: which nodes have it, and whether NCCL really uses it.

NCCL reaches EFA through aws-ofi-nccl and libfabric, both on AWS's images. Without them it uses TCP at a tenth of the
speed, which is easily overlooked.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Mapping

from deeplearning.contract import atomic_file, schema
from deeplearning.runs.plan import WORKER, Plan

DEVICES = "/sys/bus/pci/devices"
COUNTERS = "/sys/class/infiniband/*/ports/*/hw_counters"
LOSSES = (
    *("rx_drops", "retrans_pkts", "retrans_timeout_events"),
    *("unresponsive_remote_events", "impaired_remote_conn_events"),
)
"""Linux' driver of EFA (drivers/infiniband/hw/efa/efa_verbs.c, 6.13) counts them per device since it was loaded. They
come with load and with others' faults, so they are shown and say nothing about this node."""
_count = schema.between(0, 2**64)
_AMAZON = "0x1d0f"
_EFA = "0xefa"
NCCL_DISTRIBUTIONS = ("ddp", "horovod", "multi_worker_mirrored")
"""TensorFlow's uses NCCL if the script asks for it (CommunicationImplementation.NCCL), and logs nothing otherwise."""
_SHOWING = ("INFO", "ABORT", "TRACE")
"""The levels of NCCL_DEBUG at which NCCL names its network."""


def count(devices: str = DEVICES) -> int:
    """Count EFA devices on the bus, with and without a driver."""
    ids = (
        [atomic_file.read_or_none(f"{path}/{name}") or "" for name in ("vendor", "device")]
        for path in glob.glob(f"{devices}/*")
    )
    return sum(vendor.strip() == _AMAZON and device.startswith(_EFA) for vendor, device in ids)


def losses(counters: str = COUNTERS) -> dict[str, int]:
    """Return what all EFA devices together have lost and sent again; empty if the driver counts nothing."""
    sums: dict[str, int] = {}
    for name in LOSSES:
        texts = [(atomic_file.read_or_none(path) or "").strip() for path in glob.glob(f"{counters}/{name}")]
        numbers = [int(text) for text in texts if text.isdecimal()]
        if numbers:
            sums[name] = sum(numbers)
    return sums


def parse_losses(text: str) -> dict[str, int]:
    """Return what a node's `deeplearning health losses` printed. Raise ValueError or UserError if it is malformed."""
    record = json.loads(text)
    names = record if isinstance(record, dict) else {}
    return schema.validate_part(record, {name: _count for name in LOSSES if name in names}, "the counters of EFA")


def is_expected(plan: Plan, environment: Mapping[str, str]) -> bool:
    """Return True if NCCL should use EFA: GPUs on several nodes, all with EFA, and no other network in NCCL_NET."""
    nodes = [node for node in plan.nodes if any(process.role == WORKER for process in plan.on(node.name))]
    everywhere = len(nodes) > 1 and all(node.efa and node.gpus for node in nodes)
    return everywhere and plan.distribution in NCCL_DISTRIBUTIONS and "NCCL_NET" not in environment


def variables(plan: Plan) -> dict[str, str]:
    """Return the settings that aws-ofi-nccl leaves to us. Since 1.7 it chooses all others by the machine's type, better
    than fixed values do: FI_PROVIDER, FI_EFA_USE_DEVICE_RDMA, NCCL_PROTO, RDMAV_*."""
    if not is_expected(plan, {}):
        return {}
    return {
        # Huge pages cannot be copied in part, so a data loader that forks would run out of them.
        "FI_EFA_USE_HUGE_PAGE": "0",
        # NCCL logs which network it uses, in some dozen lines per process.
        "NCCL_DEBUG": "INFO",
    }


_NETWORK = re.compile(r"NCCL INFO Using network (Socket)\b")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?!efa\b)([\w.;-]+)")


def fallback(line: str) -> str:
    """Return the network other than EFA that a line of NCCL's or its plugin's log names; empty if it names none.

    With EFA, the lines are `NET/OFI Selected Provider is efa (found 4 nics)` and `Using network AWS Libfabric` (in
    later versions `Libfabric`).
    """
    match = _NETWORK.search(line) or _PROVIDER.search(line)
    return match[1] if match else ""


def hiding_variable(environment: Mapping[str, str]) -> str:
    """Return which of the user's variables keeps NCCL's choice out of the output; empty if none does.

    A log of our own (NCCL_DEBUG_FILE) would not help: NCCL_DEBUG is its level too, and takes the user's lines away.
    """
    if environment.get("NCCL_DEBUG", "INFO").upper() not in _SHOWING:
        return "NCCL_DEBUG"
    if environment.get("NCCL_DEBUG_FILE", "/dev/stdout") not in ("/dev/stdout", "/dev/stderr"):
        return "NCCL_DEBUG_FILE"
    systems = environment.get("NCCL_DEBUG_SUBSYS", "INIT").upper()
    names_init = bool({"INIT", "ALL"} & set(systems.lstrip("^").split(",")))
    return "" if names_init is not systems.startswith("^") else "NCCL_DEBUG_SUBSYS"


def unwatched(plan: Plan, environment: Mapping[str, str]) -> str:
    """Return a sentence if NCCL should use EFA, and the user's variables hide whether it does; otherwise nothing."""
    name = hiding_variable(environment) if is_expected(plan, environment) else ""
    return name and (
        f"All nodes have EFA, and nothing watches whether NCCL uses it, as env sets {name}: leave it out to have the "
        "run end if NCCL takes a slower network."
    )


def sentence(network: str) -> str:
    return (
        f"all its nodes have EFA, and NCCL has taken {network}: look for libnccl-net.so (aws-ofi-nccl) and libfabric "
        'on the nodes (`fi_info -p efa`), or choose TCP. Example: -e \'{"env": {"NCCL_NET": "Socket"}}\''
    )
