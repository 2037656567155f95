# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Delete a cluster's resources, in the order of their kinds. Nothing is remembered between two polls, so the next run
resumes one that was interrupted anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.aws.polling import ProgressPrinter, until
from ...module_utils.contract.tables import join_names
from ...module_utils.resources.emr_cluster import terminate
from ..lock.record import CLUSTER as CLUSTER_LOCK
from ..lock.store import LockStore
from ..resources.kinds import EVERYTHING, IMAGES, KINDS
from ..resources.resource_reader import ResourceReader
from ..resources.resources import GOING, LIVE, ClusterResources, Resource, count_by_kind, retained
from .destroy_lock import DestroyLock

MOST_KINDS = 6
"""Of what is still there, in a line."""

_GONE = ("NotFound", "NoSuchEntity", "NoSuchBucket", "Unknown", "NotAttached")
_HELD = frozenset(
    {
        # Of an address that a NAT gateway still has, also for some seconds after the gateway is gone.
        "AuthFailure",
        "BucketNotEmpty",
        "ConcurrentModification",
        "DeleteConflict",
        "DependencyViolation",
        "FileSystemInUse",
        "IncorrectFileSystemLifeCycleState",
        "IncorrectInstanceState",
        "IncorrectMountTargetState",
        "IncorrectState",
        "InvalidGroup.InUse",
        "InvalidIPAddress.InUse",
        "InvalidNetworkInterface.InUse",
        "InvalidParameterValue",
        "InvalidPlacementGroup.InUse",
        "InvalidSnapshot.InUse",
        "OperationAborted",
        "OperationNotPermitted",
        "ResourceInUse",
        "ResourceInUseFault",
        "ScalingActivityInProgress",
        "VolumeInUse",
    }
)
"""Codes for: another resource still uses it, or AWS is still busy with it."""


def to_delete(resources: ClusterResources, keep: bool, kinds: Collection[str] = EVERYTHING) -> list[Resource]:
    """Return what the cluster created and what is not to be retained."""
    kept_resources = [] if kinds == IMAGES else retained(resources, keep)
    deletions = []
    for resource in resources.current:
        if not resource.ours or resource in kept_resources or resource.kind not in kinds:
            continue
        if resource.kind == "file_system" and foreign_targets(resources, resource):
            continue
        if resource.kind == "route_table" and resource.facts.get("main"):
            continue  # it goes with its VPC
        deletions.append(resource)
    return deletions


def foreign_targets(resources: ClusterResources, system: Resource) -> list[Resource]:
    """Return the mount targets of others on a file system of the cluster. They keep it alive."""
    targets = [*resources.of_kind("mount_target"), *resources.of_kind("mount_target_access")]
    return [
        target
        for target in targets
        if target.facts.get("file_system") == system.id and (not target.ours or target.kind == "mount_target_access")
    ]


def ready(resources: Sequence[Resource]) -> list[Resource]:
    """Return the resources that can be deleted now."""
    kinds = {resource.kind for resource in resources}
    groups = [resource for resource in resources if resource.kind == "security_group"]
    named = {name for group in groups for name in group.facts.get("names", ())}
    are_tangled = all(group.id in named for group in groups)
    deletable = []
    for resource in resources:
        if resource.phase != LIVE or KINDS[resource.kind].after & kinds:
            continue
        if resource.kind in ("network_interface", "volume") and resource.state != "available":
            continue  # it is deleted with its machine, or another's machine uses it
        if resource in groups and resource.id in named and not are_tangled:
            continue  # after the group whose rules name it, unless all that are left name each other
        deletable.append(resource)
    return deletable


def is_gone(problem: AwsError) -> bool:
    return any(word in problem.code for word in _GONE)


def is_held(problem: AwsError) -> bool:
    return problem.code in _HELD


class Deleting:
    """Deletes a resource. The method `_<kind>` makes the calls before the one of its kind, or all of them."""

    def __init__(self, aws: Aws, cluster: str = "", lock: DestroyLock | None = None) -> None:
        self._aws = aws
        self._cluster = cluster
        self._lock = lock or DestroyLock(None)

    def delete(self, resource: Resource) -> None:
        special: Callable[[Resource], None] | None = getattr(self, f"_{resource.kind}", None)
        if special:
            special(resource)
        kind = KINDS[resource.kind]
        if kind.delete:
            self._aws.call(kind.service, kind.delete, **{kind.id: resource.id})

    def _auto_scaling_group(self, resource: Resource) -> None:
        self._aws.call("autoscaling", "delete_auto_scaling_group", AutoScalingGroupName=resource.id, ForceDelete=True)

    def _emr_cluster(self, resource: Resource) -> None:
        terminate(self._aws, resource.id)

    def _security_group(self, resource: Resource) -> None:
        """Remove the rules that name other groups, whose own rules may name this one: those that EMR manages do."""
        for way, rules in resource.facts.get("rules", {}).items():
            if rules:
                self._aws.call("ec2", f"revoke_security_group_{way}", GroupId=resource.id, IpPermissions=rules)

    def _instance(self, resource: Resource) -> None:
        self._aws.call("ec2", "terminate_instances", InstanceIds=[resource.id])

    def _placement_group(self, resource: Resource) -> None:
        self._aws.call("ec2", "delete_placement_group", GroupName=resource.name)

    def _endpoint(self, resource: Resource) -> None:
        answer = self._aws.call("ec2", "delete_vpc_endpoints", VpcEndpointIds=[resource.id])
        for refused in answer.get("Unsuccessful") or ():
            error = refused.get("Error") or {}
            raise AwsError(str(error.get("Message", "")), str(error.get("Code", "")), "ec2:DeleteVpcEndpoints")

    def _address(self, resource: Resource) -> None:
        if resource.facts.get("association"):
            self._aws.call("ec2", "disassociate_address", AssociationId=resource.facts["association"])

    def _route_table(self, resource: Resource) -> None:
        for association in resource.facts.get("associations", ()):
            self._aws.call("ec2", "disassociate_route_table", AssociationId=association)

    def _internet_gateway(self, resource: Resource) -> None:
        for vpc in resource.facts.get("vpcs", ()):
            self._aws.call("ec2", "detach_internet_gateway", InternetGatewayId=resource.id, VpcId=vpc)

    def _mount_target_access(self, resource: Resource) -> None:
        others = list(resource.facts["others"])
        self._aws.call("efs", "modify_mount_target_security_groups", MountTargetId=resource.id, SecurityGroups=others)

    def _instance_profile(self, resource: Resource) -> None:
        for role in resource.facts.get("roles", ()):
            self._aws.call("iam", "remove_role_from_instance_profile", InstanceProfileName=resource.id, RoleName=role)

    def _role(self, resource: Resource) -> None:
        for name in self._aws.pages("iam", "list_role_policies", "PolicyNames", RoleName=resource.id):
            self._aws.call("iam", "delete_role_policy", RoleName=resource.id, PolicyName=name)
        for policy in self._aws.pages("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=resource.id):
            self._aws.call("iam", "detach_role_policy", RoleName=resource.id, PolicyArn=policy["PolicyArn"])

    def _bucket(self, resource: Resource) -> None:
        bucket = {"Bucket": resource.id, "ExpectedBucketOwner": resource.facts["account"]}
        is_locked = bool(self._cluster) and resource.id == LockStore(self._aws, self._cluster).bucket
        kept = (CLUSTER_LOCK.object,) if is_locked else ()
        self._empty(bucket, kept)
        if is_locked:
            # Another playbook that waits for the lock may take it as soon as the lock object is gone.
            self._fail_if_locked_by_others(resource)
            self._lock.give_up_bucket()
            self._delete_versions(bucket, self._versions(bucket, Prefix=CLUSTER_LOCK.object))
        self._aws.call("s3", "delete_bucket", **bucket)

    def _fail_if_locked_by_others(self, resource: Resource) -> None:
        if not self._lock.holds(LockStore(self._aws, self._cluster)):
            sentence = f"Another playbook works on the cluster {self._cluster} now, so the bucket {resource.id} stays."
            raise AwsError(sentence, "InUse", "s3:DeleteBucket")

    def _empty(self, bucket: Mapping[str, str], kept: Collection[str]) -> None:
        """Delete all versions of all objects but those of `kept`."""
        while True:
            versions = [item for item in self._versions(bucket) if item["Key"] not in kept]
            if not versions:
                return
            self._delete_versions(bucket, versions)

    def _versions(self, bucket: Mapping[str, str], **params: str) -> list[dict[str, Any]]:
        """Return the first page of the bucket's objects, with their versions and delete markers."""
        page = self._aws.call("s3", "list_object_versions", **bucket, **params)
        return [*(page.get("Versions") or ()), *(page.get("DeleteMarkers") or ())]

    def _delete_versions(self, bucket: Mapping[str, str], versions: Sequence[Mapping[str, Any]]) -> None:
        if not versions:
            return
        objects = [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in versions]
        answer = self._aws.call("s3", "delete_objects", **bucket, Delete={"Objects": objects, "Quiet": True})
        for refused in answer.get("Errors") or ():
            raise AwsError(
                f"s3:DeleteObject failed for {refused.get('Key')}: {refused.get('Message')}",
                str(refused.get("Code", "")),
                "s3:DeleteObject",
            )


LONGEST_SECONDS = 1800.0


@dataclass
class Teardown:
    """Delete until nothing is left, or until nothing changes any more."""

    aws: Aws
    reader: ResourceReader
    keep: bool
    display: Callable[[str], None]
    stuck_seconds: float = 90.0
    """Seconds after which a resource is given up that AWS refuses to delete while nothing else changes."""
    kinds: Collection[str] = EVERYTHING
    lock: DestroyLock = field(default_factory=lambda: DestroyLock(None))
    removed: dict[tuple[str, str], Resource] = field(default_factory=dict)
    problems: dict[tuple[str, str], str] = field(default_factory=dict)
    """AWS's last message about each resource that it has not deleted."""
    _refused: set[tuple[str, str]] = field(default_factory=set)

    def run(self, resources: ClusterResources) -> list[Resource]:
        """Delete the resources, and return those that could not be deleted."""
        deleting = Deleting(self.aws, self.reader.cluster, self.lock)
        progress = ProgressPrinter(self.display)
        left = to_delete(resources, self.keep, self.kinds)
        changed_at = time.monotonic()

        def phases() -> dict[tuple[str, str], str]:
            return {resource.key: resource.phase for resource in left}

        def poll() -> bool | None:
            """Return True if nothing is left that AWS may still delete."""
            nonlocal left, changed_at
            if not left:
                return True
            progress.report(f"still there: {join_names(count_by_kind(left), MOST_KINDS)}")
            before = phases()
            self.lock.verify()
            allowed = [resource for resource in ready(left) if resource.key not in self._refused]
            acted = [self._attempt(deleting, resource) for resource in allowed]
            left = to_delete(self.reader.read_again({resource.kind for resource in left}), self.keep, self.kinds)
            if phases() != before:
                changed_at = time.monotonic()
                return None
            if any(resource.phase == GOING for resource in left):
                return None
            may_change = any(acted) or any(resource.kind in _SLOW for resource in left)
            return None if may_change and time.monotonic() - changed_at < self.stuck_seconds else True

        until(poll, LONGEST_SECONDS, state=phases, after_change=0)
        return left

    def _attempt(self, deleting: Deleting, resource: Resource) -> bool:
        """Delete a resource, and return whether a later attempt may help."""
        key = resource.key
        try:
            deleting.delete(resource)
        except AwsError as problem:
            if problem.is_fatal:
                raise
            if is_gone(problem):
                return True
            self.problems[key] = str(problem)
            if not is_held(problem):
                self._refused.add(key)
            return is_held(problem)
        self.removed[key] = resource
        self.problems.pop(key, None)
        return True


_SLOW = frozenset({"network_interface", "volume"})
"""Kinds that AWS deletes some time after their instance."""


def why_left(aws: Aws, resource: Resource, message: str) -> str:
    """Return a sentence about what keeps a resource alive, as far as AWS shows it."""
    holders = _holders(aws, resource)
    held = f" It is held by {', '.join(holders)}." if holders else ""
    words = f": {message}" if message else " is not removed."
    return f"{resource.describe()}{words}{held}"


def _holders(aws: Aws, resource: Resource) -> list[str]:
    filter_names = {"vpc": "vpc-id", "subnet": "subnet-id", "security_group": "group-id"}
    if resource.kind not in filter_names:
        return []
    filters: Sequence[Mapping[str, Any]] = [{"Name": filter_names[resource.kind], "Values": [resource.id]}]
    holders = [
        _interface_in_words(item)
        for item in aws.pages("ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=filters)
    ]
    if resource.kind == "vpc":
        subnets = aws.pages("ec2", "describe_subnets", "Subnets", Filters=filters)
        groups = aws.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=filters)
        holders += [f"subnet {item['SubnetId']}" for item in subnets]
        holders += [f"security group {item['GroupId']}" for item in groups if item["GroupName"] != "default"]
    if resource.kind == "security_group":
        naming = [{"Name": "ip-permission.group-id", "Values": [resource.id]}]
        groups = aws.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=naming)
        holders += [f"a rule of security group {item['GroupId']}" for item in groups if item["GroupId"] != resource.id]
    return holders


def _interface_in_words(listed: Mapping[str, Any]) -> str:
    owner = (listed.get("Attachment") or {}).get("InstanceId") or listed.get("Description") or ""
    return f"network interface {listed['NetworkInterfaceId']}" + (f" of {owner}" if owner else "")
