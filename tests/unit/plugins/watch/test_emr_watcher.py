"""The wait for an EMR cluster: progress, failures with their logs, and the deadline."""

from __future__ import annotations

import datetime
import gzip
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch import emr_watcher
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.emr_watcher import EmrWatch, tail_of

MACHINE = "i-0123456789abcdef0"
ON_CORE = f"On 1 slave instances (including {MACHINE}), bootstrap action 1 returned a non-zero return code"
LOG = f"logs/emr-logs/j-1/node/{MACHINE}/bootstrap-actions/1/stderr.gz"


class Aws:
    """An EMR cluster that goes through some states, one in each poll, as (state, configured, reason)."""

    region, account = "us-east-1", "123456789012"

    def __init__(self, *states: tuple[str, int, str], logs: dict[str, bytes] | None = None, late: int = 0) -> None:
        self.states, self.logs, self.late = list(states), logs or {}, late
        self.writes: list[str] = []
        self.ended: list[dict[str, Any]] = []

    def call(self, _service: str, operation: str, **_params: Any) -> dict[str, Any]:
        if operation == "describe_cluster":
            if len(self.states) > 1:
                self.now = self.states.pop(0)
            else:
                self.now = self.states[0]
            state, _count, reason = self.now
            code = "BOOTSTRAP_FAILURE" if "bootstrap action" in reason else "VALIDATION_ERROR"
            shown = {"Code": code, "Message": reason} if reason else {}
            return {"Cluster": {"Status": {"State": state, "StateChangeReason": shown}}}
        self.writes.append(operation)
        if operation == "terminate_job_flows":
            self.states = [("TERMINATING", 0, ""), ("TERMINATED", 0, "Terminated by user request")]
        return {}

    def pages(self, _service: str, operation: str, _key: str, **_params: Any) -> list[Any]:
        if operation == "list_instances":
            return self.ended
        count = self.now[1]
        return [
            {"InstanceGroupType": "MASTER", "RequestedInstanceCount": 1, "RunningInstanceCount": min(1, count)},
            {"InstanceGroupType": "CORE", "RequestedInstanceCount": 2, "RunningInstanceCount": max(0, count - 1)},
        ]

    def content(self, bucket: str, key: str, owner: str, most: int) -> bytes:
        assert owner == self.account and most <= 1 << 20
        if self.late:
            self.late -= 1
        elif f"{bucket}/{key}" in self.logs:
            return self.logs[f"{bucket}/{key}"]
        raise AwsError("not there", "NoSuchKey")


def watch(aws: Aws, timeout: float = 600) -> tuple[dict[str, Any], list[str]]:
    clock = [1000.0]
    lines: list[str] = []

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    result = EmrWatch(
        aws,  # type: ignore[arg-type]
        "j-1",
        "logs/emr-logs",
        timeout,
        30,
        lines.append,
        now=lambda: clock[0],
        sleep=sleep,
    ).run()
    return result, lines


def test_it_reports_progress_until_all_are_configured() -> None:
    aws = Aws(
        ("STARTING", 0, ""), ("BOOTSTRAPPING", 0, ""), ("BOOTSTRAPPING", 2, ""), ("RUNNING", 2, ""), ("WAITING", 3, "")
    )
    result, lines = watch(aws)
    assert lines == [
        "emr j-1: STARTING, 0/3 configured, 0:00",
        "emr j-1: BOOTSTRAPPING, 0/3 configured, 0:30",
        "emr j-1: BOOTSTRAPPING, 2/3 configured, 1:00",
        "emr j-1: RUNNING, 2/3 configured, 1:30",
    ]
    assert (result["outcome"], result["in_service"], result["changed"], result["waited_seconds"]) == (
        "full",
        3,
        False,
        120,
    )
    assert watch(Aws(("WAITING", 3, "")))[1] == []


def test_a_failed_bootstrap_action_shows_its_own_stderr() -> None:
    stderr = b"first\nthe mount target \x1b[31mdoes not answer\nE: step mount\n"
    aws = Aws(
        ("BOOTSTRAPPING", 1, ""),
        ("TERMINATING", 1, ON_CORE),
        ("TERMINATED_WITH_ERRORS", 0, ON_CORE),
        logs={LOG: gzip.compress(stderr)},
        late=2,
    )
    result, _lines = watch(aws)
    assert result["failed"] and result["outcome"] == "failed" and aws.writes == []
    lines = result["msg"].splitlines()
    assert lines[0] == f"The EMR cluster j-1 has ended: BOOTSTRAP_FAILURE: {ON_CORE}. Nothing keeps running."
    assert lines[1] == f"{MACHINE}, bootstrap action 1, s3://{LOG}:"
    assert lines[2:] == [
        "  first",
        "  the mount target \N{REPLACEMENT CHARACTER}[31mdoes not answer",
        "  E: step mount",
    ]


def test_without_a_log_it_says_where_it_should_be() -> None:
    result, _lines = watch(Aws(("TERMINATED_WITH_ERRORS", 0, ON_CORE)))
    assert result["msg"].endswith(f"s3://{LOG} is not there.")


def test_a_log_that_comes_late_is_awaited_with_a_message() -> None:
    stored = {LOG: gzip.compress(b"no space\n")}
    result, lines = watch(Aws(("TERMINATED_WITH_ERRORS", 0, ON_CORE), logs=stored, late=15))
    assert result["msg"].endswith("  no space")
    assert f"Waiting for s3://{LOG}, which EMR stores some minutes late." in lines


def test_all_logs_are_awaited_together() -> None:
    names = [f"i-{number:017x}" for number in range(1, 3)]
    reason = f"On 2 instances ({', '.join(names)}), bootstrap action 1 returned a non-zero return code"
    _result, pauses = watch_with(Aws(("TERMINATED_WITH_ERRORS", 0, reason)))
    assert sum(pauses) == emr_watcher.LOG_SECONDS


def test_an_end_for_another_reason_is_told() -> None:
    result, _lines = watch(Aws(("TERMINATED_WITH_ERRORS", 0, "The requested instance type is not available")))
    assert "VALIDATION_ERROR: The requested instance type is not available. Nothing keeps" in result["msg"]


def test_one_that_does_not_become_ready_in_time_is_terminated() -> None:
    aws = Aws(("STARTING", 0, ""))
    result, _lines = watch(aws, timeout=120)
    assert aws.writes == ["set_termination_protection", "terminate_job_flows"]
    assert result["failed"] and result["changed"]
    assert "was still STARTING after 2:00, so it was terminated. Nothing keeps running." in result["msg"]


def test_a_core_node_that_joins_later_and_fails_leaves_the_others() -> None:
    aws = Aws(("WAITING", 2, ""), logs={LOG: gzip.compress(b"no space\n")})
    status = {"State": "TERMINATED", "StateChangeReason": {"Code": "BOOTSTRAP_FAILURE", "Message": ON_CORE}}
    long_ago = {"EndDateTime": datetime.datetime.fromtimestamp(0, datetime.UTC)}
    aws.ended = [{"Ec2InstanceId": "i-00000000000000001", "Status": {**status, "Timeline": long_ago}}]
    assert "2/3 are configured after 1:00" in watch(aws, timeout=60)[0]["msg"]
    aws.ended.append({"Ec2InstanceId": MACHINE, "Status": status})
    result, _lines = watch(aws)
    assert "The others go on, 2/3 of them." in result["msg"] and "  no space" in result["msg"]
    assert aws.writes == [] and MACHINE in result["msg"] and "i-00000000000000001" not in result["msg"]


@pytest.mark.parametrize(
    ("compressed", "expected"),
    [
        (gzip.compress(b"a" * 10_000 + b"\nend", mtime=0), "a" * (emr_watcher.LOG_CHARACTERS - 4) + "\nend"),
        (gzip.compress(b"whole\n" * 3, mtime=0)[:-8], "whole\n" * 3),
        (b"".join(gzip.compress(part, mtime=0) for part in (b"one\n", b"", b"two\n")), "one\ntwo\n"),
        (gzip.compress(b"one\n", mtime=0) + b"\0" * 20, "one\n"),
        (b"no gzip at all", ""),
        (b"", ""),
    ],
)
def test_the_end_of_a_log_is_read_whatever_it_holds(compressed: bytes, expected: str) -> None:
    assert tail_of(compressed) == expected


def test_a_log_that_would_fill_the_memory_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emr_watcher, "MOST_DECOMPRESSED", 1 << 17)
    assert tail_of(gzip.compress(b"x" * (1 << 22) + b"end")) == "x" * emr_watcher.LOG_CHARACTERS


def watch_with(aws: Any, logs: str = "logs/emr-logs", timeout: float = 60) -> tuple[dict[str, Any], list[float]]:
    """Return the result and the pauses."""
    clock, pauses = [1000.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    result = EmrWatch(aws, "j-1", logs, timeout, 30, lambda _line: None, now=lambda: clock[0], sleep=sleep).run()
    return result, pauses


def test_a_result_has_the_numbers_of_all_groups() -> None:
    result, pauses = watch_with(Aws(("STARTING", 1, ""), ("WAITING", 3, "")))
    assert result == {
        "changed": False,
        "outcome": "full",
        "desired": 3,
        "in_service": 3,
        "waited_seconds": 30.0,
        "msg": "The EMR cluster j-1 is WAITING, 3/3 configured.",
    }
    assert pauses == [30]


def test_only_some_machines_logs_are_read_each_once() -> None:
    names = [f"i-{number:017x}" for number in range(1, 6)]
    reason = f"On 5 instances ({', '.join([names[0], *names])}), bootstrap action 2 returned a non-zero return code"
    result, _pauses = watch_with(Aws(("TERMINATED_WITH_ERRORS", 0, reason)), "logs")
    shown = [line for line in result["msg"].splitlines() if line.endswith("is not there.")]
    assert shown == [
        f"{name}, bootstrap action 2, s3://logs/j-1/node/{name}/bootstrap-actions/2/stderr.gz is not there."
        for name in names[: emr_watcher.MOST_LOGS]
    ]


def test_a_log_that_may_not_be_read_is_the_reason() -> None:
    class Closed(Aws):
        def content(self, *_words: Any) -> bytes:
            raise AwsError("AWS does not allow s3:GetObject.", "AccessDenied")

    result, pauses = watch_with(Closed(("TERMINATED_WITH_ERRORS", 0, ON_CORE)))
    assert result["msg"].endswith("stderr.gz:\n  AWS does not allow s3:GetObject.") and pauses == []


def test_the_last_lines_of_a_log_are_shown() -> None:
    lines = [f"line {number}" for number in range(emr_watcher.LOG_LINES + 1)]
    stored = {LOG: gzip.compress("\n".join(lines).encode())}
    result, _pauses = watch_with(Aws(("TERMINATED_WITH_ERRORS", 0, ON_CORE), logs=stored))
    assert result["msg"].splitlines()[2:] == [f"  {line}" for line in lines[1:]]


def test_an_end_without_a_reason_or_for_another_one_has_no_log() -> None:
    result, _pauses = watch_with(Aws(("TERMINATED", 0, "")))
    assert result["msg"] == "The EMR cluster j-1 has ended: EMR gives no reason. Nothing keeps running."
    assert (result["failed"], result["outcome"], result["changed"]) == (True, "failed", False)
    other = watch_with(Aws(("TERMINATED_WITH_ERRORS", 0, f"{MACHINE} is not available...")))[0]["msg"]
    assert other == (
        f"The EMR cluster j-1 has ended: VALIDATION_ERROR: {MACHINE} is not available. Nothing keeps running."
    )


def test_one_that_does_not_end_may_still_cost() -> None:
    class Slow(Aws):
        def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
            answer = super().call(service, operation, **params)
            self.states = [("TERMINATING", 0, "")] if self.writes else [("STARTING", 0, "")]
            return answer

    result, pauses = watch_with(Slow(("STARTING", 0, "")), timeout=60)
    assert (
        "was still STARTING after 1:00, so it was terminated. It is TERMINATING and may still cost. EMR"
        in (result["msg"])
    )
    assert result["msg"].endswith("aws emr describe-cluster --region us-east-1 --cluster-id j-1.")
    assert sum(pauses) >= 60 + emr_watcher.END_SECONDS


def test_a_late_end_is_awaited_for_its_reason() -> None:
    aws = Aws(("TERMINATING", 0, ""), ("TERMINATING", 0, ""), ("TERMINATED_WITH_ERRORS", 0, "No capacity"))
    result, _pauses = watch_with(aws, timeout=0)
    assert result["msg"] == "The EMR cluster j-1 has ended: VALIDATION_ERROR: No capacity. Nothing keeps running."
    assert aws.writes == []


@pytest.mark.parametrize(
    ("code", "ended", "counts"),
    [
        ("BOOTSTRAP_FAILURE", None, True),
        ("BOOTSTRAP_FAILURE", 40.0, True),
        ("BOOTSTRAP_FAILURE", 39.9, False),
        ("INSTANCE_FAILURE", None, False),
        ("", 100.0, False),
    ],
)
def test_which_core_nodes_have_failed_during_the_wait(code: str, ended: float | None, counts: bool) -> None:
    at = datetime.datetime.fromtimestamp(ended, datetime.UTC) if ended is not None else None
    status = {"StateChangeReason": {"Code": code}, "Timeline": {"EndDateTime": at} if at else None}
    assert emr_watcher._failed_since(status, 100.0) is counts
