"""What EMR does not take, each as a whole sentence with a way out; and where its logs go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import emr
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import (
    AccountFacts,
    ImageFacts,
    release_number,
)

from tests.unit.plugins.plan.emr_kit import AMI, EMR, FACTS, image, texts

AL2023 = "base-oss-nvidia-driver-gpu-amazon-linux-2023"
EXAMPLE = "Example: -e cluster_emr_release=emr-7.14.0"


@pytest.mark.parametrize(
    ("facts", "settings", "sentences"),
    [
        (FACTS, {"emr_release": "emr-7.0.0"}, []),
        (
            FACTS,
            {"emr_release": "emr-6.15.0"},
            [
                "cluster_emr_release is emr-6.15.0: its system has no Python 3.11, by which machines configure "
                f"themselves: take a release from 7.0.0 on, which has Amazon Linux 2023. {EXAMPLE}"
            ],
        ),
        (
            image(),
            {"emr_release": "emr-5.7.0", "image": AMI},
            ["cluster_emr_release is emr-5.7.0: its system has no Python 3.11, by which machines configure themselves: "
             f"take a release from 7.0.0 on, which has Amazon Linux 2023. {EXAMPLE}"],
        ),
        (
            image(),
            {"emr_release": "emr-5.6.9", "image": AMI},
            ["cluster_emr_release is emr-5.6.9: EMR takes images of your own (cluster_image) from release 5.7.0 on. "
             f"{EXAMPLE}"],
        ),
        (
            replace(FACTS, emr=replace(EMR, applications=[])),
            {},
            [f"cluster_emr_release is emr-7.14.0: us-east-1 has no such release of EMR. {EXAMPLE}"],
        ),
        (
            replace(FACTS, emr=replace(EMR, release="", applications=None)),
            {},
            [
                "cluster_emr_release is empty: us-east-1 lists no release of EMR of the series emr-7.x: name another. "
                f"{EXAMPLE}"
            ],
        ),
        (replace(FACTS, emr=replace(EMR, applications=None)), {"emr_applications": ["Hue"]}, []),
        (FACTS, {"emr_applications": ["hadoop", "SPARK"]}, []),
        (
            replace(FACTS, emr=replace(EMR, applications=["b", "a"])),
            {"emr_applications": ["A", "Hue"]},
            ['cluster_emr_applications is ["Hue"]: emr-7.14.0 has a, b. '
             """Example: -e '{"cluster_emr_applications": ["Hadoop"]}'"""],
        ),
        (replace(FACTS, emr=replace(EMR, types=None)), {}, []),
        (
            replace(FACTS, emr=replace(EMR, types=["m5.9xlarge", "m5.2xlarge", "m5.4xlarge", "m5.8xlarge", "c5.l"])),
            {},
            ["cluster_instance_type is m5.xlarge: emr-7.14.0 does not offer this type, take m5.2xlarge, m5.4xlarge, "
             "m5.8xlarge and 1 more. Example: -e cluster_instance_type=m5.2xlarge"],
        ),
        (
            replace(FACTS, emr=replace(EMR, types=["c5.xlarge"])),
            {},
            ["cluster_instance_type is m5.xlarge: emr-7.14.0 does not offer this type, take another type. "
             "Example: -e cluster_instance_type=m5.xlarge"],
        ),
        (
            image(Name="", Description=""),
            {"image": AMI},
            [
                f"cluster_image is {AMI}: EMR's release emr-7.14.0 takes images of Amazon Linux 2023 alone, and {AMI} "
                "does not look like one: leave the image out for EMR's own, or take one of Amazon Linux 2023. "
                f"Example: -e cluster_image={AL2023}"
            ],
        ),
        (
            image(RootDeviceType="instance-store"),
            {"image": AMI},
            [f"cluster_image is {AMI}: the root device of al2023-ami-2023 is not an EBS volume."],
        ),
        (FACTS, {"root_volume_gib": 15}, []),
        (FACTS, {"root_volume_gib": 100}, []),
        (
            FACTS,
            {"root_volume_gib": 101},
            ["cluster_root_volume_gib is 101: EMR allows 100 GiB at most. Example: -e cluster_root_volume_gib=100"],
        ),
        (
            FACTS,
            {"root_volume_gib": 14},
            ["cluster_root_volume_gib is 14: EMR needs 15 or more. Example: -e cluster_root_volume_gib=51"],
        ),
        (
            replace(FACTS, groups=[{"AutoScalingGroupName": "red-master"}]),
            {},
            ["cluster_name is red: a cluster of Auto Scaling groups has this name, which site.yml changes. Choose "
             "another name, or remove it first. Example: -e cluster_name=another"],
        ),
    ],
)  # fmt: skip
def test_what_emr_does_not_take(facts: AccountFacts, settings: dict[str, Any], sentences: list[str]) -> None:
    assert texts(facts, **settings) == sentences


@pytest.mark.parametrize(("size", "noted"), [(50, True), (51, False), (14, False)])
def test_a_small_root_volume_is_noted(size: int, noted: bool) -> None:
    assert bool(texts(is_problem=False, root_volume_gib=size)) is noted


def test_without_a_kind_of_root_device_it_is_a_volume() -> None:
    plain = {"ImageId": AMI, "Name": "al2023-ami-2023", "State": "available"}
    assert texts(replace(FACTS, image=ImageFacts(AMI, described=[plain])), image=AMI) == []


def test_only_public_subnets_of_the_settings_give_addresses() -> None:
    public, other = "subnet-0123456789abcdef0", "subnet-0123456789abcdef9"
    facts = replace(FACTS, subnets=[{"SubnetId": other}, {"SubnetId": public}])
    settings = {"public": True, "public_subnet_ids": [public]}
    (finding,) = emr._check_subnets(facts, settings)
    assert finding.text.startswith(
        f"cluster_public_subnet_ids is {public}: all machines of EMR are in it, and it gives"
    )
    assert f"--subnet-id {public}), or take private subnets (-e cluster_public=false)" in finding.text
    assert list(emr._check_subnets(facts, {**settings, "public": False})) == []
    assert list(emr._check_subnets(replace(FACTS, subnets=None), settings)) == []


@pytest.mark.parametrize(("release", "numbers"), [("emr-7.14.0", (7, 14, 0)), ("emr-5.7.10", (5, 7, 10)), ("none", ())])
def test_the_number_of_a_release(release: str, numbers: tuple[int, ...]) -> None:
    assert release_number(release) == numbers


def test_where_logs_go() -> None:
    assert emr.logs_of(FACTS, {"name": "red", "emr_log_uri": "a/b"}) == "a/b"
    own = "red-123456789012-us-east-1/emr-logs"
    assert emr.logs_of(FACTS, {"name": "red", "emr_log_uri": ""}) == own
    settings = {"name": "red", "emr_log_uri": "", "emr_release": ""}
    assert emr.of_plan(FACTS, settings) == {"release": "emr-7.14.0", "logs": own, "cluster_id": ""}
    assert emr.of_plan(replace(FACTS, emr=None), settings) == {}
