"""What all trainers share, with a learner that is a few lines of numpy."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path
from typing import Any

import common
import generate
import numpy as np
import pytest


class Together:
    """Ranks that are threads: what they add up, they wait for each other to add up."""

    def __init__(self, world: int) -> None:
        self.world, self.numbers, self.barrier = world, [0.0] * world, threading.Barrier(world)

    def total(self, rank: int, number: float) -> float:
        self.numbers[rank] = number
        self.barrier.wait(30)
        summed = sum(self.numbers)
        self.barrier.wait(30)
        return summed


class Mean(common.Learner):
    """Learns each class's mean brightness, by gradients that are summed over all ranks."""

    ending = "npy"

    def __init__(self, together: Together, rank: int) -> None:
        self.together, self.rank, self.world = together, rank, together.world
        self.means, self.steps = np.zeros(10), 0
        self.rates: list[float] = []
        self.seen: list[Any] = []

    def set_learning_rate(self, rate: float) -> None:
        self.rates.append(rate)

    def step(self, images: Any, labels: Any) -> tuple[int, float, int]:
        self.seen.append(images)
        away = images.mean(axis=(1, 2, 3)) - self.means[labels]
        for label in range(10):
            self.means[label] += 0.05 * self.total(float(away[labels == label].sum())) / self.world
        self.steps += 1
        return len(labels), float((away**2).sum()), 0

    def right(self, images: Any, labels: Any) -> int:
        brightness = images.mean(axis=(1, 2, 3))
        return int((abs(brightness[:, None] - self.means).argmin(1) == labels).sum())

    def total(self, number: float) -> float:
        return self.together.total(self.rank, number)

    def save(self, path: Path) -> None:
        with open(path, "wb") as file:
            np.save(file, self.means)

    def load(self, path: Path) -> None:
        self.means = np.load(path)

    def export(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        np.save(folder / "model.npy", self.means)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    generate.main([str(tmp_path / "data"), "--train", "203", "--test", "51"])
    return tmp_path / "data"


def asked(data: Path, run: Path, **more: Any) -> argparse.Namespace:
    """Return the defaults of the command line with some of its options."""
    words = ["--data-dir", str(data), "--run-dir", str(run), "--batch-size", "20", "--seed", "1"]
    if "max_steps" not in more:
        words += ["--epochs", "3"]
    with pytest.MonkeyPatch.context() as patch:
        options = arguments(patch, *words)
    return argparse.Namespace(**(vars(options) | more))


def run(ranks: int, options: argparse.Namespace) -> list[Mean]:
    together, problems = Together(ranks), []
    learners = [Mean(together, rank) for rank in range(ranks)]

    def one(learner: Mean) -> None:
        try:
            common.run(learner, options, common.load(options.data_dir))
        except BaseException as error:
            problems.append(error)
            together.barrier.abort()

    threads = [threading.Thread(target=one, args=(learner,)) for learner in learners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for problem in problems:
        if not isinstance(problem, threading.BrokenBarrierError):
            raise problem
    return learners


def lines(run: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"metrics/rank{rank}.jsonl").read_text().splitlines()]


def curve(run: Path, rank: int = 0) -> list[tuple[object, ...]]:
    names = ("epoch", "step", "loss", "accuracy", "val_accuracy")
    return [tuple(line[name] for name in names) for line in lines(run, rank) if line["val_accuracy"] is not None]


# Data


@pytest.mark.parametrize("count", [1, 10, 203])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_every_sample_is_in_one_shard(count: int, world: int) -> None:
    samples = common.Samples(np.arange(count), np.arange(count))
    shards = [samples.shard(rank, world) for rank in range(world)]
    assert sorted(number for shard in shards for number in shard.labels) == list(range(count))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_batches_are_full_and_hold_no_sample_twice_while_there_are_others() -> None:
    samples = common.Samples(np.arange(10), np.arange(10))
    chance = np.random.default_rng(0)
    full = [set(labels) for _, labels in samples.shuffled_batches(4, 2, chance)]
    assert [len(batch) for batch in full] == [4, 4] and not full[0] & full[1]
    (larger,) = samples.shuffled_batches(25, 1, chance)
    assert len(larger[1]) == 25 and set(larger[1]) == set(range(10))


def test_cifar10_is_read_as_rows_columns_colours(tmp_path: Path) -> None:
    record = bytes([7]) + bytes([10]) * 1024 + bytes([20]) * 1024 + bytes([30]) * 1023 + bytes([99])
    for name in ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(record)
    train, test = common.load(tmp_path)
    assert (train.images.shape, test.images.shape) == ((2, 32, 32, 3), (1, 32, 32, 3))
    assert list(train.labels) == [7, 7]
    assert list(train.images[0, 0, 0]) == [10, 20, 30] and list(train.images[0, 31, 31]) == [10, 20, 99]


def test_the_unpacked_archive_of_the_publisher_is_read(tmp_path: Path) -> None:
    generate.main([str(tmp_path / "cifar-10-batches-bin"), "--train", "5", "--test", "1"])
    assert len(common.load(tmp_path)[0]) == 5


def test_mnist_has_one_colour(tmp_path: Path) -> None:
    generate.main([str(tmp_path), "--format", "mnist", "--train", "6", "--test", "2"])
    train, test = common.load(tmp_path)
    assert (train.images.shape, len(test)) == ((6, 28, 28, 1), 2)


def test_incomplete_or_missing_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has neither data_batch_1.bin"):
        common.load(tmp_path)
    generate.main([str(tmp_path), "--train", "5", "--test", "1"])
    (tmp_path / "data_batch_3.bin").write_bytes(b"cut off")
    with pytest.raises(SystemExit, match="data_batch_3.bin has 7 bytes, no multiple of 3073"):
        common.load(tmp_path)


# The command line


def arguments(monkeypatch: pytest.MonkeyPatch, *words: str) -> argparse.Namespace:
    monkeypatch.setattr(sys, "argv", ["trainer", *words])
    return common.arguments("A trainer.", ("ddp", "horovod"), "ddp")


def test_the_launcher_sets_defaults_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DATA_DIR": "/data", "RUN_DIR": "/run/a", "DISTRIBUTION": "horovod"}.items():
        monkeypatch.setenv(f"DEEPLEARNING_{name}", value)
    options = arguments(monkeypatch, "--epochs", "2")
    assert (options.data_dir, options.run_dir, options.distribution) == (Path("/data"), Path("/run/a"), "horovod")
    assert arguments(monkeypatch, "--distribution", "ddp").distribution == "ddp"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--data-dir is missing"),
        (["--data-dir", "d"], "--run-dir is missing"),
        (["--epochs", "0"], "0: give 1 or more"),
        (["--num-layers", "21"], "21: give 6n + 2"),
        (["--network", "vgg"], "invalid choice: 'vgg'"),
        (["--lr-step-epochs", "3,0"], "0: give 1 or more"),
        (["--max-steps", "0"], "0: give 1 or more"),
    ],
)
def test_invalid_options_are_refused(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DATA_DIR", "RUN_DIR", "DISTRIBUTION"):
        monkeypatch.delenv(f"DEEPLEARNING_{name}", raising=False)
    with pytest.raises(SystemExit):
        arguments(monkeypatch, *words)
    assert message in capsys.readouterr().err


# What is left behind


def test_a_file_whose_writing_fails_does_not_appear(tmp_path: Path) -> None:
    path = tmp_path / "epoch-0001.pt"
    path.write_text("former")
    with pytest.raises(OSError, match="no space"), common.replacing(path) as unfinished:
        unfinished.write_text("half")
        raise OSError("no space")
    assert path.read_text() == "former"


def test_the_newest_checkpoints_are_kept_and_an_unfinished_one_is_none(tmp_path: Path, data: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".epoch-0009.npy").write_text("half")
    run(1, asked(data, tmp_path, epochs=5))
    assert common.Checkpoints(tmp_path, "npy").points() == [(3, 0), (4, 0), (5, 0)]


def test_a_loss_that_is_no_number_is_null(tmp_path: Path) -> None:
    metrics = common.Metrics(tmp_path, 0, 1, common.Schedule(1, 1), 0)
    metrics.begin_epoch()
    metrics.add(10, float("nan"), 1)
    metrics.end_epoch(0.1)
    assert lines(tmp_path)[0]["loss"] is None


def test_metrics_are_written_during_a_long_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000))
    monkeypatch.setattr(common.time, "monotonic", lambda: float(next(now)))
    metrics = common.Metrics(tmp_path, 3, 4, common.Schedule(5, 5), 0)
    metrics.begin_epoch()
    for _ in range(5):
        metrics.add(10, 20.0, 5)
    metrics.end_epoch(0.25)
    reported = [
        (line["step"], line["seconds"], line["samples_per_second"], line["val_accuracy"]) for line in lines(tmp_path, 3)
    ]
    assert reported == [(2, 2.0, 10.0, None), (4, 4.0, 10.0, None), (5, 5.0, 10.0, 0.25)]
    assert {(line["loss"], line["accuracy"], line["steps"]) for line in lines(tmp_path, 3)} == {(2.0, 0.5, 5)}
    assert not (tmp_path / "tensorboard").exists()


def test_what_is_on_the_device_is_read_when_a_line_is_due(tmp_path: Path) -> None:
    metrics = common.Metrics(tmp_path, 0, 1, common.Schedule(5, 5), 0, log_steps=2)
    metrics.begin_epoch()
    steps = []

    def read() -> common.Result:
        unread = metrics.step - sum(steps)
        steps.append(unread)
        return 10 * unread, 20.0 * unread, 5 * unread

    for _ in range(5):
        metrics.add(0, 0.0, 0, read=read)
    assert steps == [2, 2]
    metrics.add(*read(), steps=0)
    metrics.end_epoch(0.25)
    written = [(line["step"], line["loss"], line["accuracy"], line["val_accuracy"]) for line in lines(tmp_path)]
    assert written == [(2, 2.0, 0.5, None), (4, 2.0, 0.5, None), (5, 2.0, 0.5, 0.25)]


# The loop


def test_a_resumed_run_has_the_same_curve_as_an_uninterrupted_one(tmp_path: Path, data: Path) -> None:
    run(2, asked(data, tmp_path / "whole"))
    run(2, asked(data, tmp_path / "parted", epochs=1))
    # It was ended within the second epoch: its lines of that are written again.
    with open(tmp_path / "parted/metrics/rank1.jsonl", "a", encoding="utf-8") as file:
        file.write('{"epoch": 2, "step": 7, "seconds": 9, "val_accuracy": null}\n{"epoch": 2, "st')
    run(2, asked(data, tmp_path / "parted"))
    for rank in (0, 1):
        assert curve(tmp_path / "parted", rank) == curve(tmp_path / "whole", rank)
        seconds = [line["seconds"] for line in lines(tmp_path / "parted", rank)]
        assert seconds == sorted(seconds)


def test_a_run_resumes_with_fewer_ranks(tmp_path: Path, data: Path) -> None:
    run(3, asked(data, tmp_path, epochs=1))
    with open(tmp_path / "metrics/rank2.jsonl", "a", encoding="utf-8") as file:
        file.write('{"epoch": 2, "step": 4, "seconds": 9}\n')
    run(2, asked(data, tmp_path, epochs=2))
    assert [line["epoch"] for line in lines(tmp_path, 0)] == [1, 2]
    assert [line["epoch"] for line in lines(tmp_path, 2)] == [1]


def test_a_run_that_is_complete_trains_no_more(tmp_path: Path, data: Path) -> None:
    run(1, asked(data, tmp_path))
    before = curve(tmp_path)
    assert run(1, asked(data, tmp_path))[0].steps == 0
    assert curve(tmp_path) == before


def test_ranks_with_unequal_shards_take_as_many_steps(tmp_path: Path, data: Path) -> None:
    """203 samples on 2 ranks are 102 and 101: with batches of 102, one of them lacks a sample."""
    for size in (20, 102, 500):
        learners = run(2, asked(data, tmp_path / str(size), batch_size=size, epochs=2))
        assert len({learner.steps for learner in learners}) == 1


def test_accuracy_is_that_of_the_whole_test_set_and_the_same_on_all_ranks(tmp_path: Path, data: Path) -> None:
    first = run(2, asked(data, tmp_path))[0]
    assert curve(tmp_path, 0)[-1][-1] == curve(tmp_path, 1)[-1][-1]
    test = common.load(data)[1]
    assert curve(tmp_path)[-1][-1] == first.right(test.images, test.labels) / 51


def test_without_exchange_each_rank_is_alone_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    generate.main([str(tmp_path / "data"), "--train", "400", "--test", "100", "--skew", "2"])
    alone = run(2, asked(tmp_path / "data", tmp_path / "alone", no_exchange=True))
    assert [list(learner.means > 0) for learner in alone] == [[True, False] * 5, [False, True] * 5]
    assert not (tmp_path / "alone/checkpoints").exists()
    together = run(2, asked(tmp_path / "data", tmp_path / "together"))
    assert (together[0].means > 0).all() and list(together[0].means) == list(together[1].means)


def test_the_newest_checkpoint_is_evaluated_by_any_number_of_ranks(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(2, asked(data, tmp_path))
    trained = curve(tmp_path)
    run(3, asked(data, tmp_path, evaluate=True))
    (record,) = [json.loads(line) for line in (tmp_path / "metrics/evaluation.jsonl").read_text().splitlines()]
    assert record["val_accuracy"] == trained[-1][-1] == record["right"] / record["samples"]
    assert record["epoch"] == 3 and f"{record['right']} of 51, after epoch 3" in capsys.readouterr().out
    assert curve(tmp_path) == trained


def test_an_older_checkpoint_can_be_evaluated(tmp_path: Path, data: Path) -> None:
    run(2, asked(data, tmp_path))
    run(2, asked(data, tmp_path, evaluate=True, checkpoint=tmp_path / "checkpoints/epoch-0002.npy"))
    record = json.loads((tmp_path / "metrics/evaluation.jsonl").read_text())
    assert (record["epoch"], record["val_accuracy"]) == (2, curve(tmp_path)[1][-1])
    with pytest.raises(SystemExit, match="other.npy is no checkpoint of this trainer"):
        run(1, asked(data, tmp_path, evaluate=True, checkpoint=tmp_path / "checkpoints/other.npy"))


def test_there_must_be_a_checkpoint_to_evaluate(tmp_path: Path, data: Path) -> None:
    with pytest.raises(SystemExit, match="has no checkpoint to evaluate"):
        run(1, asked(data, tmp_path, evaluate=True))


# 203 samples in batches of 20 are 10 steps an epoch.
def test_a_run_ends_after_its_last_step_and_resumes_within_an_epoch(tmp_path: Path, data: Path) -> None:
    run(1, asked(data, tmp_path / "whole", max_steps=24, crop=True, mirror=True))
    assert [line[:2] for line in curve(tmp_path / "whole")] == [(1, 10), (2, 20), (3, 24)]
    assert {line["steps"] for line in lines(tmp_path / "whole")} == {24}
    run(1, asked(data, tmp_path / "parted", max_steps=13, crop=True, mirror=True))
    assert common.Checkpoints(tmp_path / "parted", "npy").points() == [(1, 0), (1, 3)]
    learner = run(1, asked(data, tmp_path / "parted", max_steps=24, crop=True, mirror=True))[0]
    assert learner.steps == 11
    whole, parted = (np.load(tmp_path / name / "model/model.npy") for name in ("whole", "parted"))
    assert list(whole) == list(parted)
    assert curve(tmp_path / "parted")[-1][:2] == (3, 24)


@pytest.mark.parametrize(("epochs", "max_steps", "steps"), [(None, None, 50), (2, None, 20), (2, 7, 7), (None, 60, 60)])
def test_the_length_of_a_run(epochs: int | None, max_steps: int | None, steps: int, tmp_path: Path) -> None:
    options = asked(tmp_path, tmp_path, epochs=epochs, max_steps=max_steps)
    assert common.schedule(options, 203, 1).total == steps


def test_checkpoints_are_written_every_few_steps_and_at_the_end_of_epochs(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "CHECKPOINTS_KEPT", 99)
    run(1, asked(data, tmp_path, epochs=2, checkpoint_steps=4))
    points = [(0, 4), (0, 8), (1, 0), (1, 2), (1, 6), (2, 0)]
    assert common.Checkpoints(tmp_path, "npy").points() == points


def test_a_checkpoint_is_written_when_a_new_request_appears(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "SECONDS_BETWEEN_REQUESTS", 0.0)
    request, step = tmp_path / "checkpoint-request.json", Mean.step
    request.write_text("that of an earlier attempt")

    def requested(learner: Mean, images: Any, labels: Any) -> tuple[int, float, int]:
        if learner.steps == 12:
            request.unlink()
            request.write_text("{}")
        return step(learner, images, labels)

    monkeypatch.setattr(Mean, "step", requested)
    run(1, asked(data, tmp_path, epochs=2))
    assert common.Checkpoints(tmp_path, "npy").points() == [(1, 0), (1, 3), (2, 0)]


def test_the_learning_rate_falls_after_epochs_and_steps(tmp_path: Path, data: Path) -> None:
    more = {"lr": 1.0, "lr_factor": 0.5, "lr_step_epochs": (1,), "lr_steps": (3, 15)}
    learner = run(1, asked(data, tmp_path, epochs=2, **more))[0]
    assert learner.rates == [1.0, 0.5, 0.25, 0.125]


def test_a_line_is_written_every_few_steps(tmp_path: Path, data: Path) -> None:
    run(1, asked(data, tmp_path, epochs=1, log_steps=4))
    assert [line["step"] for line in lines(tmp_path)] == [4, 8, 10]


def test_the_first_samples_are_trained_on(tmp_path: Path, data: Path) -> None:
    learners = run(2, asked(data, tmp_path, epochs=1, num_examples=40))
    train = common.load(data)[0]
    seen = {image.tobytes() for learner in learners for batch in learner.seen for image in batch}
    assert seen == {image.tobytes() for image in train.images[:40]}


def test_images_are_cropped_and_mirrored(tmp_path: Path) -> None:
    images = np.arange(1, 6 * 8 * 8 * 3 + 1).reshape(6, 8, 8, 3)
    chance = np.random.default_rng(0)
    assert (common.augmented(images, asked(tmp_path, tmp_path), chance) == images).all()
    mirrored = common.augmented(images, asked(tmp_path, tmp_path, mirror=True), chance)
    same = [(one == other).all() for one, other in zip(mirrored, images, strict=True)]
    assert True in same and False in same
    assert (np.where(np.array(same)[:, None, None, None], mirrored, mirrored[:, :, ::-1]) == images).all()
    cropped = common.augmented(images, asked(tmp_path, tmp_path, crop=True), chance)
    assert cropped.shape == images.shape and not (cropped == images).all() and (cropped == 0).any()
    assert set(np.unique(cropped)) <= {0, *images.flat}


def test_the_model_is_exported_at_the_end_by_one_rank(tmp_path: Path, data: Path) -> None:
    learners = run(2, asked(data, tmp_path, epochs=1))
    assert list(np.load(tmp_path / "model/model.npy")) == list(learners[0].means)


def test_generated_data_is_named_in_the_output(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(1, asked(data, tmp_path, epochs=1))
    assert "203 + 51 samples, generated" in capsys.readouterr().out


def test_a_slow_evaluation_prints_a_line_now_and_then(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that prints nothing for minutes counts as stalled."""
    now = [0.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    learner, right = Mean(Together(1), 0), Mean.right

    def slow(self: Mean, images: Any, labels: Any) -> int:
        now[0] += 45
        return right(self, images, labels)

    monkeypatch.setattr(Mean, "right", slow)
    _train, test = common.load(data)
    common.right_of(learner, asked(data, tmp_path), test)
    assert [line for line in capsys.readouterr().out.splitlines() if "evaluates" in line] == [
        "evaluates: 40 of 51 samples"
    ]
