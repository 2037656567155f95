"""A cluster without a record of its settings: what AWS shows counts, and defaults that differ from it are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import tag_list
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import observed
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts, EmrFacts

from tests.unit.plugins.plan.facts_kit import FACTS, cluster, options

FAMILY = "base-oss-nvidia-driver-gpu-ubuntu-22.04"
GROUPS = [{"AutoScalingGroupName": f"red-{kind}", "VPCZoneIdentifier": "subnet-1"} for kind in ("master", "workers")]
FILES = [{"FileSystemId": "fs-1"}]
OF_GROUPS = replace(FACTS, groups=GROUPS, vpcs=[{"VpcId": "vpc-1"}], file_systems=FILES)
OF_EMR = replace(
    OF_GROUPS,
    groups=[],
    emr=EmrFacts([], []),
    emr_clusters=[{"Id": "j-1", "Ec2InstanceAttributes": {"Ec2SubnetId": "subnet-1", "Ec2KeyName": "my-key"}}],
)


class Answers:
    """AWS, as far as it is asked."""

    def __init__(self, vpc: str = "vpc-1", master: str = "g5.xlarge", image: str = FAMILY, **workers: Any) -> None:
        disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 100, "VolumeType": "gp3"}}
        data = {"InstanceType": "g5.xlarge", "KeyName": "my-key", "BlockDeviceMappings": [disk]}
        self._data = {"lt-master": {**data, "InstanceType": master}, "lt-workers": {**data, **workers}}
        self._vpc, self._image = vpc, image

    def pages(self, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        if operation == "describe_launch_templates":
            tags = tag_list({"deeplearning:image": self._image})
            ids = ("master", "workers")
            return [{"LaunchTemplateName": f"red-{i}", "LaunchTemplateId": f"lt-{i}", "Tags": tags} for i in ids]
        if operation == "list_instance_groups":
            types = {"MASTER": "m5.xlarge", "CORE": "g5.2xlarge"}
            return [{"InstanceGroupType": role, "InstanceType": name} for role, name in types.items()]
        assert operation == "describe_subnets"
        return [{"VpcId": self._vpc}]

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "describe_launch_template_versions":
            return {"LaunchTemplateVersions": [{"LaunchTemplateData": self._data[params["LaunchTemplateId"]]}]}
        assert operation == "get_auto_termination_policy"
        return {"AutoTerminationPolicy": {"IdleTimeout": 1800}}


def differences(of: AccountFacts, answers: Answers, **settings: Any) -> dict[str, Any]:
    return observed.differences(cast(Aws, answers), of, cluster(**settings))


def problems(of: AccountFacts, before: dict[str, Any], *specified: str, **settings: Any) -> list[str]:
    request = options(specified=specified, before=before, recorded=False)
    return [finding.text for finding in observed.check(of, cluster(**settings), request) if finding.is_problem]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (Answers(), {}),
        (Answers(InstanceType="g5.2xlarge"), {"instance_type": "g5.2xlarge"}),
        (Answers(master="g5.2xlarge"), {"master_instance_type": "g5.2xlarge"}),
        (Answers(image="ami-1"), {"image": "ami-1"}),
        (Answers(KeyName="mine"), {"key_name": "mine"}),
        (Answers(vpc="vpc-2"), {"vpc_id": "vpc-2"}),
        (Answers(InstanceMarketOptions={"MarketType": "spot"}), {"spot": True}),
        (
            Answers(BlockDeviceMappings=[{"Ebs": {"VolumeSize": 200, "VolumeType": "gp3", "Throughput": 500}}]),
            {"root_volume_gib": 200, "root_volume_throughput": 500},
        ),
    ],
)
def test_what_aws_shows_of_auto_scaling_groups(answers: Answers, expected: dict[str, Any]) -> None:
    assert differences(OF_GROUPS, answers) == expected


def test_what_aws_shows_of_emr() -> None:
    settings = {"image": "ami-0123456789abcdef0"}
    assert differences(OF_EMR, Answers(), **settings) == {
        "instance_type": "g5.2xlarge",
        "master_instance_type": "m5.xlarge",
        "image": "",
        "emr_idle_minutes": 30,
    }


def test_a_new_cluster_is_not_looked_up() -> None:
    class Refuses:
        pass

    for of in (FACTS, replace(FACTS, emr=EmrFacts([], []))):
        assert observed.differences(cast(Aws, Refuses()), of, cluster()) == {}
        assert list(observed.check(of, cluster(), options(recorded=False))) == []


def test_a_default_that_would_change_the_cluster_is_refused() -> None:
    before = {"instance_type": "g5.2xlarge", "master_instance_type": "g5.2xlarge"}
    (text,) = problems(OF_GROUPS, before)
    assert text == (
        'cluster_instance_type is g5.xlarge: AWS shows "g5.2xlarge", and the cluster\'s bucket has no record of its '
        "settings (settings.json): give the setting, which is then recorded. Example: -e "
        "cluster_instance_type=g5.2xlarge"
    )
    assert problems(OF_GROUPS, before, "instance_type") == []
    (text,) = problems(OF_GROUPS, {"master_instance_type": "g5.2xlarge"}, "instance_type")
    assert text.startswith("cluster_master_instance_type is g5.xlarge: ")
    assert problems(OF_GROUPS, {"key_name": "mine"}, "public_key_file") == []
    assert list(observed.check(OF_GROUPS, cluster(), options(before=before))) == []


def test_a_file_system_and_ends_are_asked_for() -> None:
    (text,) = problems(replace(OF_GROUPS, file_systems=[]), {})
    assert text.startswith("cluster_efs_id is empty: the cluster has none of its own")
    assert problems(replace(OF_GROUPS, file_systems=[]), {}, "efs_id") == []
    ends = replace(OF_GROUPS, ends={"idle": {"red-master": 1.0}, "ttl": {}})
    (text,) = problems(ends, {})
    assert text.startswith("cluster_idle_minutes is 0: the machines are scheduled to end")
    assert problems(ends, {}, "idle_minutes") == []


def test_a_note_says_that_the_defaults_count_for_what_aws_does_not_show() -> None:
    (finding,) = observed.check(OF_GROUPS, cluster(), options(recorded=False))
    assert not finding.is_problem and "Of the other settings the defaults count" in finding.text
