"""What a fault of a GPU means: what health shows, and whether a failed attempt is the node's fault.

Sources, as of 2026-11-24:
[N] NVIDIA, "Analyzing Xid Errors with the Xid Catalog", https://docs.nvidia.com/deploy/xid-errors/: the immediate
    action for GPUs since Ampere, by its name there.
[A] AWS, github.com/awslabs/awsome-distributed-ai at 95b939cd (2026-07-23), 2.gpu-cluster-healthcheck: what to do about
    the same codes on EC2, by release 590 of that catalog.
[M] NVIDIA, "GPU Memory Error Management", https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/: remapped rows.
[F] NVIDIA, "Fabric Manager User Guide", https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/: SXid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deeplearning.gpus.reading import Gpu, Reading

MONITOR, PROGRAM, RESET, REBOOT, REPLACE = LEVELS = ("monitor", "program", "reset", "reboot", "replace")
NODE_LEVELS = (RESET, REBOOT, REPLACE)
"""Faults of these levels are the node's, and end only when its GPUs are reset, or when it boots or is replaced."""
MOST_TEXT = 200


@dataclass(frozen=True)
class Fault:
    level: str
    text: str

    @property
    def is_the_nodes(self) -> bool:
        return self.level in NODE_LEVELS


Xid = tuple[str, str]
"""A level, and what follows the name of a GPU."""

_COPY_ENGINE = (PROGRAM, "reports an error of a copy engine")
_VIDEO = (PROGRAM, "reports an error of a video or image engine")
_COMMANDS = (PROGRAM, "got an invalid stream of commands")
_GSP = (RESET, "has a system processor (GSP) that failed or does not answer")

XIDS: Mapping[int, Xid] = {
    # [N] RESTART_APP, [A] RESTART_APP. 137 is, by [N], usually a wrong access of an application.
    8: (PROGRAM, "stopped processing"),
    **dict.fromkeys((11, 25, 32, 69, 80), _COMMANDS),
    13: (PROGRAM, "reports an exception in a kernel, such as an index out of bounds"),
    31: (PROGRAM, "reports a page fault: an address that the program may not use"),
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _COPY_ENGINE),
    **dict.fromkeys((60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139), _VIDEO),
    94: (PROGRAM, "contained a memory error to one program"),
    137: (PROGRAM, "reports a wrong access over NVLink"),
    # [N] IGNORE: a fault of the application, after which the GPU is healthy.
    43: (PROGRAM, "stopped the program after an error of its own"),
    # [N] RESET_GPU, [A] RESET_GPU.
    46: (RESET, "stopped processing, and needs a reset"),
    62: (RESET, "has a micro-controller that halted"),
    64: (RESET, "could not remap a memory row"),
    95: (RESET, "has a memory error that affects all programs"),
    109: (RESET, "does not switch contexts in time"),
    110: (RESET, "reports a security fault"),
    119: _GSP,
    120: _GSP,
    136: (RESET, "could not train an NVLink"),
    140: (RESET, "has an uncorrectable memory error"),
    143: (RESET, "could not be initialized"),
    155: (RESET, "lost an NVLink"),
    156: (RESET, "retired a resource"),
    158: (RESET, "does not answer: a fatal timeout"),
    # [N] WORKFLOW_XID_48 and WORKFLOW_NVLINK_ERR: a reset or a reboot clears the error. [A] RESET.
    48: (RESET, "has an uncorrectable memory error (two bits)"),
    74: (RESET, "has an NVLink that failed"),
    # [N] details of a 48.
    171: (RESET, "has an uncorrectable error of its DRAM"),
    172: (RESET, "has an uncorrectable error of its SRAM"),
    # [N] RESTART_BM, RESTART_VM, and "boot re-attempted". [A] REBOOT.
    79: (REBOOT, "fell off the bus"),
    151: (REBOOT, "could not rotate its keys"),
    168: (REBOOT, "has less memory than it should"),
    # [N] CHECK_MECHANICALS, [A] ISOLATE: on AWS, another machine is the only cure.
    54: (REPLACE, "lacks auxiliary power"),
}
"""Others are of the level monitor: [N] IGNORE or unused. So is 45, which follows other Xids and any killed program."""
_NVLINK5 = range(144, 151)
"""[N] WORKFLOW_NVLINK5_ERR: the line says whether it is fatal."""
_RECOVERY_ACTION = 154
"""[N] Summarizes what other Xids need, in words."""
_ACTIONS = {
    "Node Reboot Required": (REBOOT, "needs a reboot of its node, by its driver"),
    "GPU Reset Required": (RESET, "needs a reset, by its driver"),
    "Drain and Reset": (RESET, "needs a reset, by its driver"),
    "Drain P2P": (RESET, "needs a reset, by its driver"),
}
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+)\b(.*)")
_SXID = re.compile(r"nvswitch\d+: SXid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+), ([\w-]+)")
_CHANGED_TO = re.compile(r"to 0x[0-9A-Fa-f]+ \(([^)]*)\)")


def of_log(lines: Iterable[str], names: Mapping[str, str]) -> list[Fault]:
    """Return the faults that these lines of the kernel log report, each once.

    `names`: of the GPUs, by their addresses, as `gpu_names` returns them.
    """
    faults = [fault for line in lines if (fault := _of_line(line, names))]
    return list(dict.fromkeys(faults))


def _of_line(line: str, names: Mapping[str, str]) -> Fault | None:
    if match := _XID.search(line):
        address, number, rest = match[1], int(match[2]), match[3]
        level, text = _xid(number, rest)
        gpu = names.get(_short(address), f"the GPU at {address}")
        return _fault(level, f"{gpu} {text} (Xid {number})")
    if match := _SXID.search(line):
        # [F] Fatal errors of a switch need a reset of it and its GPUs; others are for information.
        level = RESET if match[3] == "Fatal" else MONITOR
        return _fault(level, f"the NVSwitch at {match[1]} reports SXid {match[2]}, {match[3]}")
    return None


def _xid(number: int, rest: str) -> Xid:
    if number == _RECOVERY_ACTION:
        action = _CHANGED_TO.search(rest)
        return _ACTIONS.get(action[1] if action else "", (MONITOR, "needs nothing"))
    if number in _NVLINK5:
        return (RESET if re.search(r"\bFatal\b", rest) else MONITOR, "reports an error of NVLink")
    return XIDS.get(number, (MONITOR, "reports an event"))


def of_reading(reading: Reading, expected: int | None = None) -> list[Fault]:
    """Return the faults that NVML shows. `expected`: how many GPUs the node's type has."""
    faults = [fault for gpu in reading.gpus for fault in _of_gpu(gpu)]
    if expected is not None and reading.error is None and len(reading.gpus) < expected:
        missing = f"{len(reading.gpus)} of its {expected} GPUs answer"
        faults.append(_fault(REBOOT, missing))
    return faults


def _of_gpu(gpu: Gpu) -> Iterable[Fault]:
    if gpu.lost:
        # NVML_ERROR_GPU_IS_LOST: as with Xid 79, a reset does not reach the device.
        yield _fault(REBOOT, f"GPU {gpu.index} is lost: {gpu.lost}")
    if gpu.ecc_uncorrected:
        yield _fault(RESET, f"GPU {gpu.index} has uncorrectable memory errors: {gpu.ecc_uncorrected}")
    if gpu.remapping_failed:
        # [M] The GPU has no spare row left.
        yield _fault(REPLACE, f"GPU {gpu.index} could not remap a memory row")
    elif gpu.remapping_pending:
        # [M] A reset makes the driver use the spare row.
        yield _fault(RESET, f"GPU {gpu.index} remaps a memory row once it is reset")


def _fault(level: str, text: str) -> Fault:
    return Fault(level, text[:MOST_TEXT])


def gpu_names(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the names of GPUs, such as `GPU 2`, by their addresses."""
    return {_short(gpu.bus_id): f"GPU {gpu.index}" for gpu in gpus if gpu.bus_id}


def _short(address: str) -> str:
    """Return an address as all of NVIDIA's programs write it in part: 00000000:C6:00.0 is 0000:c6:00 in the log."""
    domain, _colon, device = address.lower().partition(":")
    return f"{domain[-4:]}:{device.partition('.')[0]}"
