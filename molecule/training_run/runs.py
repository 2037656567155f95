"""What each run has left, and nothing of it runs any more: runs.py CLUSTER"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

(CLUSTER,) = sys.argv[1:]
ROOT = f"/efs/runs/{CLUSTER}"
CONFIGURATION = f"{os.environ['MOLECULE_SCENARIO_DIRECTORY']}/.deeplearning/{CLUSTER}.ssh_config"


def ssh(command: str) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", CONFIGURATION, "-o", "BatchMode=yes", "deeplearning-master", command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def output(command: str) -> str:
    done = ssh(command)
    assert done.returncode == 0, f"{command}: {done}"
    return done.stdout.strip()


def read(run: str, name: str) -> dict[str, Any]:
    return dict(json.loads(output(f"cat {ROOT}/{run}/{name}.json")))


assert output(f"ls {ROOT}").split() == ["fails", "finishes", "stays"]

ended = {run: read(run, "result") for run in ("fails", "finishes", "stays")}
assert {run: (result["state"], result["exit_code"]) for run, result in ended.items()} == {
    "fails": ("failed", 7),
    "finishes": ("finished", 0),
    "stays": ("stopped", 0),
}
assert ended["fails"]["first_failure"]["tail"][-1] == "this went wrong"
assert ended["finishes"]["first_failure"] is None

assert read("finishes", "started_with") == {
    "arguments": ["finish", "a b", "$HOME", "", "0 of 1"],
    "secret": "two 'words'",
}
assert ssh(f"grep -r \"two 'words'\" {ROOT}/finishes --exclude=started_with.json").returncode == 1

assert ssh("pgrep -f [s]cript.py").returncode == 1
assert output("systemctl list-units --plain --no-legend 'deeplearning-run*.service'") == ""
