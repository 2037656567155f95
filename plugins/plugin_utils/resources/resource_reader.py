# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the resources of a cluster: those with its tag, whatever their type, then those that cannot have a tag."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...module_utils.aws.client import AwsError
from ...module_utils.aws.resource_ids import describe_ids, kind_of_id
from ...module_utils.contract import scheduled_end
from ...module_utils.contract.names import (
    CLUSTER_TAG,
    EMR_NODE,
    EMR_SERVICE,
    GROUP_TAG,
    MASTER,
    RUN_TAG,
    TEMPLATE_TAG,
    WORKER,
    Names,
    is_cluster_name,
    tag_filter,
    tags_of,
)
from ...module_utils.resources import emr_cluster
from .kinds import KINDS
from .membership import record_of
from .resources import DEAD, GOING, LIVE, ClusterResources, Resource

if TYPE_CHECKING:
    from ...module_utils.aws.client import Aws

Listed = Mapping[str, Any]

_MOUNT_TARGET = re.compile(r"EFS mount target for (fs-[0-9a-f]+)")
"""How EFS describes the network interfaces of its mount targets."""


class Ec2Kind(NamedTuple):
    """A kind of resource that EC2 has."""

    operation: str
    key: str
    name: str = ""
    """The key of its name, if that is not a tag."""


EC2: Mapping[str, Ec2Kind] = {
    "instance": Ec2Kind("describe_instances", "Reservations"),
    "launch_template": Ec2Kind("describe_launch_templates", "LaunchTemplates", "LaunchTemplateName"),
    "placement_group": Ec2Kind("describe_placement_groups", "PlacementGroups", "GroupName"),
    "key_pair": Ec2Kind("describe_key_pairs", "KeyPairs", "KeyName"),
    "nat_gateway": Ec2Kind("describe_nat_gateways", "NatGateways"),
    "address": Ec2Kind("describe_addresses", "Addresses"),
    "endpoint": Ec2Kind("describe_vpc_endpoints", "VpcEndpoints"),
    "network_interface": Ec2Kind("describe_network_interfaces", "NetworkInterfaces"),
    "volume": Ec2Kind("describe_volumes", "Volumes"),
    "subnet": Ec2Kind("describe_subnets", "Subnets"),
    "route_table": Ec2Kind("describe_route_tables", "RouteTables"),
    "internet_gateway": Ec2Kind("describe_internet_gateways", "InternetGateways"),
    "security_group": Ec2Kind("describe_security_groups", "SecurityGroups", "GroupName"),
    "vpc": Ec2Kind("describe_vpcs", "Vpcs"),
    "image": Ec2Kind("describe_images", "Images", "Name"),
    "snapshot": Ec2Kind("describe_snapshots", "Snapshots"),
}
_KINDS = {"natgateway": "nat_gateway", "elastic-ip": "address", "vpc-endpoint": "endpoint"}
"""By AWS's names of types, where more differs than the dashes."""
_PHASES = {"shutting-down": GOING, "deleting": GOING, "terminated": DEAD, "deleted": DEAD}
"""By the states of AWS."""
IDENTITIES = (MASTER, WORKER, EMR_NODE, EMR_SERVICE)
"""What a cluster's IAM roles are for, of Auto Scaling groups and of EMR."""
_PARTS = frozenset({"security-group-rule"})
"""Types that have tags and are deleted with the resource that they are a part of."""


class ResourceReader:
    """Reads one cluster's resources: all of them once, then single kinds again."""

    def __init__(self, aws: Aws, cluster: str, also: frozenset[str] = frozenset()) -> None:
        """`also`: ids of further resources in EC2 that count as the cluster's, whatever their tags are."""
        self._aws = aws
        self.cluster = cluster
        self._also = also
        self._by_kind: dict[str, list[Resource]] = {}
        self._job_flows: dict[str, bool] = {}
        """Whether EMR clusters are this one's, also after they have ended, by their ids."""

        # Mount targets are those of file systems and security groups, which are read before.
        self._readers: Mapping[str, Callable[[], list[Resource]]] = {
            "emr_cluster": self._emr_clusters,
            **{kind: functools.partial(self._of_ec2, kind) for kind in EC2},
            "auto_scaling_group": self._groups,
            "file_system": self._file_systems,
            "mount_target": self._mount_targets,
            "instance_profile": self._profiles,
            "role": self._roles,
            "bucket": self._buckets,
        }

    @property
    def names(self) -> Names:
        return Names(self.cluster, self._aws.account, self._aws.region)

    def read(self) -> ClusterResources:
        """Return all resources."""
        tagged = tagged_resources(self._aws, self.cluster)
        self._by_kind = {kind: [Resource(kind, item) for item in tagged[kind]] for kind in tagged if kind not in EC2}
        present = {*tagged, *(kind_of_id(resource_id) for resource_id in self._also)}
        return self.read_again(kind for kind in self._readers if kind in present or kind not in EC2)

    def read_readable(self) -> tuple[ClusterResources, list[str]]:
        """Return the resources of all kinds that can be read, and a sentence for each kind that cannot."""
        tagged = tagged_resources(self._aws, self.cluster)
        self._by_kind = {kind: [Resource(kind, item) for item in tagged[kind]] for kind in tagged if kind not in EC2}
        problems = []
        for kind in self._readers:
            if kind in EC2 and kind not in tagged:
                continue
            try:
                self.read_again([kind])
            except AwsError as error:
                if error.is_fatal:
                    raise
                problems.append(f"{kind.replace('_', ' ')}: {error}")
        return self.read_again([]), problems

    def read_again(self, kinds: Iterable[str]) -> ClusterResources:
        """Read these kinds again, and return all resources."""
        selected = {"mount_target" if kind == "mount_target_access" else kind for kind in kinds}
        for kind in (kind for kind in self._readers if kind in selected):
            self._by_kind[kind] = self._readers[kind]()
        resources = [resource for listed in self._by_kind.values() for resource in listed]
        detached = with_detached(resources, frozenset(self.names.groups.values()))
        claimed = [replace(resource, ours=resource.ours or self._is_claimed(resource)) for resource in detached]
        return ClusterResources(self.cluster, self.names.account, self._aws.region, claimed)

    def _is_claimed(self, resource: Resource) -> bool:
        """Return whether a machine is EMR's for this cluster, or that of image.yml, or named by the operator."""
        if resource.id in self._also:
            return True
        # Only someone who may pass the members' role can launch the machine of image.yml.
        profile = resource.facts.get("profile")
        bakes = resource.name == self.names.of("image") and profile == self.names.identity(WORKER)
        return bakes or self._is_of_emr(resource.facts.get("job_flow", ""))

    def _ids(self, kind: str) -> list[str]:
        return [resource.id for resource in self._by_kind.get(kind, ()) if resource.phase != DEAD]

    # EC2

    def _of_ec2(self, kind: str) -> list[Resource]:
        type_ = EC2[kind]
        # DescribeNatGateways names this parameter differently.
        filters = {"Filter" if kind == "nat_gateway" else "Filters": [tag_filter(CLUSTER_TAG, self.cluster)]}
        if kind == "instance":
            listed = self._aws.instances(**filters)
        else:
            listed = self._aws.pages("ec2", type_.operation, type_.key, **filters)
        groups = frozenset(self.names.groups.values())
        resources = [resource_of(kind, item, groups) for item in listed]
        missing = {resource_id for resource_id in self._also if kind_of_id(resource_id) == kind}
        missing -= {resource.id for resource in resources}
        if missing:
            resources += [resource_of(kind, item, groups) for item in describe_ids(self._aws, kind, missing)]
        return resources

    def _is_of_emr(self, job_flow: str) -> bool:
        """Return whether an EMR cluster is this one's. Only AWS tags machines with the id of theirs."""
        if job_flow and job_flow not in self._job_flows:
            answer = self._aws.find("emr", "describe_cluster", ("InvalidRequestException",), ClusterId=job_flow)
            self._job_flows[job_flow] = emr_cluster.is_named(answer.get("Cluster", {}), self.cluster)
        return self._job_flows.get(job_flow, False)

    # The other services

    def _groups(self) -> list[Resource]:
        filters = [tag_filter(CLUSTER_TAG, self.cluster)]
        listed = self._aws.pages("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", Filters=filters)
        actions = self._aws.pages("autoscaling", "describe_scheduled_actions", "ScheduledUpdateGroupActions")
        now = time.time()
        ends = scheduled_end.scheduled_ends(actions, self.cluster, now)
        foreign = scheduled_end.foreign_actions(actions, self.cluster, now)
        return [group_of(item, ends, foreign) for item in listed]

    def _emr_clusters(self) -> list[Resource]:
        resources = []
        for cluster in emr_cluster.find_clusters(self._aws, self.cluster, (*emr_cluster.LIVING, emr_cluster.ENDING)):
            cluster_id = str(cluster["Id"])
            self._job_flows[cluster_id] = True
            instances = self._aws.pages("emr", "list_instances", "Instances", ClusterId=cluster_id)
            resources.append(emr_cluster_of(cluster, emr_cluster.groups_of(self._aws, cluster_id), instances))
        return resources

    def _file_systems(self) -> list[Resource]:
        listed = self._aws.pages("efs", "describe_file_systems", "FileSystems")
        return [file_system_of(item) for item in listed if tags_of(item.get("Tags")).get(CLUSTER_TAG) == self.cluster]

    def _mount_targets(self) -> list[Resource]:
        """Return the mount targets of our file systems, and those of others that have a security group of ours."""
        own, groups = self._ids("file_system"), frozenset(self._ids("security_group"))
        systems = [*own, *(file_systems_behind(self._aws, groups) if groups else ())]
        subnets = frozenset(self._ids("subnet"))
        resources = []
        for system in dict.fromkeys(systems):
            for listed in self._targets_of(system):
                resource = mount_target_of(listed, self._groups_on(listed), groups, subnets)
                if resource.ours or system in own or resource.kind == "mount_target_access":
                    resources.append(resource)
        return resources

    def _targets_of(self, system: str) -> list[Any]:
        try:
            return self._aws.pages("efs", "describe_mount_targets", "MountTargets", FileSystemId=system)
        except AwsError as problem:
            if problem.code == "FileSystemNotFound":
                return []
            raise

    def _groups_on(self, target: Listed) -> list[str]:
        if target["LifeCycleState"] in ("deleting", "deleted"):
            return []
        operation, going = "describe_mount_target_security_groups", ("MountTargetNotFound", "IncorrectMountTargetState")
        answer = self._aws.find("efs", operation, going, MountTargetId=target["MountTargetId"])
        return list(answer.get("SecurityGroups", ()))

    def _profiles(self) -> list[Resource]:
        # The name is reserved for us: a profile without a tag was created by a call that could not tag it.
        profiles = self._of_identities("get_instance_profile", "InstanceProfile", self.cluster)
        roles = {name: [str(role["RoleName"]) for role in item.get("Roles") or ()] for name, item in profiles.items()}
        return [Resource("instance_profile", name, name, facts={"roles": roles[name]}) for name in roles]

    def _roles(self) -> list[Resource]:
        roles = self._of_identities("get_role", "Role", "")
        return [Resource("role", name, name, facts={"id": str(role["RoleId"])}) for name, role in roles.items()]

    def _of_identities(self, operation: str, key: str, untagged: str) -> dict[str, Listed]:
        """Return our roles or profiles, by their names. `untagged`: the cluster of those without a tag."""
        names = [self.names.identity(role) for role in IDENTITIES]
        answers = {name: self._aws.find("iam", operation, ("NoSuchEntity",), **{f"{key}Name": name}) for name in names}
        existing = {name: answer[key] for name, answer in answers.items() if answer}
        return {
            name: item
            for name, item in existing.items()
            if tags_of(item.get("Tags")).get(CLUSTER_TAG, untagged) == self.cluster
        }

    def _buckets(self) -> list[Resource]:
        name = self.names.bucket
        try:
            self._aws.call("s3", "head_bucket", Bucket=name, ExpectedBucketOwner=self.names.account)
        except AwsError as problem:
            if problem.code == "404":
                return []
            # It may belong to another account, which has taken the name.
            if problem.denied and name not in own_buckets(self._aws):
                return []
            raise
        return [Resource("bucket", name, name, facts={"account": self.names.account})]


def file_systems_behind(aws: Aws, groups: Iterable[str]) -> list[str]:
    """Return the file systems with a mount target that has one of the security groups."""
    filters = [{"Name": "group-id", "Values": sorted(groups)}]
    interfaces = aws.pages("ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=filters)
    matches = (_MOUNT_TARGET.search(str(interface.get("Description", ""))) for interface in interfaces)
    return sorted({match[1] for match in matches if match})


def tagged_resources(aws: Aws, cluster: str) -> dict[str, list[str]]:
    """Return the ids of the tagged resources in EC2 by kind: our name of the kind, or AWS's if we have none."""
    filters = [{"Name": "key", "Values": [CLUSTER_TAG]}, {"Name": "value", "Values": [cluster]}]
    listed = aws.pages("ec2", "describe_tags", "Tags", Filters=filters)
    ids: dict[str, list[str]] = {}
    for item in listed:
        type_ = str(item["ResourceType"])
        if type_ not in _PARTS:
            ids.setdefault(_KINDS.get(type_, type_.replace("-", "_")), []).append(str(item["ResourceId"]))
    return ids


@dataclass(frozen=True)
class TaggedResource:
    """A resource that has the tag of a cluster, or one whose key differs in case only. Anybody can have set it."""

    key: str
    value: str
    kind: str
    id: str


@dataclass(frozen=True)
class ListedClusters:
    """The clusters of a region, and the resources whose tag names no cluster."""

    names: Sequence[str]
    strays: Sequence[TaggedResource]


def clusters_in(aws: Aws) -> list[str]:
    """Return the names of all clusters with resources in the region."""
    return list(list_clusters(aws).names)


def list_clusters(aws: Aws) -> ListedClusters:
    """Return all clusters with resources in the region, and the resources whose tag names no cluster."""
    tagged = [*_tagged_in_ec2(aws), *_tagged_groups(aws), *_tagged_file_systems(aws), *_tagged_emr_clusters(aws)]
    names = set(_clusters_by_name(aws))
    strays = []
    for resource in tagged:
        if resource.key == CLUSTER_TAG and is_cluster_name(resource.value, aws.region):
            names.add(resource.value)
        else:
            strays.append(resource)
    return ListedClusters(sorted(names), strays)


def _tagged_in_ec2(aws: Aws) -> list[TaggedResource]:
    # Filters are case-sensitive. The second pattern matches the tag's key in any case, and few others.
    any_case = re.sub(r"[a-z]", "?", CLUSTER_TAG)
    listed = aws.pages("ec2", "describe_tags", "Tags", Filters=[{"Name": "key", "Values": [CLUSTER_TAG, any_case]}])
    return [_tagged_resource(item) for item in listed if _is_cluster_tag(str(item.get("Key", CLUSTER_TAG)))]


def _tagged_groups(aws: Aws) -> list[TaggedResource]:
    listed = aws.pages("autoscaling", "describe_tags", "Tags", Filters=[{"Name": "key", "Values": [CLUSTER_TAG]}])
    return [_tagged_resource(item) for item in listed]


def _tagged_resource(listed: Listed) -> TaggedResource:
    """Return a resource from an item of EC2's or Auto Scaling's DescribeTags."""
    type_ = str(listed.get("ResourceType", ""))
    kind = _KINDS.get(type_, type_.replace("-", "_"))
    key, value = str(listed.get("Key", CLUSTER_TAG)), str(listed.get("Value", ""))
    return TaggedResource(key, value, kind, str(listed.get("ResourceId", "")))


def _tagged_file_systems(aws: Aws) -> list[TaggedResource]:
    tagged = []
    for system in aws.pages("efs", "describe_file_systems", "FileSystems"):
        for key, value in tags_of(system.get("Tags")).items():
            if _is_cluster_tag(key):
                tagged.append(TaggedResource(key, value, "file_system", str(system["FileSystemId"])))
    return tagged


def _tagged_emr_clusters(aws: Aws) -> list[TaggedResource]:
    """Return EMR's clusters whose tag is their name. Others are not this collection's."""
    listed = aws.pages("emr", "list_clusters", "Clusters", ClusterStates=[*emr_cluster.LIVING, emr_cluster.ENDING])
    return [
        TaggedResource(CLUSTER_TAG, str(item["Name"]), "emr_cluster", str(item["Id"]))
        for item in listed
        if emr_cluster.find_clusters(aws, str(item["Name"]), [item["Status"]["State"]])
    ]


def _is_cluster_tag(key: str) -> bool:
    return key.lower() == CLUSTER_TAG


def _clusters_by_name(aws: Aws) -> list[str]:
    """Return the clusters that a role, a profile or a bucket is named after. They may have nothing else."""
    endings = [f"-{aws.region}-{role}" for role in IDENTITIES]
    roles = [str(item["RoleName"]) for item in aws.pages("iam", "list_roles", "Roles")]
    profiles = [
        str(item["InstanceProfileName"]) for item in aws.pages("iam", "list_instance_profiles", "InstanceProfiles")
    ]
    buckets = own_buckets(aws)
    names = [name[: -len(end)] for name in (*roles, *profiles) for end in endings if name.endswith(end)]
    end = f"-{aws.account}-{aws.region}"
    names += [item[: -len(end)] for item in buckets if item.endswith(end)]
    return [name for name in names if is_cluster_name(name, aws.region)]


def own_buckets(aws: Aws) -> list[str]:
    """Return the names of the account's buckets in all regions."""
    return [str(item["Name"]) for item in aws.pages("s3", "list_buckets", "Buckets")]


# From what AWS lists to resources


def resource_of(kind: str, listed: Listed, groups: frozenset[str]) -> Resource:
    """Return a resource of EC2. `groups`: the names of the cluster's Auto Scaling groups."""
    type_ = EC2[kind]
    tags = tags_of(listed.get("Tags"))
    state = listed.get("Status" if kind == "network_interface" else "State") or ""
    state = str(state.get("Name", "") if isinstance(state, Mapping) else state).lower()
    # A NAT gateway that failed is deleted by AWS.
    phase = DEAD if (kind, state) == ("nat_gateway", "failed") else _PHASES.get(state, LIVE)
    return Resource(
        kind,
        str(listed[KINDS[kind].id]),
        str(listed.get(type_.name) or "") if type_.name else tags.get("Name", ""),
        state,
        phase,
        # A user who may tag can put our tag on another machine; only AWS sets the group's name.
        kind != "instance" or tags.get(GROUP_TAG) in groups,
        facts_of(kind, listed),
    )


def with_detached(resources: Sequence[Resource], groups: frozenset[str]) -> list[Resource]:
    """Return the resources, with instances that were detached from their group marked as the cluster's.

    The cluster's launch templates, which have the names of its groups, launched them. If another group has taken an
    instance, it is not the cluster's.
    """
    templates = {
        resource.id for resource in resources if resource.kind == "launch_template" and resource.name in groups
    }

    def detached(resource: Resource) -> bool:
        return resource.facts.get("template") in templates and not resource.facts.get("group")

    return [replace(resource, ours=True) if detached(resource) else resource for resource in resources]


def facts_of(kind: str, listed: Listed) -> dict[str, Any]:
    if kind == "instance":
        tags = tags_of(listed.get("Tags"))
        return {
            **record_of(listed),
            "public_name": str(listed.get("PublicDnsName") or ""),
            "template": tags.get(TEMPLATE_TAG, ""),
            "run": tags.get(RUN_TAG, ""),
            "profile": str((listed.get("IamInstanceProfile") or {}).get("Arn", "")).rpartition("/")[2],
            "launched_at": listed.get("LaunchTime"),
        }
    if kind == "nat_gateway":
        return {"created": listed.get("CreateTime")}
    if kind == "volume":
        return {
            "type": str(listed.get("VolumeType") or ""),
            "gib": int(listed.get("Size") or 0),
            "throughput": int(listed.get("Throughput") or 0),
        }
    if kind == "snapshot":
        return {"gib": int(listed.get("VolumeSize") or 0)}
    if kind == "address":
        return {
            "public_ip": str(listed.get("PublicIp", "")),
            "association": str(listed.get("AssociationId") or ""),
            "instance": str(listed.get("InstanceId") or ""),
        }
    if kind == "internet_gateway":
        return {"vpcs": [str(item["VpcId"]) for item in listed.get("Attachments") or ()]}
    if kind == "route_table":
        associations = listed.get("Associations") or ()
        return {
            "main": any(item.get("Main") for item in associations),
            "associations": [str(item["RouteTableAssociationId"]) for item in associations if not item.get("Main")],
        }
    if kind == "security_group":
        others = groups_named_in(listed) - {listed["GroupId"]}
        rules = {"ingress": "IpPermissions", "egress": "IpPermissionsEgress"}
        return {
            "vpc": str(listed.get("VpcId") or ""),
            "names": sorted(others),
            "rules": {way: rules_naming(listed.get(key) or (), others) for way, key in rules.items()},
        }
    return {}


def groups_named_in(listed: Listed) -> set[str]:
    """Return the security groups that the rules of a group name: they cannot be deleted before it."""
    rules = (*(listed.get("IpPermissions") or ()), *(listed.get("IpPermissionsEgress") or ()))
    return {str(pair.get("GroupId", "")) for rule in rules for pair in rule.get("UserIdGroupPairs") or ()}


def rules_naming(rules: Iterable[Listed], groups: Iterable[str]) -> list[dict[str, Any]]:
    """Return the parts of rules that name one of the groups, as the API takes them."""
    parts = []
    for rule in rules:
        pairs = [
            {"GroupId": pair["GroupId"]}
            for pair in rule.get("UserIdGroupPairs") or ()
            if pair.get("GroupId") in set(groups)
        ]
        kept = {key: rule[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in rule}
        if pairs:
            parts.append({**kept, "UserIdGroupPairs": pairs})
    return parts


def read_idle_minutes(aws: Aws, owned: ClusterResources) -> int:
    """Return after how many idle minutes EMR ends the cluster; 0 for never, and while runs are active."""
    living = [cluster.id for cluster in owned.of_kind("emr_cluster") if cluster.phase == LIVE]
    return max((emr_cluster.idle_seconds_of(aws, cluster_id) for cluster_id in living), default=0) // 60


def emr_cluster_of(listed: Listed, groups: Mapping[str, Listed], instances: Iterable[Listed]) -> Resource:
    status = listed["Status"]
    state = str(status["State"])
    return Resource(
        "emr_cluster",
        str(listed["Id"]),
        str(listed["Name"]),
        state.lower(),
        GOING if state == emr_cluster.ENDING else LIVE,
        facts={
            "most": sum(int(group["RequestedInstanceCount"]) for group in groups.values()),
            "in_service": [str(item["Ec2InstanceId"]) for item in instances if item["Status"]["State"] == "RUNNING"],
            "reason": str((status.get("StateChangeReason") or {}).get("Message") or ""),
        },
    )


def group_of(
    listed: Listed, ends: Mapping[str, Mapping[str, float]], foreign: Sequence[scheduled_end.ForeignAction]
) -> Resource:
    """Return an Auto Scaling group. `ends`: when machines are scheduled to end, by kind and group."""
    machines = {
        str(item["InstanceId"]): {
            "lifecycle": str(item["LifecycleState"]),
            "is_healthy": item.get("HealthStatus") == "Healthy",
            "template_version": template_version(item),
        }
        for item in listed.get("Instances") or ()
    }
    name = str(listed["AutoScalingGroupName"])
    status = str(listed.get("Status") or "")
    return Resource(
        "auto_scaling_group",
        name,
        name,
        status.lower(),
        GOING if status else LIVE,
        facts={
            "most": int(listed["MaxSize"]),
            "desired": int(listed["DesiredCapacity"]),
            "in_service": [
                machine
                for machine, state in machines.items()
                if state["lifecycle"] == "InService" and state["is_healthy"]
            ],
            "machines": machines,
            "template_version": template_version(listed),
            "coming": sum(state["lifecycle"].startswith("Pending") for state in machines.values()),
            "ends": {kind: of_groups[name] for kind, of_groups in ends.items() if name in of_groups},
            "foreign_actions": {action.shown: str(action) for action in foreign if action.group == name},
        },
    )


def template_version(listed: Listed) -> str:
    """Return the version of the launch template that a machine was launched by, or that a group uses."""
    return str((listed.get("LaunchTemplate") or {}).get("Version", ""))


def file_system_of(listed: Listed) -> Resource:
    state = str(listed["LifeCycleState"])
    size = int((listed.get("SizeInBytes") or {}).get("Value", 0))
    name = tags_of(listed.get("Tags")).get("Name", "")
    return Resource(
        "file_system", str(listed["FileSystemId"]), name, state, _PHASES.get(state, LIVE), facts={"bytes": size}
    )


def mount_target_of(listed: Listed, on: Sequence[str], groups: frozenset[str], subnets: frozenset[str]) -> Resource:
    """Return a mount target. It is ours if it has only security groups of ours, or is in our subnet.

    A mount target of others that has a group of ours is `mount_target_access`: a teardown only takes that group off.
    """
    state = str(listed["LifeCycleState"])
    phase = _PHASES.get(state, LIVE)
    attached = groups & set(on)
    exclusive = listed.get("SubnetId") in subnets or (bool(attached) and set(on) <= groups)
    kind = "mount_target_access" if attached and not exclusive else "mount_target"
    return Resource(
        kind,
        str(listed["MountTargetId"]),
        "",
        state,
        phase,
        bool(attached) or exclusive or phase != LIVE,
        facts={"file_system": str(listed["FileSystemId"]), "others": [group for group in on if group not in groups]},
    )
