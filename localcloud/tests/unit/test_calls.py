"""The log of calls: the newest in memory, all of them in a file."""

from __future__ import annotations

import json
from pathlib import Path

from localcloud.core.calls import CallLog, Record


def record(time: float, operation: str = "DescribeInstances") -> Record:
    return Record(time, "arn:aws:iam::123456789012:user/tester", "ec2", operation, "us-east-1")


def test_calls_since_a_time_are_those_from_it_on() -> None:
    log = CallLog()
    for time in (1.0, 2.0, 3.0):
        log.add(record(time))
    assert [call["time"] for call in log.since()] == [1.0, 2.0, 3.0]
    assert [call["time"] for call in log.since(2.0)] == [2.0, 3.0]
    assert log.since(3.1) == []


def test_memory_holds_the_newest() -> None:
    log = CallLog(keep=2)
    for time in (1.0, 2.0, 3.0):
        log.add(record(time))
    assert [call["time"] for call in log.since()] == [2.0, 3.0]


def test_a_record_tells_everything() -> None:
    log = CallLog()
    log.add(record(1.0))
    assert set(log.since()[0]) == {
        "time", "caller", "service", "operation", "region", "action", "required", "resource", "source", "result",
        "status", "milliseconds", "writes",
    }  # fmt: skip


def test_the_file_has_a_line_for_each_as_soon_as_it_was_made_and_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    for time in (1.0, 2.0):
        log = CallLog(path, keep=1)
        log.add(record(time, "a\nb"))
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) == time
        assert json.loads(lines[-1]) == log.since()[0]
        log.close()


def test_what_it_tells_is_a_copy() -> None:
    log = CallLog()
    kept = record(1.0)
    kept.required.append({"action": "ec2:DescribeInstances"})
    log.add(kept)
    log.since()[0]["required"].clear()
    assert log.since()[0]["required"] == [{"action": "ec2:DescribeInstances"}]
