"""What goes wrong in clusters, caused on purpose: a frozen rank, a sum that does not end, a kill and a start at once, a
wrong address."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from unittest import mock

from deeplearning.contract.run_stall import STALLED
from deeplearning.gpus import faults, kernel_log, nvml
from deeplearning.gpus.reading import Reading
from deeplearning.runs import stall
from deeplearning.runs.stacks import STATES

from tests.gpu.launch import Launch
from tests.gpu.session import SCRIPTS, Session
from tests.steps import require

START_SECONDS = 90.0
FROZEN = 1
"""The rank that is frozen."""
QUIET_SECONDS = 3.0
"""Without a line of any rank: a sum takes less by far."""
STALL_SECONDS = 60.0
LONG_SUM_SECONDS, SHORT_SUM_SECONDS = 600.0, 10.0
"""How long a sum may take: longer than a rank is frozen, and shorter."""
GIVE_UP_SECONDS = 150.0
"""PyTorch 2.11 ended a rank a minute after its sum's limit."""
XID_SECONDS = 10.0
SEGMENTATION_FAULT = 128 + signal.SIGSEGV


def run(session: Session) -> str:
    return "; ".join((frozen_rank(session), endless_sum(session), start_at_once(session), wrong_address(session)))


def frozen_rank(session: Session) -> str:
    """Freeze a rank in a collective: the run stalls, names that rank, and continues when the rank does."""
    ranks = 3 if session.on_processor else 2
    with summing(session, "frozen", ranks, LONG_SUM_SECONDS) as launch, short_limits():
        freeze(launch)
        started = time.monotonic()
        launch.until(lambda: launch.state["state"] == STALLED, STALL_SECONDS, "to stall")
        waited = time.monotonic() - started
        silent = [(process["rank"], process["what"]) for process in launch.state["stall"]["silent"]]
        require(silent == [(FROZEN, STATES["T"])], f"rank {FROZEN} was frozen, and the run names {silent}")
        os.kill(launch.pid(FROZEN), signal.SIGCONT)
        launch.until(lambda: launch.state["state"] != STALLED, STALL_SECONDS, "to continue")
    return f"the run stalled {waited:.0f} s after rank {FROZEN} of {ranks} was frozen, named it, and continued with it"


def endless_sum(session: Session) -> str:
    """Freeze a rank for longer than a sum may take: the other one ends, and NCCL records what it has waited for."""
    with summing(session, "endless-sum", 2, SHORT_SUM_SECONDS) as launch:
        freeze(launch)
        started = time.monotonic()
        launch.until(lambda: launch.exit_code(0) is not None, GIVE_UP_SECONDS, "to give up a sum", failing=True)
        waited = time.monotonic() - started - SHORT_SUM_SECONDS
        require(launch.exit_code(0), "a rank that waited for a frozen one has succeeded")
        record = Path(launch.folder.file("logs/flight-recorder.rank0"))
        recorded = record.read_bytes() if record.exists() else b""
    if session.on_processor:
        return "an endless sum ends its rank"
    require(b"all_reduce" in recorded, f"{record.name} has {len(recorded)} bytes and names no all-reduce")
    return f"an endless sum ends its rank {waited:.0f} s after its limit, with a record of {len(recorded)} bytes"


def summing(session: Session, name: str, ranks: int, seconds: float) -> Launch:
    return Launch(session, name, SCRIPTS / "collective.py", [seconds], ranks=ranks)


def freeze(launch: Launch) -> None:
    """Freeze one rank when all have begun to sum."""
    ranks = range(len(launch.plan.processes))
    launch.until(lambda: all(len(launch.lines[rank]) > 3 for rank in ranks), START_SECONDS, "to sum")
    os.kill(launch.pid(FROZEN), signal.SIGSTOP)


def short_limits() -> contextlib.AbstractContextManager[object]:
    """Let a run stall after seconds, and not after ten minutes."""
    return mock.patch.multiple(stall, FIRST_SECONDS=0.0, QUIET_SECONDS=QUIET_SECONDS)


def start_at_once(session: Session) -> str:
    """Kill a process that holds the GPU's memory, and start the next one at once: it gets as much."""
    with Launch(session, "killed", SCRIPTS / "memory.py") as launch:
        launch.until(lambda: bool(launch.lines[0]), START_SECONDS, "to take memory")
        first = launch.result(0)["bytes"]
        os.kill(launch.pid(0), signal.SIGKILL)
        launch.until(lambda: launch.exit_code(0) is not None, START_SECONDS, "to be killed", failing=True)
        failure = launch.table.failure or {}
        require(failure.get("signal") == "SIGKILL", f"the killed rank is reported as {failure}")
        with Launch(session, "restarted", SCRIPTS / "memory.py") as again:
            again.until(lambda: bool(again.lines[0]), START_SECONDS, "to take memory again")
            second = again.result(0)["bytes"]
    require(second >= 0.9 * first, f"the second start got {second >> 20} MiB, and the first {first >> 20}")
    return f"after kill -9 the next start got {second >> 20} of {first >> 20} MiB"


def wrong_address(session: Session) -> str:
    """Let a program use a wrong address: its own fault. On a GPU, the kernel log has an Xid that says so."""
    messages = kernel_log.messages()
    before = messages[-1][0] if messages else kernel_log.NONE
    device = "cpu" if session.on_processor else "gpu"
    with Launch(session, "wrong-address", SCRIPTS / "wrong_address.py", [device]) as launch:
        launch.until(lambda: launch.exit_code(0) is not None, START_SECONDS, "to fail", failing=True)
        code, tail = launch.exit_code(0), " ".join(launch.lines[0])
    if session.on_processor:
        require(code == SEGMENTATION_FAULT, f"a segmentation fault is reported as {code}")
        return "a wrong address ends the program alone (SIGSEGV)"
    require(code == 1 and "illegal" in tail, f"a kernel with a wrong address ended with {code}: {tail}")
    reading = nvml.read()
    broken = [fault.text for fault in faults.of_reading(reading) if fault.is_the_nodes]
    require(not broken, f"after a program's error the node counts as broken: {broken}")
    if not messages:
        return "a wrong address ends the program alone; no kernel log here, so no Xid was seen"
    return f"a wrong address is the program's fault: {xid_after(before, reading)}"


def xid_after(before: int, reading: Reading) -> str:
    """Return what the kernel log says of a GPU since that message: the driver may need a moment to write it."""
    names = faults.gpu_names(reading.gpus)
    deadline = time.monotonic() + XID_SECONDS
    while not (reported := faults.of_log((text for _number, text in kernel_log.messages(after=before)), names)):
        require(time.monotonic() < deadline, f"the kernel log has had no Xid for {XID_SECONDS:g} s")
        time.sleep(0.2)
    blamed = [fault.text for fault in reported if fault.is_the_nodes]
    require(not blamed, f"a program's error counts as the node's: {blamed}")
    require(any(fault.level == faults.PROGRAM for fault in reported), f"no Xid is the program's: {reported}")
    return reported[0].text
