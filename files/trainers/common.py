"""What the example trainers share: command line, data, metrics, checkpoints and the loop. Independent of frameworks."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import metrics_file
import numpy as np
from atomic_file import replacing
from events import EventsFile

Array = Any
SECONDS_BETWEEN_LINES = 2.0
SECONDS_BETWEEN_SIGNS = 60.0
"""Of an evaluation, which writes no metrics until its end."""
CHECKPOINTS_KEPT = 3
SECONDS_BETWEEN_REQUESTS = 1.0


def arguments(description: str, distributions: tuple[str, ...], default: str) -> argparse.Namespace:
    """Parse the command line. The launcher passes the folders of the data and of the run in the environment."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("DEEPLEARNING_DATA_DIR"))
    parser.add_argument("--run-dir", type=Path, default=os.environ.get("DEEPLEARNING_RUN_DIR"))
    parser.add_argument("--epochs", type=_positive, help="(5; with --max-steps as many as these take)")
    parser.add_argument("--max-steps", type=_positive, help="of the whole run, with those of earlier attempts")
    parser.add_argument("--num-examples", type=_positive, help="train on the first N samples only")
    parser.add_argument("--batch-size", type=_positive, default=128, help="of each process (%(default)s)")
    parser.add_argument("--network", choices=("lenet", "resnet"), default="lenet")
    parser.add_argument("--num-layers", type=_depth, default=20, help="of resnet: 8, 20, 50, any 6n + 2 (%(default)s)")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--lr-factor", type=float, default=0.1, help="what the two options below multiply --lr by")
    parser.add_argument("--lr-step-epochs", type=_numbers, default=(), metavar="N,…", help="after these epochs")
    parser.add_argument("--lr-steps", type=_numbers, default=(), metavar="N,…", help="after these steps of the run")
    parser.add_argument("--momentum", type=float, default=0.9, help="of sgd (%(default)s)")
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--crop", action="store_true", help="pad images by 4 pixels, and cut at random")
    parser.add_argument("--mirror", action="store_true", help="mirror half of the images, at random")
    parser.add_argument("--mixed-precision", action="store_true", help="compute with 16 bits, keep weights in 32")
    parser.add_argument(
        "--checkpoint-steps", type=_positive, metavar="N", help="save every N steps, and at each epoch's end"
    )
    parser.add_argument("--log-steps", type=_positive, metavar="N", help="a line every N steps, not every 2 seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--distribution", choices=distributions, default=os.environ.get("DEEPLEARNING_DISTRIBUTION", default)
    )
    parser.add_argument("--evaluate", action="store_true", help="evaluate a checkpoint, and end")
    parser.add_argument("--checkpoint", type=Path, help="the one to evaluate; by default the newest")
    parser.add_argument("--no-exchange", action="store_true", help="each rank trains on its own shard, alone")
    options = parser.parse_args()
    for option in ("data_dir", "run_dir"):
        if getattr(options, option) is None:
            name = option.replace("_", "-")
            parser.error(f"--{name} is missing: give a folder. Example: --{name} /efs/{option[:4]}")
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: give 1 or more")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_positive(word) for word in text.split(","))


def _depth(text: str) -> int:
    number = int(text)
    if number < 8 or number % 6 != 2:
        raise argparse.ArgumentTypeError(f"{number}: give 6n + 2, such as 8, 20 or 50")
    return number


# Data


@dataclass(frozen=True)
class Samples:
    images: Array
    """Bytes by sample, row, column and colour."""
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)

    def shard(self, rank: int, world: int) -> Samples:
        """Return the shard of a rank. Every sample is in one shard, and shards differ by one sample at most."""
        return Samples(self.images[rank::world], self.labels[rank::world])

    def first(self, count: int | None) -> Samples:
        return Samples(self.images[:count], self.labels[:count])

    def batches(self, size: int) -> Iterator[tuple[Array, Array]]:
        for start in range(0, len(self), size):
            yield self.images[start : start + size], self.labels[start : start + size]

    def shuffled_batches(self, size: int, count: int, generator: np.random.Generator) -> Iterator[tuple[Array, Array]]:
        """Yield `count` full batches. Leave out samples that are too many, and repeat some if there are too few."""
        order = np.resize(generator.permutation(len(self)), size * count)
        for start in range(0, size * count, size):
            indices = order[start : start + size]
            yield self.images[indices], self.labels[indices]


def load(folder: Path) -> tuple[Samples, Samples]:
    """Return the training and test samples of CIFAR-10's binary batches or of MNIST's idx files."""
    if (folder / "cifar-10-batches-bin").is_dir():
        folder = folder / "cifar-10-batches-bin"  # the published archive, unpacked
    if (folder / "test_batch.bin").exists():
        return _cifar10(*sorted(folder.glob("data_batch_*.bin"))), _cifar10(folder / "test_batch.bin")
    if (folder / "t10k-images-idx3-ubyte").exists():
        return _mnist(folder, "train"), _mnist(folder, "t10k")
    sys.exit(f"{folder} has neither data_batch_1.bin … test_batch.bin nor train-images-idx3-ubyte …: give another.")


def _cifar10(*paths: Path) -> Samples:
    """Read records of a class and 32 × 32 bytes of each colour."""
    for path in paths:
        if path.stat().st_size % 3073:
            sys.exit(f"{path} has {path.stat().st_size} bytes, no multiple of 3073: it is incomplete. Copy it again.")
    records = np.concatenate([np.fromfile(path, np.uint8) for path in paths]).reshape(-1, 3073)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Samples(np.ascontiguousarray(images), records[:, 0].astype(np.int64))


def _mnist(folder: Path, which: str) -> Samples:
    images = np.fromfile(folder / f"{which}-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 28, 28, 1)
    labels = np.fromfile(folder / f"{which}-labels-idx1-ubyte", np.uint8)[8:]
    if len(images) != len(labels):
        sys.exit(f"{folder} has {len(images)} images and {len(labels)} classes of {which}: give a whole set.")
    return Samples(images, labels.astype(np.int64))


def augmented(images: Array, options: argparse.Namespace, generator: np.random.Generator) -> Array:
    """Return the batch, cropped and mirrored at random as the options say."""
    if options.crop:
        rows, columns = images.shape[1:3]
        padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
        corners = generator.integers(0, 9, (len(images), 2))
        cut = [image[y : y + rows, x : x + columns] for image, (y, x) in zip(padded, corners, strict=True)]
        images = np.stack(cut)
    if options.mirror:
        mirrored = generator.random(len(images)) < 0.5
        images = np.where(mirrored[:, None, None, None], images[:, :, ::-1], images)
    return images


def scaled(images: Array) -> Array:
    """Scale bytes to -1 … 1."""
    return images.astype(np.float32) / 127.5 - 1


# The schedule


@dataclass(frozen=True)
class Schedule:
    steps_per_epoch: int
    total: int
    """Steps of the whole run."""

    @property
    def epochs(self) -> int:
        return -(-self.total // self.steps_per_epoch)


def schedule(options: argparse.Namespace, samples: int, world: int) -> Schedule:
    # As many as the smallest shard has: all ranks must take the same number of steps.
    steps = max(1, samples // world // options.batch_size)
    of_epochs = (options.epochs or 5) * steps
    if not options.max_steps:
        return Schedule(steps, of_epochs)
    return Schedule(steps, min(of_epochs, options.max_steps) if options.epochs else options.max_steps)


def learning_rate(options: argparse.Namespace, epoch: int, step: int) -> float:
    """Return the rate for a step. Epochs and steps are complete ones."""
    passed = sum(epoch >= each for each in options.lr_step_epochs) + sum(step >= each for each in options.lr_steps)
    return float(options.lr * options.lr_factor**passed)


# Results

Result = tuple[int, float, int]
"""Of some steps: the samples, their summed loss and how many of them were classified correctly."""


class Metrics:
    """Write metrics/rank<n>.jsonl and a line of output, and from rank 0 TensorBoard's curves."""

    def __init__(
        self,
        run_dir: Path,
        rank: int,
        world: int,
        plan: Schedule,
        done: int,
        step: int = 0,
        log_steps: int | None = None,
    ) -> None:
        """Remove the metrics of epochs after `done`, which are repeated after their first steps, `step`."""
        self._path = run_dir / "metrics" / f"rank{rank}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._seconds = metrics_file.truncate_after(done, self._path)
        self._epoch, self._epochs = done, plan.epochs
        self.step, self._steps = done * plan.steps_per_epoch + step, plan.total
        self._log_steps = log_steps
        self._events = None
        if rank == 0:
            self._events = EventsFile(run_dir / "tensorboard", self.step)
            for path in self._path.parent.glob("rank*.jsonl"):
                if int(path.stem.removeprefix("rank")) >= world:  # an earlier attempt had more ranks
                    metrics_file.truncate_after(done, path)

    def begin_epoch(self) -> None:
        self._epoch += 1
        self._samples, self._loss, self._right = 0, 0.0, 0
        self._began, self._elapsed = time.monotonic(), 0.0
        self._reported = (0, 0.0)

    def add(
        self, samples: int, loss: float, right: int, steps: int = 1, read: Callable[[], Result] = lambda: (0, 0.0, 0)
    ) -> None:
        """Add trained samples, the sum of their losses and the number of correct ones.

        `read` is called for those that were not returned yet, when a line is due.
        """
        self.step += steps
        self._count(samples, loss, right)
        if self._is_due(steps):
            if (unread := read())[0]:
                self._count(*unread)
            if self._samples:
                self._write(self._reported, None)
                self._reported = (self._samples, self._elapsed)

    def _count(self, samples: int, loss: float, right: int) -> None:
        self._samples, self._loss, self._right = self._samples + samples, self._loss + loss, self._right + right
        self._elapsed = time.monotonic() - self._began

    def _is_due(self, steps: int) -> bool:
        if self._log_steps:
            return bool(steps) and self.step % self._log_steps == 0
        return self._elapsed - self._reported[1] >= SECONDS_BETWEEN_LINES

    def end_epoch(self, val_accuracy: float) -> None:
        self._write((0, 0.0), val_accuracy)
        self._seconds += self._elapsed

    def _write(self, since: tuple[int, float], val_accuracy: float | None) -> None:
        loss = self._loss / self._samples
        line = {
            "epoch": self._epoch,
            "step": self.step,
            "steps": self._steps,
            "seconds": round(self._seconds + self._elapsed, 3),
            "samples_per_second": round((self._samples - since[0]) / max(self._elapsed - since[1], 1e-6), 1),
            "loss": round(loss, 6) if math.isfinite(loss) else None,
            "accuracy": round(self._right / self._samples, 6),
            "val_accuracy": val_accuracy,
        }
        metrics_file.append(self._path, line)
        summary = f"loss {loss:.4f} accuracy {line['accuracy']:.4f} {line['samples_per_second']:.0f} samples/s"
        summary += "" if val_accuracy is None else f" val_accuracy {val_accuracy:.4f}"
        print(f"epoch {self._epoch}/{self._epochs} step {self.step}/{self._steps} {summary}", flush=True)
        if self._events:
            names = ("loss", "accuracy", "samples_per_second", "val_accuracy")
            self._events.scalars(self.step, {name: line[name] for name in names if line[name] is not None})


Point = tuple[int, int]
"""How far training has come: complete epochs, and steps of the next one."""


class Checkpoints:
    def __init__(self, run_dir: Path, ending: str) -> None:
        self._folder, self._ending = run_dir / "checkpoints", ending

    def path(self, point: Point) -> Path:
        epoch, step = point
        return self._folder / f"epoch-{epoch:04}{f'-step-{step:06}' if step else ''}.{self._ending}"

    def points(self) -> list[Point]:
        return sorted(map(self.point, self._folder.glob(f"epoch-*.{self._ending}")))

    @staticmethod
    def point(path: Path) -> Point:
        match = re.fullmatch(r"epoch-(\d+)(?:-step-(\d+))?", path.stem)
        if not match:
            sys.exit(f"{path} is no checkpoint of this trainer: their names are like epoch-0001.")
        return int(match[1]), int(match[2] or 0)

    def save(self, learner: Learner, point: Point) -> None:
        with replacing(self.path(point)) as path:
            learner.save(path)
        for old in self.points()[:-CHECKPOINTS_KEPT]:
            self.path(old).unlink()


class CheckpointRequest:
    """The master's request for a checkpoint, because the run is going to be stopped: a new file in the run's folder."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "checkpoint-request.json"
        self._seen, self._checked = self._stamp(), time.monotonic()

    def _stamp(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0

    def is_new(self) -> bool:
        """Return whether there is a request that was not there before. The folder is shared, so look seldom."""
        if time.monotonic() - self._checked < SECONDS_BETWEEN_REQUESTS:
            return False
        self._checked, before, self._seen = time.monotonic(), self._seen, self._stamp()
        return self._seen not in (0, before)


# The loop


class Learner:
    """What a framework implements. This base class is one process on its own."""

    rank, world = 0, 1
    ending = ""
    """The extension of its checkpoints' names."""

    def set_learning_rate(self, rate: float) -> None:
        raise NotImplementedError

    def step(self, images: Array, labels: Array) -> Result:
        """Train on a batch, together with all ranks. Return its result, or nothing yet: zeros."""
        raise NotImplementedError

    def read(self) -> Result:
        """Return the result of steps that is still on the device. To read it after each step would cost time."""
        return 0, 0.0, 0

    def rest(self) -> Result:
        """Return the result of all steps for which it was not returned yet."""
        return self.read()

    def right(self, images: Array, labels: Array) -> int:
        """Return how many of these images the network classifies correctly."""
        raise NotImplementedError

    def total(self, number: float) -> float:
        """Return the sum over all ranks. All of them have to call it."""
        return number

    def save(self, path: Path) -> None:
        """Save what is needed to resume: weights and the optimizer's state."""
        raise NotImplementedError

    def load(self, path: Path) -> None:
        raise NotImplementedError

    def export(self, folder: Path) -> None:
        """Write the network so that the framework alone can load it, without this program."""
        raise NotImplementedError


def run(learner: Learner, options: argparse.Namespace, data: tuple[Samples, Samples]) -> None:
    """Train or evaluate, as the options say."""
    train, test = data
    source = ", generated" if (options.data_dir / "GENERATED").exists() else ""
    print(f"rank {learner.rank} of {learner.world}: {len(train)} + {len(test)} samples{source}", flush=True)
    checkpoints = Checkpoints(options.run_dir, learner.ending)
    if options.no_exchange:
        learner.total = lambda number: number
        done = (0, 0)
    elif options.checkpoint:
        done = checkpoints.point(options.checkpoint)
    else:
        # Only rank 0 lists the checkpoints, because a network folder may differ between nodes for a moment.
        newest = max(checkpoints.points(), default=(0, 0)) if learner.rank == 0 else (0, 0)
        done = int(learner.total(newest[0])), int(learner.total(newest[1]))
    if any(done):
        path = options.checkpoint or checkpoints.path(done)
        learner.load(path)
        print(f"resumes from {path.name}", flush=True)
    if not options.evaluate:
        learn(learner, options, train, test, checkpoints, done)
        if learner.rank == 0 and not options.no_exchange:
            learner.export(options.run_dir / "model")
    elif any(done):
        evaluate(learner, options, test, done[0])
    else:
        sys.exit(f"{options.run_dir / 'checkpoints'} has no checkpoint to evaluate: train first.")
    learner.total(0)  # No rank leaves while another one still needs it.


def learn(
    learner: Learner, options: argparse.Namespace, train: Samples, test: Samples, checkpoints: Checkpoints, done: Point
) -> None:
    train = train.first(options.num_examples)
    shard, plan = train.shard(learner.rank, learner.world), schedule(options, len(train), learner.world)
    # More ranks than before have fewer steps in an epoch.
    epochs, skipped = done if done[1] < plan.steps_per_epoch else (done[0] + 1, 0)
    metrics = Metrics(options.run_dir, learner.rank, learner.world, plan, epochs, skipped, options.log_steps)
    saves = learner.rank == 0 and not options.no_exchange
    request = CheckpointRequest(options.run_dir)
    rate = None
    while (before := epochs * plan.steps_per_epoch) + skipped < plan.total:
        metrics.begin_epoch()
        count = min(plan.steps_per_epoch, plan.total - before)
        for number, (images, labels) in enumerate(batches(shard, options, learner.rank, epochs, count), 1):
            if number <= skipped:
                continue
            if rate != (rate := learning_rate(options, epochs, before + number - 1)):
                learner.set_learning_rate(rate)
            metrics.add(*learner.step(images, labels), read=learner.read)
            is_due = options.checkpoint_steps and (before + number) % options.checkpoint_steps == 0
            if saves and number < count and (is_due or request.is_new()):
                checkpoints.save(learner, (epochs, number))
        metrics.add(*learner.rest(), steps=0)
        metrics.end_epoch(right_of(learner, options, test) / len(test))
        epochs, skipped = (epochs + 1, 0) if count == plan.steps_per_epoch else (epochs, count)
        if saves:
            checkpoints.save(learner, (epochs, skipped))


def batches(
    shard: Samples, options: argparse.Namespace, rank: int, epoch: int, count: int
) -> Iterator[tuple[Array, Array]]:
    """Yield the batches of an epoch. Their order depends on no earlier epoch, so a resumed run takes the same one."""
    generator = np.random.default_rng((options.seed, epoch + 1, rank))
    for images, labels in shard.shuffled_batches(options.batch_size, count, generator):
        yield augmented(images, options, generator), labels


def right_of(learner: Learner, options: argparse.Namespace, test: Samples) -> int:
    """Return the correct ones of the test set, summed over the ranks' shards. Without exchange, each rank tests all."""
    mine = test if options.no_exchange else test.shard(learner.rank, learner.world)
    right, reported = 0, time.monotonic()
    for number, (images, labels) in enumerate(mine.batches(options.batch_size), 1):
        right += learner.right(images, labels)
        # A run that prints nothing for minutes counts as stalled.
        if time.monotonic() - reported >= SECONDS_BETWEEN_SIGNS:
            reported = time.monotonic()
            print(f"evaluates: {min(number * options.batch_size, len(mine))} of {len(mine)} samples", flush=True)
    return round(learner.total(right))


def evaluate(learner: Learner, options: argparse.Namespace, test: Samples, epoch: int) -> None:
    right = right_of(learner, options, test)
    print(f"val_accuracy {right / len(test):.4f}: {right} of {len(test)}, after epoch {epoch}", flush=True)
    if learner.rank == 0:
        record = {"epoch": epoch, "val_accuracy": right / len(test), "right": right, "samples": len(test)}
        metrics_file.append(options.run_dir / "metrics" / "evaluation.jsonl", record)
