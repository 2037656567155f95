"""Start TensorPack's FasterRCNN example, with the arguments that a cluster adds to its command line.

    fasterrcnn.py --data-dir DIR --run-dir DIR --example DIR --images-per-epoch 120000 KEY=VALUE …

The steps of an epoch follow from the number of processes. The checkpoint to load and the first epoch follow from an
earlier attempt of the same run. The example removes its log folder, so each attempt that resumes from a checkpoint gets
a folder of its own, among the run's checkpoints.
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

from atomic_file import replacing

OURS = ("DATA.BASEDIR", "TRAIN.STEPS_PER_EPOCH", "TRAIN.STARTING_EPOCH", "TRAINER")


class UsageError(Exception):
    """A message to the user who started the run."""


@dataclass(frozen=True)
class Point:
    """How far an earlier attempt came."""

    epochs: int
    """Complete ones."""
    checkpoint: Path | None = None


def steps_per_epoch(images: int, world: int) -> int:
    """Return the steps of an epoch. Each takes one image per process."""
    if not (world % 8 == 0 or 8 % world == 0):
        raise UsageError(f"{world} processes: this example trains with 1, 2, 4 or a multiple of 8. Example: -e nodes=2")
    return max(1, images // world)


def reached(logs: Path) -> Point:
    """Return the newest checkpoint of all attempts. A note next to each attempt's folder says what its steps mean."""
    best = Point(0)
    for note in sorted(logs.glob(".from-epoch-*.json")):
        start = json.loads(note.read_text())
        folder = logs / note.stem.removeprefix(".")
        state = folder / "checkpoint"
        match = re.search(r'^model_checkpoint_path: "(?:.*/)?(model-(\d+))"', _text(state), re.M)
        if not match or not (folder / f"{match[1]}.index").exists():
            continue
        epochs = start["epochs_before"] + (int(match[2]) - start["steps_before"]) // start["steps_per_epoch"]
        if epochs > best.epochs:
            best = Point(epochs, folder / match[1])
    return best


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def command(options: argparse.Namespace, logs: Path, steps: int, point: Point) -> list[str]:
    """Return the example's own command line."""
    config: Sequence[str] = options.config
    taken = [key for key in OURS if any(word.split("=")[0] == key for word in config)]
    if taken:
        raise UsageError(f"{', '.join(taken)}: this follows from the run, its data and its processes, leave it out")
    period = next((word.partition("=")[2] for word in config if word.startswith("TRAIN.EVAL_PERIOD=")), "1")
    if not period.isdigit() or int(period) < 1:
        raise UsageError(f"TRAIN.EVAL_PERIOD is {period}: give a whole number of epochs, 1 or more")
    ours = [f"DATA.BASEDIR={options.data_dir}", "TRAINER=horovod", f"TRAIN.STEPS_PER_EPOCH={steps}"]
    words = [str(options.example / "train.py"), "--logdir", str(logs / f"from-epoch-{point.epochs}")]
    if point.checkpoint:
        words += ["--load", str(point.checkpoint)]
        ours.append(f"TRAIN.STARTING_EPOCH={point.epochs + 1}")
    return [*words, "--config", *config, *ours]


def note(logs: Path, point: Point, steps: int) -> None:
    """Note what this attempt's steps mean, for the next one."""
    before = int(point.checkpoint.name.partition("-")[2]) if point.checkpoint else 0
    start = {"epochs_before": point.epochs, "steps_before": before, "steps_per_epoch": steps}
    with replacing(logs / f".from-epoch-{point.epochs}.json") as temporary:
        temporary.write_text(json.dumps(start))
    # Its curves are with its checkpoints; TensorBoard reads another folder.
    curves = logs.parent / "tensorboard" / f"from-epoch-{point.epochs}"
    curves.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        curves.symlink_to(Path("..", logs.name, curves.name))


def prepared(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[Path, list[str]]:
    """Return the folder to run in, and the example's program with its arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="as DATA.BASEDIR")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--example", type=Path, required=True, help="TensorPack's examples/FasterRCNN")
    parser.add_argument("--images-per-epoch", type=int, default=120000)
    parser.add_argument("config", nargs="+", metavar="KEY=VALUE", help="as the example takes them")
    options = parser.parse_args(argv)
    if not (options.example / "train.py").is_file():
        raise UsageError(f"{options.example} has no train.py: stage TensorPack's sources there first")
    world = int(environment.get("DEEPLEARNING_WORLD", "1"))
    steps = steps_per_epoch(options.images_per_epoch, world)
    logs = options.run_dir / "checkpoints"
    point = reached(logs)
    words = command(options, logs, steps, point)
    if environment.get("DEEPLEARNING_RANK", "0") == "0":
        note(logs, point, steps)
    return options.example, words


def add_old_name() -> None:
    """Add the name under which TensorPack 0.11 expects a function of TensorFlow 1."""
    with contextlib.suppress(ImportError):
        import tensorflow

        tensorflow.global_variables = tensorflow.compat.v1.global_variables


def main() -> None:
    try:
        folder, words = prepared(sys.argv[1:], os.environ)
    except UsageError as error:
        sys.exit(f"fasterrcnn.py: {error}")
    print("+", shlex.join([sys.executable, *words]), flush=True)
    add_old_name()
    os.chdir(folder)
    # As if Python had been started with it: it finds its own modules, not ours.
    sys.argv, sys.path[0] = words, str(folder)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
