"""Training runs on the nodes of one cluster, by plain Python scripts: what becomes of runs, not of frameworks."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.machines import Cloud, Cluster, localcloud, wait_for

MASTER = "deeplearning-master"
NODES = [MASTER, "deeplearning-worker2", "deeplearning-worker3"]
STOP_SECONDS = 15

SCRIPTS = {
    # Rank 1 fails while the others would go on for ever.
    "fails.py": """
        import os, sys, time
        if os.environ["DEEPLEARNING_RANK"] == "1":
            print("about to fail")
            try:
                raise ValueError("wrong on purpose")
            except ValueError:
                import traceback; traceback.print_exc()
            sys.exit(7)
        time.sleep(600)
        """,
    "tells.py": """
        import glob, json, os, sys
        secret = os.environ["SECRET"].encode()
        lines = [open(path, "rb").read() for path in glob.glob("/proc/[0-9]*/cmdline") if os.access(path, os.R_OK)]
        print(json.dumps({"argv": sys.argv[1:], "shown": any(secret in line for line in lines)}))
        """,
    "sleeps.py": "import time; time.sleep(600)",
    "serves.py": """
        import os, signal, sys, time
        print(*sys.argv[1:])
        if os.environ["DEEPLEARNING_ROLE"] == "ps":
            signal.pause()
        time.sleep(1)
        """,
    # Goes on from the newest checkpoint, as a trainer does.
    "counts.py": """
        import os, pathlib, sys, time
        folder = pathlib.Path(os.environ["DEEPLEARNING_RUN_DIR"]) / "checkpoints"
        done = max([int(path.name) for path in folder.iterdir() if path.name.isdigit()], default=0)
        print("from", done, "of", os.environ["DEEPLEARNING_WORLD"])
        for step in range(done + 1, int(sys.argv[1]) + 1):
            time.sleep(0.25)
            if os.environ["DEEPLEARNING_RANK"] == "0":
                (folder / ".new").write_text("x")
                os.rename(folder / ".new", folder / str(step))
        """,
}


class Runs:
    """The node's own command, over ssh, as the cluster's user."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.root = f"/efs/runs/{cluster.name}"

    def ask(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self.cluster.ssh(MASTER, shlex.join(["deeplearning", "run", *words]), input=stdin)

    def create(self, script: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        request = {"framework": "pytorch", "python": "/usr/bin/python3", "script": f"/efs/scripts/{script}"}
        return self.ask("create", stdin=json.dumps({**request, "script_args": arguments, **more}))

    def start(self, script: str, *arguments: str, **more: Any) -> str:
        created = self.create(script, *arguments, run_id=f"{script[:-3]}-{secrets.token_hex(2)}", **more)
        assert created.returncode == 0, created.stderr
        run_id: str = json.loads(created.stdout)["run_id"]
        started = self.ask("start", run_id)
        assert started.returncode == 0, started.stderr
        return run_id

    def show(self, run_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.ask("show", run_id, "--json").stdout)
        return shown

    def running(self, run_id: str) -> None:
        wait_for(lambda: self.show(run_id)["state"] == "running", 40, f"{run_id} runs")

    def wait(self, run_id: str) -> int:
        return self.ask("wait", run_id).returncode

    def log(self, run_id: str, process: str) -> str:
        return self.cluster.says(MASTER, f"cat {self.root}/{run_id}/logs/*.{process}.log")

    def left(self, run_id: str, nodes: list[str]) -> list[str]:
        """Processes and units of the run, on these nodes."""
        look = f"pgrep -fa '[/]{run_id}/attempts/'; systemctl list-units --no-legend 'deeplearning-run-{run_id}:*'"
        return [line for node in nodes for line in self.cluster.ssh(node, look).stdout.splitlines()]


@pytest.fixture(scope="session")
def runs(cloud_with_machines: Cloud) -> Iterator[Runs]:
    with cloud_with_machines.cluster(f"t-{secrets.token_hex(3)}", worker_count=2) as cluster:
        made = cluster.play("site.yml")
        assert made.code == 0, made.output[-6000:]
        cluster.says(MASTER, "mkdir -p /efs/scripts")
        for name, text in SCRIPTS.items():
            lines = text.strip("\n").splitlines()
            indent = len(lines[0]) - len(lines[0].lstrip())
            script = "\n".join(line[indent:] for line in lines)
            assert cluster.ssh(MASTER, f"cat > /efs/scripts/{name}", input=script).returncode == 0
        yield Runs(cluster)


def test_the_first_failing_rank_ends_all_and_its_code_is_the_runs(runs: Runs) -> None:
    run_id = runs.start("fails.py")
    assert runs.wait(run_id) == 7
    result = runs.show(run_id)["result"]
    assert result["sentence"] == f"run {run_id} ended with 7 (deeplearning-worker2, rank 1)"
    assert result["first_failure"]["tail"][0] == "about to fail"
    assert result["first_failure"]["tail"][-1] == "ValueError: wrong on purpose"
    assert [attempt["cause"] for attempt in result["attempts"]] == ["failed"]
    assert runs.left(run_id, NODES) == []


def test_arguments_arrive_as_they_were_given_and_secrets_are_not_seen(runs: Runs) -> None:
    awkward = ["a b", "$HOME", 'it\'s "quoted"', "", "`id`;|&<>*", "{rank}/{world}", "{other}", "é"]
    secret = secrets.token_hex(8)
    run_id = runs.start("tells.py", *awkward, environment={"SECRET": secret})
    assert runs.wait(run_id) == 0
    for rank in range(3):
        told = json.loads(runs.log(run_id, f"worker{rank}").partition(" ")[2])
        assert told == {"argv": [*awkward[:5], f"{rank}/3", *awkward[6:]], "shown": False}
    assert runs.cluster.says(MASTER, f"stat -c %a {runs.root}/{run_id}/environment.json") == "600"
    events = runs.ask("follow", run_id).stdout.splitlines()
    assert json.loads(events[-1])["event"] == "end"
    assert secret not in "".join(events)


def test_servers_end_with_the_workers(runs: Runs) -> None:
    given = ("{job_name}", "{task_index}", "{ps_hosts}", "{worker_hosts}")
    run_id = runs.start("serves.py", *given, framework="tensorflow", distribution="parameter_server")
    assert runs.wait(run_id) == 0
    name, index, servers, workers = runs.log(run_id, "ps2").split()[1:]
    assert (name, index) == ("ps", "2")
    assert len(servers.split(",")) == len(workers.split(",")) == 3
    assert runs.left(run_id, NODES) == []


def test_what_cannot_be_is_refused_before_anything_starts(runs: Runs) -> None:
    for words, given in {
        "There is no run": {"resume": "nothing"},
        "no such file": {"script": "/efs/scripts/missing.py"},
        "nodes is 4, and 3 members are there to train": {"nodes": 4},
        "tensorflow is not installed": {"framework": "tensorflow", "python": None},
        "no folder /efs/data/absent": {"data": "absent"},
    }.items():
        request = {"framework": "pytorch", "python": "/usr/bin/python3", "script": "/efs/scripts/sleeps.py"}
        refused = runs.ask("create", stdin=json.dumps(given if "resume" in given else {**request, **given}))
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
    wait_for(lambda: "in use" in runs.show(waiting)["reason"], 20, "the third waits")

    assert runs.ask("stop", two).returncode == 0
    assert runs.left(two, NODES) == []
    assert runs.wait(two) == 0 and runs.show(two)["state"] == "stopped"
    assert runs.show(one)["state"] == "running" and runs.left(one, NODES)
    runs.running(waiting)
    assert runs.ask("stop", "all").returncode == 0
    assert runs.left(one, NODES) + runs.left(waiting, NODES) == []


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
    wait_for(lambda: "1" in runs.cluster.says(MASTER, f"ls {runs.root}/{run_id}/checkpoints"), 20, "a checkpoint")
    runs.cluster.ssh(MASTER, "sudo systemctl reboot --force")
    wait_for(lambda: runs.cluster.ssh(MASTER, "test -e /efs/runs").returncode == 0, 60, "the master is back")
    assert wait_for(lambda: runs.show(run_id)["result"], 90, "the run ends")["state"] == "finished"
    assert "from 0 of 3" in runs.log(run_id, "worker1")
    assert [attempt["cause"] for attempt in runs.show(run_id)["result"]["attempts"]] == ["lost", "finished"]


def test_a_hanging_node_does_not_keep_a_run_from_being_stopped(runs: Runs) -> None:
    run_id = runs.start("sleeps.py")
    runs.running(run_id)
    with frozen(last(runs)["instance_id"]):
        started = time.monotonic()
        stopped = runs.ask("stop", run_id)
        assert time.monotonic() - started < STOP_SECONDS
        assert stopped.returncode == 1 and "deeplearning-worker3 did not answer" in stopped.stderr
        assert runs.left(run_id, NODES[:2]) == []


def test_a_run_goes_on_from_its_checkpoint_without_a_member_that_was_killed(runs: Runs) -> None:
    run_id = runs.start("counts.py", "60", nodes=["deeplearning-worker1", "deeplearning-worker2"])
    runs.running(run_id)
    wait_for(lambda: "1" in runs.cluster.says(MASTER, f"ls {runs.root}/{run_id}/checkpoints"), 20, "a checkpoint")
    killed = next(one for one in runs.cluster.members()["members"] if "deeplearning-worker2" in one["aliases"])
    assert localcloud("fault", "kill", killed["instance_id"]).returncode == 0
    assert runs.wait(run_id) == 0
    shown = runs.show(run_id)
    assert [attempt["cause"] for attempt in shown["result"]["attempts"]] == ["lost", "finished"]
    assert [process["node"] for process in shown["processes"]] == ["deeplearning-worker1"]
    resumed = runs.log(run_id, "worker0").split(" from ")[-1]
    assert int(resumed.split()[0]) > 0 and resumed.startswith(f"{resumed.split()[0]} of 1")


def last(runs: Runs) -> dict[str, Any]:
    found: dict[str, Any] = runs.cluster.members()["members"][-1]
    return found


@contextlib.contextmanager
def frozen(instance: str) -> Iterator[None]:
    assert localcloud("fault", "freeze", instance).returncode == 0
    try:
        yield
    finally:
        # Auto Scaling may have replaced it meanwhile.
        localcloud("fault", "thaw", instance)
