"""deeplearning tensorboard check|start|stop ID|all: run TensorBoard for one run or for all, in a systemd unit of its
own. `check` prints whether an environment has it."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

from deeplearning.config import Config, read_config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.identifiers import ALL_RUNS, is_run_id
from deeplearning.runs.folder import find_run
from deeplearning.views import loopback

PORTS = range(6006, 6106)
UNIT = "deeplearning-tensorboard"


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="deeplearning tensorboard", description="TensorBoard on this node.")
    parser.add_argument("verb", choices=["check", "start", "stop"], help="JSON is printed")
    parser.add_argument("run", help="the run's id, or all")
    options = parser.parse_args(argv)
    if options.run != ALL_RUNS and not is_run_id(options.run):
        raise UserError(f"{options.run!r} is no run's id: deeplearning run list shows them.")
    if options.verb == "stop":
        answer = loopback.stop(f"{UNIT}-*.service" if options.run == ALL_RUNS else server(options.run).unit)
    elif options.verb == "start":
        answer = start(options.run, read_config())
    else:
        answer = {"installed": bool(_programs(options.run, read_config()))}
    print(json.dumps(answer))


def start(run: str, config: Config) -> dict[str, Any]:
    """Start TensorBoard, unless it runs already."""
    folder, programs = folder_of(run, config), _programs(run, config)
    if not programs:
        raise UserError(
            "TensorBoard is not on this node: install an environment that has it (ansible-playbook "
            "deeplearning.aws.tensorboard)."
        )
    answer = server(run).start(
        config.user,
        lambda port: (str(programs[0]), "--logdir", str(folder), "--host", loopback.ADDRESS, "--port", str(port)),
    )
    return {**answer, "run": run, "folder": str(folder)}


def folder_of(run: str, config: Config) -> Path:
    runs = Path(paths.runs(config.efs_mount, config.cluster))
    if run == ALL_RUNS:
        return runs
    if not (runs / run).is_dir():
        raise UserError(f"{runs} has no run {run}: deeplearning run list shows all.")
    return runs / run / "tensorboard"


def server(run: str) -> loopback.LoopbackServer:
    return loopback.LoopbackServer(
        "TensorBoard", f"{UNIT}-{run}.service", f"TensorBoard of {run}", PORTS, "/data/environment"
    )


def _programs(run: str, config: Config) -> list[Path]:
    """Return the TensorBoards on this node: that of the environment which the run uses comes first."""
    installed = sorted(Path(paths.ENVIRONMENTS).glob("[!.]*/bin/tensorboard"))
    own: list[Path] = []
    if run != ALL_RUNS:
        with contextlib.suppress(UserError, OSError, KeyError, TypeError):
            own = [Path(find_run(config, run).run()["python"]).parent / "tensorboard"]
    return [program for program in [*own, *installed] if program.is_file()]
