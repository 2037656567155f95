"""Compare how the code reads and answers errors of AWS with the local cloud's collection of error messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.filter.core import missing_service
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import client
from ansible_collections.deeplearning.aws.plugins.module_utils.resources import emr_cluster
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data import bucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members import console, host_key_discovery
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import recorded_settings
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown import teardown
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch import capacity, elastic_address, emr_watcher
from ansible_collections.deeplearning.aws.plugins.test.core import failed_denied, failed_not_found
from deeplearning import aws as node_aws

from localcloud.testing.errors import (
    ANY,
    DOCUMENTED,
    READ,
    RECORDED,
    Entry,
    entries,
    matches,
    refused_logins,
    source_calls,
)
from tools import aws_errors_docs

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = [path for path in (ROOT / "plugins").rglob("*.py") if path.name != "download.py"]
"""Without the module whose codes are those of any web server."""
LATE_PROFILE = yaml.safe_load((ROOT / "roles/machines/vars/main.yml").read_text())["__machines_profile_unknown"]
CODES = {entry.code for entry in entries()}
_DELETING = re.compile(r"\*|(Delete|Detach|Disassociate|Release|Remove|Revoke|Terminate)\w+")


def text(entry: Entry) -> str:
    """Return the sentence with a value for each placeholder."""
    return entry.message.format(**dict.fromkeys(entry.placeholders, "2"))


def client_error(entry: Entry) -> botocore.exceptions.ClientError:
    answer = {
        "Error": {"Code": entry.code, "Message": text(entry)},
        "ResponseMetadata": {"HTTPStatusCode": entry.status},
    }
    return botocore.exceptions.ClientError(answer, entry.operations[0])


def problem(entry: Entry) -> client.AwsError:
    return client.problem(client_error(entry))


def result(entry: Entry) -> dict[str, Any]:
    """Return what a module of amazon.aws makes of it."""
    return {"failed": True, "msg": f"It failed: {client_error(entry)}"}


def answered_by(*operations: str) -> Callable[[Entry], bool]:
    return lambda entry: any(entry.answers(operation) for operation in operations)


def is_refusal(entry: Entry) -> bool:
    return entry.status != 200


def is_launch(entry: Entry) -> bool:
    """Return whether a scaling activity may have the sentence."""
    launches = answered_by("ec2:RunInstances", "autoscaling:DescribeScalingActivities")
    return entry.service in ("ec2", "autoscaling") and entry.message != "" and launches(entry)


def is_deletion(entry: Entry) -> bool:
    return any(_DELETING.fullmatch(operation) for operation in entry.operations) and is_refusal(entry)


def launch_kind(kind: capacity.FailureKind) -> Callable[[Entry], bool]:
    return lambda entry: capacity.classify(text(entry)) is kind


LAUNCHES = [kind for kind in capacity._WORDS]
reads_object = answered_by("s3:GetObject", "s3:HeadObject")
READERS: Mapping[str, tuple[Callable[[Entry], bool], Callable[[Entry], bool]]] = {
    "retried": (is_refusal, lambda entry: client._attempts_for(client_error(entry)) > 1),
    "denied": (is_refusal, lambda entry: problem(entry).denied),
    "limited": (is_refusal, lambda entry: client.limit_in(text(entry)) != ""),
    "login": (is_refusal, lambda entry: problem(entry).is_fatal),
    "over_limit": (is_refusal, lambda entry: "request a higher limit" in str(problem(entry))),
    "gone": (is_deletion, lambda entry: not problem(entry).is_fatal and teardown.is_gone(problem(entry))),
    "held": (is_deletion, lambda entry: not problem(entry).is_fatal and teardown.is_held(problem(entry))),
    "not_running": (answered_by("ec2:AssociateAddress"), lambda entry: entry.code in elastic_address._NOT_YET),
    "no_console": (answered_by("ec2:GetConsoleOutput"), lambda entry: entry.code in console._NOT_NITRO),
    "no_service": (
        answered_by("ec2:CreateNatGateway", "efs:CreateMountTarget"),
        lambda entry: missing_service(result(entry)) != "",
    ),
    "late_role": (answered_by("emr:RunJobFlow"), lambda entry: emr_cluster._is_late_role(problem(entry))),
    "late_profile": (
        answered_by("autoscaling:CreateAutoScalingGroup"),
        lambda entry: re.search(LATE_PROFILE, result(entry)["msg"]) is not None,
    ),
    "bootstrap": (
        answered_by("emr:DescribeCluster"),
        lambda entry: emr_watcher._ACTION.search(text(entry)) is not None,
    ),
    "no_object": (reads_object, lambda entry: entry.code in recorded_settings._MISSING),
    "replaced": (
        reads_object,
        lambda entry: entry.code in {*node_aws.NOT_FOUND} - {*recorded_settings._MISSING},
    ),
    "busy": (lambda entry: entry.service == "s3", lambda entry: entry.code in node_aws.BUSY),
    **{kind.value: (is_launch, launch_kind(kind)) for kind in LAUNCHES},
}
"""By what the error means: which entries its reader may get, and whether it recognizes one."""
COMPARED = {"abandoned", "exists", "no_bucket", "no_cluster", "no_file_system", "no_policy", "no_quota", "other_region"}
COMPARED |= {"too_early"}
"""Meanings that the code compares with a literal."""
SETS: Mapping[str, Any] = {
    "throttled": client._THROTTLED,
    "timed out": [client._TIMED_OUT],
    "denied": client._DENIED,
    "expired": client._EXPIRED,
    "unknown caller": client._UNKNOWN_CALLER,
    "held": teardown._HELD,
    "not running": elastic_address._NOT_YET,
    "no console": console._NOT_NITRO,
    "late role": emr_cluster._LATE_ROLE,
    "no report": host_key_discovery._NO_REPORT,
    "no settings": recorded_settings._MISSING,
    "no part": bucket._MISSING,
    "not found on nodes": node_aws.NOT_FOUND,
    "busy on nodes": node_aws.BUSY,
    "denied on nodes": node_aws.DENIED,
}


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: f"{entry.service}-{entry.code}")
def test_an_entry_is_well_formed_and_has_a_source(entry: Entry) -> None:
    assert re.fullmatch(r"[\w.]+", entry.code) and entry.status in {200, 301, *range(400, 600)}
    assert entry.operations and all(re.fullmatch(r"\*|[A-Z]\w+", operation) for operation in entry.operations)
    assert entry.evidence in (RECORDED, DOCUMENTED, READ)
    assert re.match(r"https://(github\.com|docs\.aws\.amazon\.com)/\S+|botocore [\d.]+ \S+\Z", entry.source)
    assert entry.evidence != RECORDED or entry.message or entry.code == "Gateway.NotAttached"
    assert entry.evidence != DOCUMENTED or "docs.aws" in entry.source or entry.source.startswith("botocore")


def test_no_entry_is_there_twice() -> None:
    keys = [(entry.service, tuple(entry.operations), entry.code, entry.message) for entry in entries()]
    assert len(set(keys)) == len(keys) > 150


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: f"{entry.service}-{entry.code}")
def test_the_code_reads_an_error_as_what_it_means(entry: Entry) -> None:
    recognized = {name for name, (scope, recognizes) in READERS.items() if scope(entry) and recognizes(entry)}
    assert recognized == {*entry.means} - COMPARED


def test_each_meaning_is_some_entrys() -> None:
    assert {name for entry in entries() for name in entry.means} == {*READERS} | COMPARED


@pytest.mark.parametrize("name", SETS)
def test_each_code_that_is_read_is_one_of_awss(name: str) -> None:
    assert {*SETS[name]} <= CODES


@pytest.mark.parametrize("kind", LAUNCHES)
def test_each_pattern_of_a_failed_launch_matches_a_sentence_of_aws(kind: capacity.FailureKind) -> None:
    sentences = [text(entry) for entry in entries() if is_launch(entry) and kind.value in entry.means]
    for pattern in capacity._WORDS[kind]:
        assert any(re.search(pattern, sentence, re.IGNORECASE) for sentence in sentences), pattern


@pytest.mark.parametrize(
    "alternatives",
    [
        LATE_PROFILE.split("|"),
        [pattern.pattern for pattern in emr_cluster._LATE_ROLE.values()],
        [r"Signature expired", r"Signature not yet current", client._ACTION.pattern, client._PRINCIPAL.pattern],
        [client._RESOURCE.pattern.replace("arn:", ""), *client._LIMIT.pattern.split("|because")[:1]],
        [emr_watcher._ACTION.pattern],
    ],
)
def test_each_other_pattern_matches_a_sentence_of_aws(alternatives: list[str]) -> None:
    names = dict.fromkeys(("caller", "resource"), "arn:aws:iam::1:user/x")
    sentences = [
        entry.message.format(**dict.fromkeys(entry.placeholders, "2") | {"action": "ec2:RunInstances"} | names)
        for entry in entries()
    ]
    for pattern in alternatives:
        assert any(re.search(pattern, sentence) for sentence in sentences), pattern


@pytest.mark.parametrize("code", ["Throttl", "LimitExceeded", "Expired", "Skew", "SignatureDoesNotMatch"])
def test_what_a_booting_machine_searches_in_codes_is_in_one(code: str) -> None:
    assert code in (ROOT / "files/node/deeplearning/boot/first_stage.py").read_text()
    assert any(code in known for known in CODES)


@pytest.mark.parametrize("part", teardown._GONE)
def test_what_destroying_searches_in_codes_is_in_one(part: str) -> None:
    assert any(part in entry.code for entry in entries() if "gone" in entry.means)


def test_the_failure_of_a_task_is_read_alike() -> None:
    for entry in filter(is_refusal, entries()):
        assert failed_denied(result(entry)) is ("denied" in entry.means and "limited" not in entry.means), entry
        is_missing = entry.code.endswith(("NotFound", "NotFoundException"))
        assert failed_not_found(result(entry)) is is_missing, entry


def compared_codes() -> Iterator[str]:
    """Return the codes that the collection compares with literals: `error.code == …`, and the third argument of `find`
    and later ones of a plan's `call`."""
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for literal in literals_of(node):
                for part in ast.walk(literal):
                    if isinstance(part, ast.Constant) and re.fullmatch(r"[A-Z][A-Za-z.]{7,}|\d{3}", str(part.value)):
                        yield str(part.value)


def literals_of(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "code":
        return node.comparators
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("find", "call"):
        return node.args[2:]
    return []


def test_each_code_that_is_compared_is_one_of_awss() -> None:
    codes = {*compared_codes()}
    assert codes <= CODES
    for entry in entries():
        assert entry.code in codes or not COMPARED & {*entry.means}, entry


# The local cloud


def calls_for_words() -> Iterator[tuple[str, str, str, frozenset[str]]]:
    """Return the arguments of the calls that take a sentence from the entries, where they are literals."""
    for _file, node in source_calls():
        name = getattr(node.func, "id", "")
        if name not in ("aws_error", "sentence", "reason", "_refused"):
            continue
        literals = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if len(literals) < len(node.args) or any(keyword.arg is None for keyword in node.keywords):
            continue
        operation, code, part = [*(["emr:DescribeCluster"] if name == "reason" else []), *literals, ""][:3]
        yield str(operation), str(code), str(part), frozenset(str(keyword.arg) for keyword in node.keywords)


def test_the_local_cloud_finds_each_sentence() -> None:
    calls = [*calls_for_words()]
    assert len(calls) > 60
    for call in calls:
        assert len(matches(*call)) == 1, call


def test_the_local_cloud_says_no_read_error_in_words_of_its_own() -> None:
    meant = {entry.code for entry in entries() if entry.means and entry.service != ANY} - GENERIC
    for file, node in source_calls("api"):
        if getattr(node.func, "id", "") == "AwsError" and node.args:
            code = getattr(node.args[0], "value", "")
            assert code not in meant or "local cloud" in ast.unparse(node), f"{file}: {code}"


GENERIC = {
    "InvalidInstanceID",
    *("AccessDenied", "AuthFailure", "InvalidInput", "InvalidParameter", "InvalidParameterCombination"),
    *("InvalidParameterValue", "InvalidRequestException", "NoSuchResourceException", "UnsupportedOperation"),
    "ValidationError",
    "ValidationException",
}
"""Codes of many sentences, of which only some are read."""


def test_each_entry_is_read_or_answered() -> None:
    answered = [entry for call in calls_for_words() for entry in matches(*call)]
    for entry in entries():
        assert entry.means or is_launch(entry) or entry in answered or entry.service == "emr", entry


def test_refused_logins_have_awss_words() -> None:
    known = {(entry.code, entry.status, entry.message) for entry in entries()}
    for causes in refused_logins().values():
        for code, status, message in causes.values():
            assert not message or (code, status, message) in known


def test_the_page_has_what_no_recorded_answer_confirms() -> None:
    part = aws_errors_docs.PART
    assert part.read() == part.renewed(aws_errors_docs.table())
    assert "| emr | " in aws_errors_docs.table()
