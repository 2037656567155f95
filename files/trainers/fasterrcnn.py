"""Start TensorPack's FasterRCNN example, with the arguments that a cluster adds to its command line.

    fasterrcnn.py --data-dir DIR --run-dir DIR --example DIR --images-per-epoch 120000 KEY=VALUE …
    fasterrcnn.py … --evaluate [--checkpoint FILE]

The steps of an epoch follow from the number of processes. The checkpoint to load and the first epoch follow from an
earlier attempt of the same run. The example removes its log folder, so each attempt that resumes from a checkpoint gets
a folder of its own, among the run's checkpoints. Loss, precision and images per second are copied from its stats.json
to the run's metrics.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import runpy
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import metrics_file
import visible_gpus
from atomic_file import replacing
from example_stats import StatsCopier

OURS = ("DATA.BASEDIR", "TRAIN.STEPS_PER_EPOCH", "TRAIN.STARTING_EPOCH", "TRAINER")
OLD_NAMES = (
    "GraphKeys",
    "add_to_collection",
    "get_default_session",
    "get_variable",
    "get_variable_scope",
    "global_variables",
    "variable_scope",
)
"""Names of tensorflow.compat.v1 that TensorPack expects in tensorflow: tests/unit/project/test_tensorflow_names.py."""


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
    """Return the newest checkpoint of all attempts."""
    best = Point(0)
    for note in sorted(logs.glob(".from-epoch-*.json")):
        folder = logs / note.stem.removeprefix(".")
        match = re.search(r'^model_checkpoint_path: "(?:.*/)?(model-\d+)"', _text(folder / "checkpoint"), re.M)
        if match and (folder / f"{match[1]}.index").exists():
            point = point_of(folder / match[1])
            best = point if point.epochs > best.epochs else best
    return best


def point_of(checkpoint: Path) -> Point:
    """Return a checkpoint with its epochs. A note next to each attempt's folder says what its steps mean."""
    note = checkpoint.parent.with_name(f".{checkpoint.parent.name}.json")
    step = checkpoint.name.removeprefix("model-")
    if not note.exists() or not step.isdigit():
        raise UsageError(f"{checkpoint} is no checkpoint of this run: their names are like from-epoch-0/model-15000")
    start = json.loads(note.read_text())
    return Point(start["epochs_before"] + (int(step) - start["steps_before"]) // start["steps_per_epoch"], checkpoint)


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
    argv = [str(options.example / "train.py"), "--logdir", str(logs / f"from-epoch-{point.epochs}")]
    if point.checkpoint:
        argv += ["--load", str(point.checkpoint)]
        ours.append(f"TRAIN.STARTING_EPOCH={point.epochs + 1}")
    return [*argv, "--config", *config, *ours]


def note(logs: Path, start: ExampleStart) -> None:
    """Note what this attempt's steps mean, for the next one."""
    name = start.logs.name
    record = {
        "epochs_before": start.point.epochs,
        "steps_before": start.steps_before,
        "steps_per_epoch": start.steps,
    }
    with replacing(logs / f".{name}.json") as temporary:
        temporary.write_text(json.dumps(record))
    # Its curves are with its checkpoints; TensorBoard reads another folder.
    curves = logs.parent / "tensorboard" / name
    curves.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        curves.symlink_to(Path("..", logs.name, name))


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="as DATA.BASEDIR")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--example", type=Path, required=True, help="TensorPack's examples/FasterRCNN")
    parser.add_argument("--images-per-epoch", type=int, default=120000)
    parser.add_argument("--evaluate", action="store_true", help="evaluate a checkpoint on the first rank, and end")
    parser.add_argument("--checkpoint", type=Path, help="the one to evaluate; by default the newest")
    parser.add_argument("config", nargs="+", metavar="KEY=VALUE", help="as the example takes them")
    options = parser.parse_args(argv)
    options.example = Path(os.path.expandvars(options.example))
    program = "predict.py" if options.evaluate else "train.py"
    if not (options.example / program).is_file():
        raise UsageError(f"{options.example} has no {program}: stage TensorPack's sources there first")
    return options


@dataclass(frozen=True)
class ExampleStart:
    argv: list[str]
    """The example's program with its arguments."""
    point: Point
    steps: int
    """Of an epoch."""
    steps_before: int
    """Of earlier attempts."""

    @property
    def logs(self) -> Path:
        return Path(self.argv[self.argv.index("--logdir") + 1])

    def total_steps(self, world: int) -> int | None:
        """Return the steps of the whole run as the example computes them, or None without a list of steps."""
        text = next((word.partition("=")[2] for word in self.argv if word.startswith("TRAIN.LR_SCHEDULE=")), "")
        try:
            last = ast.literal_eval(text)[-1]
            epochs = int(last * 8 / world // self.steps)
        except (ValueError, SyntaxError, TypeError, IndexError):
            return None
        return self.steps_before + (epochs - self.point.epochs) * self.steps


def attempt(options: argparse.Namespace, world: int) -> ExampleStart:
    steps = steps_per_epoch(options.images_per_epoch, world)
    logs = options.run_dir / "checkpoints"
    point = reached(logs)
    before = int(point.checkpoint.name.partition("-")[2]) if point.checkpoint else 0
    return ExampleStart(command(options, logs, steps, point), point, steps, before)


def evaluation(options: argparse.Namespace) -> tuple[list[str], Point, Path]:
    """Return the example's command line, what it evaluates, and the file that it writes the detections to."""
    point = point_of(options.checkpoint) if options.checkpoint else reached(options.run_dir / "checkpoints")
    if not point.checkpoint:
        raise UsageError(f"{options.run_dir}/checkpoints has no checkpoint to evaluate: train first")
    file = options.run_dir / "evaluation" / f"epoch-{point.epochs:04}.json"
    argv = [str(options.example / "predict.py"), "--load", str(point.checkpoint), "--evaluate", str(file)]
    return [*argv, "--config", *options.config, f"DATA.BASEDIR={options.data_dir}"], point, file


def train(options: argparse.Namespace, world: int, rank: int) -> None:
    start = attempt(options, world)
    if rank:
        execute(options.example, start.argv)
        return
    note(options.run_dir / "checkpoints", start)
    metrics = options.run_dir / "metrics" / "rank0.jsonl"
    seconds = metrics_file.truncate_after(start.point.epochs, metrics)
    with StatsCopier(start.logs / "stats.json", metrics, world, seconds, start.total_steps(world)):
        execute(options.example, start.argv)


def evaluate(options: argparse.Namespace) -> None:
    """Evaluate a checkpoint, and write COCO's measure of its detections into the run's metrics."""
    argv, point, file = evaluation(options)
    file.parent.mkdir(exist_ok=True)
    execute(options.example, argv)
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    # The example adds the data set's name.
    for results in sorted(file.parent.glob(f"{file.name}-coco_*")):
        which = results.name.partition("-coco_")[2]
        truth = COCO(f"{options.data_dir}/annotations/instances_{which}.json")
        detections = json.loads(results.read_text())
        precision = 0.0
        if detections:
            judge = COCOeval(truth, truth.loadRes(detections), "bbox")
            judge.evaluate()
            judge.accumulate()
            judge.summarize()
            precision = float(judge.stats[0])
        record = {"epoch": point.epochs, "average_precision": precision, "samples": len(truth.getImgIds())}
        metrics_file.append(options.run_dir / "metrics" / "evaluation.jsonl", record)


def execute(folder: Path, argv: list[str]) -> None:
    """Run the example's program as if Python had been started with it: it finds its own modules, not ours."""
    print("+", shlex.join([sys.executable, *argv]), flush=True)
    # Without TensorFlow the example itself fails.
    with contextlib.suppress(ImportError):
        visible_gpus.require("tensorflow", count_gpus)
    add_old_names()
    os.chdir(folder)
    sys.argv, sys.path[0] = argv, str(folder)
    runpy.run_path(argv[0], run_name="__main__")


def count_gpus() -> int:
    import tensorflow

    return len(tensorflow.config.list_physical_devices("GPU"))


def add_old_names() -> None:
    """Add what TensorPack and its example expect of TensorFlow 1, without asking tensorflow.compat.v1 for it."""
    with contextlib.suppress(ImportError):
        import tensorflow

        for name in OLD_NAMES:
            setattr(tensorflow, name, getattr(tensorflow.compat.v1, name))
        # The example's group normalization passes `keep_dims`, which only the old one has.
        tensorflow.nn.moments = tensorflow.compat.v1.nn.moments


def main() -> None:
    world, rank = int(os.environ.get("DEEPLEARNING_WORLD", 1)), int(os.environ.get("DEEPLEARNING_RANK", 0))
    try:
        options = parsed(sys.argv[1:])
        if not options.evaluate:
            train(options, world, rank)
        elif rank == 0:
            evaluate(options)
    except UsageError as error:
        sys.exit(f"fasterrcnn.py: {error}")


if __name__ == "__main__":
    main()
