"""Getting the files of a run to S3, through this machine."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.actions import run_action
from tests.unit.conftest import Account
from tests.unit.plugins.runs.results_kit import MODEL, here, program_in, run_in, write

REGION = "eu-west-1"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return run_in(tmp_path, program_in(tmp_path, monkeypatch))


@pytest.fixture
def bucket(aws: Account) -> Any:
    """A bucket in another region than the cluster."""
    client = aws.client("s3", REGION)
    client.create_bucket(Bucket="mine", CreateBucketConfiguration={"LocationConstraint": REGION})
    return client


def get(tmp_path: Path, to: str = "s3://mine/results/r1", check: bool = False) -> dict[str, Any]:
    folder = str(tmp_path / "get")
    return run_action("fetch_results", check=check, region="us-east-1", run_id="r1", to=to, folder=folder)


def objects(bucket: Any) -> dict[str, bytes]:
    listed = bucket.list_objects_v2(Bucket="mine").get("Contents", ())
    return {each["Key"]: bucket.get_object(Bucket="mine", Key=each["Key"])["Body"].read() for each in listed}


def test_files_go_to_s3_with_their_checksums_and_once(run: Path, bucket: Any, tmp_path: Path) -> None:
    assert get(tmp_path, check=True)["changed"] and not objects(bucket)
    result = get(tmp_path)
    assert result["changed"] and result["place"] == "s3://mine/results/r1"
    assert objects(bucket) == {f"results/r1/{name}": content for name, content in here(MODEL).items()}
    head = bucket.head_object(Bucket="mine", Key="results/r1/model/model.pt")
    assert head["Metadata"]["sha256"] == hashlib.sha256(MODEL["model.pt"]).hexdigest()
    # Nothing stays on this machine.
    assert not [path for path in tmp_path.glob("get/**/*") if path.is_file()]
    assert not get(tmp_path)["changed"]


def test_without_a_prefix_the_runs_name_is_one(run: Path, bucket: Any, tmp_path: Path) -> None:
    assert get(tmp_path, "s3://mine")["place"] == "s3://mine/r1"
    assert "r1/model/model.pt" in objects(bucket)


@pytest.mark.parametrize("other", [b"{]", b"longer"])
def test_another_object_is_never_replaced(run: Path, bucket: Any, tmp_path: Path, other: bytes) -> None:
    key = "results/r1/model/config.json"
    bucket.put_object(Bucket="mine", Key=key, Body=other, Metadata={"sha256": hashlib.sha256(other).hexdigest()})
    result = get(tmp_path)
    assert result["failed"] and f"s3://mine/{key} is there already, and is another file" in result["msg"]
    assert objects(bucket) == {key: other}


def test_a_bucket_that_does_not_exist_is_a_sentence(run: Path, aws: Account, tmp_path: Path) -> None:
    assert get(tmp_path, "s3://none")["msg"] == "The bucket none does not exist: create it first."


def test_a_repository_does_not_come_in_two_parts(run: Path, bucket: Any, tmp_path: Path) -> None:
    write(run / "model", {"HEAD": b"ref: refs/heads/main", "a/refs/x": b"1"})
    assert get(tmp_path)["warnings"] == []
    (run / "model/HEAD").unlink()
    shutil.rmtree(run / "model/a")
    write(run / "model", {"objects/x": b"1", "a/HEAD": b"ref: refs/heads/main"})
    (warning,) = get(tmp_path)["warnings"]
    assert warning.startswith("Left out: model/a/HEAD (") and "model/objects/x (" in warning
    assert not {"results/r1/model/a/HEAD", "results/r1/model/objects/x"} & set(objects(bucket))
