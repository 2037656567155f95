"""Starts TensorPack's FasterRCNN example, by the command line that it has, with what a cluster adds to it.

    fasterrcnn.py --data-dir DIR --run-dir DIR --example DIR --images-per-epoch 120000 KEY=VALUE …

What follows from the number of processes is worked out here and not by hand: the steps of an epoch. What follows from
an earlier attempt of the same run too: the checkpoint to load and the epoch to begin with. The example removes the
folder that it is told to log to, so each attempt that goes on from a checkpoint gets a folder of its own, among the
run's checkpoints.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import runpy
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OURS = ("DATA.BASEDIR", "TRAIN.STEPS_PER_EPOCH", "TRAIN.STARTING_EPOCH", "TRAINER")


class Refusal(Exception):
    """A sentence for whoever started the run."""


@dataclass(frozen=True)
class Point:
    """Where an earlier attempt has come to."""

    epochs: int
    """that are whole"""
    checkpoint: Path | None = None


def steps_per_epoch(images: int, world: int) -> int:
    """Each step takes one image a process."""
    if not (world % 8 == 0 or 8 % world == 0):
        raise Refusal(f"{world} processes: this example trains with 1, 2, 4 or a multiple of 8. Example: -e nodes=2")
    return max(1, images // world)


def reached(logs: Path) -> Point:
    """The newest checkpoint of all attempts. Beside each attempt's folder stands what its steps mean."""
    best = Point(0)
    for note in sorted(logs.glob(".from-epoch-*.json")):
        told = json.loads(note.read_text())
        folder = logs / note.stem.removeprefix(".")
        state = folder / "checkpoint"
        found = re.search(r'^model_checkpoint_path: "(?:.*/)?(model-(\d+))"', _text(state), re.M)
        if not found or not (folder / f"{found[1]}.index").exists():
            continue
        epochs = told["epochs_before"] + (int(found[2]) - told["steps_before"]) // told["steps_per_epoch"]
        if epochs > best.epochs:
            best = Point(epochs, folder / found[1])
    return best


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def command(given: argparse.Namespace, logs: Path, steps: int, point: Point) -> list[str]:
    """The example's own command line."""
    config: Sequence[str] = given.config
    taken = [key for key in OURS if any(word.split("=")[0] == key for word in config)]
    if taken:
        raise Refusal(f"{', '.join(taken)}: this follows from the run, its data and its processes, leave it out")
    period = next((word.partition("=")[2] for word in config if word.startswith("TRAIN.EVAL_PERIOD=")), "1")
    if not period.isdigit() or int(period) < 1:
        raise Refusal(f"TRAIN.EVAL_PERIOD is {period}: give a whole number of epochs, 1 or more")
    ours = [f"DATA.BASEDIR={given.data_dir}", "TRAINER=horovod", f"TRAIN.STEPS_PER_EPOCH={steps}"]
    words = [str(given.example / "train.py"), "--logdir", str(logs / f"from-epoch-{point.epochs}")]
    if point.checkpoint:
        words += ["--load", str(point.checkpoint)]
        ours.append(f"TRAIN.STARTING_EPOCH={point.epochs + 1}")
    return [*words, "--config", *config, *ours]


def note(logs: Path, point: Point, steps: int) -> None:
    """For the next attempt: what this one's steps mean."""
    before = int(point.checkpoint.name.partition("-")[2]) if point.checkpoint else 0
    told = {"epochs_before": point.epochs, "steps_before": before, "steps_per_epoch": steps}
    logs.mkdir(parents=True, exist_ok=True)
    new = logs / ".note"
    new.write_text(json.dumps(told))
    new.rename(logs / f".from-epoch-{point.epochs}.json")
    # Its curves are where its checkpoints are; TensorBoard looks elsewhere.
    curves = logs.parent / "tensorboard" / f"from-epoch-{point.epochs}"
    curves.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        curves.symlink_to(Path("..", logs.name, curves.name))


def prepared(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[Path, list[str]]:
    """The folder to be in, and the example's program with its arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="as DATA.BASEDIR")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--example", type=Path, required=True, help="TensorPack's examples/FasterRCNN")
    parser.add_argument("--images-per-epoch", type=int, default=120000)
    parser.add_argument("config", nargs="+", metavar="KEY=VALUE", help="as the example takes them")
    given = parser.parse_args(argv)
    if not (given.example / "train.py").is_file():
        raise Refusal(f"{given.example} has no train.py: stage TensorPack's sources there first")
    world = int(environment.get("DEEPLEARNING_WORLD", "1"))
    steps = steps_per_epoch(given.images_per_epoch, world)
    logs = given.run_dir / "checkpoints"
    point = reached(logs)
    words = command(given, logs, steps, point)
    if environment.get("DEEPLEARNING_RANK", "0") == "0":
        note(logs, point, steps)
    return given.example, words


def with_the_old_name() -> None:
    """TensorPack 0.11's HorovodTrainer asks TensorFlow for what version 1 had there. If there is none, let the example
    say so."""
    with contextlib.suppress(ImportError):
        import tensorflow

        tensorflow.global_variables = tensorflow.compat.v1.global_variables


def main() -> None:
    try:
        folder, words = prepared(sys.argv[1:], os.environ)
    except Refusal as refusal:
        sys.exit(f"fasterrcnn.py: {refusal}")
    print("+", shlex.join([sys.executable, *words]), flush=True)
    with_the_old_name()
    os.chdir(folder)
    # As if Python had been started with it: it finds its own modules, not ours.
    sys.argv, sys.path[0] = words, str(folder)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
