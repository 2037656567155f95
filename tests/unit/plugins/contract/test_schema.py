"""The checks of values that pass between machines: what each accepts at its limits, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import (
    manifest,
    member_list,
    node_load,
    report,
    run_request,
    schema,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.datasets import DatasetFile
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.schema import InvalidValue

KEY = "ssh-ed25519 " + "A" * 68

ACCEPTED: list[tuple[Callable[[Any], Any], list[Any], list[Any]]] = [
    (schema.word, ["a", "x" * 255, "fs-1.efs:/@+_"], ["", "x" * 256, "a b", "a\n", "é", 1, None, ["a"]]),
    (schema.name, ["a", "9-a", "x" * 63], ["-a", "a.b", "x" * 64, ""]),
    (schema.path, ["/efs", "/a/b_c.d+e-f"], ["efs", "/", "/a/", "/a b", "//a", ""]),
    (schema.host_name, ["a", "a-1.b.c"], ["A", "-a", "a.", ".a", "a..b", "a_b"]),
    (schema.instance, ["i-0123abcd", "i-" + "0" * 17], ["i-0123abc", "i-" + "0" * 18, "i-0123ABCD", "x-0123abcd"]),
    (schema.instance_type, ["p4d.24xlarge", "u-6tb1.metal"], ["p4d", "p4d.24.x", "P4d.x", ".x"]),
    (schema.sha256, ["0" * 64, "abcdef" + "0" * 58], ["0" * 63, "0" * 65, "G" + "0" * 63]),
    (schema.signature, ["A" * 100, "A" * 2000 + "=="], ["A" * 99, "A" * 2001, "A" * 100 + "===", "A" * 99 + "-"]),
    (schema.timestamp, ["2026-01-31T12:00:00Z"], ["2026-01-31 12:00:00Z", "2026-01-31T12:00:00", "26-01-31T12:00:00Z"]),
    (
        schema.host_key,
        [KEY, "ssh-rsa " + "A" * 1000 + "==", "ecdsa-sha2-nistp521 " + "+" * 40],
        [
            "ssh-dss " + "A" * 68,
            f"{KEY} root@x",
            "ssh-rsa " + "A" * 39,
            "ssh-rsa " + "A" * 1001,
            "ecdsa-sha2-nistp255 " + "A" * 68,
        ],
    ),
    (schema.between(2, 5), [2, 5], [1, 6, 2.0, "3", True, None]),
    (schema.between(0, 5), [0], [False, -1]),
    (schema.number(0, 1.5), [0, 1.5, 0.25, 1], [-0.1, 1.6, "1", False, None, float("nan")]),
    (schema.text(3), ["", "abc", "é ü"], ["abcd", "a\n", "a\x1b", 3]),
    (schema.uint32, [0, 2**32 - 1], [-1, 2**32]),
    (schema.gpus, [0, 64], [-1, 65]),
    (schema.tuple_of(schema.uint32, most=2), [[], [1, 2]], [None, (1,), [-1], [1, 2, 3]]),
    (
        schema.map_of(schema.name, schema.uint32, 2),
        [{}, {"a": 1}],
        [[], None, {"-": 1}, {"a": -1}, {"a": 1, "b": 1, "c": 1}],
    ),
    (schema.map_of(schema.name, schema.uint32), [{str(n): n for n in range(99)}], [{"": 1}]),
    (
        schema.fields_of(a=schema.uint32, b=schema.name),
        [{"b": "b", "a": 1}],
        [[], {"a": 1}, {"a": 1, "b": "b", "c": 1}, {"a": 1, "b": ""}],
    ),
    (schema.text(3, least=1), ["a", "abc"], ["", "abcd", "\x1b"]),
    (schema.boolean, [True, False], [0, 1, "true", None]),
    (schema.ipv4_address, ["10.0.0.1"], ["10.0.0", "10.0.0.256", "::1", 10, None, ""]),
    (schema.ipv4_network, ["10.0.0.0/16", "10.0.0.1"], ["10.0.0.1/16", "10.0.0.0/33", 167772160, ""]),
    (schema.one_of("a", 2), ["a", 2], ["b", 3, None, "2"]),
    (schema.optional(schema.uint32), [None, 3], ["", -1]),
    (schema.or_empty(schema.instance), ["", "i-0123abcd"], [None, "i-"]),
    (schema.list_of(schema.uint32), [[], [1, 2]], [None, (1,), [1, -1], "12"]),
    (schema.list_of(schema.uint32, least=1, most=2), [[1], [1, 2]], [[], [1, 2, 3]]),
    (run_request.nodes, [1, 99_999, ["a", "b-1"]], [0, -1, 10**5, 1.0, [], ["a", "a"], ["A"], ["-o"], "a", True, None]),
    (
        run_request.environment,
        [{}, {"A": "", "B": "a\nb=c"}],
        [None, [], {"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"A": 1}, {1: "x"}],
    ),
    (
        run_request.local_copy,
        [{"data": "coco", "source": "", "bucket": ""}],
        [
            None,
            {"data": "", "source": "", "bucket": ""},
            {"data": "a", "source": ""},
            {"data": "a", "source": 1, "bucket": ""},
        ],
    ),
    (manifest.relative_path, ["", ".", "a/b", "x" * 4096], ["/a", "../a", "a/../b", "a\n", "x" * 4097, 1, None]),
    (manifest.file_name, ["a", "..a", "x" * 255], ["", ".", "..", "a/b", "x" * 256, "é" * 128, None]),
    (manifest.PART["strip"], ["", "a"], [".", "a/b", None]),
    (manifest.links, [{}, {"data/train2017": "train2017"}], [[], {"etc": "x"}, {"data/train2017": "../x"}]),
]


@pytest.mark.parametrize(
    ("check", "value"), [(check, value) for check, accepted, _refused in ACCEPTED for value in accepted]
)
def test_a_value_that_fits_is_returned(check: Callable[[Any], Any], value: Any) -> None:
    assert check(value) in (value, tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("check", "value"), [(check, value) for check, _accepted, refused in ACCEPTED for value in refused]
)
def test_a_value_that_does_not_fit_is_refused(check: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(InvalidValue, match="^[a-z0-9].+"):
        check(value)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (schema.between(2, 5), 9, "a whole number from 2 to 5"),
        (schema.number(0, 1.5), 9, "a number from 0 to 1.5"),
        (schema.text(3), "abcd", "up to 3 printable characters"),
        (schema.text(3, least=1), "", "1 to 3 printable characters"),
        (schema.map_of(schema.name, schema.name), [], "a map"),
        (schema.map_of(schema.name, schema.name, 2), [], "a map of up to 2"),
        (schema.fields_of(a=schema.name, b=schema.name, c=schema.name), {}, "a, b and c"),
        (schema.one_of("a", 2), 3, "one of a, 2"),
        (schema.list_of(schema.uint32, least=1), [], "a list of 1 or more"),
        (schema.list_of(schema.uint32, most=2), [1, 2, 3], "a list of up to 2"),
        (schema.uint32, -1, "a whole number from 0 to 4294967295"),
        (schema.optional(schema.boolean), 3, "true or false"),
    ],
)
def test_a_refusal_says_what_is_expected(check: Callable[[Any], Any], value: Any, expected: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        check(value)
    assert str(refusal.value) == expected


def test_times_are_written_as_they_are_read() -> None:
    assert schema.format_time(1_800_000_000.9) == "2027-01-15T08:00:00Z"
    assert schema.parse_time("2027-01-15T08:00:00Z") == 1_800_000_000
    schema.timestamp(schema.format_time())


FIELDS: dict[str, schema.Check] = {"a": schema.uint32, "environment": schema.boolean}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "x.json is no JSON object."),
        ({"a": 1, "environment": True}, "x.json has schema None, not 1: configure the cluster again."),
        ({"schema": "1"}, "x.json has schema '1', not 1: "),
        ({"schema": 1, "a": 1, "c": 2, "b": 3, "environment": True}, "x.json has unknown keys: b, c."),
        ({"schema": 1, "b": 3}, "x.json has unknown keys: b; missing keys: a, environment."),
        ({"schema": 1, "a": "x" * 300, "environment": True}, f"x.json: a is '{'x' * 199}, not a whole number"),
        ({"schema": 1, "a": 1, "environment": "s3cret"}, "x.json: environment is <hidden>, not true or false."),
    ],
)
def test_a_record_of_another_form_is_refused(record: Any, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        schema.validate(record, FIELDS, "x.json")
    assert str(refusal.value).startswith(message)


def test_a_record_is_returned_without_its_schema() -> None:
    record = {"schema": 1, "a": 1, "environment": True}
    assert schema.validate(record, FIELDS, "x") == {"a": 1, "environment": True} and record["schema"] == 1
    with pytest.raises(UserError, match="x has unknown keys: schema."):
        schema.validate_part(record, FIELDS, "x")
    with pytest.raises(UserError, match="x is no JSON object"):
        schema.validate_part(None, FIELDS, "x")


# Files that machines write


INSTANCE = "i-0123456789abcdef0"
REPORT = {
    "schema": 1,
    "instance_id": INSTANCE,
    "host_keys": [KEY],
    "gpus": 8,
    "state": "ready",
    "bundle": "",
    "step": "x" * 120,
    "log": ["x" * 300] * 20,
    "reported_at": "2026-01-31T12:00:00Z",
}
LOAD = {
    "schema": 1,
    "instance_id": INSTANCE,
    "at": 1_800_000_000,
    "load": 1e6,
    "processors": 4096,
    "memory_percent": 100,
    "disk_percent": 100,
    "gpus": [{"busy_percent": 100, "memory_percent": 0}] * 64,
    "logins": 0,
    "jobs": 0,
    "errors": ["x" * 200] * 8,
}
MEMBER = {
    "rank": 99_999,
    "aliases": ["deeplearning-worker1"],
    "instance_id": INSTANCE,
    "private_ip": "10.0.0.1",
    "private_dns": "ip-10-0-0-1.ec2.internal",
    "instance_type": "p4d.24xlarge",
    "gpus": 64,
    "slots": 0,
    "host_keys": [KEY],
    "state": "faulty",
}
LIST = {
    "schema": 1,
    "cluster": "red",
    "cluster_id": "sg-1",
    "generation": 3,
    "desired": 99_999,
    "published_by": INSTANCE,
    "published_at": "2026-01-31T12:00:00Z",
    "members": [MEMBER],
    "signature": "A" * 100,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"state": "failed", "bundle": "a" * 64}, ""),
        ({"state": "configuring", "log": []}, ""),
        ({"state": "broken"}, "state is 'broken', not one of ready, faulty, held, configuring, failed"),
        ({"host_keys": []}, "host_keys is"),
        ({"step": "x" * 121}, "step is"),
        ({"log": [""] * 21}, "log is"),
        ({"log": ["x" * 301]}, "log is"),
        ({"gpus": 65}, "gpus is 65"),
        ({"instance_id": "i-00000000"}, "is about i-00000000, which may not write there"),
    ],
)
def test_a_report_is_that_of_the_machine_that_may_write_it(changes: dict[str, Any], message: str) -> None:
    key = report.key_of(f"AROA:{INSTANCE}")
    assert (key, report.instance_of(key)) == (f"members/AROA:{INSTANCE}/report.json", INSTANCE)
    body = json.dumps({**REPORT, **changes})
    if message:
        with pytest.raises(UserError, match=f"^s3://b/{key}.* ?{message}"):
            report.parse(body, key, "b")
    else:
        record = report.parse(body, key, "b")
        assert {"schema": 1, **record} == {**REPORT, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"gpus": [], "errors": [], "load": 0}, ""),
        ({"load": 1e6 + 1}, "load is"),
        ({"processors": 0}, "processors is"),
        ({"processors": 4097}, "processors is"),
        ({"memory_percent": 101}, "memory_percent is"),
        ({"disk_percent": -1}, "disk_percent is"),
        ({"errors": [""] * 9}, "errors is"),
        ({"errors": ["x" * 201]}, "errors is"),
        ({"gpus": [{"busy_percent": 0, "memory_percent": 0}] * 65}, "gpus is"),
        ({"gpus": [{"busy_percent": 101, "memory_percent": 0}]}, "^x.json: a GPU: busy_percent is 101"),
        ({"gpus": [{"busy_percent": 1}]}, "^x.json: a GPU has missing keys: memory_percent"),
    ],
)
def test_the_load_of_a_node_has_limits(changes: dict[str, Any], message: str) -> None:
    body = json.dumps({**LOAD, **changes})
    if message:
        with pytest.raises(UserError, match=message):
            node_load.parse(body, "x.json")
    else:
        assert {"schema": 1, **node_load.parse(body, "x.json")} == {**LOAD, **changes}


@pytest.mark.parametrize(
    ("parse", "record", "most"),
    [
        (lambda body: report.parse(body, f"members/r:{INSTANCE}/report.json", "b"), REPORT, report.MAX_BYTES),
        (lambda body: node_load.parse(body, "x.json"), LOAD, node_load.MAX_BYTES),
    ],
)
def test_a_file_may_have_a_limited_size(parse: Callable[[str], Any], record: dict[str, Any], most: int) -> None:
    body = json.dumps(record)
    parse(body.ljust(most))
    for refused in (body.ljust(most + 1), "{", "[" * (most - 1)):
        with pytest.raises(UserError, match=f"is no JSON of up to {most} bytes."):
            parse(refused)


@pytest.mark.parametrize(
    ("changes", "of_member", "message"),
    [
        ({}, {}, ""),
        ({"members": []}, {}, ""),
        ({"desired": 100_000}, {}, "the member list: desired is"),
        ({"signature": ""}, {}, "the member list: signature is"),
        ({"extra": 1}, {}, "the member list has unknown keys: extra"),
        ({}, {"rank": -1}, "the member list: a member: rank is"),
        ({}, {"rank": 100_000}, "the member list: a member: rank is"),
        (
            {},
            {"state": "configuring"},
            "the member list: a member: state is 'configuring', not one of ready, faulty, held",
        ),
        ({}, {"host_keys": []}, "the member list: a member: host_keys is"),
        ({}, {"private_ip": "10.0.0"}, "the member list: a member: private_ip is"),
        ({}, {"slots": 65}, "the member list: a member: slots is"),
    ],
)
def test_a_member_list_is_checked_with_its_members(
    changes: dict[str, Any], of_member: dict[str, Any], message: str
) -> None:
    record = {**LIST, "members": [MEMBER, {**MEMBER, **of_member}], **changes}
    if message:
        with pytest.raises(UserError, match=f"^{message}"):
            member_list.validate(record)
    else:
        assert {"schema": 1, **json.loads(json.dumps(member_list.validate(record)))} == record


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.zip", "zip"),
        ("a.tar", "tar"),
        ("a.tar.gz", "tar.gz"),
        ("a.tgz", "tar.gz"),
        ("a.gz", "file"),
        ("zip", "file"),
    ],
)
def test_the_kind_of_a_part_follows_from_its_name(name: str, kind: str) -> None:
    assert DatasetFile(name).kind == kind


def test_the_version_of_a_set_stays_what_it_was() -> None:
    """Another one for the same parts would make nodes unpack all sets that are staged once more."""
    parts = (DatasetFile("a.zip", to="images", strip="a"),)
    made = manifest.build("mine", parts, {"a.zip": (3, "0" * 64)}, {})
    assert made["version"] == "0221f8fff790132a"
