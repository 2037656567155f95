# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Finding an estate: first whatever bears the tag, of whichever type; then the details of the types found; then what
cannot bear a tag and is known otherwise.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._estate import DEAD, GOING, LIVE, Estate, Thing
from ansible_collections.deeplearning.aws.plugins.module_utils._names import (
    CLUSTER_TAG,
    GROUP_TAG,
    MASTER,
    TEMPLATE_TAG,
    WORKER,
    Names,
    tag_filter,
    tags_of,
)

if TYPE_CHECKING:
    from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws

Listed = Mapping[str, Any]

_MOUNT_TARGET = re.compile(r"EFS mount target for (fs-[0-9a-f]+)")
"""How EFS describes the network interfaces of its mount targets."""


@dataclass(frozen=True)
class Type:
    """A kind of thing that EC2 has."""

    tagged_as: str
    operation: str
    key: str
    id: str
    name: str = ""
    """where it has a name other than its tag"""
    state: str = "State"
    going: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    filters: str = "Filters"


EC2: Mapping[str, Type] = {
    "instance": Type(
        "instance",
        "describe_instances",
        "Reservations",
        "InstanceId",
        going=frozenset({"shutting-down"}),
        dead=frozenset({"terminated"}),
    ),
    "launch_template": Type(
        "launch-template", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId", "LaunchTemplateName"
    ),
    "placement_group": Type(
        "placement-group",
        "describe_placement_groups",
        "PlacementGroups",
        "GroupId",
        "GroupName",
        going=frozenset({"deleting"}),
        dead=frozenset({"deleted"}),
    ),
    "key_pair": Type("key-pair", "describe_key_pairs", "KeyPairs", "KeyPairId", "KeyName"),
    "nat_gateway": Type(
        "natgateway",
        "describe_nat_gateways",
        "NatGateways",
        "NatGatewayId",
        going=frozenset({"deleting"}),
        dead=frozenset({"deleted", "failed"}),
        filters="Filter",
    ),
    "address": Type("elastic-ip", "describe_addresses", "Addresses", "AllocationId"),
    "endpoint": Type(
        "vpc-endpoint",
        "describe_vpc_endpoints",
        "VpcEndpoints",
        "VpcEndpointId",
        going=frozenset({"deleting"}),
        dead=frozenset({"deleted"}),
    ),
    "network_interface": Type(
        "network-interface", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId", state="Status"
    ),
    "volume": Type(
        "volume",
        "describe_volumes",
        "Volumes",
        "VolumeId",
        going=frozenset({"deleting"}),
        dead=frozenset({"deleted"}),
    ),
    "subnet": Type("subnet", "describe_subnets", "Subnets", "SubnetId"),
    "route_table": Type("route-table", "describe_route_tables", "RouteTables", "RouteTableId"),
    "internet_gateway": Type("internet-gateway", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    "security_group": Type("security-group", "describe_security_groups", "SecurityGroups", "GroupId", "GroupName"),
    "vpc": Type("vpc", "describe_vpcs", "Vpcs", "VpcId"),
}
_KINDS = {type_.tagged_as: kind for kind, type_ in EC2.items()}
_PARTS = frozenset({"security-group-rule"})
"""What bears tags and goes with what it is part of."""

OTHERS = (
    "auto_scaling_group",
    "file_system",
    "mount_target",
    "mount_target_access",
    "instance_profile",
    "role",
    "bucket",
)


class Reader:
    """Reads one cluster's estate: the whole once, then single kinds of it again."""

    def __init__(self, aws: Aws, cluster: str) -> None:
        self._aws = aws
        self._cluster = cluster
        self._account = ""
        self._found: dict[str, list[Thing]] = {}

    @property
    def names(self) -> Names:
        if not self._account:
            self._account = str(self._aws.call("sts", "get_caller_identity")["Account"])
        return Names(self._cluster, self._account, self._aws.region)

    def read(self) -> Estate:
        """All of it."""
        self._found = {}
        tagged = tagged_resources(self._aws, self._cluster)
        for kind in (kind for kind in EC2 if kind in tagged):
            self._found[kind] = self._of_ec2(kind)
        for kind, ids in tagged.items():
            if kind not in EC2:
                self._found[kind] = [Thing(kind, one) for one in ids]
        self._read_others(OTHERS)
        return self.estate

    def read_again(self, kinds: Iterable[str]) -> Estate:
        """The same, with these kinds as they are now."""
        wanted = set(kinds)
        for kind in (kind for kind in EC2 if kind in wanted):
            self._found[kind] = self._of_ec2(kind)
        self._read_others([kind for kind in OTHERS if kind in wanted])
        return self.estate

    @property
    def estate(self) -> Estate:
        things = [thing for found in self._found.values() for thing in found]
        claimed = with_detached(things, frozenset(self.names.groups.values()))
        return Estate(self._cluster, self.names.account, self._aws.region, claimed)

    def _ids(self, kind: str) -> list[str]:
        return [thing.id for thing in self._found.get(kind, ()) if thing.phase != DEAD]

    # EC2

    def _of_ec2(self, kind: str) -> list[Thing]:
        type_ = EC2[kind]
        listed = self._list(type_, [tag_filter(CLUSTER_TAG, self._cluster)])
        groups = frozenset(self.names.groups.values())
        return [thing_of(kind, one, groups) for one in listed]

    def _list(self, type_: Type, filters: Sequence[Mapping[str, Any]]) -> list[Listed]:
        given: dict[str, Any] = {type_.filters: list(filters)}
        listed = self._aws.pages("ec2", type_.operation, type_.key, **given)
        if type_.key == "Reservations":
            return [instance for reservation in listed for instance in reservation["Instances"]]
        return listed

    # The other services

    def _read_others(self, kinds: Iterable[str]) -> None:
        readers: Mapping[str, Callable[[], list[Thing]]] = {
            "auto_scaling_group": self._groups,
            "file_system": self._file_systems,
            "mount_target": self._mount_targets,
            "instance_profile": self._profiles,
            "role": self._roles,
            "bucket": self._buckets,
        }
        wanted = {"mount_target" if kind == "mount_target_access" else kind for kind in kinds}
        for kind in (kind for kind in readers if kind in wanted):
            self._found[kind] = readers[kind]()

    def _groups(self) -> list[Thing]:
        listed = self._aws.pages(
            "autoscaling",
            "describe_auto_scaling_groups",
            "AutoScalingGroups",
            Filters=[tag_filter(CLUSTER_TAG, self._cluster)],
        )
        return [group_of(one) for one in listed]

    def _file_systems(self) -> list[Thing]:
        listed = self._aws.pages("efs", "describe_file_systems", "FileSystems")
        return [file_system_of(one) for one in listed if tags_of(one.get("Tags")).get(CLUSTER_TAG) == self._cluster]

    def _mount_targets(self) -> list[Thing]:
        """Those of our file systems, and those of others that a security group of ours is on."""
        systems = dict.fromkeys(self._ids("file_system"))
        groups = frozenset(self._ids("security_group"))
        if groups:
            listed = self._aws.pages(
                "ec2",
                "describe_network_interfaces",
                "NetworkInterfaces",
                Filters=[{"Name": "group-id", "Values": sorted(groups)}],
            )
            described = (_MOUNT_TARGET.search(str(one.get("Description", ""))) for one in listed)
            systems.update(dict.fromkeys(match[1] for match in described if match))
        subnets = frozenset(self._ids("subnet"))
        found = []
        for system in systems:
            own = system in self._ids("file_system")
            for listed in self._targets_of(system):
                thing = mount_target_of(listed, self._groups_on(listed), groups, subnets)
                if thing.ours or own or thing.kind == "mount_target_access":
                    found.append(thing)
        return found

    def _targets_of(self, system: str) -> list[Any]:
        try:
            return self._aws.pages("efs", "describe_mount_targets", "MountTargets", FileSystemId=system)
        except AwsProblem as problem:
            if problem.code == "FileSystemNotFound":
                return []
            raise

    def _groups_on(self, target: Listed) -> list[str]:
        if target["LifeCycleState"] in ("deleting", "deleted"):
            return []
        try:
            answer = self._aws.call(
                "efs", "describe_mount_target_security_groups", MountTargetId=target["MountTargetId"]
            )
        except AwsProblem as problem:
            if problem.code in ("MountTargetNotFound", "IncorrectMountTargetState"):
                return []
            raise
        return list(answer["SecurityGroups"])

    def _profiles(self) -> list[Thing]:
        found = []
        for role in (MASTER, WORKER):
            name = self.names.identity(role)
            listed = self._of_iam("get_instance_profile", "InstanceProfile", InstanceProfileName=name)
            # Its name is ours alone: one that bears no tag was made by a call that could not give it one.
            if listed and tags_of(listed.get("Tags")).get(CLUSTER_TAG, self._cluster) == self._cluster:
                roles = [str(one["RoleName"]) for one in listed.get("Roles") or ()]
                found.append(Thing("instance_profile", name, name, facts={"roles": roles}))
        return found

    def _roles(self) -> list[Thing]:
        found = []
        for role in (MASTER, WORKER):
            name = self.names.identity(role)
            listed = self._of_iam("get_role", "Role", RoleName=name)
            if listed and tags_of(listed.get("Tags")).get(CLUSTER_TAG) == self._cluster:
                found.append(Thing("role", name, name))
        return found

    def _of_iam(self, operation: str, key: str, **params: str) -> Listed:
        try:
            found: Listed = self._aws.call("iam", operation, **params)[key]
        except AwsProblem as problem:
            if problem.code == "NoSuchEntity":
                return {}
            raise
        return found

    def _buckets(self) -> list[Thing]:
        name = self.names.bucket
        try:
            self._aws.call("s3", "head_bucket", Bucket=name, ExpectedBucketOwner=self.names.account)
        except AwsProblem as problem:
            if problem.code in ("404", "NoSuchBucket", "NotFound"):
                return []
            # It may belong to another account, which has taken the name.
            if problem.denied and name not in _own_buckets(self._aws):
                return []
            raise
        return [Thing("bucket", name, name, facts={"account": self.names.account})]


def tagged_resources(aws: Aws, cluster: str) -> dict[str, list[str]]:
    """All in EC2 that bears the tag, by our word for its kind, or by AWS's where we have none."""
    listed = aws.pages(
        "ec2",
        "describe_tags",
        "Tags",
        Filters=[{"Name": "key", "Values": [CLUSTER_TAG]}, {"Name": "value", "Values": [cluster]}],
    )
    found: dict[str, list[str]] = {}
    for one in listed:
        type_ = str(one["ResourceType"])
        if type_ not in _PARTS:
            found.setdefault(_KINDS.get(type_, type_.replace("-", "_")), []).append(str(one["ResourceId"]))
    return found


def clusters_in(aws: Aws) -> list[str]:
    """The names of all clusters that have anything here."""
    ec2 = aws.pages("ec2", "describe_tags", "Tags", Filters=[{"Name": "key", "Values": [CLUSTER_TAG]}])
    groups = aws.pages("autoscaling", "describe_tags", "Tags", Filters=[{"Name": "key", "Values": [CLUSTER_TAG]}])
    systems = aws.pages("efs", "describe_file_systems", "FileSystems")
    names = [str(one.get("Value", "")) for one in (*ec2, *groups)]
    names += [tags_of(one.get("Tags")).get(CLUSTER_TAG, "") for one in systems]
    return sorted({name for name in names if name} | set(_clusters_by_name(aws)))


def _clusters_by_name(aws: Aws) -> list[str]:
    """Of those that have nothing left but a role, a profile or a bucket."""
    account = str(aws.call("sts", "get_caller_identity")["Account"])
    endings = [f"-{aws.region}-{role}" for role in (MASTER, WORKER)]
    roles = [str(one["RoleName"]) for one in aws.pages("iam", "list_roles", "Roles")]
    profiles = [
        str(one["InstanceProfileName"]) for one in aws.pages("iam", "list_instance_profiles", "InstanceProfiles")
    ]
    buckets = _own_buckets(aws)
    found = [name[: -len(end)] for name in (*roles, *profiles) for end in endings if name.endswith(end)]
    end = f"-{account}-{aws.region}"
    return [name for name in [*found, *(one[: -len(end)] for one in buckets if one.endswith(end))] if name]


def _own_buckets(aws: Aws) -> list[str]:
    return [str(one["Name"]) for one in aws.pages("s3", "list_buckets", "Buckets")]


# From what AWS lists to things


def thing_of(kind: str, listed: Listed, groups: frozenset[str]) -> Thing:
    """A thing that EC2 has. `groups`: the names of the cluster's Auto Scaling groups."""
    type_ = EC2[kind]
    tags = tags_of(listed.get("Tags"))
    state = listed.get(type_.state) or ""
    state = str(state.get("Name", "") if isinstance(state, Mapping) else state).lower()
    phase = DEAD if state in type_.dead else GOING if state in type_.going else LIVE
    return Thing(
        kind,
        str(listed[type_.id]),
        str(listed.get(type_.name) or "") if type_.name else tags.get("Name", ""),
        state,
        phase,
        # Whoever may tag can put our tag on a machine of theirs; the group's name there is AWS's own.
        kind != "instance" or tags.get(GROUP_TAG) in groups,
        facts_of(kind, listed),
    )


def with_detached(things: Sequence[Thing], groups: frozenset[str]) -> list[Thing]:
    """The same things, of which machines that were detached from their group are the cluster's still, unless another
    group has taken them: its launch templates, which are called like its groups, have made them."""
    templates = {thing.id for thing in things if thing.kind == "launch_template" and thing.name in groups}

    def detached(thing: Thing) -> bool:
        return thing.facts.get("template") in templates and not thing.facts.get("group")

    return [replace(thing, ours=True) if detached(thing) else thing for thing in things]


def facts_of(kind: str, listed: Listed) -> dict[str, Any]:
    if kind == "instance":
        return {
            "type": str(listed.get("InstanceType", "")),
            "private_ip": str(listed.get("PrivateIpAddress") or ""),
            "public_ip": str(listed.get("PublicIpAddress") or ""),
            "public_name": str(listed.get("PublicDnsName") or ""),
            "zone": str((listed.get("Placement") or {}).get("AvailabilityZone", "")),
            "spot": listed.get("InstanceLifecycle") == "spot",
            "group": tags_of(listed.get("Tags")).get(GROUP_TAG, ""),
            "template": tags_of(listed.get("Tags")).get(TEMPLATE_TAG, ""),
        }
    if kind == "address":
        return {
            "public_ip": str(listed.get("PublicIp", "")),
            "association": str(listed.get("AssociationId") or ""),
            "interface": str(listed.get("NetworkInterfaceId") or ""),
            "instance": str(listed.get("InstanceId") or ""),
        }
    if kind == "internet_gateway":
        return {"vpcs": [str(one["VpcId"]) for one in listed.get("Attachments") or ()]}
    if kind == "route_table":
        associations = listed.get("Associations") or ()
        return {
            "main": any(one.get("Main") for one in associations),
            "associations": [str(one["RouteTableAssociationId"]) for one in associations if not one.get("Main")],
        }
    if kind == "security_group":
        return {"vpc": str(listed.get("VpcId", "")), "names": sorted(groups_named_in(listed) - {listed["GroupId"]})}
    if kind in ("nat_gateway", "subnet", "vpc"):
        return {"vpc": str(listed.get("VpcId", ""))}
    return {}


def groups_named_in(listed: Listed) -> set[str]:
    """The security groups that the rules of one name: these cannot go before it."""
    rules = (*(listed.get("IpPermissions") or ()), *(listed.get("IpPermissionsEgress") or ()))
    return {str(pair.get("GroupId", "")) for rule in rules for pair in rule.get("UserIdGroupPairs") or ()}


def group_of(listed: Listed) -> Thing:
    machines = listed.get("Instances") or ()
    name = str(listed["AutoScalingGroupName"])
    status = str(listed.get("Status") or "")
    return Thing(
        "auto_scaling_group",
        name,
        name,
        status.lower(),
        GOING if status else LIVE,
        facts={
            "most": int(listed["MaxSize"]),
            "desired": int(listed["DesiredCapacity"]),
            "in_service": [
                str(one["InstanceId"])
                for one in machines
                if one["LifecycleState"] == "InService" and one.get("HealthStatus") == "Healthy"
            ],
            "coming": sum(str(one["LifecycleState"]).startswith("Pending") for one in machines),
            "suspended": sorted(str(one["ProcessName"]) for one in listed.get("SuspendedProcesses") or ()),
        },
    )


def file_system_of(listed: Listed) -> Thing:
    state = str(listed["LifeCycleState"])
    phases = {"deleting": GOING, "deleted": DEAD}
    size = int((listed.get("SizeInBytes") or {}).get("Value", 0))
    name = tags_of(listed.get("Tags")).get("Name", "")
    return Thing(
        "file_system", str(listed["FileSystemId"]), name, state, phases.get(state, LIVE), facts={"bytes": size}
    )


def mount_target_of(listed: Listed, on: Sequence[str], groups: frozenset[str], subnets: frozenset[str]) -> Thing:
    """Ours is one with our security group alone, or in our subnet. One of others that lets us in by a group of ours
    shall lose that group and nothing else."""
    state = str(listed["LifeCycleState"])
    phase = {"deleting": GOING, "deleted": DEAD}.get(state, LIVE)
    facts = {"file_system": str(listed["FileSystemId"]), "ip": str(listed.get("IpAddress", ""))}
    there = groups & set(on)
    made = listed.get("SubnetId") in subnets or (bool(there) and set(on) <= groups)
    kind = "mount_target_access" if there and not made else "mount_target"
    return Thing(
        kind,
        str(listed["MountTargetId"]),
        "",
        state,
        phase,
        bool(there) or made or phase != LIVE,
        facts={**facts, "others": [group for group in on if group not in groups]},
    )
