"""An attempt of three processes with their wrappers, and with a script in place of mpirun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deeplearning.runs import attempt as attempts
from deeplearning.runs import units
from deeplearning.runs.allocation import Allocation
from deeplearning.runs.attempt import Attempt
from deeplearning.runs.folder import Folder
from deeplearning.runs.plan import Node
from deeplearning.runs.run_log import RunLog

from tests.unit.node.runs_kit import CONFIG

ROOT = Path(__file__).resolve().parents[3]
MPIRUN = """
import os, signal, subprocess, sys, threading
# Starts three wrappers, and tags what they print. As mpirun does, it passes user signals on; at a SIGTERM, or when a
# wrapper has failed, it ends all wrappers, and kills them a second later.
lock = threading.Lock()
program = "import sys; from deeplearning import cli; from deeplearning.runs import caches; "
program += "caches.FOLDER = f'{sys.argv[2]}-cache'; sys.exit(cli.main(['run', 'exec', sys.argv[1]]))"
def started(rank):
    own = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank)}
    words = [sys.executable, "-c", program, sys.argv[1], os.path.dirname(sys.argv[1])]
    return subprocess.Popen(words, env=own, stdout=subprocess.PIPE)
wrappers = [started(rank) for rank in range(3)]
def pass_on(number, frame=None):
    for each in wrappers:
        each.send_signal(number)
def end(*_unused):
    pass_on(signal.SIGTERM)
    threading.Timer(1, pass_on, [signal.SIGKILL]).start()
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, pass_on)
signal.signal(signal.SIGTERM, end)
def copy(rank):
    for line in wrappers[rank].stdout:
        with lock:
            sys.stdout.buffer.write(b"[1,%d]<stdout>:%s" % (rank, line))
            sys.stdout.buffer.flush()
    if wrappers[rank].wait() > 0:
        end()
threads = [threading.Thread(target=copy, args=(rank,)) for rank in range(3)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


@contextmanager
def three_processes(
    run: Folder,
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_requested: Callable[[], bool] = lambda: False,
    **changes: Any,
) -> Iterator[Attempt]:
    """Yield an attempt of a run whose record has these changes. Signals reach mpirun as from systemd."""
    record = {**run.run(), "framework": "pytorch", "distribution": "ddp", "script": str(script), "script_args": []}
    run.write("run.json", {**record, "python": sys.executable, **changes})
    run.write("environment.json", {"environment": {}})
    nodes = [Node(f"deeplearning-worker{n}", f"127.0.0.{n}", ports=(20000, 20001)) for n in (1, 2, 3)]
    allocation = Allocation(nodes, 3, {node.name: "boot" for node in nodes})
    attempt = Attempt(0, CONFIG, run, run.run(), allocation, RunLog(run), stop_requested)
    mpirun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def recorded(words: list[str], **options: Any) -> subprocess.Popen[bytes]:
        mpirun.append(popen(words, env={**os.environ, "PYTHONPATH": str(ROOT / "files/node")}, **options))
        return mpirun[-1]

    def signals(number: signal.Signals) -> Callable[[str, int], subprocess.Popen[bytes]]:
        def send(run_id: str, attempt: int) -> subprocess.Popen[bytes]:
            mpirun[0].send_signal(number)
            return popen(["true"])

        return send

    monkeypatch.setattr(attempts.subprocess, "Popen", recorded)
    monkeypatch.setattr(
        attempts.mpirun,
        "command",
        lambda _plan, _id, _number, _config, files: [sys.executable, "-c", MPIRUN, f"{files}/plan.json"],
    )
    asked = {"request_stacks": signal.SIGUSR1, "request_end": signal.SIGUSR2, "stop_attempt": signal.SIGTERM}
    for name, number in asked.items():
        monkeypatch.setattr(units, name, signals(number))
    monkeypatch.setattr(attempts, "is_superseded", lambda config: False)
    monkeypatch.setattr(attempts, "stop_leftovers", lambda *_unused: {})
    try:
        yield attempt
    finally:
        for each in mpirun:
            each.kill()
            each.wait()
