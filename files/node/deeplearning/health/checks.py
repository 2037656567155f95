"""Judge what the probes measured. Pure functions, each from measurements to a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from deeplearning.contract.problems import CHECKS
from deeplearning.contract.tables import join_names
from deeplearning.gpus.evidence import Evidence
from deeplearning.gpus.faults import LEVELS
from deeplearning.gpus.reading import Reading

MIB = 2**20
SHOWN = 4
"""How many of the names that fail are listed."""


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str
    problem: str = ""
    """Which of several problems it is, in a word for programs. The operator's side knows what to do about it."""


some = partial(join_names, most=SHOWN)


def disk(free: int, total: int) -> Check:
    detail = f"{free // MIB} of {total // MIB} MiB free on /"
    return Check("disk", free >= CHECKS["disk"].threshold * MIB, detail)


def memory(available_kib: int) -> Check:
    mib = available_kib // 1024
    return Check("memory", mib >= CHECKS["memory"].threshold, f"{mib} MiB available")


def clock(offset: float) -> Check:
    """Compare with the file system's own clock, which all nodes share."""
    detail = f"{abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} the shared file system"
    return Check("clock", abs(offset) <= CHECKS["clock"].threshold, detail)


def membership(alias: str, applied: int, timers: Mapping[str, str]) -> Check:
    stopped = sorted(name for name, state in timers.items() if state != "active")
    if stopped:
        return Check("member", False, f"not running: {', '.join(stopped)}", "timers")
    return Check("member", True, f"{alias}, list {applied}")


def names(wrong: Mapping[str, str]) -> Check:
    detail = some([f"{name} resolves to {address or 'nothing'}" for name, address in sorted(wrong.items())])
    return Check("names", not wrong, detail or "all resolve")


def ssh(failed: Mapping[str, str], count: int) -> Check:
    detail = some([f"{alias}: {reason}" for alias, reason in sorted(failed.items())])
    return Check("ssh", not failed, detail or f"{count} of {count} answer")


def shared(missing: Sequence[str], count: int) -> Check:
    """Check that the files which all nodes have just written are visible."""
    detail = f"no file seen of {some(missing)}" if missing else f"read what {count} wrote"
    return Check("efs", not missing, detail, "other" if missing else "")


def gpus(reading: Reading, expected: int | None, others: Mapping[str, int]) -> Check:
    count = reading.answering
    if reading.lost or expected is not None and count != expected:
        words = [f"GPU {gpu.index}: {gpu.lost}" for gpu in reading.lost]
        detail = f"{count} answer, {'the type has' if expected is not None else 'of'} {expected or len(reading.gpus)}"
        return Check("gpus", False, f"{detail} ({some(words)})" if words else detail)
    differing = sorted(alias for alias, other in others.items() if other != count)
    if differing:
        return Check("gpus", False, f"{count}, but another number on {some(differing)}", "differ")
    return Check("gpus", True, str(count))


def driver(reading: Reading) -> Check:
    return Check("driver", reading.error is None, reading.error or reading.driver or "")


def faults(evidence: Evidence) -> Check:
    """Check what the kernel's log since boot, and NVML, report of the GPUs. The problem is the worst level.

    Faults of programs, and events, are shown; they say nothing about the node.
    """
    reported = [*evidence.log, *(evidence.reading or ())]
    own = [fault for fault in reported if fault.is_the_nodes]
    if own:
        worst = max((fault.level for fault in own), key=LEVELS.index)
        return Check("faults", False, some([fault.text for fault in own]), worst)
    if reported:
        return Check("faults", True, f"none of the node's: {some([fault.text for fault in reported])}")
    return Check("faults", True, "none since boot")


def efa_losses(losses: Mapping[str, int]) -> Check:
    """Show the counters of EFA, of which none is a fault by itself."""
    return Check("efa", True, ", ".join(f"{name} {count}" for name, count in losses.items()))


def bandwidth(peer: str, gigabits: float, floor: float) -> Check:
    detail = f"{gigabits:.2f} Gbit/s to {peer}, at least {floor:g} is expected"
    return Check("bandwidth", gigabits >= floor, detail)


def all_reduce(correct: bool, ranks: int, gigabits: float, floor: float) -> Check:
    """Check a sum over all ranks, made by the distribution of the run that is planned."""
    if not correct:
        return Check("all-reduce", False, f"the sum over {ranks} ranks is wrong", "wrong")
    detail = f"{ranks} ranks, {gigabits:.2f} Gbit/s each, at least {floor:g} is expected"
    return Check("all-reduce", gigabits >= floor, detail)


def space(free: int) -> Check:
    detail = f"{free // MIB} MiB free for checkpoints"
    return Check("space", free >= CHECKS["space"].threshold * MIB, detail)
