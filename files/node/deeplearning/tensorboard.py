"""deeplearning tensorboard start|stop ID|all: run TensorBoard for one run or for all, in a systemd unit of its own.

It listens on the loopback address only. People reach it through an ssh tunnel.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from deeplearning import programs
from deeplearning.config import Config, read_config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.identifiers import ALL_RUNS, is_run_id
from deeplearning.run import units
from deeplearning.run.identity import as_root

ADDRESS = "127.0.0.1"
FIRST_PORT, LAST_PORT = 6006, 6105
SECONDS = 90.0
"""Starting TensorBoard takes long on a small machine."""
UNIT = "deeplearning-tensorboard"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deeplearning tensorboard", description="TensorBoard on this node.")
    parser.add_argument("verb", choices=["start", "stop"], help="JSON is printed")
    parser.add_argument("run", help="the run's id, or all")
    options = parser.parse_args(argv)
    if options.run != ALL_RUNS and not is_run_id(options.run):
        raise UserError(f"{options.run!r} is no run's id: deeplearning run list shows them.")
    print(json.dumps(start(options.run, read_config()) if options.verb == "start" else stop(options.run)))
    return 0


def start(run: str, config: Config) -> dict[str, Any]:
    """Start TensorBoard, unless it runs already."""
    folder = folder_of(run, config)
    port = port_of(run)
    changed = port is None
    if port is None:
        port = _start(run, folder, config)
    return {"changed": changed, "run": run, "address": ADDRESS, "port": port, "folder": str(folder)}


def stop(run: str) -> dict[str, Any]:
    """Stop the TensorBoard of a run, or every one that was started here."""
    pattern = f"{UNIT}-*.service" if run == ALL_RUNS else unit_of(run)
    active = units.active_units(pattern)
    if active:
        units.control("stop", *active)
    return {"changed": bool(active), "stopped": active}


def folder_of(run: str, config: Config) -> Path:
    runs = Path(paths.runs(config.efs_mount, config.cluster))
    if run == ALL_RUNS:
        return runs
    if not (runs / run).is_dir():
        raise UserError(f"{runs} has no run {run}: deeplearning run list shows all.")
    return runs / run / "tensorboard"


def unit_of(run: str) -> str:
    return f"{UNIT}-{run}.service"


def port_of(run: str) -> int | None:
    """Return the port that it listens on, which its unit's description names; None if it does not run."""
    shown = programs.run("systemctl", "show", unit_of(run), "--property=ActiveState,Description").stdout
    match = re.search(rf"^Description=.* {re.escape(ADDRESS)}:(\d+)$", shown, re.MULTILINE)
    return int(match[1]) if match and "ActiveState=active" in shown else None


def _start(run: str, folder: Path, config: Config) -> int:
    program = _program()
    for port in range(FIRST_PORT, LAST_PORT + 1):
        if not _is_free(port):
            continue
        started = programs.run(
            *as_root("systemd-run", f"--unit={unit_of(run)}", f"--uid={config.user}", "--collect", "--quiet"),
            *(f"--description=TensorBoard of {run} on {ADDRESS}:{port}", str(program)),
            *("--logdir", str(folder), "--host", ADDRESS, "--port", str(port)),
        )
        if started.returncode:
            raise UserError(f"TensorBoard cannot be started: {programs.last_line(started.stderr)}")
        # Another program may take the port in between: TensorBoard ends then.
        if _answers(run, port):
            return port
        if _is_free(port):
            raise UserError(f"TensorBoard ended at its start: see journalctl -u {unit_of(run)} on the master.")
    raise UserError(f"all ports from {FIRST_PORT} to {LAST_PORT} are taken on this node: stop what has them.")


def _program() -> Path:
    programs = sorted(Path(paths.ENVIRONMENTS).glob("[!.]*/bin/tensorboard"))
    if not programs:
        raise UserError(
            "TensorBoard is not on this node: install the environment of tensorflow (ansible-playbook "
            "deeplearning.aws.tensorboard)."
        )
    return programs[0]


def _is_free(port: int) -> bool:
    with socket.socket() as test:
        test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            test.bind((ADDRESS, port))
        except OSError:
            return False
    return True


def _answers(run: str, port: int) -> bool:
    """Wait until it answers, and return False if it ends instead."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if port_of(run) != port:
            return False
        try:
            with urllib.request.urlopen(f"http://{ADDRESS}:{port}/data/environment", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise UserError(
        f"TensorBoard does not answer after {SECONDS:.0f} s: see journalctl -u {unit_of(run)} on the master."
    )
