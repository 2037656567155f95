"""How busy GPUs are while a run trains: read on each node, sent by a wrapper, and summed up by the master."""

from __future__ import annotations

import json
import queue
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from deeplearning.gpus import busy
from deeplearning.runs import plan as plans
from deeplearning.runs import wrapper
from deeplearning.runs.folder import Folder

from tests.nvml import Gpus
from tests.unit.node.runs_kit import send, started

WAIT_SECONDS = 60


def watched(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """Return the first reports, and end the thread then."""
    reports: queue.SimpleQueue[int] = queue.SimpleQueue()
    passed = iter(range(count))
    monkeypatch.setattr(busy, "time", SimpleNamespace(sleep=lambda _seconds: next(passed)))
    monkeypatch.setattr("threading.excepthook", lambda _arguments: None)
    busy.watch(reports.put)
    return [reports.get(timeout=WAIT_SECONDS) for _reading in range(count)]


def test_the_average_of_a_nodes_gpus_is_reported(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.set(count=3, busy=90, gpu1_busy=30, gpu2_lost=1)
    assert watched(monkeypatch, 2) == [60, 60]


def test_a_reading_without_an_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def gpu(percent: int | None) -> SimpleNamespace:
        return SimpleNamespace(busy_percent=percent)

    readings = iter([(), (gpu(None),), (gpu(None), gpu(255)), (gpu(3),)])
    monkeypatch.setattr(busy.nvml, "read", lambda _seconds: SimpleNamespace(gpus=next(readings)))
    reports: queue.SimpleQueue[int] = queue.SimpleQueue()
    passed = iter(range(4))
    monkeypatch.setattr(busy, "time", SimpleNamespace(sleep=lambda _seconds: next(passed)))
    monkeypatch.setattr("threading.excepthook", lambda _arguments: None)
    busy.watch(reports.put)
    assert [reports.get(timeout=WAIT_SECONDS) for _reading in range(2)] == [100, 3]


@pytest.mark.parametrize(
    ("readings", "median"), [([], None), ([0], 0), ([100], 100), ([0, 90, 91], 90), ([0, 0, 50, 60], 0), ([5] * 9, 5)]
)
def test_the_median_of_all_readings(readings: list[int], median: int | None) -> None:
    assert busy.median(Counter(readings)) == median


def test_the_master_sums_up_what_wrappers_send(run: Folder) -> None:
    attempt = started(run)
    send(attempt, (1, {"gpu_busy": 10}), (2, {"gpu_busy": 80}), (1, {"gpu_busy": 70}), (99, {"gpu_busy": 1}))
    assert busy.median(attempt.processes.gpu_busy) == 70


@pytest.mark.parametrize("processor", [False, True])
def test_the_first_wrapper_of_each_node_with_gpus_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processor: bool
) -> None:
    gpus = {"one": 2, "two": 2, "three": 0}
    nodes = tuple(plans.Node(name, "10.0.0.1", count) for name, count in gpus.items())
    places = [
        ("one", "ps", 0),
        ("one", "worker", 0),
        ("one", "worker", 1),
        ("two", "worker", 2),
        ("three", "worker", 3),
    ]
    processes = tuple(plans.Process(node, role, rank, 0) for node, role, rank in places)
    plan = plans.Plan("pytorch", "ddp", nodes, processes)
    start = {"plan": plans.as_json(plan), "processor": processor, "folder": "/"}
    (tmp_path / "plan.json").write_text(json.dumps(start))
    watching: list[int] = []
    # It would change how this process may write.
    monkeypatch.setattr(wrapper.messages, "keep_writes_apart", lambda _output: None)
    monkeypatch.setattr(wrapper, "check_node", lambda _node: None)
    # It would wait for other processes to save.
    monkeypatch.setattr(wrapper.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(wrapper, "prepare", lambda *_words: ({}, []))
    monkeypatch.setattr(wrapper, "Child", lambda *_words: SimpleNamespace(wait=lambda: 0))
    for number in range(len(places)):
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", str(number))
        monkeypatch.setattr(busy, "watch", lambda _report, number=number: watching.append(number))
        assert wrapper.main([str(tmp_path / "plan.json")]) == 0
    assert watching == ([] if processor else [0, 3])
