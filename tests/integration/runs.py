"""Runs by the node's own command, with plain Python scripts: what becomes of runs, not of frameworks."""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cluster

MASTER = "deeplearning-master"
NODES = [MASTER, "deeplearning-worker2", "deeplearning-worker3"]
PYTHON = "/usr/bin/python3"

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
    # All ranks meet after each step, as in a collective operation.
    "meets.py": """
        import json, os, pathlib, time
        rank, world = (int(os.environ[f"DEEPLEARNING_{name}"]) for name in ("RANK", "WORLD"))
        folder = pathlib.Path(os.environ["DEEPLEARNING_RUN_DIR"]) / "metrics"
        def all_reduce(step):
            (folder / f"step-{rank}").write_text(str(step))
            while any(int("0" + (folder / f"step-{each}").read_text()) < step for each in range(world)):
                time.sleep(0.05)
        for each in range(world):
            while not (folder / f"step-{each}").exists():
                (folder / f"step-{rank}").touch()
                os.listdir(folder)
                time.sleep(0.5)
        for step in range(1, 100000):
            all_reduce(step)
            with open(folder / f"rank{rank}.jsonl", "a") as file:
                file.write(json.dumps({"epoch": 1, "step": step}) + "\\n")
            time.sleep(0.5)
        """,
    "environment.py": "import json, os; print(json.dumps(dict(os.environ)))",
    "sleeps.py": "import time; time.sleep(600)",
    # At SIGTERM, rank 0 saves for so many seconds, and the others end at once.
    "saves.py": """
        import os, pathlib, signal, sys, time
        rank, folder = os.environ["DEEPLEARNING_RANK"], pathlib.Path(os.environ["DEEPLEARNING_RUN_DIR"])
        def save(number, frame):
            time.sleep(float(sys.argv[1]))
            (folder / "checkpoints" / "saved").touch()
            sys.exit(0)
        if rank == "0":
            signal.signal(signal.SIGTERM, save)
        print("ready", flush=True)
        time.sleep(600)
        """,
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


def repository(folder: Path, files: dict[str, str]) -> str:
    """Make a folder of this machine a repository with these files, and return its commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    git = ["git", "-C", str(folder), "-c", "user.name=me", "-c", "user.email=me@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


class Runs:
    """On one cluster, over ssh, as the cluster's user."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.root = f"/efs/runs/{cluster.name}"
        cluster.says(MASTER, "mkdir -p /efs/scripts")
        for name, text in SCRIPTS.items():
            assert cluster.ssh(MASTER, f"cat > /efs/scripts/{name}", input=textwrap.dedent(text)).returncode == 0

    def ask(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self.cluster.ssh(MASTER, shlex.join(["deeplearning", "run", *words]), input=stdin)

    def create(self, script: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        request = {"framework": "pytorch", "python": PYTHON, "script": str(Path("/efs/scripts", script))}
        return self.ask("create", stdin=json.dumps({**request, "script_args": arguments, **more}))

    def start(self, script: str, *arguments: str, **more: Any) -> str:
        created = self.create(script, *arguments, run_id=f"{Path(script).stem}-{secrets.token_hex(2)}", **more)
        assert created.returncode == 0, created.stderr
        run_id: str = json.loads(created.stdout)["run_id"]
        started = self.ask("start", run_id)
        assert started.returncode == 0, started.stderr
        return run_id

    def show(self, run_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.ask("show", run_id, "--json").stdout)
        return shown

    def running(self, run_id: str) -> None:
        wait_for(lambda: self.show(run_id)["state"] == "running", 120, f"{run_id} runs")

    def counting(self, run_id: str, starts: int = 1, process: str = "worker0") -> None:
        """It has a checkpoint, and its log, which is written every few seconds, tells of so many starts."""
        look = f"ls {self.root}/{run_id}/checkpoints"
        wait_for(lambda: "1" in self.cluster.says(MASTER, look).split(), 120, f"{run_id} has a checkpoint")
        wait_for(lambda: len(self.counted(run_id, process)) >= starts, 120, f"start {starts} of {run_id} is in its log")

    def wait(self, run_id: str) -> int:
        return self.ask("wait", run_id).returncode

    def causes(self, run_id: str) -> list[str]:
        """Why each of its starts has ended."""
        return [attempt["cause"] for attempt in self.show(run_id)["result"]["attempts"]]

    def log(self, run_id: str, process: str) -> str:
        """Nothing, as long as it has printed nothing."""
        return self.cluster.says(MASTER, f"cat {self.root}/{run_id}/logs/*.{process}.log || true")

    def counted(self, run_id: str, process: str = "worker0") -> list[tuple[int, int]]:
        """Of each start of counts.py, from where it went on and with how many."""
        lines = [line.split()[1:] for line in self.log(run_id, process).splitlines()]
        return [(int(words[1]), int(words[3])) for words in lines if words[:1] == ["from"]]

    def left(self, run_id: str, nodes: list[str]) -> list[str]:
        """Processes and units of the run, on these nodes."""
        look = f"pgrep -fa '[/]{run_id}/attempts/'; systemctl list-units --no-legend 'deeplearning-run-{run_id}:*'"
        return [line for node in nodes for line in self.cluster.ssh(node, look).stdout.splitlines()]
