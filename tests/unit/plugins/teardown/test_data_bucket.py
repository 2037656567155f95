"""The bucket of data sets: the account's. It is listed with its cost, and deleted by its name alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.action import cluster_info, teardown
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import offers
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown import data_bucket

from tests.unit.conftest import Account

NAME = "123456789012-us-east-1-deeplearning-data"


def play(playbook: str, **extra: str) -> tuple[int, str]:
    words = [word for name, value in extra.items() for word in ("-e", f"{name}={value}")]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), playbook, "-e", "cluster_name=red", *words],
        cwd=Path(__file__).resolve().parents[4],
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def act(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[dict[str, Any], str]]:
    """Run one of our actions in this process; return its result and what it prints."""

    def run(action: type[Action], **options: Any) -> tuple[dict[str, Any], str]:
        task = SimpleNamespace(args={"region": "us-east-1", **options}, async_val=0, check_mode=False, action="it")
        variables = {"deeplearning_folder": str(tmp_path)}
        connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp"))
        result = action(task, connection, SimpleNamespace(), None, None, None).run(None, variables)
        return result, " ".join(capsys.readouterr().out.split())

    return run


@pytest.fixture
def s3(aws: Account) -> Any:
    """S3 with one data set in the bucket, of which an older version exists too."""
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=NAME)
    s3.put_bucket_versioning(Bucket=NAME, VersioningConfiguration={"Status": "Enabled"})
    for _version in range(2):
        s3.put_object(Bucket=NAME, Key="photos/a.tar", Body=b"photos")
    return s3


def test_it_stays_without_its_name_and_goes_with_it(s3: Any, act: Callable[..., tuple[dict[str, Any], str]]) -> None:
    cost = f"bucket {NAME} has 1 data set, 0.0 GiB, which cost about 0.00 USD a month"
    result, output = act(teardown.ActionModule, cluster="red", consent="red")
    assert not result.get("failed") and s3.head_bucket(Bucket=NAME), result
    assert cost in output and f"deeplearning.aws.destroy -e destroy_data={NAME}" in output
    result, output = act(cluster_info.ActionModule, cluster="all", show="resources")
    assert not result.get("failed") and cost in output, output
    result, _output = act(teardown.ActionModule, cluster="red", consent="", data_bucket="another-bucket")
    assert result["failed"] and (
        f"destroy_data is another-bucket, and the bucket of data sets of this account and region is {NAME}"
        in result["msg"]
    )
    assert s3.head_bucket(Bucket=NAME)
    code, output = play("destroy.yml", destroy_data=NAME)
    assert code == 0 and f"The bucket {NAME} is removed." in output
    assert s3.list_buckets()["Buckets"] == []


def test_what_it_costs_follows_from_its_size(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    aws = Aws("us-east-1")
    listed = [{"Key": "coco2017/train2017.zip", "Size": 20 << 30}, {"Key": "photos/a.tar", "Size": 5 << 30}]
    monkeypatch.setattr(aws, "pages", lambda *_words, **_more: listed)
    price = {offers.BUCKET: offers.Price(0.023, "2026-11-20")}
    for known, cost in ((price, ", which cost about 0.57 USD a month."), ({}, ".")):
        monkeypatch.setattr(offers, "current_prices", lambda *_words, known=known: known)
        assert f"has 2 data sets, 25.0 GiB{cost} It belongs to no cluster" in data_bucket.describe(aws)[0]


def test_one_of_another_account_is_not_ours(monkeypatch: pytest.MonkeyPatch, s3: Any) -> None:
    aws = Aws("us-east-1")

    def refused(service: str, operation: str, **params: Any) -> None:
        assert params["ExpectedBucketOwner"] == "123456789012"
        raise AwsError("HeadBucket failed", "403")

    assert aws.account == "123456789012"
    monkeypatch.setattr(aws, "call", refused)
    assert data_bucket.find(aws) is None and data_bucket.describe(aws) == []
