"""What the launcher needs of Open MPI, with the version that the machines have: Debian 12 has 4, Debian 13 has 5."""

from __future__ import annotations

import json
import re

import pytest

from localcloud.testing import facts
from localcloud.testing.booted import wait_for
from tests.integration.machines import Cluster
from tests.integration.runs import MASTER, NODES, Runs
from tests.open_mpi import PARAMETERS

pytestmark = pytest.mark.long

VERSIONS = {"bookworm": "4.1", "trixie": "5.0"}

# Each process says where it is, and its lines are longer than the pieces that mpirun passes on.
SPEAKS = """
import json, os, socket, sys, time
rank = os.environ["DEEPLEARNING_RANK"]
names = ("OMPI_COMM_WORLD_RANK", "DEEPLEARNING_LOCAL_RANK", "DEEPLEARNING_WORLD", "PLACE")
print(json.dumps([socket.gethostname(), *(os.environ[name] for name in names)]), flush=True)
for line in range(40):
    print(f"{line}:" + rank * int(sys.argv[1]), file=sys.stderr if line % 2 else sys.stdout, flush=True)
"""

# mpirun kills what does not end within a second, so the file is open already.
HEARS = """
import os, signal
folder, rank = os.environ["DEEPLEARNING_RUN_DIR"], os.environ["DEEPLEARNING_RANK"]
file = os.open(f"{folder}/signal-{rank}", os.O_WRONLY | os.O_CREAT)
signal.signal(signal.SIGTERM, lambda number, frame: os.write(file, b"SIGTERM"))
print("ready", flush=True)
signal.pause()
"""

# The other processes go on until mpirun ends them.
DIES = """
import os, signal, time
if os.environ["DEEPLEARNING_RANK"] == "4":
    os.kill(os.getpid(), signal.SIGSEGV)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def runs(training_cluster: Cluster) -> Runs:
    made = Runs(training_cluster)
    for name, text in {"speaks.py": SPEAKS, "hears.py": HEARS, "dies.py": DIES}.items():
        assert training_cluster.ssh(MASTER, f"cat > /efs/scripts/{name}", input=text).returncode == 0
    return made


def test_the_machines_have_the_open_mpi_of_their_release(runs: Runs) -> None:
    for node in NODES:
        printed = runs.cluster.says(node, "mpirun --version").splitlines()[0]
        assert f"(Open MPI) {VERSIONS[facts.SUITE]}" in printed


def test_open_mpi_has_the_parameters_that_runs_set(runs: Runs) -> None:
    listed = runs.cluster.says(MASTER, "ompi_info --all --parsable; ! command -v prte_info || prte_info --all")
    known = set(re.findall(r"[a-z0-9_]+", listed))
    version = list(VERSIONS).index(facts.SUITE)
    names = {name: names[version] for name, names in PARAMETERS.items()}
    assert {name for name in names.values() if name} <= known
    assert not {name for name, called in names.items() if not called} & known


@pytest.mark.parametrize("length", [10, 3000, 20000])
def test_each_process_runs_where_it_is_planned_and_its_lines_are_its_own(runs: Runs, length: int) -> None:
    run_id = runs.start("speaks.py", str(length), processes_per_node=3, environment={"PLACE": "a 'b' $c"})
    assert runs.wait(run_id) == 0, runs.show(run_id)["result"]
    hosts = [runs.cluster.says(node, "hostname") for node in NODES]
    for rank in range(9):
        words = [line.partition(" ")[2] for line in runs.log(run_id, f"worker{rank}").splitlines()]
        assert json.loads(words[0]) == [hosts[rank // 3], str(rank), str(rank % 3), "9", "a 'b' $c"]
        assert sorted(words[1:]) == sorted(f"{line}:{str(rank) * length}" for line in range(40))
    assert runs.left(run_id, NODES) == []


def test_a_stopped_run_ends_by_sigterm_on_every_node(runs: Runs) -> None:
    run_id = runs.start("hears.py", processes_per_node=2)
    wait_for(lambda: all("ready" in runs.log(run_id, f"worker{rank}") for rank in range(6)), 120, "all are ready")
    assert runs.ask("stop", run_id).returncode == 0
    assert runs.show(run_id)["state"] == "stopped"
    assert runs.left(run_id, NODES) == []
    look = f"cat {runs.root}/{run_id}/signal-*"
    wait_for(lambda: runs.cluster.says(MASTER, look) == "SIGTERM" * 6, 120, "each process has had the signal")


def test_a_process_that_a_signal_ends_is_named_with_it(runs: Runs) -> None:
    run_id = runs.start("dies.py", processes_per_node=2)
    assert runs.wait(run_id) == 139
    assert runs.show(run_id)["result"]["sentence"] == f"run {run_id} ended with 139 (deeplearning-worker3, rank 4)"
    assert runs.left(run_id, NODES) == []
