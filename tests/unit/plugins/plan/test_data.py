"""How much space a data set takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.datasets import DATASETS
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import data

from tests.unit.conftest import Account
from tests.unit.plugins.plan.facts_kit import FACTS, cluster

BUCKET = "123456789012-us-east-1-deeplearning-data"
GIB = 2**30


def test_a_known_set_needs_no_call(aws: Account) -> None:
    for name, dataset in DATASETS.items():
        assert data.size_gib(Aws("us-east-1"), name) == dataset.gib
    assert aws.calls() == []


def test_a_staged_set_is_the_sum_of_its_parts(aws: Account) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    manifest = {"parts": [{"size": GIB}, {"size": 2 * GIB}]}
    s3.put_object(Bucket=BUCKET, Key="photos/manifest.json", Body=json.dumps(manifest))
    assert data.size_gib(Aws("us-east-1"), "photos") == 3


@pytest.mark.parametrize("content", [None, "no JSON", "{}", "[]", '{"parts": [{}]}', '{"parts": [{"size": "x"}]}', "7"])
def test_what_is_not_staged_or_cannot_be_read_has_no_size(aws: Account, content: str | None) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    if content is not None:
        s3.put_object(Bucket=BUCKET, Key="photos/manifest.json", Body=content)
    assert data.size_gib(Aws("us-east-1"), "photos") is None


def test_a_bucket_of_another_account_has_no_sets(aws: Account) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="photos/manifest.json", Body='{"parts": [{"size": 1}]}')
    assert data.size_gib(Aws("us-east-1"), "photos") is not None
    aws.cloud.faults.add("foreign-bucket", {"bucket": BUCKET}, "210987654321")
    assert data.size_gib(Aws("us-east-1"), "photos") is None


@pytest.mark.parametrize(("size", "fits"), [(5.0, True), (5.01, False)])
def test_what_just_fits_beside_the_image_and_the_frameworks(size: float, fits: bool) -> None:
    (finding,) = data.check(FACTS, cluster(), "photos", size, "node")
    assert finding.is_problem is not fits


@pytest.mark.parametrize(("size", "fits"), [(200.0, True), (200.1, False)])
def test_what_just_fits_on_an_instance_store(size: float, fits: bool) -> None:
    kind: dict[str, Any] = {**(FACTS.types or {})["g5.xlarge"], "instance_store_gib": 200}
    facts = replace(FACTS, types={"g5.xlarge": kind})
    (finding,) = data.check(facts, cluster(), "photos", size, "instance_store")
    assert finding.is_problem is not fits


def test_each_type_is_checked() -> None:
    kinds = {
        name: {**(FACTS.types or {})["g5.xlarge"], "name": name, "instance_store_gib": store}
        for name, store in (("g5.xlarge", 200), ("m5.xlarge", 0))
    }
    facts = replace(FACTS, types=kinds)
    settings = cluster(master_instance_type="m5.xlarge", master_trains=False)
    texts = [finding.text for finding in data.check(facts, settings, "photos", 300, "instance_store")]
    assert [text.partition(":")[0] for text in texts] == [
        "cluster_instance_type is g5.xlarge",
        "cluster_master_instance_type is m5.xlarge",
    ]
    # A root volume that is too small is one problem, however many types have it.
    plain = {name: {**kind, "instance_store_gib": 0} for name, kind in kinds.items()}
    facts = replace(FACTS, types=plain)
    assert len(list(data.check(facts, settings, "photos", 300, "node"))) == 1
