"""Training runs by the node's own command: their ends, their processes' arguments, and refused requests."""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
import time

import pytest

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cluster
from tests.integration.runs import MASTER, NODES, PYTHON, Runs

# mpirun as a run starts it on made-up nodes, by an agent that fails at once, so that no daemon is waited for.
LAUNCHES = """
import os, subprocess, sys, tempfile
sys.path.insert(0, "/opt/deeplearning/lib")
from deeplearning import config
from deeplearning.contract import open_mpi
from deeplearning.runs import mpirun, plan
addresses = [f"10.0.{240 + n // 250}.{n % 250 + 1}" for n in range(int(sys.argv[1]))]
nodes = [plan.Node(address, address) for address in addresses]
run = {"framework": "pytorch", "distribution": "ddp", "processes_per_node": None, "servers": None, "script_args": []}
made = plan.make(run, nodes)
folder = tempfile.mkdtemp()
with open(f"{folder}/hostfile", "w") as file:
    file.write(mpirun.hostfile(made))
words = list(mpirun.command(made, "r1", 0, config.read_config(), folder))
words = words[words.index("--hostfile"):]
words[words.index("plm_rsh_agent") + 1] = "/bin/false"
environment = {**os.environ, "HWLOC_COMPONENTS": open_mpi.HWLOC_COMPONENTS}
done = subprocess.run(["mpirun", *words], capture_output=True, text=True, env=environment)
print(done.returncode, done.stdout, done.stderr)
"""


@pytest.fixture(scope="module")
def runs(training_cluster: Cluster) -> Runs:
    return Runs(training_cluster)


@pytest.mark.gate
def test_the_first_failing_rank_ends_all_and_its_code_is_the_runs(runs: Runs) -> None:
    run_id = runs.start("fails.py")
    assert runs.wait(run_id) == 7
    result = runs.show(run_id)["result"]
    assert result["sentence"] == f"run {run_id} ended with 7 (deeplearning-worker2, rank 1)"
    assert result["first_failure"]["tail"][0] == "about to fail"
    assert result["first_failure"]["tail"][-1] == "ValueError: wrong on purpose"
    assert runs.causes(run_id) == ["failed"]
    assert runs.left(run_id, NODES) == []


def test_more_than_128_nodes_are_not_too_many_for_open_mpi(runs: Runs) -> None:
    launched = runs.cluster.ssh(MASTER, f"{PYTHON} - 129", input=LAUNCHES)
    # The words of Open MPI 4 and 5.
    sentences = ("unable to reliably start one or more daemons", "lost communication with a remote daemon")
    assert any(sentence in launched.stdout for sentence in sentences), launched
    assert "deadlock" not in launched.stdout and not launched.stdout.startswith("-"), launched.stdout


@pytest.mark.gate
def test_arguments_arrive_as_they_were_given_and_secrets_are_not_seen(runs: Runs) -> None:
    awkward = ["a b", "$HOME", 'it\'s "quoted"', "", "`id`;|&<>*", "{rank}/{world}", "{other}", "é"]
    secret = secrets.token_hex(8)
    run_id = runs.start("tells.py", *awkward, environment={"SECRET": secret})
    assert runs.wait(run_id) == 0
    for rank in range(3):
        shown = json.loads(runs.log(run_id, f"worker{rank}").partition(" ")[2])
        assert shown == {"argv": [*awkward[:5], f"{rank}/3", *awkward[6:]], "shown": False}
    runs.cluster.says(MASTER, f"! test -e {runs.root}/{run_id}/environment.json")
    events = runs.ask("follow", run_id).stdout.splitlines()
    assert json.loads(events[-1])["event"] == "end"
    assert secret not in "".join(events)


def test_servers_end_with_the_workers(runs: Runs) -> None:
    arguments = ("{job_name}", "{task_index}", "{ps_hosts}", "{worker_hosts}")
    run_id = runs.start("serves.py", *arguments, framework="tensorflow", distribution="parameter_server")
    assert runs.wait(run_id) == 0
    name, index, servers, workers = runs.log(run_id, "ps2").split()[1:]
    assert (name, index) == ("ps", "2")
    assert len(servers.split(",")) == len(workers.split(",")) == 3
    assert runs.left(run_id, NODES) == []


def test_what_cannot_be_is_refused_before_anything_starts(runs: Runs) -> None:
    for words, options in {
        "There is no run": {"resume": "nothing"},
        "no such file": {"script": "/efs/scripts/missing.py"},
        "nodes is 4, and only 3 of the members can train": {"nodes": 4},
        "no folder /efs/data/absent": {"data": "absent"},
    }.items():
        request = {"framework": "pytorch", "python": PYTHON, "script": "/efs/scripts/sleeps.py"}
        refused = runs.ask("create", stdin=json.dumps(options if "resume" in options else {**request, **options}))
        assert refused.returncode == 2 and words in refused.stderr, refused
        assert refused.stderr.count("\n") == 1


def test_runs_are_stopped_one_by_one_and_share_no_node(runs: Runs) -> None:
    one = runs.start("sleeps.py", nodes=1)
    runs.running(one)
    two = runs.start("sleeps.py", nodes=2)
    runs.running(two)
    where = {run: {process["node"] for process in runs.show(run)["processes"]} for run in (one, two)}
    assert where[one] == {"deeplearning-worker1"} and where[two] == {"deeplearning-worker2", "deeplearning-worker3"}
    refused = runs.create("sleeps.py", nodes=1, busy="refuse")
    assert refused.returncode == 2 and f"deeplearning-worker1 (run {one})" in refused.stderr
    waiting = runs.start("sleeps.py", nodes=1)
    wait_for(lambda: "in use" in runs.show(waiting)["reason"], 120, "the third waits")

    assert runs.ask("stop", two).returncode == 0
    assert runs.left(two, NODES) == []
    assert runs.wait(two) == 0 and runs.show(two)["state"] == "stopped"
    assert runs.show(one)["state"] == "running" and runs.left(one, NODES)
    runs.running(waiting)
    assert runs.ask("stop", "all").returncode == 0
    assert runs.left(one, NODES) + runs.left(waiting, NODES) == []


def test_processes_save_before_a_run_is_stopped(runs: Runs) -> None:
    """For longer than the unit of a supervisor may take to stop (TimeoutStopSec), if it does not ask for more."""
    run_id = runs.start("saves.py", "18", nodes=2, stop_seconds=300)
    wait_for(lambda: "ready" in runs.log(run_id, "worker0"), 120, "it handles the signal")
    runs.running(run_id)
    started = time.monotonic()
    assert runs.ask("stop", run_id).returncode == 0
    # It waits until they have saved, and not for the rest of their time.
    assert 18 < time.monotonic() - started < 250
    shown = runs.show(run_id)
    assert (shown["state"], shown["checkpoints"]) == ("stopped", ["saved"])
    assert runs.left(run_id, NODES) == []


LIMITS = "/opt/deeplearning/lib/deeplearning/runs/stall.py"
SHORTER = "; ".join(
    f"s/^{name} = .*/{name} = {limit}/" for name, limit in (("QUIET_SECONDS", 8), ("FIRST_SECONDS", 60))
)


@pytest.mark.long
def test_a_stopped_rank_of_three_is_named_with_what_its_machines_cost(runs: Runs) -> None:
    cluster, is_rank = runs.cluster, "pkill -f -o --signal {} /efs/scripts/meets.py"
    cluster.says(MASTER, f"sudo cp {LIMITS} /tmp/limits.py && sudo sed -i '{SHORTER}' {LIMITS}")
    try:
        run_id = runs.start("meets.py")
        wait_for(lambda: ((runs.show(run_id)["progress"] or {}).get("step") or 0) > 5, 120, "it trains")
        cluster.says(NODES[1], is_rank.format("STOP"))
        wait_for(lambda: runs.show(run_id)["state"] == "stalled", 120, "it is stalled")
        (silent,) = runs.show(run_id)["stall"]["silent"]
        assert (silent["node"], silent["rank"], silent["what"]) == (NODES[1], 1, "stopped by a signal")
        status = cluster.play("status.yml")
        assert f"Run {run_id} is stalled: no process has reported progress" in status.output, status.output[-4000:]
        assert "worker 1 on deeplearning-worker2 (stopped by a signal)" in status.output
        assert " USD an hour" in status.output.partition(f"Run {run_id} is stalled")[2].splitlines()[0]
        for process, expected in (("worker0", "in all_reduce"), ("worker1", "stopped by a signal")):
            wait_for(lambda process=process, expected=expected: expected in runs.log(run_id, process), 120, expected)
        cluster.says(NODES[1], is_rank.format("CONT"))
        wait_for(lambda: runs.show(run_id)["state"] == "running", 120, "it continues")
        assert runs.show(run_id)["stalled_seconds"] >= 8
        assert runs.ask("stop", run_id).returncode == 0
        assert runs.show(run_id)["result"]["stalled_seconds"] >= 8
    finally:
        # A run that is left would keep the nodes from all other tests.
        runs.ask("stop", "all")
        cluster.says(MASTER, f"sudo cp /tmp/limits.py {LIMITS}")


@pytest.mark.long
def test_a_run_does_not_need_whoever_follows_it_nor_that_the_master_stays_up(runs: Runs) -> None:
    run_id = runs.start("counts.py", "40")
    following = subprocess.Popen(
        [*runs.cluster.ssh_words(MASTER), shlex.join(["deeplearning", "run", "follow", run_id])],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    with following:
        next(line for line in following.stdout if '"running"' in line)
        following.kill()
    runs.counting(run_id, process="worker1")
    runs.cluster.ssh(MASTER, "sudo systemctl reboot --force")
    wait_for(lambda: runs.cluster.ssh(MASTER, "test -e /efs/runs").returncode == 0, 120, "the master is back")
    ended = wait_for(lambda: runs.show(run_id)["result"], 120, "the run ends")
    assert (ended["state"], runs.causes(run_id)) == ("finished", ["lost", "finished"]), ended
    assert runs.counted(run_id, "worker1")[0] == (0, 3)
