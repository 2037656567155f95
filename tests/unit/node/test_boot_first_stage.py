"""The user data of machines that configure themselves: the signature, the calls, the bundle."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from deeplearning.boot import first_stage
from deeplearning.contract import boot as contract
from deeplearning.contract import report

from tests.unit.node.boot_kit import INSTANCE, OWN_REPORT, PARAMETERS, SHA256, Boot, booting

PROGRAM = Path(first_stage.__file__).resolve()
BUNDLE = f"bundles/{SHA256}.tar"


@pytest.fixture
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boot]:
    with booting(tmp_path, monkeypatch) as booted:
        yield booted


def archive(*names: str, **changed: Any) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 2
            for key, value in changed.items():
                setattr(entry, key, value)
            tar.addfile(entry, io.BytesIO(b"hi"))
    return content.getvalue()


def store(booted: Boot, body: bytes, monkeypatch: pytest.MonkeyPatch) -> first_stage.InstanceApi:
    """Store a bundle under its own checksum."""
    sha256 = hashlib.sha256(body).hexdigest()
    monkeypatch.setitem(PARAMETERS, "sha256", sha256)
    booted.aws.objects[contract.bundle_key(sha256)] = body
    return booted.machine()


# The program


def test_it_fits_user_data_and_runs_without_anything_installed() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert len(text.encode()) < 12 * 1024
    assert text.count("PARAMETERS: dict[str, Any] = {}\n") == 1
    tree = ast.parse(text, feature_version=(3, 9))
    imported = {
        str(name).split(".")[0]
        for node in tree.body
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in getattr(node, "names", [])]
        )
    }
    assert imported <= {*sys.stdlib_module_names, "__future__"}


def test_a_machine_is_heard_before_aws_abandons_it() -> None:
    assert max(first_stage.HOLD_SECONDS * 2, contract.NETWORK_SECONDS) < contract.HOOK_SECONDS


def test_it_installs_itself_and_starts_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, booted: Boot
) -> None:
    ran: list[str] = []
    monkeypatch.setitem(PARAMETERS, "unit_file", str(tmp_path / "unit"))
    monkeypatch.setattr(subprocess, "run", lambda words, check: ran.append(" ".join(words[2:])))
    assert first_stage.install() == 0
    assert (tmp_path / "boot/first_stage.py").read_bytes() == PROGRAM.read_bytes()
    assert "ConditionPathExists=!/var/lib/deeplearning/configured\n" in (tmp_path / "unit").read_text()
    assert ran == ["daemon-reload", "enable deeplearning-boot", "start --no-block deeplearning-boot"]


# The signature


@pytest.mark.parametrize(
    ("service", "method", "path", "body"),
    [
        ("s3", "GET", f"/{BUNDLE}", None),
        ("s3", "GET", "/?list-type=2&prefix=members%2FAROA%3A", None),
        ("s3", "PUT", f"/members/AROA%3A{INSTANCE}/report.json", b"{}"),
        ("autoscaling", "POST", "/", b"Action=CompleteLifecycleAction"),
    ],
)
def test_signatures_are_those_of_botocore(service: str, method: str, path: str, body: bytes | None) -> None:
    credentials = {
        "AccessKeyId": "AKIDEXAMPLE",
        "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYE",
        "Token": "t/k+n==",
    }
    url = f"https://bucket.s3.us-east-1.amazonaws.com{path}"
    ours = Request(url, body, method=method)
    first_stage.sign(ours, "us-east-1", service, credentials, time.time())
    headers = {name.lower(): value for name, value in ours.header_items()}
    theirs = AWSRequest(method, url, data=body, headers={"x-amz-content-sha256": headers["x-amz-content-sha256"]})
    signer = S3SigV4Auth if service == "s3" else SigV4Auth
    auth = signer(Credentials(*credentials.values()), service, "us-east-1")
    theirs.context["timestamp"] = headers["x-amz-date"]
    theirs.headers["X-Amz-Date"] = headers["x-amz-date"]
    theirs.headers["X-Amz-Security-Token"] = credentials["Token"]
    string = auth.string_to_sign(theirs, auth.canonical_request(theirs))
    assert headers["authorization"].rpartition("=")[2] == auth.signature(string, theirs)
    assert headers["host"] == "bucket.s3.us-east-1.amazonaws.com"


# Calls


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ((500, "InternalError", ""), 30),
        ((503, "SlowDown", ""), 30),
        ((400, "Throttling", "Rate exceeded"), 30),
        ((400, "RequestLimitExceeded", ""), 30),
        ((403, "AccessDenied", "not yet"), 30),
    ],
)
def test_passing_errors_are_retried(booted: Boot, error: tuple[int, str, str], seconds: float) -> None:
    booted.aws.errors = [error] * 4
    booted.machine().report("configuring", "bundle", seconds=seconds)
    assert booted.aws.states() == [("configuring", "bundle")]
    assert booted.clock.slept == [0.5, 1, 2, 4]


@pytest.mark.parametrize(
    ("error", "most"),
    [((404, "NoSuchBucket", ""), 0), ((400, "ValidationError", ""), 0), ((403, "AccessDenied", ""), 120)],
)
def test_final_errors_end_soon(booted: Boot, error: tuple[int, str, str], most: float) -> None:
    booted.aws.errors = [error] * 1000
    with pytest.raises(first_stage.Refused, match=error[1]):
        booted.machine().report("configuring", "bundle")
    assert sum(booted.clock.slept) <= most


def test_a_network_that_never_comes_up_ends_at_the_deadline(booted: Boot) -> None:
    booted.aws.errors = [(502, "", "")] * 1000
    with pytest.raises(first_stage.Refused):
        booted.machine().report("configuring", "bundle")
    assert contract.NETWORK_SECONDS - 20 < sum(booted.clock.slept) <= contract.NETWORK_SECONDS


def test_a_wrong_clock_is_corrected_by_that_of_aws(booted: Boot) -> None:
    booted.aws.date = "Tue, 22 Nov 2033 19:00:00 GMT"
    booted.aws.errors = [(403, "RequestTimeTooSkewed", "")]
    machine = booted.machine()
    machine.report("configuring", "bundle")
    assert first_stage.timestamp(machine.now()).startswith("2033-11-22T19:00:0")


def test_its_report_is_one_of_the_contract(booted: Boot) -> None:
    lines = [f"line {number}\x1b[2J" for number in range(30)] + ["x" * 999]
    booted.machine().report("failed", "step" * 99, lines)
    parsed = report.parse(booted.aws.objects[OWN_REPORT], OWN_REPORT, PARAMETERS["bucket"])
    assert (parsed["state"], parsed["bundle"], len(parsed["step"])) == ("failed", SHA256, 120)
    assert parsed["log"][0] == "line 11 [2J" and len(parsed["log"]) == report.MAX_LINES
    assert report.key_of(f"{PARAMETERS['role_id']}:{INSTANCE}") == OWN_REPORT


def test_a_report_has_all_host_keys_in_one_order_and_its_last_lines(booted: Boot) -> None:
    keys = Path(first_stage.HOST_KEYS)
    kinds = ["rsa", "dsa", "ecdsa", "a", "z", "b", "y"]
    for kind in kinds:
        (keys / f"ssh_host_{kind}_key.pub").write_text(f"ssh-{kind} {'B' * 68} root@x\n")
    (keys / "ssh_host_rsa_key").write_text("secret")
    booted.machine().report("failed", "s" * 200, [f"{number}\t\x1b" + "x" * 400 for number in range(30)])
    (report,) = booted.aws.reports
    files = [keys / f"ssh_host_{kind}_key.pub" for kind in sorted([*kinds, "ed25519"])]
    assert report["host_keys"] == [file.read_text().rpartition(" ")[0] for file in files]
    assert report["step"] == "s" * 120
    assert report["log"] == [f"{number}  ".ljust(300, "x") for number in range(10, 30)]


def test_a_machine_holds_its_place_until_its_action_has_ended(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = booted.machine()
    monkeypatch.setattr(machine, "count_failures", lambda: contract.ATTEMPTS + 1)

    def sleep(seconds: float) -> None:
        booted.clock.slept.append(seconds)
        booted.aws.inactive = -(len(booted.clock.slept) == 2)

    monkeypatch.setattr(time, "sleep", sleep)
    machine.fail("bundle", [])
    assert booted.clock.slept == [300, 300]
    assert booted.aws.actions() == ["RecordLifecycleActionHeartbeat"] * 3
    assert booted.aws.calls[0]["AutoScalingGroupName"] == PARAMETERS["group"]


# The bundle


def test_a_bundle_is_unpacked_also_over_what_a_reboot_left(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = store(booted, archive("boot.json", "wheels/a.whl"), monkeypatch)
    folder = Path(machine.fetch_bundle())
    (folder / "wheels/a.whl").write_bytes(b"half")
    (folder / "left").touch()
    assert machine.fetch_bundle() == str(folder)
    assert (folder / "wheels/a.whl").read_bytes() == b"hi" and not (folder / "left").exists()


def test_a_download_that_breaks_off_is_repeated(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = store(booted, archive("boot.json"), monkeypatch)
    booted.aws.truncated = 2
    assert Path(machine.fetch_bundle(), "boot.json").exists()


def test_an_altered_bundle_is_refused(booted: Boot) -> None:
    booted.aws.objects[BUNDLE] = archive("boot.json")
    with pytest.raises(ValueError, match=f"{BUNDLE} is altered: its SHA-256 is "):
        booted.machine().fetch_bundle()


# From beginning to end


@pytest.mark.parametrize(
    ("stored", "failures", "reason", "answer"),
    [
        (None, 0, "NoSuchKey", "CompleteLifecycleActionABANDON"),
        (b"altered", 0, "is altered", "CompleteLifecycleActionABANDON"),
        (None, 3, "NoSuchKey", "RecordLifecycleActionHeartbeat"),
    ],
)
def test_without_its_bundle_a_machine_is_given_back_and_later_ones_keep_their_places(
    booted: Boot, monkeypatch: pytest.MonkeyPatch, stored: bytes | None, failures: int, reason: str, answer: str
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: setattr(booted.aws, "inactive", -1))
    if stored:
        booted.aws.objects[BUNDLE] = stored
    for number in range(failures):
        key = f"members/{PARAMETERS['role_id']}:i-{number:017x}/report.json"
        booted.aws.objects[key] = b'{"state": "failed"}'
    assert first_stage.run() == 1
    assert booted.aws.states() == [("configuring", "bundle"), ("failed", "bundle")]
    assert reason in json.dumps(booted.aws.reports[-1]["log"]) and reason in booted.log
    assert booted.aws.actions()[0] == answer


def test_a_machine_that_may_not_read_its_bundle_keeps_its_place(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor can it read the reports of others, so it does not know whether other machines would fail as well."""
    answer = booted.aws.answer

    def without_reading(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if method == "GET" and "latest/" not in path:
            return 403, b"<Error><Code>AccessDenied</Code></Error>"
        if "Heartbeat" in body.decode():
            booted.aws.inactive = -1
        return answer(method, path, body)

    monkeypatch.setattr(booted.aws, "answer", without_reading)
    assert first_stage.run() == 1
    assert booted.aws.states() == [("configuring", "bundle"), ("failed", "bundle")]
    assert booted.aws.actions() == ["RecordLifecycleActionHeartbeat"]


@pytest.mark.parametrize(("own", "action"), [({}, "configure"), ({"frameworks": ["pytorch"]}, "bake")])
def test_the_program_of_the_bundle_runs(
    booted: Boot, monkeypatch: pytest.MonkeyPatch, own: dict[str, Any], action: str
) -> None:
    for name, value in own.items():
        monkeypatch.setitem(PARAMETERS, name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))
    machine = store(booted, archive("boot.json"), monkeypatch)
    ran: list[str] = []
    monkeypatch.setattr(
        f"deeplearning.boot.{'baking' if own else 'configuring'}.{action}",
        lambda machine, folder: ran.append(folder) or 7,
    )
    assert first_stage.run() == 7
    assert ran == [machine.fetch_bundle()] and sys.path[0] == f"{ran[0]}/{contract.COLLECTION}/files/node"
