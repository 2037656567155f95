"""The module boot_bundle: what it stores in the cluster's bucket, and the user data that names it."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.boot import bundle
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot

from tests.unit.conftest import Account
from tests.unit.modules import run_module

Run = Callable[..., dict[str, Any]]
ROOT = Path(__file__).resolve().parents[4]
ACCOUNT, BUCKET = "123456789012", "c-123456789012-us-east-1"
WORKER = {"group": "c-workers", "role_id": "AROA1", "gpus": 1, "address": ""}
BOOTSTRAP = {"role_id": "AROA2", "gpus": {"master": 0, "worker": 8}}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Wheels that need no download."""
    pins = []
    for beginning, _sha256 in bundle._pins(ROOT / "files/boot/requirements.txt"):
        (tmp_path / f"{beginning}py3-none-any.whl").write_bytes(beginning.encode())
        pins.append((beginning, hashlib.sha256(beginning.encode()).hexdigest()))
    monkeypatch.setattr(bundle, "_pins", lambda _requirements: pins)
    return tmp_path


@pytest.fixture
def s3(aws: Account) -> Any:
    client = aws.client("s3")
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture
def run(aws: Account, wheels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    posix = tmp_path / "more/ansible_collections/ansible/posix/plugins/modules"
    posix.mkdir(parents=True)
    (posix / "mount.py").write_text("mount")

    def call(check: bool = False, **options: Any) -> dict[str, Any]:
        least = {
            "bucket": BUCKET,
            "account": ACCOUNT,
            "source": str(ROOT),
            "collection_paths": [str(tmp_path / "more")],
            "wheels": str(wheels),
            "cluster": {"cluster": "c", "results": "s3"},
        }
        return run_module(capsys, "boot_bundle", check, **{**least, **options})

    return call


def stored(s3: Any) -> dict[str, bytes]:
    """The objects of the bucket."""
    listed = s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())
    return {item["Key"]: s3.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read() for item in listed}


def parameters(program: str) -> dict[str, Any]:
    line = next(line for line in program.splitlines() if line.startswith("PARAMETERS"))
    return dict(json.loads(line.partition("= ")[2]))


def test_the_archive_is_stored_under_its_hash_with_the_settings_in_it(run: Run, s3: Any) -> None:
    variables = {"tensorpack_source": "/efs/data/tensorpack"}
    answer = run(efs_tls=True, variables=variables)
    ((key, body),) = stored(s3).items()
    assert answer["changed"] and (answer["sha256"], answer["size"]) == (hashlib.sha256(body).hexdigest(), len(body))
    assert answer["sha256"] in key and (answer["user_data"], answer["bootstrap"]) == ({}, {})
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        content = archive.extractfile("boot.json")
        expected = {"cluster": {"cluster": "c", "results": "s3"}, "efs_tls": True, "variables": variables}
        assert content and json.load(content) == expected
        mount = archive.extractfile("collections/ansible_collections/ansible/posix/plugins/modules/mount.py")
        assert mount and mount.read() == b"mount"
        assert any(name.startswith("wheels/ansible_core-") for name in archive.getnames())


def test_check_mode_stores_nothing_and_answers_the_same(run: Run, s3: Any) -> None:
    planned = run(check=True, bootstrap=BOOTSTRAP, machines={"worker": WORKER})
    assert planned["changed"] and stored(s3) == {}
    assert planned == run(bootstrap=BOOTSTRAP, machines={"worker": WORKER})
    assert not run(check=True, bootstrap=BOOTSTRAP, machines={"worker": WORKER})["changed"]


def test_check_mode_needs_no_bucket(run: Run) -> None:
    assert run(check=True)["changed"]


def test_what_is_stored_is_not_stored_again(aws: Account, run: Run, s3: Any) -> None:
    run(bootstrap=BOOTSTRAP)
    before = aws.calls().count("s3:PutObject")
    assert not run(bootstrap=BOOTSTRAP)["changed"] and aws.calls().count("s3:PutObject") == before == 2
    # Another setting is another bundle, and the action names the bundle.
    assert run(efs_tls=True, bootstrap=BOOTSTRAP)["changed"] and len(stored(s3)) == 4


def test_half_an_object_is_stored_again(run: Run, s3: Any) -> None:
    run()
    ((key, body),) = stored(s3).items()
    s3.put_object(Bucket=BUCKET, Key=key, Body=body[:-1])
    assert run(check=True)["changed"] and stored(s3) == {key: body[:-1]}
    assert run()["changed"] and stored(s3) == {key: body}


def test_only_a_new_action_is_a_change_too(run: Run, s3: Any) -> None:
    run()
    answer = run(bootstrap=BOOTSTRAP)
    assert answer["changed"] and len(stored(s3)) == 2


def test_user_data_names_the_bundle_and_the_machine(run: Run, s3: Any) -> None:
    answer = run(machines={"worker": WORKER, "master": {**WORKER, "gpus": 0, "bucket": "of-a-machine"}})
    assert sorted(answer["user_data"]) == ["master", "worker"]
    common = {
        **boot.first_stage_parameters(),
        "largest_report": 64 * 1024,
        "cluster": "c",
        "region": "us-east-1",
        "suffix": "amazonaws.com",
        "bucket": BUCKET,
        "sha256": answer["sha256"],
    }
    assert parameters(answer["user_data"]["worker"]) == {**common, "role": "worker", **WORKER}
    master = parameters(answer["user_data"]["master"])
    assert (master["role"], master["gpus"], master["bucket"]) == ("master", 0, "of-a-machine")
    assert "first_stage" not in answer["bootstrap"]


def test_the_bootstrap_action_is_stored_under_its_hash(run: Run, s3: Any) -> None:
    answer = run(bootstrap=BOOTSTRAP)
    bucket, _slash, key = answer["bootstrap"]["path"].removeprefix("s3://").partition("/")
    body = stored(s3)[key]
    assert bucket == BUCKET and answer["bootstrap"]["sha256"] == hashlib.sha256(body).hexdigest()
    assert answer["bootstrap"]["sha256"] in key
    ast.parse(body)
    filled = parameters(body.decode())
    assert (filled["cluster"], filled["bucket"], filled["sha256"]) == ("c", BUCKET, answer["sha256"])
    assert (filled["role_id"], filled["gpus"]) == (BOOTSTRAP["role_id"], BOOTSTRAP["gpus"])


def test_in_china_the_domain_differs(run: Run, aws: Account) -> None:
    answer = run(check=True, region="cn-north-1", machines={"worker": WORKER})
    assert parameters(answer["user_data"]["worker"])["suffix"] == "amazonaws.com.cn"


def test_a_bucket_of_another_account_gets_nothing(run: Run, s3: Any) -> None:
    refused = run(account="210987654321")
    assert refused["failed"] and "AWS does not allow s3:" in refused["msg"] and stored(s3) == {}


def test_what_is_missing_is_one_sentence(run: Run, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    refused = run(collection_paths=[])
    assert refused["failed"] and "ansible.posix is not installed" in refused["msg"]


def test_the_file_system_is_mounted_without_tls_by_default(run: Run, s3: Any) -> None:
    assert run(efs_tls=False)["sha256"] == run()["sha256"] != run(efs_tls=True)["sha256"]
