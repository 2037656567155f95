# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Find resources without the cluster's tag in the VPC that it created, and those that use its security groups.

They cost money and keep the network from being deleted. One call lists the network interfaces, which show everything
else that is in a network, and one the addresses that have a name of the cluster's. Further calls are only made for
resources that are not the cluster's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...module_utils.aws.client import Aws
from ...module_utils.aws.resource_ids import describe, describe_ids, kind_of_id, matches, state_of
from ...module_utils.contract.names import CLUSTER_TAG, GROUP_TAG, JOB_FLOW_TAG, TEMPLATE_TAG, Names, tags_of
from ..untrusted import one_line
from .kinds import KINDS
from .resource_reader import resource_of
from .resources import ClusterResources, Resource

Listed = Mapping[str, Any]

_NAT_GATEWAY = re.compile(r"Interface for NAT Gateway (nat-[0-9a-f]+)")
_MOUNT_TARGET = re.compile(r"EFS mount target for (fs-[0-9a-f]+) \((fsmt-[0-9a-f]+)\)")
_ENDPOINT = re.compile(r"VPC Endpoint Interface (vpce-[0-9a-f]+)")
_LOAD_BALANCER = re.compile(r"ELB .")
"""How AWS describes the network interfaces that its services create."""
_CLUSTER_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_JOB_FLOW = re.compile(r"j-[A-Z0-9]{1,32}")


@dataclass(frozen=True)
class UntaggedResource:
    """A resource that does not have the cluster's tag, or has it although the cluster did not create the resource."""

    resource: Resource
    vpc: str
    """Empty for an address that nothing uses."""
    belongs_here: bool
    """It is in the VPC that the cluster created, or in none and has the name of one of the cluster's addresses."""
    owner: str = ""
    """What else it belongs to, in words. Then it is not deleted with this cluster."""
    cluster: str = ""
    """The value of its cluster tag, if that names another cluster."""
    note: str = ""
    command: str = ""
    """The command that removes it. Empty if there is none that is certain to be right."""

    @property
    def id(self) -> str:
        return self.resource.id

    @property
    def is_removable(self) -> bool:
        """Return whether destroy may delete it if the operator names it."""
        return self.belongs_here and not self.owner and kind_of_id(self.id) == self.resource.kind


@dataclass(frozen=True)
class Surroundings:
    """What is in the cluster's VPC and security groups, and is not the cluster's."""

    untagged: Sequence[UntaggedResource] = ()
    members: Sequence[Resource] = ()
    """The cluster's own machines that have lost the tag. They end with their Auto Scaling group or EMR cluster."""

    @property
    def removable(self) -> list[UntaggedResource]:
        return [item for item in self.untagged if item.is_removable]


NOTHING = Surroundings()


@dataclass(frozen=True)
class _Cluster:
    """What identifies the cluster's own resources."""

    name: str
    region: str
    own: frozenset[str]
    """The ids of the resources that are the cluster's."""
    vpcs: frozenset[str]
    groups: frozenset[str]
    """Its security groups."""
    addresses: frozenset[str]
    """The names of its addresses."""
    scaling_groups: frozenset[str]
    templates: frozenset[str]
    job_flows: frozenset[str]


@dataclass
class _Listed:
    """What AWS lists, by our kinds."""

    interfaces: list[Listed] = field(default_factory=list)
    instances: list[Listed] = field(default_factory=list)
    gateways: list[Listed] = field(default_factory=list)
    addresses: list[Listed] = field(default_factory=list)
    volumes: list[Listed] = field(default_factory=list)


def with_untagged(owned: ClusterResources, surroundings: Surroundings) -> ClusterResources:
    """Return the cluster's resources with all others that its costs include: everything in its own VPC.

    What another cluster has tagged counts as that cluster's.
    """
    known = {resource.key for resource in owned.resources}
    extra = [
        item.resource
        for item in surroundings.untagged
        if item.belongs_here and not item.cluster and item.resource.key not in known
    ]
    counted = [replace(resource, ours=True) for resource in (*surroundings.members, *extra)]
    return replace(owned, resources=[*owned.resources, *counted])


def read(aws: Aws, owned: ClusterResources) -> Surroundings:
    """Return what is in the cluster's own VPC and in its security groups. Without either, no call is made."""
    cluster = _cluster_of(owned)
    listed = _Listed()
    listed.interfaces += describe(aws, "network_interface", "vpc-id", cluster.vpcs)
    elsewhere = [
        group.id for group in owned.of_kind("security_group") if group.facts.get("vpc") not in cluster.vpcs
    ]
    listed.interfaces += describe(aws, "network_interface", "group-id", elsewhere)
    instance_ids = {_instance_of(interface) for interface in listed.interfaces} - cluster.own - {""}
    gateway_ids = {_named_in(_NAT_GATEWAY, interface) for interface in listed.interfaces} - cluster.own - {""}
    listed.instances += describe_ids(aws, "instance", instance_ids)
    listed.gateways += describe_ids(aws, "nat_gateway", gateway_ids)
    address_ids = _allocations(listed) - cluster.own
    listed.addresses += describe_ids(aws, "address", address_ids)
    if cluster.vpcs:
        # An address that nothing uses is in no VPC.
        called = describe(aws, "address", "tag:Name", cluster.addresses)
        listed.addresses += [item for item in called if item["AllocationId"] not in address_ids | cluster.own]
    strangers = [item["InstanceId"] for item in listed.instances if not _is_member(cluster, item)]
    listed.volumes += describe(aws, "volume", "attachment.instance-id", strangers)
    return classify(cluster, listed)


def _cluster_of(owned: ClusterResources) -> _Cluster:
    names = frozenset(Names(owned.cluster).groups.values())
    templates = [template.id for template in owned.of_kind("launch_template") if template.name in names]
    return _Cluster(
        name=owned.cluster,
        region=owned.region,
        own=frozenset(resource.id for resource in owned.resources if resource.ours),
        vpcs=frozenset(resource.id for resource in owned.of_kind("vpc")),
        groups=frozenset(resource.id for resource in owned.of_kind("security_group")),
        addresses=frozenset({Names(owned.cluster).of("nat"), Names(owned.cluster).of("master")}),
        scaling_groups=names,
        templates=frozenset(templates),
        job_flows=frozenset(resource.id for resource in owned.of_kind("emr_cluster")),
    )


def _instance_of(interface: Listed) -> str:
    return str((interface.get("Attachment") or {}).get("InstanceId") or "")


def _named_in(pattern: re.Pattern[str], interface: Listed) -> str:
    match = pattern.search(str(interface.get("Description", "")))
    return match[1] if match else ""


def _allocations(listed: _Listed) -> set[str]:
    """Return the addresses that interfaces and NAT gateways use. Addresses that AWS assigns have no such id."""
    ids = {str((interface.get("Association") or {}).get("AllocationId") or "") for interface in listed.interfaces}
    for gateway in listed.gateways:
        for address in gateway.get("NatGatewayAddresses") or ():
            ids.add(str(address.get("AllocationId") or ""))
    return ids - {""}


def _is_member(cluster: _Cluster, instance: Listed) -> bool:
    """Return whether a machine is the cluster's, although it has lost the tag. Only AWS sets these two tags."""
    tags = tags_of(instance.get("Tags"))
    return tags.get(GROUP_TAG) in cluster.scaling_groups or tags.get(JOB_FLOW_TAG) in cluster.job_flows


def _has_own_tag(cluster: _Cluster, listed: Listed) -> bool:
    """Return whether a resource has the cluster's tag. It is created while this is read. Instances need more."""
    return tags_of(listed.get("Tags") or listed.get("TagSet")).get(CLUSTER_TAG) == cluster.name


def classify(cluster: _Cluster, listed: _Listed) -> Surroundings:
    """Return what the listed resources are. Pure, so that tests can state AWS's answers."""
    living = [item for item in listed.instances if state_of(item) not in ("shutting-down", "terminated")]
    strangers = [item for item in living if not _is_member(cluster, item)]
    members = [resource_of("instance", item, cluster.scaling_groups) for item in living if _is_member(cluster, item)]
    gateways = [item for item in listed.gateways if state_of(item) in ("pending", "available")]
    untagged = [_instance(cluster, item, listed.interfaces) for item in strangers]
    untagged += [_gateway(cluster, item) for item in gateways if not _has_own_tag(cluster, item)]
    interface_vpcs = {
        str(interface["Association"].get("AllocationId", "")): str(interface.get("VpcId", ""))
        for interface in listed.interfaces
        if interface.get("Association")
    }
    gateway_vpcs = _vpcs_of_gateway_addresses(listed)
    for address in listed.addresses:
        address_id = str(address["AllocationId"])
        vpc = interface_vpcs.get(address_id) or gateway_vpcs.get(address_id, "")
        is_used_elsewhere = not vpc and bool(address.get("AssociationId"))
        if not is_used_elsewhere and not _has_own_tag(cluster, address):
            untagged.append(_address(cluster, address, vpc, address_id in gateway_vpcs))
    by_id = {item.id: item for item in untagged}
    for volume in listed.volumes:
        if str(volume["VolumeId"]) not in cluster.own and not _has_own_tag(cluster, volume):
            untagged += _volume(cluster, volume, by_id)
    untagged += [_interface(cluster, item) for item in listed.interfaces if _stands_alone(cluster, item)]
    return Surroundings(untagged, members)


def _vpcs_of_gateway_addresses(listed: _Listed) -> dict[str, str]:
    """Return the VPCs of the addresses that NAT gateways use, those of the cluster's own NAT gateways included."""
    vpcs = {}
    for gateway in listed.gateways:
        for held in gateway.get("NatGatewayAddresses") or ():
            vpcs[str(held.get("AllocationId", ""))] = str(gateway.get("VpcId", ""))
    for interface in listed.interfaces:
        if _named_in(_NAT_GATEWAY, interface):
            allocation = (interface.get("Association") or {}).get("AllocationId", "")
            vpcs[str(allocation)] = str(interface.get("VpcId", ""))
    return vpcs


def _describe(cluster: _Cluster, kind: str, listed: Listed, vpc: str) -> UntaggedResource:
    """Return a resource with what its tags say about its owner."""
    resource = resource_of(kind, listed, frozenset())
    # Names and tags are other people's text.
    resource = replace(resource, name=one_line(resource.name))
    tags = tags_of(listed.get("Tags") or listed.get("TagSet"))
    other = tags.get(CLUSTER_TAG, "")
    owner = ""
    if other and other != cluster.name:
        shown = other if _CLUSTER_NAME.fullmatch(other) else json.dumps(one_line(other))
        owner = f"the cluster {shown}"
    else:
        other = ""
    is_free = kind == "address" and not vpc
    return UntaggedResource(resource, vpc, vpc in cluster.vpcs or is_free, owner, cluster=other)


def _instance(cluster: _Cluster, listed: Listed, interfaces: Iterable[Listed]) -> UntaggedResource:
    item = _describe(cluster, "instance", listed, str(listed.get("VpcId", "")))
    tags = tags_of(listed.get("Tags"))
    if item.owner:
        return item
    if tags.get(JOB_FLOW_TAG):
        flow = tags[JOB_FLOW_TAG]
        if not _JOB_FLOW.fullmatch(flow):
            return replace(item, owner="another EMR cluster")
        command = f"aws emr terminate-clusters --region {cluster.region} --cluster-ids {flow}"
        return replace(item, owner=f"the EMR cluster {flow}", command=command)
    if tags.get(GROUP_TAG):
        group = json.dumps(one_line(tags[GROUP_TAG]))
        return replace(item, owner=f"the Auto Scaling group {group}, which replaces it")
    if not item.belongs_here:
        own = [interface for interface in interfaces if _instance_of(interface) == item.id]
        return replace(item, command=" && ".join(filter(None, (_detach_command(cluster, each) for each in own))))
    note = ""
    if tags.get(TEMPLATE_TAG) in cluster.templates:
        note = "launched from the cluster's launch template"
    return replace(item, note=note, command=_command(cluster, "terminate-instances --instance-ids", "i", item.id))


def _gateway(cluster: _Cluster, listed: Listed) -> UntaggedResource:
    item = _describe(cluster, "nat_gateway", listed, str(listed.get("VpcId", "")))
    if item.owner:
        return item
    return replace(item, command=_command(cluster, "delete-nat-gateway --nat-gateway-id", "nat", item.id))


def _address(cluster: _Cluster, listed: Listed, vpc: str, is_of_gateway: bool) -> UntaggedResource:
    item = _describe(cluster, "address", listed, vpc)
    if item.owner:
        return item
    release = _command(cluster, "release-address --allocation-id", "eipalloc", item.id)
    association = str(listed.get("AssociationId") or "")
    if is_of_gateway:
        return replace(item, note="its NAT gateway uses it and must be deleted first", command=release)
    if not vpc:
        return replace(item, note="nothing uses it", command=release)
    first = _command(cluster, "disassociate-address --association-id", "eipassoc", association)
    return replace(item, command=" && ".join(filter(None, (first, release))))


def _volume(
    cluster: _Cluster, listed: Listed, instances: Mapping[str, UntaggedResource]
) -> Iterable[UntaggedResource]:
    for attachment in listed.get("Attachments") or ():
        instance = instances.get(str(attachment.get("InstanceId", "")))
        # Others' volumes in others' networks are not ours to list.
        if instance is None or not instance.belongs_here:
            continue
        item = replace(_describe(cluster, "volume", listed, instance.vpc), cluster=instance.cluster)
        if instance.owner:
            yield replace(item, owner=instance.owner)
        elif attachment.get("DeleteOnTermination"):
            yield replace(item, owner=f"{instance.id}, and AWS deletes it with that instance")
        else:
            command = _command(cluster, "delete-volume --volume-id", "vol", item.id)
            yield replace(item, note=f"{instance.id} uses it, and AWS does not delete it with that", command=command)


def _stands_alone(cluster: _Cluster, interface: Listed) -> bool:
    """Return whether an interface belongs to nothing that is listed already, or is the cluster's."""
    if str(interface["NetworkInterfaceId"]) in cluster.own or _has_own_tag(cluster, interface):
        return False
    if _named_in(_NAT_GATEWAY, interface):
        return False
    if _instance_of(interface):
        # AWS deletes it with its instance, unless it was attached by hand.
        return (interface.get("Attachment") or {}).get("DeleteOnTermination") is False
    target = _MOUNT_TARGET.search(str(interface.get("Description", "")))
    if target:
        return target[2] not in cluster.own
    endpoint = _named_in(_ENDPOINT, interface)
    return not endpoint or endpoint not in cluster.own


def _interface(cluster: _Cluster, listed: Listed) -> UntaggedResource:
    item = _describe(cluster, "network_interface", listed, str(listed.get("VpcId", "")))
    description = one_line(str(listed.get("Description", "")))
    item = replace(item, note=json.dumps(description) if description else "")
    if item.owner:
        return item
    target = _MOUNT_TARGET.search(description)
    if target:
        command = ""
        if matches("fsmt", target[2]):
            command = f"aws efs delete-mount-target --region {cluster.region} --mount-target-id {target[2]}"
        return replace(item, owner=f"a mount target of {target[1]}", command=command)
    endpoint = _named_in(_ENDPOINT, listed)
    if endpoint:
        command = _command(cluster, "delete-vpc-endpoints --vpc-endpoint-ids", "vpce", endpoint)
        return replace(item, owner=f"the VPC endpoint {endpoint}", command=command)
    if _LOAD_BALANCER.match(description):
        command = f"aws elbv2 describe-load-balancers --region {cluster.region}"
        return replace(item, owner="a load balancer, which has to be deleted", command=command)
    is_of_service = not _instance_of(listed) and state_of(listed) != "available"
    if listed.get("RequesterManaged") or is_of_service:
        command = _command(cluster, "describe-network-interfaces --network-interface-ids", "eni", item.id)
        return replace(item, owner="another service of AWS", command=command)
    if not item.belongs_here:
        return replace(item, command=_detach_command(cluster, listed))
    return replace(item, command=_command(cluster, "delete-network-interface --network-interface-id", "eni", item.id))


def _command(cluster: _Cluster, words: str, prefix: str, resource_id: str) -> str:
    """Return a command of AWS's command line; empty if the id does not have the form that AWS gives to ids."""
    if not matches(prefix, resource_id):
        return ""
    operation, option = words.split(" ")
    return f"aws ec2 {operation} --region {cluster.region} {option} {resource_id}"


def _detach_command(cluster: _Cluster, interface: Listed) -> str:
    """Return the command that takes the cluster's security groups off an interface in another VPC."""
    groups = [str(group["GroupId"]) for group in interface.get("Groups") or ()]
    others = [group for group in groups if group not in cluster.groups and matches("sg", group)]
    interface_id = str(interface["NetworkInterfaceId"])
    if not others or not matches("eni", interface_id):
        return ""
    return (
        f"aws ec2 modify-network-interface-attribute --region {cluster.region} --network-interface-id {interface_id} "
        f"--groups {' '.join(others)}"
    )


def without_interface(aws: Aws, before: Surroundings) -> list[UntaggedResource]:
    """Return the addresses and volumes that still exist after what used them was deleted.

    `before`: what there was before. Nothing shows any more which VPC they were used in.
    """
    remaining: list[UntaggedResource] = []
    for kind in ("address", "volume"):
        listed = [item for item in before.untagged if item.resource.kind == kind and item.belongs_here]
        existing = {str(item[KINDS[kind].id]) for item in describe_ids(aws, kind, [item.id for item in listed])}
        remaining += [item for item in listed if item.id in existing]
    return remaining
