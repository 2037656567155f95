# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Taking an estate down: what can go now, given what is still there. Nothing is remembered between two looks, so a run
that was interrupted anywhere is gone on with by the next one.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._estate import (
    GOING,
    LIVE,
    Estate,
    Thing,
    counted,
    kept,
)
from ansible_collections.deeplearning.aws.plugins.module_utils._estate_reading import Reader

_MACHINES = frozenset({"auto_scaling_group", "instance"})
_HOLD_A_SUBNET = _MACHINES | {"nat_gateway", "mount_target", "network_interface"}

AFTER: Mapping[str, frozenset[str]] = {
    # The group ends its machines by itself, and goes when they have gone.
    "auto_scaling_group": frozenset(),
    "nat_gateway": frozenset(),
    "endpoint": frozenset(),
    "instance": frozenset({"auto_scaling_group"}),
    # By its template a machine that was detached from its group is known.
    "launch_template": _MACHINES,
    "key_pair": frozenset({"auto_scaling_group"}),
    "placement_group": _MACHINES,
    "instance_profile": _MACHINES,
    "role": _MACHINES | {"instance_profile"},
    "bucket": _MACHINES,
    "network_interface": _MACHINES,
    "volume": _MACHINES,
    # A machine whose file server has vanished hangs for minutes when it shuts down.
    "mount_target": _MACHINES,
    "mount_target_access": _MACHINES,
    "file_system": _MACHINES | {"mount_target"},
    "address": _MACHINES | {"nat_gateway"},
    "subnet": _HOLD_A_SUBNET,
    "security_group": _HOLD_A_SUBNET | {"mount_target_access"},
    "route_table": frozenset({"subnet", "endpoint"}),
    "internet_gateway": _MACHINES | {"nat_gateway", "address"},
    "vpc": _HOLD_A_SUBNET | {"subnet", "security_group", "route_table", "internet_gateway", "endpoint"},
}
"""What must have gone before."""

PARTS: Mapping[str, frozenset[str]] = {
    "node_groups": frozenset({*_MACHINES, "launch_template", "placement_group", "key_pair", "volume"}),
    "storage": frozenset({"mount_target", "mount_target_access", "file_system"}),
    "artifacts": frozenset({"bucket"}),
    "identity": frozenset({"instance_profile", "role"}),
    "network": frozenset(
        {"nat_gateway", "endpoint", "address", "subnet", "route_table", "internet_gateway", "security_group", "vpc"}
        | {"network_interface"}
    ),
    "zone": frozenset({*_MACHINES, "mount_target", "mount_target_access", "nat_gateway", "subnet"}),
}
"""What each role has made; and what has to go so that another zone can be tried."""

_GONE = ("NotFound", "NoSuchEntity", "NoSuchBucket", "Unknown", "404", "InvalidAllocationID", "NatGatewayNotFound")
_HELD = frozenset(
    {
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
        "OperationAborted",
        "OperationNotPermitted",
        "ResourceInUse",
        "ResourceInUseFault",
        "ScalingActivityInProgress",
        "VolumeInUse",
    }
)
"""Not yet: something still uses it, or AWS is still busy with it."""


def doomed(estate: Estate, keep: bool, parts: Collection[str] = ()) -> list[Thing]:
    """What shall go: what the cluster has made, the dead and what is to be kept left aside."""
    kinds = {kind for part in parts for kind in PARTS[part]}
    stays = kept(estate, keep)
    found = []
    for thing in estate.living:
        if not thing.ours or thing in stays or thing.kind not in AFTER or (parts and thing.kind not in kinds):
            continue
        if thing.kind == "file_system" and foreign_targets(estate, thing):
            continue
        if thing.kind == "route_table" and thing.facts.get("main"):
            continue  # it goes with its VPC
        found.append(thing)
    return found


def foreign_targets(estate: Estate, system: Thing) -> list[Thing]:
    """Mount targets that somebody else has made on a file system of ours. They keep it alive."""
    targets = [*estate.of("mount_target"), *estate.of("mount_target_access")]
    return [
        target
        for target in targets
        if target.facts.get("file_system") == system.id and (not target.ours or target.kind == "mount_target_access")
    ]


def ready(things: Sequence[Thing]) -> list[Thing]:
    """Those that can go now."""
    there = {thing.kind for thing in things}
    named = {name for thing in things if thing.kind == "security_group" for name in thing.facts.get("names", ())}
    found = []
    for thing in things:
        if thing.phase != LIVE or AFTER[thing.kind] & there:
            continue
        if thing.kind in ("network_interface", "volume") and thing.state != "available":
            continue  # it goes with its machine, or belongs to one of somebody else
        if thing.kind == "security_group" and thing.id in named and not _tangled(things):
            continue  # after the group whose rules name it
        found.append(thing)
    return found


def _tangled(things: Sequence[Thing]) -> bool:
    """All that are left name each other."""
    groups = [thing for thing in things if thing.kind == "security_group"]
    named = {name for thing in groups for name in thing.facts.get("names", ())}
    return all(group.id in named for group in groups)


def is_gone(problem: AwsProblem) -> bool:
    return any(word in problem.code for word in _GONE)


def is_held(problem: AwsProblem) -> bool:
    return problem.code in _HELD


class Deleting:
    """How each kind of thing is deleted."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws

    def delete(self, thing: Thing) -> None:
        how: Callable[[Thing], None] = getattr(self, f"_{thing.kind}")
        how(thing)

    def _auto_scaling_group(self, thing: Thing) -> None:
        self._aws.call("autoscaling", "delete_auto_scaling_group", AutoScalingGroupName=thing.id, ForceDelete=True)

    def _instance(self, thing: Thing) -> None:
        self._aws.call("ec2", "terminate_instances", InstanceIds=[thing.id])

    def _launch_template(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_launch_template", LaunchTemplateId=thing.id)

    def _placement_group(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_placement_group", GroupName=thing.name)

    def _key_pair(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_key_pair", KeyPairId=thing.id)

    def _nat_gateway(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_nat_gateway", NatGatewayId=thing.id)

    def _endpoint(self, thing: Thing) -> None:
        answer = self._aws.call("ec2", "delete_vpc_endpoints", VpcEndpointIds=[thing.id])
        for refused in answer.get("Unsuccessful") or ():
            error = refused.get("Error") or {}
            raise AwsProblem(str(error.get("Message", "")), str(error.get("Code", "")), "ec2:DeleteVpcEndpoints")

    def _address(self, thing: Thing) -> None:
        if thing.facts.get("association"):
            self._aws.call("ec2", "disassociate_address", AssociationId=thing.facts["association"])
        self._aws.call("ec2", "release_address", AllocationId=thing.id)

    def _network_interface(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_network_interface", NetworkInterfaceId=thing.id)

    def _volume(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_volume", VolumeId=thing.id)

    def _subnet(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_subnet", SubnetId=thing.id)

    def _route_table(self, thing: Thing) -> None:
        for association in thing.facts.get("associations", ()):
            self._aws.call("ec2", "disassociate_route_table", AssociationId=association)
        self._aws.call("ec2", "delete_route_table", RouteTableId=thing.id)

    def _internet_gateway(self, thing: Thing) -> None:
        for vpc in thing.facts.get("vpcs", ()):
            self._aws.call("ec2", "detach_internet_gateway", InternetGatewayId=thing.id, VpcId=vpc)
        self._aws.call("ec2", "delete_internet_gateway", InternetGatewayId=thing.id)

    def _security_group(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_security_group", GroupId=thing.id)

    def _vpc(self, thing: Thing) -> None:
        self._aws.call("ec2", "delete_vpc", VpcId=thing.id)

    def _mount_target(self, thing: Thing) -> None:
        self._aws.call("efs", "delete_mount_target", MountTargetId=thing.id)

    def _mount_target_access(self, thing: Thing) -> None:
        self._aws.call(
            "efs",
            "modify_mount_target_security_groups",
            MountTargetId=thing.id,
            SecurityGroups=list(thing.facts["others"]),
        )

    def _file_system(self, thing: Thing) -> None:
        self._aws.call("efs", "delete_file_system", FileSystemId=thing.id)

    def _instance_profile(self, thing: Thing) -> None:
        for role in thing.facts.get("roles", ()):
            self._aws.call("iam", "remove_role_from_instance_profile", InstanceProfileName=thing.id, RoleName=role)
        self._aws.call("iam", "delete_instance_profile", InstanceProfileName=thing.id)

    def _role(self, thing: Thing) -> None:
        for name in self._aws.pages("iam", "list_role_policies", "PolicyNames", RoleName=thing.id):
            self._aws.call("iam", "delete_role_policy", RoleName=thing.id, PolicyName=name)
        for policy in self._aws.pages("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=thing.id):
            self._aws.call("iam", "detach_role_policy", RoleName=thing.id, PolicyArn=policy["PolicyArn"])
        self._aws.call("iam", "delete_role", RoleName=thing.id)

    def _bucket(self, thing: Thing) -> None:
        bucket = {"Bucket": thing.id, "ExpectedBucketOwner": thing.facts["account"]}
        while True:
            page = self._aws.call("s3", "list_object_versions", **bucket)
            found = [*(page.get("Versions") or ()), *(page.get("DeleteMarkers") or ())]
            if not found:
                break
            objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
            answer = self._aws.call("s3", "delete_objects", **bucket, Delete={"Objects": objects, "Quiet": True})
            for refused in answer.get("Errors") or ():
                raise AwsProblem(
                    f"s3:DeleteObject failed for {refused.get('Key')}: {refused.get('Message')}",
                    str(refused.get("Code", "")),
                    "s3:DeleteObject",
                )
        self._aws.call("s3", "delete_bucket", **bucket)


FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
TELL_EVERY = 10.0


@dataclass
class Teardown:
    """One way down, to its end or until nothing moves any more."""

    aws: Aws
    reader: Reader
    keep: bool
    say: Callable[[str], None]
    seconds: float = 1800.0
    stuck_seconds: float = 90.0
    """what AWS will not delete while nothing else is moving is given up after this"""
    parts: Collection[str] = ()
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    changed: bool = False
    removed: dict[tuple[str, str], Thing] = field(default_factory=dict)
    problems: dict[tuple[str, str], str] = field(default_factory=dict)
    """what AWS said last about each thing that it has not deleted"""
    _refused: set[tuple[str, str]] = field(default_factory=set)
    _told: str = ""
    _told_at: float = float("-inf")

    def run(self, estate: Estate) -> list[Thing]:
        """From what was read; says what could not be removed."""
        deleting = Deleting(self.aws)
        end = self.clock() + self.seconds
        moved = self.clock()
        pause = FIRST_PAUSE
        left = doomed(estate, self.keep, self.parts)
        while left:
            self._tell(left)
            acted = [self._attempt(deleting, thing) for thing in ready(left) if _key(thing) not in self._refused]
            before = {_key(thing): thing.phase for thing in left}
            estate = self.reader.read_again({thing.kind for thing in left})
            left = doomed(estate, self.keep, self.parts)
            after = {_key(thing): thing.phase for thing in left}
            now = self.clock()
            if after != before:
                moved, pause = now, FIRST_PAUSE
                continue
            waits = any(thing.phase == GOING for thing in left) or any(acted)
            if now >= end or not (waits or any(thing.kind in _SLOW for thing in left)):
                break
            if now - moved >= self.stuck_seconds and not any(thing.phase == GOING for thing in left):
                break
            self.wait(min(pause, max(0.0, end - now)))
            pause = min(LONGEST_PAUSE, pause * 1.4)
        return left

    def _attempt(self, deleting: Deleting, thing: Thing) -> bool:
        """Delete it; says whether it is worth while to try again."""
        key = _key(thing)
        try:
            deleting.delete(thing)
        except AwsProblem as problem:
            if problem.of_login:
                raise
            if is_gone(problem):
                return True
            self.problems[key] = str(problem)
            if not is_held(problem):
                self._refused.add(key)
                return False
            return True
        self.changed = True
        self.removed[key] = thing
        self.problems.pop(key, None)
        return True

    def _tell(self, left: Sequence[Thing]) -> None:
        now = self.clock()
        line = f"still there: {', '.join(counted(left))}"
        if line != self._told and now - self._told_at >= 1 or now - self._told_at >= TELL_EVERY:
            self._told, self._told_at = line, now
            self.say(line)


_SLOW = frozenset({"network_interface", "volume"})
"""What goes by itself a while after its machine."""


def _key(thing: Thing) -> tuple[str, str]:
    return thing.kind, thing.id


def why_left(aws: Aws, thing: Thing, said: str) -> str:
    """What keeps a thing alive, as far as it can be found out."""
    holders = _holders(aws, thing)
    held = f" It is held by {', '.join(holders)}." if holders else ""
    words = f": {said}" if said else " is not removed."
    return f"{thing.in_words()}{words}{held}"


def _holders(aws: Aws, thing: Thing) -> list[str]:
    filters = {"vpc": "vpc-id", "subnet": "subnet-id", "security_group": "group-id"}
    if thing.kind not in filters:
        return []
    wanted: Sequence[Mapping[str, Any]] = [{"Name": filters[thing.kind], "Values": [thing.id]}]
    found = [
        _interface_in_words(one)
        for one in aws.pages("ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=wanted)
    ]
    if thing.kind == "vpc":
        subnets = aws.pages("ec2", "describe_subnets", "Subnets", Filters=wanted)
        groups = aws.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=wanted)
        found += [f"subnet {one['SubnetId']}" for one in subnets]
        found += [f"security group {one['GroupId']}" for one in groups if one["GroupName"] != "default"]
    if thing.kind == "security_group":
        naming = [{"Name": "ip-permission.group-id", "Values": [thing.id]}]
        groups = aws.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=naming)
        found += [f"a rule of security group {one['GroupId']}" for one in groups if one["GroupId"] != thing.id]
    return found


def _interface_in_words(listed: Mapping[str, Any]) -> str:
    owner = (listed.get("Attachment") or {}).get("InstanceId") or listed.get("Description") or ""
    return f"network interface {listed['NetworkInterfaceId']}" + (f" of {owner}" if owner else "")
