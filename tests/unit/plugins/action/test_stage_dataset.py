"""The action `stage_dataset`: which bucket and folder it uses, and what it says when a file cannot be used."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.actions import run_action
from tests.unit.cluster_kit import REGION
from tests.unit.conftest import Account

OWN = "123456789012-us-east-1-deeplearning-data"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with an archive of 3 MiB."""
    folder = tmp_path / "source"
    folder.mkdir()
    (tmp_path / "1.jpg").write_bytes(b"x" * (3 << 20))
    with tarfile.open(folder / "photos.tar", "w") as archive:
        archive.add(tmp_path / "1.jpg", "1.jpg")
    return folder


def stage(tmp_path: Path, source: Path | str, check: bool = False, **options: Any) -> dict[str, Any]:
    own = {"region": REGION, "data": "photos", "source_dir": str(source), "folder": str(tmp_path / "stage")}
    own |= {"records": str(tmp_path)}
    return run_action("stage_dataset", check, **{**own, **options})


def test_without_a_location_it_is_the_accounts_own_bucket(
    aws: Account, tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    s3 = aws.client("s3")
    planned = stage(tmp_path, source, check=True)
    assert (planned["changed"], planned["source"]) == (True, f"s3://{OWN}/photos")
    missing = stage(tmp_path, source)
    assert missing["failed"] and missing["msg"] == f"The bucket {OWN} does not exist: create it first."
    s3.create_bucket(Bucket=OWN)
    capsys.readouterr()
    staged = stage(tmp_path, source)
    assert staged["changed"] and staged["source"] == f"s3://{OWN}/photos" and staged["version"]
    keys = {item["Key"] for item in s3.list_objects_v2(Bucket=OWN)["Contents"]}
    assert keys == {"photos/photos.tar", "photos/manifest.json"}
    printed = capsys.readouterr().out
    assert "checking photos.tar: 1 of 3 MiB" in printed
    assert not stage(tmp_path, source)["changed"]


def test_another_bucket_and_a_home_folder_can_be_named(
    aws: Account, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="mine")
    staged = stage(tmp_path, "~/source", bucket="s3://mine/sets")
    assert staged["changed"] and staged["source"] == "s3://mine/sets/photos"
    assert stage(tmp_path, source, bucket="s3://")["msg"].startswith("bucket is s3://; it must be a bucket.")


def test_a_folder_for_downloads_that_cannot_be_made_is_named(aws: Account, tmp_path: Path) -> None:
    aws.client("s3").create_bucket(Bucket=OWN)
    (tmp_path / "stage").write_text("a file")
    refused = stage(tmp_path, "", data="cifar10")
    assert refused["failed"] and f"{tmp_path}/stage" in refused["msg"] and "it resumes there" in refused["msg"]
