"""What a run of 16 to 256 nodes with 8 processes each costs the master. No machine and no Open MPI takes part.

Stand-ins play the nodes: a process prints what mpirun would print of all wrappers, and files of metrics are written as
trainers write them. The master's side is the program itself. The files are in memory; in the measurement of the ticks
slow_files.c lets each operation on them wait, as one on EFS does.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "files" / "node"), str(Path(__file__).parent)]

from deeplearning.runs import attempt as attempts  # noqa: E402
from deeplearning.runs import messages, wrapper  # noqa: E402
from deeplearning.runs import plan as plans  # noqa: E402
from deeplearning.runs.allocation import Allocation, Allocator  # noqa: E402
from deeplearning.runs.attempt import Attempt  # noqa: E402
from deeplearning.runs.folder import Folder  # noqa: E402
from deeplearning.runs.run_log import RunLog  # noqa: E402
from report import Row, write  # noqa: E402

from tests.unit.node.runs_kit import CONFIG, member, record  # noqa: E402

SIZES = (16, 64, 128, 256)
GPUS = 8
END_SECONDS = 10.0
"""Over which the processes end: so long wait wrappers for the master."""
OPERATION_SECONDS = 0.002
TICKS = 3
MEMORY = "/dev/shm"
PLAY = """
import sys, time
lines, seconds = open(sys.argv[1], "rb").readlines(), float(sys.argv[2])
for at in range(0, len(lines), 20):
    sys.stdout.buffer.writelines(lines[at:at + 20])
    sys.stdout.flush()
    time.sleep(seconds * 20 / len(lines))
"""


@dataclass(frozen=True)
class Cost:
    start_seconds: float
    end_seconds: float
    end_bytes: int
    plan_bytes: int
    wrapper_seconds: float
    tick_seconds: float
    """The longest of those in which all ranks have news, the first one included."""
    quiet_seconds: float
    """Of a tick in which no rank has news."""


class Master:
    """An attempt whose processes are played."""

    def __init__(self, path: str, nodes: int) -> None:
        self.folder = Folder(path, "r1")
        for name in ("logs", "metrics", "attempts"):
            os.makedirs(f"{path}/{name}")
        run = {**record("pytorch", "ddp"), "script": "/efs/x/train.py", "python": sys.executable, "data": "/efs/data"}
        run |= {"max_restarts": 3, "run_id": "r1", "requested_by": "me", "requested_at": "2026-01-01T00:00:00Z"}
        self.folder.write("run.json", run)
        self.folder.write("environment.json", {"environment": {}})
        members = [member(rank, gpus=GPUS) for rank in range(1, nodes + 1)]
        allocator = Allocator(CONFIG, self.folder, run, True, lambda _: None, lambda _: None, lambda: False, 0.0)
        ports = tuple(range(20000, 20000 + allocator._port_count(members)))
        surveyed = [
            plans.Node(each.alias, f"10.0.{each.rank // 256}.{each.rank % 256}", GPUS, "ens32", ports, 32)
            for each in members
        ]
        allocation = Allocation(surveyed, 1, {node.name: "boot" for node in surveyed})
        self.attempt = Attempt(0, CONFIG, self.folder, run, allocation, RunLog(self.folder), lambda: False)
        self.ranks = len(self.attempt.plan.processes)

    def start(self) -> None:
        attempts.write_start_files(self.folder, self.attempt.record, 0, self.attempt.plan, "/efs")
        self.attempt._announce()
        self.follow([{"pid": 1000 + rank} for rank in range(self.ranks)], 0)

    def end(self) -> None:
        self.follow([{"time": time.time(), "end": 0}] * self.ranks, END_SECONDS)

    def follow(self, rank_messages: Sequence[dict[str, Any]], seconds: float) -> None:
        """Let the attempt read one message of each rank, as mpirun prints them."""
        with tempfile.NamedTemporaryFile("w", dir=MEMORY) as file:
            for rank, message in enumerate(rank_messages):
                file.writelines(f"[1,{rank}]<stdout>:{line}" for line in messages.lines(message))
            file.flush()
            words = [sys.executable, "-c", PLAY, file.name, str(seconds)]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
                self.attempt._follow(child)

    def train(self, step: int) -> None:
        """Let each rank write a line of metrics, and print one."""
        line = {"epoch": 1, "step": step, "seconds": 3, "steps": 10, "loss": 1.0, "samples_per_second": 1.0}
        for rank in range(self.ranks):
            with open(self.folder.file(f"metrics/rank{rank}.jsonl"), "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self.attempt.handle_message(rank, {"time": time.time(), "line": f"step {step}: loss 1.0"})


def written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def wrapper_seconds(path: str) -> float:
    """Return the processor time in which a wrapper of the last rank finds out what to start."""
    began = time.process_time()
    start = json.loads(Path(path).read_text())
    plan = plans.from_json(start["plan"])
    process = plan.processes[-1]
    plan.node(process.node)
    wrapper.prepare(start, plan, process, "")
    return time.process_time() - began


def ticks(nodes: int) -> Iterator[float]:
    """Yield the wall seconds of each tick, in a process whose file operations below $SLOW_FOLDER can wait."""
    master = Master(f"{os.environ['SLOW_FOLDER']}/r1", nodes)
    master.start()
    delay = ctypes.c_int.in_dll(ctypes.CDLL(None), "slow_microseconds")
    for step in range(1, TICKS + 2):
        if step <= TICKS:
            master.train(step)
        delay.value = round(OPERATION_SECONDS * 1e6)
        began = time.monotonic()
        master.attempt.tick()
        yield time.monotonic() - began
        delay.value = 0


def slow_ticks(nodes: int) -> list[float]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        library = f"{folder}.so"
        source = Path(__file__).with_name("slow_files.c")
        try:
            subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
            environment = {**os.environ, "SLOW_FOLDER": folder, "LD_PRELOAD": library}
            words = [sys.executable, __file__, "--ticks", str(nodes)]
            done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
        finally:
            Path(library).unlink(missing_ok=True)
    answer: list[float] = json.loads(done.stdout)
    return answer


def measure(nodes: int) -> Cost:
    *busy, quiet = slow_ticks(nodes)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        master = Master(f"{folder}/r1", nodes)
        began = time.process_time()
        master.start()
        started = time.process_time() - began
        plan = master.folder.file("attempts/0/plan.json")
        began, bytes_before = time.process_time(), written()
        master.end()
        return Cost(
            start_seconds=started,
            end_seconds=time.process_time() - began,
            end_bytes=written() - bytes_before,
            plan_bytes=os.path.getsize(plan),
            wrapper_seconds=wrapper_seconds(plan),
            tick_seconds=max(busy),
            quiet_seconds=quiet,
        )


def table(costs: dict[int, Cost]) -> str:
    lines = [
        "",
        "Stand-ins play the nodes and Open MPI; the files are in memory. In a tick each open, read, write, stat, "
        f"rename, removal and listing waits {OPERATION_SECONDS * 1000:g} ms. All ends come within {END_SECONDS:g} s.",
        "",
        "| nodes × 8 | all starts: processor | all ends: processor | all ends: written | plan.json | "
        "read by a wrapper: processor | tick with news of all | tick without |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for nodes, cost in costs.items():
        cells = [
            f"{cost.start_seconds:.2f} s",
            f"{cost.end_seconds:.2f} s",
            f"{cost.end_bytes / 1e6:.1f} MB",
            f"{cost.plan_bytes / 1e6:.2f} MB",
            f"{cost.wrapper_seconds * 1000:.0f} ms",
            f"{cost.tick_seconds:.2f} s",
            f"{cost.quiet_seconds:.2f} s",
        ]
        lines.append(f"| {nodes} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rows_of(cost: Cost, nodes: int) -> list[Row]:
    return [
        Row(f"end of a run on {nodes} nodes: processor time of the master", cost.end_seconds, "s", 5),
        Row(f"end of a run on {nodes} nodes: written by the master", cost.end_bytes / 1e6, "MB", 50),
        Row(f"longest tick with {nodes} nodes, at 2 ms for each operation", cost.tick_seconds, "s", 0.5),
    ]


def main(part: str) -> None:
    costs = {}
    for nodes in SIZES:
        costs[nodes] = measure(nodes)
        print(nodes, costs[nodes], flush=True)
    largest = max(SIZES)
    title = "Runs of 16 to 256 nodes with 8 processes each: the master's side"
    write("scale", title, rows_of(costs[largest], largest), table(costs), part)


attempts.is_superseded = lambda config: False
attempts.units.stop_attempt = lambda *_unused: None  # type: ignore[assignment]
if __name__ == "__main__":
    if sys.argv[1:2] == ["--ticks"]:
        print(json.dumps(list(ticks(int(sys.argv[2])))))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "now")
