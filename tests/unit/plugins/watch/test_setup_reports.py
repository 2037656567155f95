"""What machines report while they configure themselves is data of machines that may be hostile."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.report import MAX_BYTES
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import ClusterResources, Resource
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import status_reader
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.setup_reports import SetupReports

from tests.account.fleet import host_key

MACHINE = "i-0123456789abcdef0"
KEY = f"members/AROAWORKER:{MACHINE}/report.json"
REPORT: dict[str, Any] = {
    "schema": 1,
    "instance_id": MACHINE,
    "host_keys": [host_key(MACHINE)],
    "gpus": 0,
    "state": "failed",
    "bundle": "1" * 64,
    "step": "efs_mount",
    "log": ["no route to host"],
    "reported_at": "2026-11-21T10:00:00Z",
}


class FakeAws:
    """A bucket. It counts the objects that are read."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[str] = []
        self.console = ""

    def put(self, key: str, **fields: Any) -> None:
        self.objects[key] = json.dumps(REPORT | fields).encode()

    def pages(self, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        assert (operation, params["ExpectedBucketOwner"]) == ("list_objects_v2", "123456789012")
        modified = datetime.fromtimestamp(100, UTC)
        return [{"Key": name, "ETag": str(hash(body)), "LastModified": modified} for name, body in self.objects.items()]

    def content(self, bucket: str, key: str, owner: str, most: int) -> bytes:
        self.reads.append(key)
        return BytesIO(self.objects[key]).read(most)

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        # AWS has posted nothing of a machine that runs.
        return {"Output": self.console} if params.get("Latest") else {}


def read(aws: Any, reports: SetupReports | None = None) -> Any:
    reports = reports or SetupReports(aws, "bucket", "123456789012", {"c-workers": "AROAWORKER"})
    return reports.read({"c-workers": [MACHINE]})


def test_nodes_of_emr_report_under_their_role() -> None:
    aws: Any = FakeAws()
    aws.put(f"members/AROANODE:{MACHINE}/report.json", state="ready")
    resources = [
        Resource("bucket", "bucket", "bucket"),
        Resource("role", "c-us-east-1-node", "c-us-east-1-node", facts={"id": "AROANODE"}),
        Resource("emr_cluster", "j-1", "c", facts={"in_service": [MACHINE]}),
    ]
    owned = ClusterResources("c", "123456789012", "us-east-1", resources)
    assert status_reader._reports(aws, owned)[MACHINE].bundle == "1" * 64


def test_a_report_is_read_when_it_has_changed() -> None:
    aws: Any = FakeAws()
    reports = SetupReports(aws, "bucket", "123456789012", {"c-workers": "AROAWORKER"})
    assert read(aws, reports) == {}
    aws.put(KEY, state="configuring")
    assert [read(aws, reports)[MACHINE].state for _ in range(3)] == ["configuring"] * 3
    aws.put(KEY)
    setup = read(aws, reports)[MACHINE]
    assert (setup.state, setup.step, list(setup.log), setup.reported) == (
        "failed",
        "efs_mount",
        ["no route to host"],
        100,
    )
    assert aws.reads == [KEY, KEY]


def test_other_machines_and_roles_cannot_report_for_it() -> None:
    aws: Any = FakeAws()
    aws.put(f"members/AROAMASTER:{MACHINE}/report.json")
    aws.put("members/AROAWORKER:i-0fedcba9876543210/report.json")
    aws.put(f"{KEY}/report.json")
    assert (read(aws), aws.reads) == ({}, [])


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": "i-0fedcba9876543210"},
        {"state": "gone"},
        {"step": "\x1b[2J"},
        {"step": "x" * 121},
        {"log": ["a\nb"]},
        {"log": ["x"] * 21},
        {"log": "x"},
        {"bundle": "../../x"},
        {"host_keys": []},
        {"log": ["x" * MAX_BYTES]},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_malformed_report_is_none(fields: dict[str, Any]) -> None:
    aws: Any = FakeAws()
    aws.put(KEY, **fields)
    assert read(aws) == {}


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_what_is_no_report_is_none(body: bytes) -> None:
    aws: Any = FakeAws()
    aws.objects[KEY] = body
    assert read(aws) == {}


def test_a_console_is_shown_without_what_controls_a_terminal() -> None:
    aws: Any = FakeAws()
    aws.console = "\n".join([*(f"line {number}" for number in range(50)), "\x1b[2Jend\u202e", "", " "])
    reports = SetupReports(aws, "bucket", "123456789012", {})
    lines = reports.console(MACHINE)
    assert len(lines) == 10 and lines[-1] == "\N{REPLACEMENT CHARACTER}[2Jend\N{REPLACEMENT CHARACTER}"
