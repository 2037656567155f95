"""The wait for an EMR cluster: progress, failures with their logs, and the deadline."""

from __future__ import annotations

import datetime
import gzip
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster import emr_watcher
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.emr_watcher import EmrWatch, tail_of

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
        (b"no gzip at all", ""),
        (b"", ""),
    ],
)
def test_the_end_of_a_log_is_read_whatever_it_holds(compressed: bytes, expected: str) -> None:
    assert tail_of(compressed) == expected


def test_a_log_that_would_fill_the_memory_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emr_watcher, "MOST_DECOMPRESSED", 1 << 17)
    assert tail_of(gzip.compress(b"x" * (1 << 22) + b"end")) == "x" * emr_watcher.LOG_CHARACTERS
