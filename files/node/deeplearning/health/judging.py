"""What is made of what was seen: pure functions, each from measurements to a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MIB = 2**20
ROOT_FREE_MIB = 2048
MEMORY_FREE_MIB = 256
CHECKPOINTS_FREE_MIB = 10240
CLOCK_SECONDS = 2.0
SHOWN = 4
"""So many names are told of those that fail; of 500 nobody reads all."""


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str
    problem: str = ""
    """Which of several problems it is, a word for programs. What to do about it is the operator's side to say."""


def some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def disk(free: int, total: int) -> Check:
    detail = f"{free // MIB} of {total // MIB} MiB free on /"
    return Check("disk", free >= ROOT_FREE_MIB * MIB, detail)


def memory(available_kib: int) -> Check:
    mib = available_kib // 1024
    return Check("memory", mib >= MEMORY_FREE_MIB, f"{mib} MiB available")


def clock(offset: float) -> Check:
    """Against the file system's own clock, which all nodes share."""
    detail = f"{abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} the shared file system"
    return Check("clock", abs(offset) <= CLOCK_SECONDS, detail)


def membership(known: bool, alias: str, applied: int, timers: Mapping[str, str]) -> Check:
    stopped = sorted(name for name, state in timers.items() if state != "active")
    if not known:
        return Check("member", False, "no list of members has reached it")
    if stopped:
        return Check("member", False, f"not running: {', '.join(stopped)}", "timers")
    return Check("member", True, f"{alias}, list {applied}")


def names(wrong: Mapping[str, str]) -> Check:
    detail = some([f"{name} leads to {found or 'nothing'}" for name, found in sorted(wrong.items())])
    return Check("names", not wrong, detail or "all resolve")


def ssh(failed: Mapping[str, str], asked: int) -> Check:
    detail = some([f"{alias}: {word}" for alias, word in sorted(failed.items())])
    return Check("ssh", not failed, detail or f"{asked} of {asked} answer")


def shared(missing: Sequence[str], asked: int) -> Check:
    """Files that the others have just written."""
    detail = f"no file seen of {some(missing)}" if missing else f"read what {asked} wrote"
    return Check("efs", not missing, detail, "other" if missing else "")


def gpus(seen: int, due: int | None, others: Mapping[str, int]) -> Check:
    if due is not None and seen != due:
        return Check("gpus", False, f"nvidia-smi lists {seen}, the type has {due}")
    differing = sorted(alias for alias, count in others.items() if count != seen)
    if differing:
        return Check("gpus", False, f"{seen}, but another number on {some(differing)}", "differ")
    return Check("gpus", True, str(seen))


def driver(version: str, problem: str) -> Check:
    return Check("driver", bool(version), version or problem)


def xid(lines: Sequence[str]) -> Check:
    """The driver's reports of faults of a GPU, in the kernel's log since boot."""
    detail = f"{len(lines)} since boot, the last: {lines[-1].strip()}" if lines else "none since boot"
    return Check("xid", not lines, detail)


def bandwidth(peer: str, gigabits: float, floor: float) -> Check:
    detail = f"{gigabits:.2f} Gbit/s to {peer}, at least {floor:g} is due"
    return Check("bandwidth", gigabits >= floor, detail)


def all_reduce(right: bool, ranks: int, gigabits: float, floor: float) -> Check:
    """What ranks have added up together, by the means of the run to come."""
    if not right:
        return Check("all-reduce", False, f"the sum over {ranks} ranks is wrong", "wrong")
    detail = f"{ranks} ranks, {gigabits:.2f} Gbit/s each, at least {floor:g} is due"
    return Check("all-reduce", gigabits >= floor, detail)


def space(free: int) -> Check:
    detail = f"{free // MIB} MiB free for checkpoints"
    return Check("space", free >= CHECKPOINTS_FREE_MIB * MIB, detail)
