"""Which module creates which resource: amazon.aws, and the exceptions that it has no module for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CLOUD_ROLES = ("iam", "bucket", "network", "storage", "machines", "emr_cluster")
CLOUD_PLAYBOOKS = "playbooks/tasks/provision"

RESOURCES = {
    "Allow the primary node to reach EMR": "amazon.aws.ec2_security_group",
    "Attach the internet gateway": "amazon.aws.ec2_vpc_igw",
    "Create the Auto Scaling groups without machines": "amazon.aws.autoscaling_group",
    "Create the Auto Scaling groups": "amazon.aws.autoscaling_group",
    "Create the NAT gateway": "amazon.aws.ec2_vpc_nat_gateway",
    "Create the S3 endpoint": "amazon.aws.ec2_vpc_endpoint",
    "Create the VPC": "amazon.aws.ec2_vpc_net",
    "Configure the bucket": "amazon.aws.s3_bucket",
    "Create the bucket": "amazon.aws.s3_bucket",
    "Create the instance profiles": "amazon.aws.iam_instance_profile",
    "Create the internet gateway": "amazon.aws.ec2_vpc_igw",
    "Create the launch templates": "amazon.aws.ec2_launch_template",
    "Create the placement group": "amazon.aws.ec2_placement_group",
    "Create the policies": "amazon.aws.iam_policy",
    "Create the private subnet": "amazon.aws.ec2_vpc_subnet",
    "Create the public subnet": "amazon.aws.ec2_vpc_subnet",
    "Create the roles": "amazon.aws.iam_role",
    "Create the route tables": "amazon.aws.ec2_vpc_route_table",
    "Create the security group for ssh": "amazon.aws.ec2_security_group",
    "Create the security group of the file system": "amazon.aws.ec2_security_group",
    "Create the security group of the members": "amazon.aws.ec2_security_group",
    "Create the security groups that EMR manages": "amazon.aws.ec2_security_group",
    "Allocate the NAT gateway's address": "amazon.aws.ec2_eip",
    "Allocate the master's address": "amazon.aws.ec2_eip",
    "Delete an S3 endpoint that lacks a route table": "amazon.aws.ec2_vpc_endpoint",
    "Delete another key of that name": "amazon.aws.ec2_key",
    "Delete NAT gateways that no route uses": "amazon.aws.ec2_vpc_nat_gateway",
    "Release addresses that nothing uses": "amazon.aws.ec2_eip",
    "Import the public key": "amazon.aws.ec2_key",
    "Resume launching": "amazon.aws.autoscaling_group",
    "Remove the workers with the highest ranks": "amazon.aws.autoscaling_instance",
    "Assume the role": "amazon.aws.sts_assume_role",
}
EXCEPTIONS = {
    "Create the EMR cluster": "deeplearning.aws.emr_cluster",
    "Store the bundle": "deeplearning.aws.boot_bundle",
    "Create the launch hooks": "community.aws.autoscaling_lifecycle_hook",
    "Schedule the end of the group": "community.aws.autoscaling_scheduled_action",
    "Delete the end of machines that are in service": "community.aws.autoscaling_scheduled_action",
    "Delete the scheduled end of a setting that is off": "community.aws.autoscaling_scheduled_action",
    "Delete the scheduled actions of others that the operator has named": "community.aws.autoscaling_scheduled_action",
    "Create the file system": "deeplearning.aws.file_system",
    "Wait for the mount target": "deeplearning.aws.file_system",
    "Create the launch templates with EFA interfaces": "deeplearning.aws.launch_template",
}
"""amazon.aws has no module or option for these: docs/decisions/005-own-modules.md gives the reasons."""
READING = {"bucket_info", "cluster_lock", "wait_for_capacity"}
"""Modules of the collection that create no resource. `wait_for_capacity` waits for machines."""


def tasks_in(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_in(task.get(part, []))


def modules() -> Iterator[tuple[str, str]]:
    """Each task that may change something in AWS: its name without the file, and its module."""
    files = [path for role in CLOUD_ROLES for path in (ROOT / "roles" / role / "tasks").glob("*.yml")]
    files += (ROOT / CLOUD_PLAYBOOKS).glob("*.yml")
    for path in files:
        for task in tasks_in(yaml.safe_load(path.read_text(encoding="utf-8"))):
            (module,) = [key for key in task if re.match(r"(amazon|community|deeplearning)\.aws\.", key)] or [""]
            name = module.rpartition(".")[2]
            if module and name != "teardown" and name not in READING and not name.endswith("_info"):
                yield task["name"].rpartition(" | ")[2], module


def test_every_resource_is_created_by_its_module_of_amazon_aws() -> None:
    assert dict(modules()) == RESOURCES | EXCEPTIONS
    assert all(module.startswith("amazon.aws.") for module in RESOURCES.values())


@pytest.mark.parametrize("page", ["README.md", "docs/decisions/005-own-modules.md"])
def test_the_exceptions_are_named(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for module in (
        "file_system",
        "launch_template",
        "bucket_info",
        "cluster_lock",
        "wait_for_capacity",
        "plan",
        "cluster_info",
    ):
        assert f"`{module}`" in text, module
