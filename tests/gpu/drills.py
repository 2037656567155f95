"""What goes wrong in clusters, caused on purpose: a frozen rank, a kill and a start at once, a wrong address."""

from __future__ import annotations

import os
import signal
import time

from deeplearning.gpus import faults, kernel_log, nvml
from deeplearning.gpus.reading import Reading

from tests.gpu.launch import Launch
from tests.gpu.session import SCRIPTS, Session, require

START_SECONDS = 90.0
FROZEN = 1
"""The rank that is frozen."""
STOPPED = "T"
QUIET_SECONDS = 3.0
"""Without a line of any rank: a sum takes less by far."""
XID_SECONDS = 10.0
SEGMENTATION_FAULT = 128 + signal.SIGSEGV


def run(session: Session) -> str:
    return "; ".join((frozen_rank(session), start_at_once(session), wrong_address(session)))


def frozen_rank(session: Session) -> str:
    """Freeze a rank in a collective: the others wait, its state shows that it is the one, and all continue with it."""
    ranks = 3 if session.on_processor else 2
    with Launch(session, "frozen", SCRIPTS / "collective.py", ranks=ranks) as launch:
        launch.until(lambda: all(len(launch.lines[rank]) > 3 for rank in range(ranks)), START_SECONDS, "to sum")
        os.kill(launch.pid(FROZEN), signal.SIGSTOP)
        wait_for_silence(launch, ranks)
        states = {rank: state_of(launch.pid(rank)) for rank in range(ranks)}
        stopped = [rank for rank, state in states.items() if state == STOPPED]
        require(stopped == [FROZEN], f"rank {FROZEN} was frozen, and the states of the ranks are {states}")
        before = lines_of(launch, ranks)
        os.kill(launch.pid(FROZEN), signal.SIGCONT)
        launch.until(lambda: min(lines_of(launch, ranks)) > max(before) + 3, START_SECONDS, "to continue")
    return f"with rank {FROZEN} of {ranks} frozen the others waited, its state named it, and all continued"


def lines_of(launch: Launch, ranks: int) -> list[int]:
    return [len(launch.lines[rank]) for rank in range(ranks)]


def wait_for_silence(launch: Launch, ranks: int) -> None:
    """Wait until no rank has printed anything for a while."""
    counts, last = lines_of(launch, ranks), time.monotonic()

    def is_silent() -> bool:
        nonlocal counts, last
        if lines_of(launch, ranks) != counts:
            counts, last = lines_of(launch, ranks), time.monotonic()
        return time.monotonic() - last > QUIET_SECONDS

    launch.until(is_silent, START_SECONDS, "to wait for the frozen rank")


def state_of(pid: int) -> str:
    """Return the letter of a process's state: see proc_pid_stat(5)."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


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
