"""An account in which EMR's clusters are planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.plan import planner
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts, EmrFacts, ImageFacts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import setting_rules

from tests.unit.plugins.plan.facts_kit import FACTS as AUTO_SCALING_FACTS

KIND = {
    "name": "m5.xlarge",
    "vcpus": 4,
    "memory_mib": 16384,
    "gpus": 0,
    "gpu_name": "",
    "neuron_name": "",
    "gpu_maker": "",
    "efa_cards": [],
    "instance_store_gib": 0,
    "placement": True,
    "spot": True,
    "architectures": ["x86_64"],
}
EMR = EmrFacts(["Hadoop", "Spark"], ["m5.xlarge", "m5.2xlarge"], release="emr-7.14.0")
FACTS = replace(
    AUTO_SCALING_FACTS,
    emr=EMR,
    types={"m5.xlarge": KIND},
    image=ImageFacts(),
    quotas={},
    zones=[{"ZoneName": "us-east-1a"}],
    offers=[{"InstanceType": "m5.xlarge", "Location": "us-east-1a"}],
)
AMI = "ami-0123456789abcdef0"
AMAZON_LINUX = {"ImageId": AMI, "Name": "al2023-ami-2023", "State": "available", "RootDeviceType": "ebs"}
MINIMUM = {
    "name": "red",
    "ssh_allowed_cidrs": ["198.51.100.1/32"],
    "key_name": "my-key",
    "region": "us-east-1",
    "instance_type": "m5.xlarge",
}


def checked(emr: bool = True, **settings: Any) -> Any:
    return setting_rules.check({f"cluster_{name}": value for name, value in {**MINIMUM, **settings}.items()}, emr=emr)


def texts(facts: AccountFacts = FACTS, is_problem: bool = True, emr: bool = True, **settings: Any) -> list[str]:
    validated = checked(emr, **settings)
    assert validated.problems == []
    cluster = setting_rules.complete(validated.values, emr)
    if facts.emr and cluster["emr_release"]:
        facts = replace(facts, emr=replace(facts.emr, release=cluster["emr_release"]))
    return [finding.text for finding in planner.check(facts, cluster) if finding.is_problem is is_problem]


def image(**changes: Any) -> AccountFacts:
    return replace(FACTS, image=ImageFacts(AMI, described=[{**AMAZON_LINUX, **changes}]))
