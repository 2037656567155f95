"""What plain boto3 finds of a cluster that playbooks have made."""

from __future__ import annotations

import json
from typing import Any

REGION = "ap-southeast-2"
ZONES = [f"{REGION}b", f"{REGION}c"]
"""The first one has no room for all machines."""


class Seen:
    """What plain boto3 finds of a cluster."""

    def __init__(self, account: Any, cluster: str = "red", region: str = REGION) -> None:
        self.account = account
        self.cluster = cluster
        self.region = region
        self.ec2 = account.client("ec2", region)
        self.scaling = account.client("autoscaling", region)
        self.efs = account.client("efs", region)
        self.iam = account.client("iam", region)
        self.s3 = account.client("s3", region)
        self.ours = [{"Name": "tag:deeplearning:cluster", "Values": [cluster]}]

    def listed(self, operation: str, key: str, **more: Any) -> list[Any]:
        return list(getattr(self.ec2, operation)(**({"Filters": self.ours} | more))[key])

    def one(self, operation: str, key: str, name: str) -> Any:
        """The only one, which bears our tags."""
        actual = [thing for thing in self.listed(operation, key) if tags(thing)["Name"] == name]
        assert len(actual) == 1, (operation, name, actual)
        self.check_tags(actual[0], name)
        return actual[0]

    def check_tags(self, thing: Any, name: str) -> None:
        assert tags(thing) == {"Name": name, "deeplearning:cluster": self.cluster, "team": "research"}

    def vpc(self) -> Any:
        return self.one("describe_vpcs", "Vpcs", f"{self.cluster}-vpc")

    def subnet(self, kind: str) -> Any:
        return self.one("describe_subnets", "Subnets", f"{self.cluster}-{kind}")

    def table(self, kind: str) -> Any:
        return self.one("describe_route_tables", "RouteTables", f"{self.cluster}-{kind}")

    def group(self, kind: str) -> Any:
        return self.one("describe_security_groups", "SecurityGroups", f"{self.cluster}-{kind}")

    def scaling_group(self, kind: str) -> Any:
        name = f"{self.cluster}-{kind}"
        return self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]

    def instances(self) -> list[Any]:
        alive = {"Name": "instance-state-name", "Values": ["pending", "running"]}
        actual = self.ec2.describe_instances(Filters=[*self.ours, alive])["Reservations"]
        return [instance for reservation in actual for instance in reservation["Instances"]]

    def master(self) -> Any:
        (actual,) = [instance for instance in self.instances() if tags(instance)["deeplearning:role"] == "master"]
        return actual

    def template(self, kind: str) -> tuple[Any, Any]:
        name = f"{self.cluster}-{kind}"
        (template,) = self.ec2.describe_launch_templates(LaunchTemplateNames=[name])["LaunchTemplates"]
        (version,) = self.ec2.describe_launch_template_versions(LaunchTemplateName=name, Versions=["$Default"])[
            "LaunchTemplateVersions"
        ]
        return template, version

    def file_system(self) -> Any:
        actual = [
            system
            for system in self.efs.describe_file_systems()["FileSystems"]
            if tags(system).get("deeplearning:cluster") == self.cluster
        ]
        assert len(actual) == 1
        return actual[0]

    def targets(self) -> list[Any]:
        return list(self.efs.describe_mount_targets(FileSystemId=self.file_system()["FileSystemId"])["MountTargets"])

    def bucket(self) -> str:
        return f"{self.cluster}-123456789012-{self.region}"

    def snapshot(self) -> str:
        """All of it, in one piece that can be compared."""
        reads = {
            "Vpcs": "describe_vpcs",
            "Subnets": "describe_subnets",
            "RouteTables": "describe_route_tables",
            "SecurityGroups": "describe_security_groups",
            "Addresses": "describe_addresses",
            "InternetGateways": "describe_internet_gateways",
            "VpcEndpoints": "describe_vpc_endpoints",
        }
        things: dict[str, Any] = {key: self.listed(operation, key) for key, operation in reads.items()}
        things["groups"] = [self.scaling_group(kind) for kind in ("master", "workers")]
        things["instances"] = sorted(instance["InstanceId"] for instance in self.instances())
        things["targets"] = self.targets()
        things["bucket"] = self.s3.head_bucket(Bucket=self.bucket())["ResponseMetadata"]["HTTPStatusCode"]
        return json.dumps(things, default=str, sort_keys=True)


def tags(thing: Any) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", ())}


def play(account: Any, playbooks: Any, *arguments: str, **extra: Any) -> Any:
    ran = account.play(playbooks, *arguments, **extra)
    assert ran.code == 0, ran.output
    return ran
