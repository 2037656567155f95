"""deeplearning tensorboard start|stop ID|all: TensorBoard for one run or all, as a unit of its own on this node.

It listens on this node alone; people reach it through an ssh tunnel.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from deeplearning import Refusal, paths
from deeplearning.config import Config, read_config
from deeplearning.run.folder import RUN_ID

ALL = "all"
ADDRESS = "127.0.0.1"
FIRST_PORT, LAST_PORT = 6006, 6105
SECONDS = 90.0
"""TensorBoard imports for long on a small machine."""
UNIT = "deeplearning-tensorboard"


def main(argv: list[str]) -> int:
    asking = argparse.ArgumentParser(prog="deeplearning tensorboard", description="TensorBoard on this node.")
    asking.add_argument("verb", choices=["start", "stop"], help="JSON is printed")
    asking.add_argument("run", help="the run's id, or all")
    asked = asking.parse_args(argv)
    if not re.fullmatch(RUN_ID, asked.run):
        raise Refusal(f"{asked.run!r} is no run's id: deeplearning run list shows them.")
    print(json.dumps(start(asked.run, read_config()) if asked.verb == "start" else stop(asked.run)))
    return 0


def start(run: str, config: Config) -> dict[str, Any]:
    """What runs already is left as it is."""
    folder = folder_of(run, config)
    port = port_of(run)
    changed = port is None
    if port is None:
        port = _start(run, folder, config)
    return {"changed": changed, "run": run, "address": ADDRESS, "port": port, "folder": str(folder)}


def stop(run: str) -> dict[str, Any]:
    """With all, whatever TensorBoard of ours is on this node."""
    pattern = f"{UNIT}-*.service" if run == ALL else unit_of(run)
    listed = _run("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", pattern).stdout
    units = [line.split()[0] for line in listed.splitlines() if line.strip()]
    if units:
        done = _run(*_as_root(), "systemctl", "stop", *units)
        if done.returncode:
            raise Refusal(f"TensorBoard cannot be stopped: {_last(done.stderr)}")
    return {"changed": bool(units), "stopped": units}


def folder_of(run: str, config: Config) -> Path:
    runs = Path(config.efs_mount, "runs", config.cluster)
    if run == ALL:
        return runs
    if not (runs / run).is_dir():
        raise Refusal(f"there is no run {run} in {runs}: deeplearning run list shows them.")
    return runs / run / "tensorboard"


def unit_of(run: str) -> str:
    return f"{UNIT}-{run}.service"


def port_of(run: str) -> int | None:
    """Where it listens, if it runs: its description says it."""
    shown = _run("systemctl", "show", unit_of(run), "--property=ActiveState,Description").stdout
    found = re.search(rf"^Description=.* {re.escape(ADDRESS)}:(\d+)$", shown, re.MULTILINE)
    return int(found[1]) if found and "ActiveState=active" in shown else None


def _start(run: str, folder: Path, config: Config) -> int:
    program = _program()
    for port in range(FIRST_PORT, LAST_PORT + 1):
        if not _is_free(port):
            continue
        started = _run(
            *_as_root(),
            "systemd-run",
            f"--unit={unit_of(run)}",
            f"--description=TensorBoard of {run} on {ADDRESS}:{port}",
            f"--uid={config.user}",
            "--collect",
            "--quiet",
            str(program),
            "--logdir",
            str(folder),
            "--host",
            ADDRESS,
            "--port",
            str(port),
        )
        if started.returncode:
            raise Refusal(f"TensorBoard cannot be started: {_last(started.stderr)}")
        # Another program may take the port in between: TensorBoard ends then.
        if _answers(run, port):
            return port
        if _is_free(port):
            raise Refusal(f"TensorBoard ended at its start: see journalctl -u {unit_of(run)} on the master.")
    raise Refusal(f"all ports from {FIRST_PORT} to {LAST_PORT} are taken on this node: stop what has them.")


def _program() -> Path:
    found = sorted(Path(paths.ENVIRONMENTS).glob("[!.]*/bin/tensorboard"))
    if not found:
        raise Refusal("TensorBoard is not on this node: the environment of tensorflow brings it (tensorboard.yml).")
    return found[0]


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((ADDRESS, port))
        except OSError:
            return False
    return True


def _answers(run: str, port: int) -> bool:
    """Until it does, or has ended."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if port_of(run) != port:
            return False
        try:
            with urllib.request.urlopen(f"http://{ADDRESS}:{port}/data/environment", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise Refusal(f"TensorBoard does not answer after {SECONDS:.0f} s: see journalctl -u {unit_of(run)} on the master.")


def _as_root() -> list[str]:
    return [] if os.geteuid() == 0 else ["sudo", "-n"]


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
