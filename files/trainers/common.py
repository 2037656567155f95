"""What the example trainers share: command line, data, metrics, checkpoints and the loop. It knows no framework."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from events import EventsFile

Array = Any
SECONDS_BETWEEN_LINES = 2.0
CHECKPOINTS_KEPT = 3


def arguments(description: str, distributions: tuple[str, ...], default: str) -> argparse.Namespace:
    """One command line for all. The launcher says in the environment where the data and the run's folder are."""
    asking = argparse.ArgumentParser(description=description.splitlines()[0])
    asking.add_argument("--data-dir", type=Path, default=os.environ.get("DEEPLEARNING_DATA_DIR"))
    asking.add_argument("--run-dir", type=Path, default=os.environ.get("DEEPLEARNING_RUN_DIR"))
    asking.add_argument("--epochs", type=_positive, default=5)
    asking.add_argument("--batch-size", type=_positive, default=128, help="of each process (%(default)s)")
    asking.add_argument("--network", choices=("lenet", "resnet"), default="lenet")
    asking.add_argument("--num-layers", type=_depth, default=20, help="of resnet: 8, 20, 50, any 6n + 2 (%(default)s)")
    asking.add_argument("--lr", type=float, default=0.05)
    asking.add_argument("--seed", type=int, default=0)
    asking.add_argument(
        "--distribution", choices=distributions, default=os.environ.get("DEEPLEARNING_DISTRIBUTION", default)
    )
    asking.add_argument("--evaluate", action="store_true", help="evaluate the newest checkpoint, and end")
    asking.add_argument("--no-exchange", action="store_true", help="each rank trains on its own shard, alone")
    asked = asking.parse_args()
    for option in ("data_dir", "run_dir"):
        if getattr(asked, option) is None:
            name = option.replace("_", "-")
            asking.error(f"--{name} is missing: give a folder. Example: --{name} /myEFSvolume/{option[:4]}")
    return asked


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: give 1 or more")
    return number


def _depth(text: str) -> int:
    number = int(text)
    if number < 8 or number % 6 != 2:
        raise argparse.ArgumentTypeError(f"{number}: give 6n + 2, such as 8, 20 or 50")
    return number


# Data


@dataclass(frozen=True)
class Samples:
    images: Array
    """bytes: sample, row, column, colour"""
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)

    def shard(self, rank: int, world: int) -> Samples:
        """This rank's: every sample is in one shard, and shards differ by one sample at most."""
        return Samples(self.images[rank::world], self.labels[rank::world])

    def batches(self, size: int) -> Iterator[tuple[Array, Array]]:
        for start in range(0, len(self), size):
            yield self.images[start : start + size], self.labels[start : start + size]

    def shuffled_batches(self, size: int, count: int, chance: np.random.Generator) -> Iterator[tuple[Array, Array]]:
        """So many full batches: what is too much is left out this time, what is too little comes twice."""
        order = np.resize(chance.permutation(len(self)), size * count)
        for start in range(0, size * count, size):
            chosen = order[start : start + size]
            yield self.images[chosen], self.labels[chosen]


def load(folder: Path) -> tuple[Samples, Samples]:
    """To train on, to test: CIFAR-10's binary batches or MNIST's idx files, whichever are there."""
    if (folder / "cifar-10-batches-bin").is_dir():
        folder = folder / "cifar-10-batches-bin"  # the published archive, unpacked
    if (folder / "test_batch.bin").exists():
        return _cifar10(*sorted(folder.glob("data_batch_*.bin"))), _cifar10(folder / "test_batch.bin")
    if (folder / "t10k-images-idx3-ubyte").exists():
        return _mnist(folder, "train"), _mnist(folder, "t10k")
    sys.exit(f"{folder} has neither data_batch_1.bin … test_batch.bin nor train-images-idx3-ubyte …: give another.")


def _cifar10(*paths: Path) -> Samples:
    """Records of a class and 32 × 32 bytes of each colour."""
    for path in paths:
        if path.stat().st_size % 3073:
            sys.exit(f"{path} has {path.stat().st_size} bytes, no multiple of 3073: it is not whole. Copy it again.")
    records = np.concatenate([np.fromfile(path, np.uint8) for path in paths]).reshape(-1, 3073)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Samples(np.ascontiguousarray(images), records[:, 0].astype(np.int64))


def _mnist(folder: Path, which: str) -> Samples:
    images = np.fromfile(folder / f"{which}-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 28, 28, 1)
    labels = np.fromfile(folder / f"{which}-labels-idx1-ubyte", np.uint8)[8:]
    if len(images) != len(labels):
        sys.exit(f"{folder} has {len(images)} images and {len(labels)} classes of {which}: give a whole set.")
    return Samples(images, labels.astype(np.int64))


def scaled(images: Array) -> Array:
    """Bytes as numbers about 0."""
    return images.astype(np.float32) / 127.5 - 1


# What is left behind


class Metrics:
    """metrics/rank<n>.jsonl, the same for people and, from rank 0, TensorBoard's curves."""

    def __init__(self, run_dir: Path, rank: int, world: int, done: int, epochs: int, steps_per_epoch: int) -> None:
        """What was told of epochs after `done` is forgotten: they are done again."""
        self._path = run_dir / "metrics" / f"rank{rank}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._seconds = _kept_until(done, self._path)
        self._epoch, self._epochs = done, epochs
        self._step, self._steps = done * steps_per_epoch, epochs * steps_per_epoch
        self._events = None
        if rank == 0:
            self._events = EventsFile(run_dir / "tensorboard", self._step)
            for path in self._path.parent.glob("rank*.jsonl"):
                if int(path.stem.removeprefix("rank")) >= world:  # an earlier attempt had more ranks
                    _kept_until(done, path)

    def begin_epoch(self) -> None:
        self._epoch += 1
        self._samples, self._loss, self._right = 0, 0.0, 0
        self._began, self._elapsed = time.monotonic(), 0.0
        self._told = (0, 0.0)

    def add(self, samples: int, loss: float, right: int, steps: int = 1) -> None:
        """Samples that were trained on, their loss and how many were right, each summed."""
        self._step += steps
        self._samples, self._loss, self._right = self._samples + samples, self._loss + loss, self._right + right
        self._elapsed = time.monotonic() - self._began
        if self._samples and self._elapsed - self._told[1] >= SECONDS_BETWEEN_LINES:
            self._tell(self._told, None)
            self._told = (self._samples, self._elapsed)

    def end_epoch(self, val_accuracy: float) -> None:
        self._tell((0, 0.0), val_accuracy)
        self._seconds += self._elapsed

    def _tell(self, since: tuple[int, float], val_accuracy: float | None) -> None:
        loss = self._loss / self._samples
        line = {
            "epoch": self._epoch,
            "step": self._step,
            "steps": self._steps,
            "seconds": round(self._seconds + self._elapsed, 3),
            "samples_per_second": round((self._samples - since[0]) / max(self._elapsed - since[1], 1e-6), 1),
            "loss": round(loss, 6) if math.isfinite(loss) else None,
            "accuracy": round(self._right / self._samples, 6),
            "val_accuracy": val_accuracy,
        }
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        told = f"loss {loss:.4f} accuracy {line['accuracy']:.4f} {line['samples_per_second']:.0f} samples/s"
        told += "" if val_accuracy is None else f" val_accuracy {val_accuracy:.4f}"
        print(f"epoch {self._epoch}/{self._epochs} step {self._step}/{self._steps} {told}", flush=True)
        if self._events:
            names = ("loss", "accuracy", "samples_per_second", "val_accuracy")
            self._events.scalars(self._step, {name: line[name] for name in names if line[name] is not None})


def _kept_until(epoch: int, path: Path) -> float:
    """Leaves out what is told of later epochs; returns the seconds that have been trained until then."""
    if not path.exists():
        return 0.0
    kept, seconds = [], 0.0
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        with contextlib.suppress(ValueError):  # its writer was ended within a line
            told = json.loads(line)
            if told["epoch"] <= epoch:
                kept.append(line)
                seconds = told["seconds"]
    with appearing(path) as new:
        new.write_text("".join(kept), encoding="utf-8")
    return seconds


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A name to write to. When all is written, and on disk, it becomes `path`: which is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    yield unfinished
    with open(unfinished, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, path)


class Checkpoints:
    def __init__(self, run_dir: Path, ending: str) -> None:
        self._folder, self._ending = run_dir / "checkpoints", ending

    def path(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch:04}.{self._ending}"

    def epochs(self) -> list[int]:
        names = (path.name for path in self._folder.glob(f"epoch-*.{self._ending}"))
        return sorted(int(name.split(".")[0].removeprefix("epoch-")) for name in names)

    def save(self, learner: Learner, epoch: int) -> None:
        with appearing(self.path(epoch)) as path:
            learner.save(path)
        for old in self.epochs()[:-CHECKPOINTS_KEPT]:
            self.path(old).unlink()


# The loop


class Learner:
    """What a framework does. This much is one process on its own."""

    rank, world = 0, 1
    ending = ""
    """of its checkpoints' names"""

    def step(self, images: Array, labels: Array) -> tuple[int, float, int]:
        """Train on a batch, together with all ranks. How many samples, their loss and how many were right, summed."""
        raise NotImplementedError

    def rest(self) -> tuple[int, float, int]:
        """The same of steps that were not over when `step` returned."""
        return 0, 0.0, 0

    def right(self, images: Array, labels: Array) -> int:
        """How many of these the network gets right."""
        raise NotImplementedError

    def total(self, number: float) -> float:
        """The sum over all ranks, which all have to ask for it."""
        return number

    def save(self, path: Path) -> None:
        """All that is needed to go on: weights and the optimizer's state."""
        raise NotImplementedError

    def load(self, path: Path) -> None:
        raise NotImplementedError


def run(learner: Learner, asked: argparse.Namespace, data: tuple[Samples, Samples]) -> None:
    """Train or evaluate, as asked."""
    train, test = data
    made = ", generated" if (asked.data_dir / "GENERATED").exists() else ""
    print(f"rank {learner.rank} of {learner.world}: {len(train)} + {len(test)} samples{made}", flush=True)
    checkpoints = Checkpoints(asked.run_dir, learner.ending)
    if asked.no_exchange:
        learner.total = lambda number: number
        done = 0
    else:
        # One rank looks, since a folder on a network may not look the same to all of them.
        done = int(learner.total(max(checkpoints.epochs(), default=0) if learner.rank == 0 else 0))
    if done:
        learner.load(checkpoints.path(done))
        print(f"goes on from {checkpoints.path(done).name}", flush=True)
    if asked.evaluate:
        if not done:
            sys.exit(f"{asked.run_dir / 'checkpoints'} has no checkpoint to evaluate: train first.")
        evaluate(learner, asked, test, done)
    else:
        learn(learner, asked, train, test, checkpoints, done)
    learner.total(0)  # Nobody leaves while another still needs it.


def learn(
    learner: Learner, asked: argparse.Namespace, train: Samples, test: Samples, checkpoints: Checkpoints, done: int
) -> None:
    shard = train.shard(learner.rank, learner.world)
    # By what the smallest shard has: all ranks take as many steps, or the last would wait for the others for ever.
    steps = max(1, len(train) // learner.world // asked.batch_size)
    metrics = Metrics(asked.run_dir, learner.rank, learner.world, done, asked.epochs, steps)
    for epoch in range(done + 1, asked.epochs + 1):
        metrics.begin_epoch()
        # The order depends on nothing that went before, so that a run that goes on takes the same one.
        chance = np.random.default_rng((asked.seed, epoch, learner.rank))
        for images, labels in shard.shuffled_batches(asked.batch_size, steps, chance):
            metrics.add(*learner.step(images, labels))
        metrics.add(*learner.rest(), steps=0)
        metrics.end_epoch(right_of(learner, asked, test) / len(test))
        if learner.rank == 0 and not asked.no_exchange:
            checkpoints.save(learner, epoch)


def right_of(learner: Learner, asked: argparse.Namespace, test: Samples) -> int:
    """Of the whole test set: each rank looks at its shard, and their counts are summed. Alone, each looks at all."""
    mine = test if asked.no_exchange else test.shard(learner.rank, learner.world)
    return round(learner.total(sum(learner.right(*batch) for batch in mine.batches(asked.batch_size))))


def evaluate(learner: Learner, asked: argparse.Namespace, test: Samples, epoch: int) -> None:
    right = right_of(learner, asked, test)
    print(f"val_accuracy {right / len(test):.4f}: {right} of {len(test)}, after epoch {epoch}", flush=True)
    if learner.rank == 0:
        told = {"epoch": epoch, "val_accuracy": right / len(test), "right": right, "samples": len(test)}
        path = asked.run_dir / "metrics" / "evaluation.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
