"""What it takes to publish a member list of 512 machines, and what the timers cost when nothing has changed."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "files" / "node"), str(Path(__file__).parent)]

import pytest  # noqa: E402
from deeplearning.contract import paths  # noqa: E402
from report import Row, write  # noqa: E402

from tests.unit.node.members_kit import Cluster, Node, cluster_in  # noqa: E402

MEMBERS = 512
ROUNDS = 5
TICKS = 20


class Writes:
    """Files below a folder that Python opens for writing: reported by the interpreter, in any module."""

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}/"
        self.count = 0
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(self._folder) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            self.count += 1


def seconds(action: Callable[[], Any]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def cpu_of(node: Node, *words: str) -> float:
    """Processor milliseconds of the command in a process of its own, the interpreter's start included."""
    redirect = {name: f"{node.root}{value}" for name, value in vars(paths).items() if str(value).startswith("/")}
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'files' / 'node')!r})\n"
        f"from deeplearning.contract import paths\nvars(paths).update({redirect!r})\n"
        f"from deeplearning.cli import main\nsys.exit(main({list(words)!r}))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(TICKS):
        subprocess.run([sys.executable, "-I", "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000 / TICKS


def measure(cluster: Cluster) -> list[Row]:
    master = cluster.master()
    cluster.workers(*range(2, MEMBERS + 1))
    cold = seconds(master.publish)
    writes = Writes(Path(cluster.config.efs_mount))
    publishing, applying, quiet = [], [], []
    for number in range(ROUNDS):
        cluster.aws.report(2, state="faulty" if number % 2 == 0 else "ready")
        publishing.append(seconds(master.publish))
        applying.append(seconds(master.apply))
        quiet.append(seconds(master.publish))
    return [
        Row(f"publish a list of {MEMBERS} members that has changed", statistics.median(publishing), "s", 1),
        Row("files written on the shared file system for each", writes.count / ROUNDS, "", 1),
        Row(f"publish the first list of {MEMBERS}, all reports to be read", cold, "s", None),
        Row("find out that nothing is to be published", statistics.median(quiet), "s", None),
        Row(f"check and apply a list of {MEMBERS} members", statistics.median(applying), "s", None),
        Row("size of the list", cluster.path.stat().st_size / 1024, "KiB", None),
        Row(
            "processor time of an idle tick of `members apply`",
            cpu_of(master, "members", "apply", "--repeated"),
            "ms",
            50,
        ),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        rows = measure(cluster_in(Path(folder), patch))
    more = (
        "\nAWS's answers come from this process, so the time of its calls is not in these figures: a publication asks "
        "four times, and reads the reports that have changed, 16 at a time. The rest is the program that nodes run, "
        "with the signature by ssh-keygen."
    )
    write("members", "The member list", rows, more)


if __name__ == "__main__":
    main()
