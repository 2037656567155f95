"""From mpirun's output to each process's lines, and from metrics to progress."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from deeplearning.run.mpirun import Sorter
from deeplearning.run.progress import Progress, seconds_left, summary


def tagged(rank: int, piece: bytes) -> bytes:
    """As mpirun --tag-output writes a piece: a tag before it and after each line's end but the last."""
    tag = b"[1,%d]<stdout>:" % rank
    return tag + piece.replace(b"\n", b"\n" + tag, piece.count(b"\n") - piece.endswith(b"\n"))


def test_pieces_of_all_ranks_are_put_together_wherever_they_were_cut() -> None:
    chance = random.Random(1)
    messages = {
        rank: [{"line": chance.choice(["", "[1,0]", "x" * chance.randrange(9000), "[0.5]"])} for _ in range(40)]
        for rank in range(12)
    }
    pieces = []
    for told in messages.values():
        text = b"".join(json.dumps(message).encode() + b"\n" for message in told)
        cuts = sorted(chance.sample(range(1, len(text)), 30))
        pieces.append([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)])
    stream = b""
    while any(pieces):
        rank = chance.choice([rank for rank, left in enumerate(pieces) if left])
        stream += tagged(rank, pieces[rank].pop(0))

    sorter, heard = Sorter(), {rank: [] for rank in messages}
    while stream:
        size = chance.randrange(1, 5000)
        for rank, message in sorter.feed(stream[:size], last=size >= len(stream)):
            heard[rank].append(message)
        stream = stream[size:]
    assert heard == messages


def test_a_line_is_heard_at_once_even_if_it_ends_like_a_tag_begins() -> None:
    told = {"line": "loss [1"}
    assert list(Sorter().feed(tagged(3, json.dumps(told).encode() + b"\n"))) == [(3, told)]


def test_what_is_not_from_a_wrapper_is_a_line() -> None:
    assert list(Sorter().feed(tagged(0, b"error while loading shared libraries\r\n"))) == [
        (0, {"line": "error while loading shared libraries"})
    ]


def metric(**more: Any) -> dict[str, Any]:
    return {"epoch": 1, "step": 10, "loss": 2.0, "accuracy": 0.25, "samples_per_second": 100.0, **more}


def test_throughput_is_summed_loss_averaged_and_the_slowest_counts() -> None:
    made = summary([metric(), metric(loss=1.0, step=8, samples_per_second=50.0)], 0.5)
    assert made == {
        "epoch": 1,
        "step": 8,
        "loss": 1.5,
        "accuracy": 0.25,
        "val_accuracy": 0.5,
        "samples_per_second": 150.0,
        "ranks": 2,
        "seconds_left": None,
    }


def test_nobody_has_written_yet() -> None:
    assert summary([]) is None


@pytest.mark.parametrize(
    ("record", "left"),
    [
        ({"step": 10, "steps": 40, "seconds": 5.0}, 15.0),
        ({"step": 50, "steps": 40, "seconds": 5.0}, 0.0),
        ({"step": 0, "steps": 40, "seconds": 5.0}, None),
        ({"step": 10, "seconds": 5.0}, None),
        ({"step": 10, "steps": float("nan"), "seconds": 5.0}, None),
    ],
)
def test_time_left(record: dict[str, Any], left: float | None) -> None:
    assert seconds_left(record) == left


def test_only_what_was_written_since_the_start_counts_and_half_a_line_waits(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    file = tmp_path / "metrics" / "rank0.jsonl"
    file.write_text(json.dumps(metric(step=1)) + "\n")
    progress = Progress(str(tmp_path))
    assert progress.news() is None
    with file.open("a") as more:
        more.write(json.dumps(metric(step=2, val_accuracy=0.75)) + "\n" + json.dumps(metric(step=3))[:9])
    assert (progress.news() or {})["step"] == 2
    assert progress.news() is None
    with file.open("a") as more:
        more.write(json.dumps(metric(step=3))[9:] + "\nnonsense\n")
    news = progress.news() or {}
    assert (news["step"], news["val_accuracy"]) == (3, 0.75)


def test_a_trainer_that_leaves_out_what_it_does_again_is_heard_at_once(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    file = tmp_path / "metrics" / "rank0.jsonl"
    file.write_text("".join(json.dumps(metric(step=step)) + "\n" for step in range(1, 20)))
    progress = Progress(str(tmp_path))
    file.write_text(json.dumps(metric(step=10)) + "\n")
    assert (progress.news() or {})["step"] == 10
    with file.open("a") as more:
        more.write(json.dumps(metric(step=11)) + "\n")
    assert (progress.news() or {})["step"] == 11
