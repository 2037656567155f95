"""mpirun's output split by process, and metrics combined into progress."""

from __future__ import annotations

import json
import os
import random
import select
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deeplearning.runs import messages, mpirun, progress, stacks, wrapper
from deeplearning.runs.folder import Folder
from deeplearning.runs.mpirun import Sorter
from deeplearning.runs.progress import MetricsReader, seconds_left, summary

from tests.unit.node.runs_kit import send, started
from tests.unit.node.users_kit import HOSTILE, bounded, open_folder, prepare


def tagged(rank: int, piece: bytes, space: bytes = b"") -> bytes:
    """As mpirun --tag-output writes a piece: a tag before it and after each line's end but the last. Open MPI 5 puts a
    space behind the tag."""
    tag = b"[1,%d]<stdout>:%s" % (rank, space)
    return tag + piece.replace(b"\n", b"\n" + tag, piece.count(b"\n") - piece.endswith(b"\n"))


@pytest.mark.parametrize("space", [b"", b" "], ids=["Open MPI 4", "Open MPI 5"])
def test_pieces_of_all_ranks_are_put_together_wherever_they_were_cut(space: bytes) -> None:
    chance = random.Random(1)
    sent_by_rank = {
        rank: [{"line": chance.choice(["", " a ", "[1,0]", "x" * chance.randrange(9000), "[0.5]"])} for _ in range(40)]
        for rank in range(12)
    }
    pieces = []
    for sent in sent_by_rank.values():
        text = "".join(line for message in sent for line in messages.lines(message)).encode()
        cuts = sorted(chance.sample(range(1, len(text)), 30))
        pieces.append([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)])
    stream = b""
    while any(pieces):
        rank = chance.choice([rank for rank, left in enumerate(pieces) if left])
        stream += tagged(rank, pieces[rank].pop(0), space)

    sorter, sorted_messages = Sorter(), {rank: [] for rank in sent_by_rank}
    while stream:
        size = chance.randrange(1, 5000)
        for rank, message in sorter.feed(stream[:size], last=size >= len(stream)):
            sorted_messages[rank].append(message)
        stream = stream[size:]
    assert sorted_messages == sent_by_rank


@pytest.mark.parametrize("length", [1, messages.PART_SIZE - 11, messages.PART_SIZE - 10, 3 * messages.PART_SIZE, 70000])
@pytest.mark.parametrize("character", ["x", "\\", "<", "é"])
def test_a_message_is_sent_in_lines_that_are_read_at_once(length: int, character: str) -> None:
    """Open MPI 5 does not tag what it reads of a line later, so the others' may come between whole lines only."""
    sent = [{"line": character * length}, {"line": "of another"}]
    first, second = (list(messages.lines(message)) for message in sent)
    assert all(len(line.encode()) <= select.PIPE_BUF and "<" not in line for line in first)
    stream = tagged(0, "".join(first[:-1]).encode()) if first[:-1] else b""
    stream += tagged(1, "".join(second).encode()) + tagged(0, first[-1].encode())
    assert sorted(Sorter().feed(stream)) == [(0, sent[0]), (1, sent[1])]


def test_a_read_of_a_pipe_returns_one_line_and_other_outputs_are_left_as_they_are(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    messages.keep_writes_apart(writing)
    for line in ("first\n", "second\n"):
        os.write(writing, line.encode())
    assert os.read(reading, 4096) == b"first\n"
    os.close(reading)
    os.close(writing)
    terminal, other = os.openpty()
    messages.keep_writes_apart(other)
    os.write(other, b"whole")
    assert os.read(terminal, 4096) == b"whole"
    os.close(terminal)
    os.close(other)


@pytest.mark.parametrize(("namespace", "used"), [("3471048705", "stdout"), ("prterun-ip-10-0-0-5-82@1", "stderr")])
def test_a_wrapper_writes_where_mpirun_does_not_join_writes(
    namespace: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Open MPI 4 and 5 call a job."""
    monkeypatch.setenv("PMIX_NAMESPACE", namespace)
    assert wrapper.output() is getattr(sys, used)


def test_a_line_is_complete_at_once_even_if_it_ends_like_a_tag_begins() -> None:
    message = {"line": "loss [1"}
    assert list(Sorter().feed(tagged(3, json.dumps(message).encode() + b"\n"))) == [(3, message)]


def test_output_that_is_not_from_a_wrapper_is_a_line() -> None:
    assert list(Sorter().feed(tagged(0, b"error while loading shared libraries\r\n"))) == [
        (0, {"line": "error while loading shared libraries"})
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"stacks": 5},
        {"stacks": ["a", 5]},
        {"stacks": ["x"] * (stacks.MOST_LINES + 1)},
        {"stacks": ["x" * (stacks.MOST_BYTES + 1)]},
        {"stacks": ["a"], "state": 5},
        {"note": 5},
        {"note": "a\nb"},
        {"line": 5},
        {"line": "a", "time": "now"},
        {"line": "a", "time": float("nan")},
        {"line": "a", "time": 1e300},
        {"pid": "x"},
        {"end": "x"},
        {"end": None},
    ],
)
def test_a_malformed_message_is_a_line(run: Folder, message: dict[str, Any]) -> None:
    text = json.dumps(message)
    ((rank, received),) = Sorter().feed(tagged(1, text.encode() + b"\n"))
    assert (rank, received) == (1, {"line": text})
    # Nothing of it ends the attempt.
    send(started(run), (rank, received))


def test_a_message_that_is_nested_too_deeply_is_a_line() -> None:
    text = '{"a":' * 200_000
    assert list(Sorter().feed(tagged(0, text.encode() + b"\n"))) == [(0, {"line": text})]


def test_a_line_without_an_end_takes_a_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun, "LONGEST_MESSAGE", 10)
    sorter = Sorter()
    for _ in range(100):
        assert list(sorter.feed(tagged(0, b"x" * 7))) == []
        assert list(sorter.feed(tagged(1, b"y" * 7 + messages.CONTINUED.encode() + b"\n"))) == []
    assert list(sorter.feed(tagged(0, b"\n") + tagged(1, b"\n") + tagged(0, b"next\n"))) == [
        (0, {"line": "x" * 10}),
        (1, {"line": "y" * 10}),
        (0, {"line": "next"}),
    ]


def metric(**more: Any) -> dict[str, Any]:
    return {"epoch": 1, "step": 10, "loss": 2.0, "accuracy": 0.25, "samples_per_second": 100.0, **more}


def test_throughput_is_summed_loss_averaged_and_the_slowest_counts() -> None:
    combined = summary([metric(), metric(loss=1.0, step=8, samples_per_second=50.0)], {"val_accuracy": 0.5})
    assert combined == {
        "epoch": 1,
        "step": 8,
        "loss": 1.5,
        "accuracy": 0.25,
        "val_accuracy": 0.5,
        "average_precision": None,
        "samples_per_second": 150.0,
        "ranks": 2,
        "seconds_left": None,
    }


def test_a_line_without_an_epoch_or_a_step_has_its_other_figures() -> None:
    combined = summary([{"loss": 1.5}], {})
    assert combined is not None and (combined["epoch"], combined["step"], combined["loss"]) == (None, None, 1.5)


def test_no_summary_before_any_rank_has_written() -> None:
    assert summary([], {}) is None


@pytest.mark.parametrize(("ranks", "counted"), [(8, 9), (0, 2), (-3, 2), (None, 2), ("x", 2), (float("inf"), 2)])
def test_a_line_may_have_the_figures_of_several_ranks(ranks: Any, counted: int) -> None:
    combined = summary([metric(ranks=ranks), metric()], {"average_precision": 0.25})
    assert combined is not None and (combined["ranks"], combined["average_precision"]) == (counted, 0.25)


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
    reader = MetricsReader(str(tmp_path), 1)
    assert reader.news() is None
    with file.open("a") as more:
        more.write(json.dumps(metric(step=2, val_accuracy=0.75)) + "\n" + json.dumps(metric(step=3))[:9])
    assert (reader.news() or {})["step"] == 2
    assert reader.news() is None
    with file.open("a") as more:
        more.write(json.dumps(metric(step=3))[9:] + "\nnonsense\n")
    news = reader.news() or {}
    assert (news["step"], news["val_accuracy"]) == (3, 0.75)


def test_a_file_that_cannot_be_read_yet_is_read_later(tmp_path: Path) -> None:
    """It is listed, and NFS does not find it yet."""
    (tmp_path / "metrics").mkdir()
    file = tmp_path / "metrics" / "rank0.jsonl"
    file.symlink_to("nowhere")
    reader = MetricsReader(str(tmp_path), 1)
    assert reader.news() is None
    file.unlink()
    file.write_text(json.dumps(metric(step=7)) + "\n")
    assert (reader.news() or {})["step"] == 7


def test_a_trainer_that_removes_what_it_repeats_is_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    file = tmp_path / "metrics" / "rank0.jsonl"
    file.write_text("".join(json.dumps(metric(step=step)) + "\n" for step in range(1, 20)))
    reader = MetricsReader(str(tmp_path), 1)
    file.write_text(json.dumps(metric(step=10)) + "\n")
    assert (reader.news() or {})["step"] == 10
    with file.open("a") as more:
        more.write(json.dumps(metric(step=11)) + "\n")
    assert (reader.news() or {})["step"] == 11


def test_metrics_that_do_not_exist_yet_are_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An NFS client caches a missing name: what another node writes would not be seen for some time."""
    opened: list[str] = []

    def record(path: str) -> int:
        opened.append(path)
        return os.open(path, os.O_RDONLY)

    monkeypatch.setattr(progress.safe_files, "open_handle", record)
    reader = MetricsReader(str(tmp_path), 2)
    assert reader.news() is None
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/rank1.jsonl").write_text(json.dumps(metric(step=4)) + "\n")
    assert (reader.news() or {})["step"] == 4
    assert opened == [f"{tmp_path}/metrics/rank1.jsonl"]


class OpenedFiles:
    """Counts how often a reader opens each file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        really = progress.safe_files.open_handle

        def count(path: str, folder: int | None = None) -> int:
            self.counts[Path(path).name] += 1
            return really(path, folder)

        monkeypatch.setattr(progress.safe_files, "open_handle", count)


def write_metrics(folder: Path, ranks: int, step: int) -> None:
    (folder / "metrics").mkdir(exist_ok=True)
    for rank in range(ranks):
        with (folder / f"metrics/rank{rank}.jsonl").open("a") as file:
            file.write(json.dumps(metric(step=step)) + "\n")


def test_a_file_of_metrics_stays_open_while_lines_come_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On EFS each opening takes milliseconds, which thousands of ranks add up."""
    opened = OpenedFiles(monkeypatch)
    reader = MetricsReader(str(tmp_path), 200)
    for step in range(1, 6):
        write_metrics(tmp_path, 200, step)
        assert (reader.news() or {})["step"] == step
    assert set(opened.counts.values()) == {1} and len(opened.counts) == 200
    reader.close()
    assert reader.news() is None and set(opened.counts.values()) == {2}
    reader.close()


def test_files_without_news_are_opened_again_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = OpenedFiles(monkeypatch)
    write_metrics(tmp_path, 200, 1)
    reader = MetricsReader(str(tmp_path), 200)
    opened.counts.clear()
    reader.news()
    assert opened.counts.total() == 200
    for call in range(1, 5):
        opened.counts.clear()
        assert reader.news() is None
        assert opened.counts.total() == 64 == len(opened.counts)
        if call == 1:
            first = set(opened.counts)
        elif call < 4:
            assert first.isdisjoint(opened.counts)
    assert first & set(opened.counts)
    reader.close()


def test_a_file_that_replaces_another_is_read(tmp_path: Path) -> None:
    """A trainer removes in this way what it repeats."""
    write_metrics(tmp_path, 1, 10)
    reader = MetricsReader(str(tmp_path), 1)
    write_metrics(tmp_path, 1, 11)
    assert (reader.news() or {})["step"] == 11
    new = tmp_path / "new"
    new.write_text(json.dumps(metric(step=9)) + "\n")
    new.replace(tmp_path / "metrics/rank0.jsonl")
    assert (reader.news() or {})["step"] == 9
    write_metrics(tmp_path, 1, 10)
    assert (reader.news() or {})["step"] == 10
    (tmp_path / "metrics/rank0.jsonl").unlink()
    assert reader.news() is None
    write_metrics(tmp_path, 1, 1)
    assert (reader.news() or {})["step"] == 1
    reader.close()


def test_a_line_without_end_costs_the_reader_of_metrics_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics").mkdir()
    file = tmp_path / "metrics" / "rank0.jsonl"
    reader = MetricsReader(str(tmp_path), 1)
    file.write_text(json.dumps(metric(step=1)) + "\n")
    os.truncate(file, 100 * 2**30)
    assert bounded(reader.news) is None
    with file.open("a") as more:
        more.write("\n" + json.dumps(metric(step=2)) + "\n")
    assert bounded(lambda: (reader.news() or {})["step"]) == 2


def test_of_many_new_lines_the_newest_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOST_BYTES", 500)
    (tmp_path / "metrics").mkdir()
    file = tmp_path / "metrics" / "rank0.jsonl"
    reader = MetricsReader(str(tmp_path), 1)
    file.write_text("".join(json.dumps(metric(step=step)) + "\n" for step in range(1, 100)))
    assert (reader.news() or {})["step"] == 99
    assert reader.news() is None
    with file.open("a") as more:
        more.write(json.dumps(metric(step=100)) + "\n")
    assert (reader.news() or {})["step"] == 100


@pytest.mark.root
@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_file_of_metrics_is_left_out(kind: str) -> None:
    with open_folder() as folder:
        (folder / "metrics").mkdir()
        (folder / "metrics").chmod(0o777)
        reader = MetricsReader(str(folder), 1)
        prepare(folder / "metrics/rank0.jsonl", kind)
        assert bounded(reader.news) is None and bounded(lambda: MetricsReader(str(folder), 1).news()) is None


@pytest.mark.parametrize(
    "line", ["[" * 10**5, '{"loss": 1%s}' % ("0" * 4000), '{"ranks": 1%s}' % ("0" * 4000), "1e999"]
)
def test_a_line_of_metrics_that_no_trainer_writes_ends_nothing(line: str, tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    reader = MetricsReader(str(tmp_path), 2)
    (tmp_path / "metrics/rank0.jsonl").write_text(json.dumps(metric()) + "\n")
    (tmp_path / "metrics/rank1.jsonl").write_text(line + "\n")
    news = reader.news() or {}
    assert (news["loss"], news["ranks"]) == (2.0, 2 if line.startswith("{") else 1)
    json.dumps(news)
