"""The part of the plan that is EMR's: a sentence for each thing that EMR does not take, and its price."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import playbook_input

from tests.unit.plugins.plan.emr_kit import AMI, EMR, FACTS, checked, image, texts
from tests.unit.prices import LIST, hourly


def test_what_fits_has_no_findings() -> None:
    assert texts() == texts(is_problem=False) == []
    assert texts(image(), image=AMI) == []


@pytest.mark.parametrize(
    ("facts", "settings", "words"),
    [
        (
            image(),
            {"emr_release": "emr-5.6.0", "image": AMI},
            "EMR takes images of your own (cluster_image) from release 5.7",
        ),
        (FACTS, {"emr_release": "emr-6.15.0"}, "its system has no Python 3.11"),
        (
            replace(FACTS, emr=replace(EMR, applications=[])),
            {"emr_release": "emr-7.99.0"},
            "us-east-1 has no such release of EMR",
        ),
        (FACTS, {"emr_applications": ["Hue"]}, "emr-7.14.0 has Hadoop, Spark"),
        (replace(FACTS, emr=replace(EMR, types=["m5.2xlarge"])), {}, "does not offer this type, take m5.2xlarge"),
        (image(Name="Deep Learning AMI (Ubuntu 22.04)"), {"image": AMI}, "takes images of Amazon Linux 2023 alone"),
        (image(RootDeviceType="instance-store"), {"image": AMI}, "is not an EBS volume"),
        (image(Architecture="arm64"), {"image": AMI}, "that is for arm64"),
        (FACTS, {"root_volume_gib": 10}, "EMR needs 15 or more"),
        (
            replace(FACTS, emr=replace(EMR, log_bucket_problem="there is no bucket logs")),
            {"emr_log_uri": "s3://logs/a"},
            "cluster_emr_log_uri is logs/a: there is no bucket logs",
        ),
        (
            replace(FACTS, groups=[{"AutoScalingGroupName": "red-master"}]),
            {},
            "a cluster of Auto Scaling groups has this name",
        ),
    ],
)
def test_what_emr_does_not_take_is_refused(facts: AccountFacts, settings: dict[str, Any], words: str) -> None:
    problems = texts(facts, **settings)
    assert any(words in problem for problem in problems), problems


OWN, DATA = "red-123456789012-us-east-1", "123456789012-us-east-1-deeplearning-data"


@pytest.mark.parametrize(
    ("location", "refused"),
    [
        (OWN, True),
        (f"{OWN}/members", True),
        (f"{OWN}/bundles", True),
        (f"{OWN}/emr-logs-2", True),
        (DATA, True),
        (f"{DATA}/emr-logs", True),
        (f"{OWN}/emr-logs", False),
        (f"{OWN}/emr-logs/today", False),
        ("logs/of/emr", False),
    ],
)
def test_logs_are_not_stored_over_what_others_trust(location: str, refused: bool) -> None:
    problems = texts(emr_log_uri=f"s3://{location}")
    assert [problem.split(": ")[0] for problem in problems] == (
        [f"cluster_emr_log_uri is {location}"] if refused else []
    )
    if refused:
        assert problems[0].endswith(f"Example: -e cluster_emr_log_uri=s3://{OWN}/emr-logs")


def test_a_type_that_the_region_does_not_have_is_refused_once() -> None:
    (problem,) = texts(replace(FACTS, types={}, offers=[]), instance_type="m5.9xlarge")
    assert "m5.9xlarge: us-east-1 has no such type" in problem


def test_site_refuses_the_name_of_an_emr_cluster() -> None:
    (problem,) = texts(replace(FACTS, emr=None, emr_clusters=[{"Id": "j-1"}]), emr=False)
    assert "an EMR cluster of this name lives (j-1)" in problem


def test_a_root_volume_too_small_for_the_frameworks_is_noted_with_the_number() -> None:
    (note,) = texts(is_problem=False, root_volume_gib=30)
    assert note.startswith("cluster_root_volume_gib is 30: EMR's software and 4 frameworks take about 51")


def test_a_public_subnet_must_give_public_addresses() -> None:
    subnet, vpc = "subnet-0123456789abcdef0", "vpc-0123456789abcdef0"
    settings = {"vpc_id": vpc, "public_subnet_ids": [subnet], "private_subnet_ids": ["subnet-0123456789abcdef1"]}
    described = [
        {"SubnetId": subnet, "VpcId": vpc, "AvailabilityZone": "us-east-1a", "MapPublicIpOnLaunch": False},
        {"SubnetId": "subnet-0123456789abcdef1", "VpcId": vpc, "AvailabilityZone": "us-east-1a"},
    ]
    facts = replace(FACTS, vpcs=[{"VpcId": vpc, "CidrBlock": "10.0.0.0/16"}], subnets=described)
    (problem,) = texts(facts, **settings)
    assert "it gives them no public addresses" in problem
    described[0]["MapPublicIpOnLaunch"] = True
    assert texts(facts, **settings) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"spot": True}, "spot instances are not supported on EMR"),
        ({"efa": True}, "EMR attaches no EFA"),
        ({"placement_group": True}, "no cluster placement group"),
        ({"login_user": "ubuntu"}, "on EMR it is hadoop"),
        ({"worker_count": 0}, "EMR needs a core node"),
        ({"emr_idle_minutes": 0.5}, "cluster_emr_idle_minutes is 0.5"),
        ({"ttl_hours": 8}, "cluster_ttl_hours is 8: it is for machines of Auto Scaling groups"),
        ({"idle_minutes": 30}, "EMR ends an idle cluster by itself. Example: -e cluster_emr_idle_minutes=180"),
        ({"emr_release": "7.1"}, "give a release of EMR"),
    ],
)
def test_settings_that_emr_cannot_grant_are_refused_before_any_call(settings: dict[str, Any], words: str) -> None:
    problems = checked(**settings).problems
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cluster_emr_instance_fleets", "instance fleets are not supported"),
        ("cluster_emr_task_count", "task groups are not supported"),
        ("cluster_emr_hdfs", "HDFS is not supported"),
        ("cluster_emr_yarn_queue", "runs are not submitted to YARN"),
    ],
)
def test_what_people_may_ask_of_emr_is_refused_in_a_sentence(name: str, words: str) -> None:
    assert words in playbook_input.misspelt_setting(name)


def test_the_price_has_emr_on_top_and_no_nat_gateway() -> None:
    def parts(public: bool) -> dict[str, Any]:
        cost = hourly(LIST, "m5.xlarge", "m5.xlarge", public=public, emr=True)
        assert cost["known"]
        return {part["what"]: (part["count"], part["each"]) for part in cost["parts"]} | {"amount": cost["amount"]}

    public = parts(public=True)
    assert public["EMR on m5.xlarge"] == (2, 0.048)
    assert public["public address"][0] == 3 and "NAT gateway" not in public
    assert "NAT gateway" in parts(public=False)
    plain = hourly(LIST, "m5.xlarge", "m5.xlarge")
    more = 3 * 0.048 - 0.045 + 0.005
    assert public["amount"] == pytest.approx(plain["amount"] + more)
