"""A master that supervises runs. Its systemd, ssh and mpirun are scripts, and the other machines are only names."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deeplearning.config import Config
from deeplearning.contract import open_mpi, paths
from deeplearning.runs import mastership, unit
from deeplearning.runs.folder import Folder
from deeplearning.runs.units import supervisor_unit

from tests.unit.node.members_kit import Cluster, FakeAws, Node, write_program
from tests.unit.node.runs_kit import create_run

SSH = """\
# ssh -o BatchMode=yes -o ConnectTimeout=4 NODE SCRIPT
if [ -e {folder}/silent/$5 ]; then
    echo "ssh: connect to host $5 port 22: No route to host" >&2
    exit 255
fi
ON_NODE=$5 exec /bin/sh -c "$6"
"""
SYSTEMD_RUN = """\
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
MPIRUN = """\
# mpirun --hostfile FILE -np COUNT ...: each process starts, and ends with the code of this attempt, or with 0.
code=0
attempt={folder}/attempt-$(basename $(dirname $2))
if [ -e $attempt ]; then . $attempt; fi
last=$(($4 - 1))
for rank in $(seq 0 $last); do echo "[1,$rank]<stdout>:{{\\"pid\\": 1$rank}}"; done
for rank in $(seq 0 $last); do echo "[1,$rank]<stdout>:{{\\"time\\": 1.0, \\"end\\": $code}}"; done
exit $code
"""
PROGRAM = """\
# deeplearning gpus hold REASON, gpus faults --after N, run survey RUN FOLDER PYTHON [OPTION…] ADDRESS PORTS
node=${{ON_NODE:-deeplearning-worker1}}
faults='{{"answering": 8, "message": 5, "log": [], "reading": [], '
faults=$faults'"buses": [], "in_use": ""}}'
if [ "$1 $2 $node" = "gpus $(cat {folder}/hangs 2> /dev/null) deeplearning-worker1" ]; then exec sleep 60; fi
case "$1 $2" in
"gpus hold") mkdir -p {folder}/held; printf %s "$3" > {folder}/held/$node; exit ;;
"gpus faults") cat {folder}/faults/$node 2> /dev/null || echo "$faults"; exit ;;
esac
if [ -e {folder}/before-survey ]; then . {folder}/before-survey; fi
for count in "$@"; do :; done
ports=$(seq -s , 20000 $((19999 + count)))
boot=$(cat /proc/sys/kernel/random/boot_id)
printf '{{"boot_id": "%s", "efa": 0, "interface": "lo", "ports": [%s], ' $boot $ports
printf '"in_use": "", "environment": "", "preparing": "", "problem": "", "faults": %s, ' "$faults"
printf '"held": "%s"}}' "$(cat {folder}/held/$node 2> /dev/null)"
"""


@dataclass
class Master:
    cluster: Cluster
    node: Node

    @property
    def config(self) -> Config:
        return self.cluster.config

    @property
    def aws(self) -> FakeAws:
        return self.cluster.aws

    @property
    def folder(self) -> Path:
        return self.cluster.folder

    def asked(self, *verbs: str) -> list[str]:
        """Return what systemd was asked for, each with the name of the node if that is another one."""
        log = self.folder / "systemctl.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.split(": ")[-1].split()[0] in verbs]

    def active(self, *run_ids: str) -> None:
        """Let these runs be active."""
        units = "".join(f"{supervisor_unit(run_id)}\n" for run_id in run_ids)
        (self.node.root / "run/active-units").write_text(units)

    def silence(self, node: str) -> None:
        (self.folder / "silent").mkdir(exist_ok=True)
        (self.folder / "silent" / node).touch()

    def loses(self, node: str, attempt: int, code: int) -> None:
        """Let a node fall silent during an attempt, and all processes end with this code."""
        (self.folder / "silent").mkdir()
        (self.folder / f"attempt-{attempt}").write_text(f"code={code}; touch {self.folder}/silent/{node}\n")

    def shows(self, node: str, level: str, text: str, where: str = "log") -> None:
        """Let a node have a fault after an attempt, in the kernel's log or in NVML's reading."""
        (self.folder / "faults").mkdir(exist_ok=True)
        shown: dict[str, Any] = {"answering": 8, "message": 9, "log": [], "reading": [], "buses": [], "in_use": ""}
        answer = {**shown, where: [{"level": level, "text": text}]}
        (self.folder / "faults" / node).write_text(json.dumps(answer))

    def heals(self, node: str) -> None:
        (self.folder / "faults" / node).unlink()

    def hangs(self, command: str) -> None:
        """Let `deeplearning gpus COMMAND` on the master hang."""
        (self.folder / "hangs").write_text(command)

    def held(self, node: str) -> Path:
        """Return the file that exists while a node is held."""
        return self.folder / "held" / node

    def before(self, step: str, lines: str) -> None:
        """Let something happen before each survey or each `systemctl list-units`, in the process that does it."""
        (self.folder / f"before-{step}").write_text(f"{lines}\n")

    def create_run(self, run_id: str = "r1", **changes: Any) -> Folder:
        ddp = {
            "framework": "pytorch",
            "distribution": "ddp",
            "processes_per_node": 1,
            "cluster_id": self.config.cluster_id,
        }
        with self.node.here():
            return create_run(self.config, run_id, **{**ddp, "python": sys.executable, "servers": None, **changes})

    def supervise(self, run_id: str = "r1") -> None:
        """Do what the run's unit does, and what systemd does when that has ended."""
        with self.node.here(), sigterm_restored():
            unit.run_unit(run_id, self.config)


def master_of(cluster: Cluster, *workers: int) -> Master:
    """Return a master that has published and applied a list with these workers."""
    programs = {"ssh": SSH, "systemd-run": SYSTEMD_RUN, "mpirun": MPIRUN}
    for name, lines in programs.items():
        write_program(cluster.folder / "bin" / name, lines.format(folder=cluster.folder))
    cluster.monkeypatch.setattr(open_mpi, "FOLDERS", (str(cluster.folder / "bin"),))
    cluster.monkeypatch.setattr(mastership, "signatures", mastership.SignatureChecks(cluster.aws))
    node = cluster.master()
    cluster.workers(*workers)
    program = Path(f"{node.root}{paths.PROGRAM}")
    program.parent.mkdir(parents=True)
    write_program(program, PROGRAM.format(folder=cluster.folder))
    node.publish()
    node.apply()
    return Master(cluster, node)


@contextmanager
def sigterm_restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def threads_joined() -> Iterator[None]:
    """Wait for threads that are abandoned meanwhile: they print, which other tests would read."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)


@contextmanager
def meanwhile(condition: Callable[[], bool], action: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread as soon as a condition holds, and fail if it never does."""
    ended, acted = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.is_set():
            if condition():
                acted.set()
                action()
                return
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if not acted.is_set():
        pytest.fail("it ended before what was to happen meanwhile")
