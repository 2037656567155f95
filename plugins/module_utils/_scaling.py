# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""An Auto Scaling group: what to change on one that exists, and how one goes.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._names import GROUP_TAG
from ansible_collections.deeplearning.aws.plugins.module_utils._waiting import until

if TYPE_CHECKING:
    from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws

_IN_EFFECT_SECONDS = 180
"""A new instance profile is not known to Auto Scaling at once."""


@dataclass(frozen=True)
class Wanted:
    template_id: str
    version: int
    size: int
    subnets: Sequence[str] = ()
    suspended: Sequence[str] = ()
    grace: int = 300
    tags: Mapping[str, str] = field(default_factory=dict)
    instance_tags: Mapping[str, str] = field(default_factory=dict)


def shape(wanted: Wanted) -> dict[str, Any]:
    """What UpdateAutoScalingGroup can set, as it takes it."""
    return {
        "MinSize": 0,
        "MaxSize": wanted.size,
        "DesiredCapacity": wanted.size,
        "VPCZoneIdentifier": ",".join(wanted.subnets),
        "HealthCheckGracePeriod": wanted.grace,
        "LaunchTemplate": {"LaunchTemplateId": wanted.template_id, "Version": str(wanted.version)},
    }


def shape_of(listed: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a group that exists."""
    template = listed.get("LaunchTemplate") or {}
    return {
        "MinSize": listed["MinSize"],
        "MaxSize": listed["MaxSize"],
        "DesiredCapacity": listed["DesiredCapacity"],
        "VPCZoneIdentifier": listed.get("VPCZoneIdentifier", ""),
        "HealthCheckGracePeriod": listed.get("HealthCheckGracePeriod", 0),
        "LaunchTemplate": {
            "LaunchTemplateId": template.get("LaunchTemplateId", ""),
            "Version": str(template.get("Version", "")),
        },
    }


def group_tags(name: str, wanted: Wanted) -> list[dict[str, Any]]:
    """As Auto Scaling takes them: what instances shall have is passed on to them."""
    kinds = ((wanted.tags, False), (wanted.instance_tags, True))
    return [
        {
            "ResourceId": name,
            "ResourceType": "auto-scaling-group",
            "Key": key,
            "Value": value,
            "PropagateAtLaunch": passed_on,
        }
        for tags, passed_on in kinds
        for key, value in tags.items()
    ]


def missing_tags(wanted: Sequence[Mapping[str, Any]], listed: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    have = {(tag["Key"], tag.get("Value", ""), bool(tag.get("PropagateAtLaunch"))) for tag in listed}
    return [tag for tag in wanted if (tag["Key"], tag["Value"], tag["PropagateAtLaunch"]) not in have]


class Group:
    def __init__(self, aws: Aws, name: str, check: bool = False) -> None:
        self._aws = aws
        self._name = name
        self._check = check
        self.changed = False
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}

    def _found(self) -> dict[str, Any]:
        listed = self._aws.pages(
            "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", AutoScalingGroupNames=[self._name]
        )
        return listed[0] if listed else {}

    def _change(self, operation: str, **params: Any) -> None:
        self.changed = True
        if not self._check:
            self._aws.call("autoscaling", operation, **params)

    # Present

    def present(self, wanted: Wanted) -> list[str]:
        """Make it so; the ids of the machines that it has by now."""
        found = self._found()
        if found.get("Status"):
            # It is being deleted: the name is free when it has gone.
            if not self._check:
                self._until_gone(900)
            found = {}
        tags = group_tags(self._name, wanted)
        self.after = {**shape(wanted), "SuspendedProcesses": sorted(wanted.suspended)}
        if not found:
            self._create(wanted, tags)
            return []
        suspended = {one["ProcessName"] for one in found.get("SuspendedProcesses", ())}
        self.before = {**shape_of(found), "SuspendedProcesses": sorted(suspended)}
        missing = missing_tags(tags, found.get("Tags", ()))
        if missing:
            self.after["Tags"] = {tag["Key"]: tag["Value"] for tag in missing}
            self._change("create_or_update_tags", Tags=missing)
        self._suspend(wanted, suspended)
        new, old = shape(wanted), shape_of(found)
        different = {key: value for key, value in new.items() if old[key] != value}
        if different:
            self._change("update_auto_scaling_group", AutoScalingGroupName=self._name, **different)
        # Last, as they may start at once.
        running = sorted(suspended - set(wanted.suspended))
        if running:
            self._change("resume_processes", AutoScalingGroupName=self._name, ScalingProcesses=running)
        return [one["InstanceId"] for one in found.get("Instances", ())]

    def _suspend(self, wanted: Wanted, suspended: set[str]) -> None:
        missing = sorted(set(wanted.suspended) - suspended)
        if missing:
            self._change("suspend_processes", AutoScalingGroupName=self._name, ScalingProcesses=missing)

    def _create(self, wanted: Wanted, tags: list[dict[str, Any]]) -> None:
        self.changed = True
        if self._check:
            return
        empty = {**shape(wanted), "DesiredCapacity": 0}
        if until(lambda: self._try_to_create(empty, tags), _IN_EFFECT_SECONDS) is None:
            raise AwsProblem(
                f"{self._name} cannot be made: its instance profile is not in effect after {_IN_EFFECT_SECONDS} s. Run "
                "it again; if it stays so, look at the profile in IAM."
            )
        self._suspend(wanted, set())
        self._change("update_auto_scaling_group", AutoScalingGroupName=self._name, DesiredCapacity=wanted.size)

    def _try_to_create(self, empty: Mapping[str, Any], tags: list[dict[str, Any]]) -> bool | None:
        """None while what it builds on is not yet in effect."""
        try:
            self._aws.call(
                "autoscaling",
                "create_auto_scaling_group",
                AutoScalingGroupName=self._name,
                HealthCheckType="EC2",
                Tags=tags,
                **empty,
            )
        except AwsProblem as problem:
            if problem.code == "AlreadyExists":
                return True
            if problem.code == "ValidationError" and "Invalid IamInstanceProfile" in str(problem):
                return None
            raise
        return True

    # Absent

    def absent(self, wait: bool, seconds: float) -> None:
        """Its machines are terminated; with `wait`, until they and the group are gone."""
        found = self._found()
        if found:
            self.before = {**shape_of(found), "Instances": [one["InstanceId"] for one in found.get("Instances", ())]}
        if found and not found.get("Status"):
            self._change("delete_auto_scaling_group", AutoScalingGroupName=self._name, ForceDelete=True)
        if wait and not self._check:
            self._until_gone(seconds)
            self._until_terminated(seconds)

    def _until_gone(self, seconds: float) -> None:
        if until(lambda: None if self._found() else True, seconds) is None:
            raise AwsProblem(f"{self._name} is still being deleted after {seconds:g} s: run it again later.")

    def _until_terminated(self, seconds: float) -> None:
        """A machine outlives its group for a moment, and holds its subnet and security groups as long."""

        def look() -> bool | None:
            left = self._aws.pages(
                "ec2",
                "describe_instances",
                "Reservations",
                Filters=[
                    {"Name": f"tag:{GROUP_TAG}", "Values": [self._name]},
                    {
                        "Name": "instance-state-name",
                        "Values": ["pending", "running", "shutting-down", "stopping", "stopped"],
                    },
                ],
            )
            return None if left else True

        if until(look, seconds) is None:
            raise AwsProblem(f"Machines of {self._name} are still ending after {seconds:g} s: run it again later.")
