# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What AWS says of zones, networks and file systems, held against what was asked for.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._names import CLUSTER_TAG, Names, tag_filter, tags_of
from ansible_collections.deeplearning.aws.plugins.module_utils._plan_ask import Ask
from ansible_collections.deeplearning.aws.plugins.module_utils._telling import listed

Facts = dict[str, Any]
Cluster = Mapping[str, Any]


def halves(cidr: str) -> tuple[str, str]:
    """The public and the private subnet of a network of our own."""
    public, private = IPv4Network(cidr).subnets(1)
    return str(public), str(private)


def groups(ask: Ask, cluster: str) -> list[Any] | None:
    """The cluster's Auto Scaling groups."""
    names = list(Names(cluster).groups.values())
    return ask.pages("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", AutoScalingGroupNames=names)


def zone_of_machines(found: Iterable[Mapping[str, Any]]) -> str:
    """Where the cluster's machines are: they do not move."""
    zones = sorted({str(one["AvailabilityZone"]) for group in found for one in group.get("Instances") or ()})
    return zones[0] if zones else ""


def zones(ask: Ask, cluster: Cluster, types: Iterable[str]) -> list[str]:
    """The zones that can be tried, in order: those that were given, or all, as far as they have the types."""
    filters = [{"Name": "zone-type", "Values": ["availability-zone"]}, {"Name": "state", "Values": ["available"]}]
    described = ask.pages("ec2", "describe_availability_zones", "AvailabilityZones", Filters=filters)
    names = sorted(set(types))
    offers = ask.pages(
        "ec2",
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": names}],
    )
    if described is None or offers is None:
        return []
    there = sorted(str(zone["ZoneName"]) for zone in described)
    offered = {(str(offer["InstanceType"]), str(offer["Location"])) for offer in offers}
    unknown = [zone for zone in cluster["zones"] if zone not in there]
    if unknown:
        ask.wrong("zones", unknown, f"{ask.region} has {listed(there)}", there[:2])
    wanted = [zone for zone in cluster["zones"] if zone in there] if cluster["zones"] else there
    fit = [zone for zone in wanted if all((name, zone) in offered for name in names)]
    if wanted and not fit and names:
        _nowhere(
            ask, cluster, names, wanted, [zone for zone in there if all((name, zone) in offered for name in names)]
        )
    return fit


def _nowhere(ask: Ask, cluster: Cluster, names: Sequence[str], wanted: Sequence[str], elsewhere: Sequence[str]) -> None:
    both = " and ".join(names)
    if elsewhere:
        ask.wrong(
            "zones", list(wanted), f"none of them has {both}, which {listed(elsewhere)} have", list(elsewhere[:2])
        )
    else:
        ask.wrong(
            "instance_type", cluster["instance_type"], f"no one zone of {ask.region} has {both}: take other types"
        )


def own_vpc(ask: Ask, cluster: Cluster) -> Facts:
    """The network that is to be made, or the one that this cluster has made already."""
    name = cluster["name"]
    filters = [tag_filter(CLUSTER_TAG, name), tag_filter("Name", Names(name).of("vpc"))]
    found = ask.pages("ec2", "describe_vpcs", "Vpcs", Filters=filters) or []
    public, private = halves(cluster["vpc_cidr"])
    there = found[0] if found else {}
    if there and there["CidrBlock"] != cluster["vpc_cidr"]:
        ask.wrong(
            "vpc_cidr",
            cluster["vpc_cidr"],
            f"the cluster's network has {there['CidrBlock']}, which cannot be changed: keep it, or destroy first",
            there["CidrBlock"],
        )
    return {
        "given": False,
        "id": there.get("VpcId", ""),
        "cidr": cluster["vpc_cidr"],
        "public_cidr": public,
        "private_cidr": private,
        "subnets": {},
    }


def given_vpc(ask: Ask, cluster: Cluster, machines: int) -> Facts:
    """An existing network, and its subnets by zone."""
    vpc_id = cluster["vpc_id"]
    facts: Facts = {
        "given": True,
        "id": vpc_id,
        "cidr": "",
        "public_cidr": "",
        "private_cidr": "",
        "subnets": {},
    }
    found = ask.pages("ec2", "describe_vpcs", "Vpcs", Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])
    if found is None:
        return facts
    if not found:
        ask.wrong("vpc_id", vpc_id, f"{ask.region} has no such VPC in this account")
        return facts
    facts["cidr"] = found[0]["CidrBlock"]
    subnets = _subnets(ask, cluster)
    tables = ask.pages("ec2", "describe_route_tables", "RouteTables", Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])
    by_zone: dict[str, dict[str, str]] = {}
    for kind in ("public", "private"):
        for subnet_id in cluster[f"{kind}_subnet_ids"]:
            subnet = subnets.get(subnet_id)
            if not subnet:
                continue
            if subnet["VpcId"] != vpc_id:
                ask.wrong(f"{kind}_subnet_ids", subnet_id, f"it belongs to {subnet['VpcId']} and not to {vpc_id}")
                continue
            _judge_routes(ask, kind, subnet_id, tables or ())
            by_zone.setdefault(str(subnet["AvailabilityZone"]), {})[kind] = subnet_id
            free, need = int(subnet.get("AvailableIpAddressCount", 1 << 20)), machines if kind == "private" else 1
            if free < need:
                ask.notes.append(
                    f"{subnet_id} has {free} free addresses left, and {need} are needed for a new cluster."
                )
    facts["subnets"] = {zone: pair for zone, pair in by_zone.items() if len(pair) == 2}
    if by_zone and not facts["subnets"] and not ask.problems:
        held = listed([f"{subnet} in {zone}" for zone, pair in sorted(by_zone.items()) for subnet in pair.values()])
        ask.problems.append(
            f"No zone has both a public and a private one of the given subnets ({held}): the cluster is in one, so "
            "give one of each in the same."
        )
    return facts


def _subnets(ask: Ask, cluster: Cluster) -> dict[str, Any]:
    """Those that were named and exist, by id."""
    asked = {subnet: kind for kind in ("public", "private") for subnet in cluster[f"{kind}_subnet_ids"]}
    found = ask.pages("ec2", "describe_subnets", "Subnets", Filters=[{"Name": "subnet-id", "Values": sorted(asked)}])
    if found is None:
        return {}
    there = {str(subnet["SubnetId"]): subnet for subnet in found}
    for subnet_id, kind in asked.items():
        if subnet_id not in there:
            ask.wrong(f"{kind}_subnet_ids", subnet_id, f"{ask.region} has no such subnet in this account")
    return there


def _judge_routes(ask: Ask, kind: str, subnet_id: str, tables: Sequence[Mapping[str, Any]]) -> None:
    if not tables:
        return
    way = way_out(subnet_id, tables)
    if kind == "public" and not way.startswith("igw-"):
        how = f"leaves by {way}" if way else "has no way to the internet"
        ask.wrong("public_subnet_ids", subnet_id, f"it {how}, and the master needs one with an internet gateway")
    if kind == "private" and way.startswith("igw-"):
        ask.wrong("private_subnet_ids", subnet_id, f"it is a public one, by {way}: the workers have no public address")
    if kind == "private" and not way:
        ask.wrong("private_subnet_ids", subnet_id, "it has no way to the internet, give it a route to a NAT gateway")


def way_out(subnet_id: str, tables: Sequence[Mapping[str, Any]]) -> str:
    """What the default route of a subnet leads to, such as igw-…; empty if it has none. Its own table counts, else the
    VPC's main one."""
    own = main = None
    for table in tables:
        for association in table.get("Associations") or ():
            if association.get("SubnetId") == subnet_id:
                own = table
            elif association.get("Main"):
                main = table
    for route in (own or main or {}).get("Routes") or ():
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State", "active") == "active":
            ways = ("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "VpcPeeringConnectionId")
            return next((str(route[way]) for way in ways if route.get(way)), "elsewhere")
    return ""


def security_groups(ask: Ask, cluster: Cluster, vpc_id: str) -> None:
    asked = cluster["security_group_ids"]
    if not asked:
        return
    found = ask.pages(
        "ec2", "describe_security_groups", "SecurityGroups", Filters=[{"Name": "group-id", "Values": asked}]
    )
    if found is None:
        return
    vpcs = {group["GroupId"]: group["VpcId"] for group in found}
    for group_id in asked:
        if group_id not in vpcs:
            ask.wrong("security_group_ids", group_id, f"{ask.region} has no such security group in this account")
        elif not vpc_id:
            ask.wrong(
                "security_group_ids",
                group_id,
                f"it belongs to {vpcs[group_id]}, and the cluster gets a network of its own: make the cluster in that "
                f"VPC (-e cluster_vpc_id={vpcs[group_id]} and its subnets)",
            )
        elif vpcs[group_id] != vpc_id:
            ask.wrong("security_group_ids", group_id, f"it belongs to {vpcs[group_id]}, and the cluster is in {vpc_id}")


def file_systems(ask: Ask, cluster: Cluster, vpc_id: str) -> Facts:
    """The file system that is given, or that this cluster has kept; none: one is to be made."""
    none: Facts = {"id": "", "given": bool(cluster["efs_id"]), "zone": "", "mount_targets": []}
    if cluster["efs_id"]:
        answer = ask.one(
            "efs", "describe_file_systems", missing=("FileSystemNotFound",), FileSystemId=cluster["efs_id"]
        )
        found = None if answer is None else answer.get("FileSystems", [])
        if found == []:
            ask.wrong("efs_id", cluster["efs_id"], f"{ask.region} has no such file system in this account")
    else:
        every = ask.pages("efs", "describe_file_systems", "FileSystems")
        found = [one for one in every or () if tags_of(one.get("Tags")).get(CLUSTER_TAG) == cluster["name"]]
        found = [one for one in found if one.get("LifeCycleState") not in ("deleting", "deleted")]
        if len(found) > 1:
            ids = sorted(str(one["FileSystemId"]) for one in found)
            ask.problems.append(
                f"{listed(ids)} all bear this cluster's tag: say which is meant, or delete the others. Example: -e "
                f"cluster_efs_id={ids[0]}"
            )
    if not found:
        return none
    return _judge_file_system(ask, cluster, found[0], vpc_id)


def _judge_file_system(ask: Ask, cluster: Cluster, found: Mapping[str, Any], vpc_id: str) -> Facts:
    efs_id, state = str(found["FileSystemId"]), found.get("LifeCycleState")
    if cluster["efs_id"] and state not in ("available", "updating"):
        ask.wrong("efs_id", efs_id, f"the file system is {state} and not available")
    targets = ask.pages("efs", "describe_mount_targets", "MountTargets", FileSystemId=efs_id) or []
    others = sorted({str(target["VpcId"]) for target in targets if target.get("VpcId") and target["VpcId"] != vpc_id})
    if others:
        where = f"the cluster is in {vpc_id}" if vpc_id else "the cluster gets a network of its own"
        ask.problems.append(
            f"The file system {efs_id} has mount targets in {listed(others)}, and {where}: it can have them in one VPC "
            f"only. Make the cluster in that VPC (-e cluster_vpc_id={others[0]} and its subnets), or delete them."
        )
    return {
        "id": efs_id,
        "given": bool(cluster["efs_id"]),
        "zone": str(found.get("AvailabilityZoneName") or ""),
        "mount_targets": [
            {
                "id": target["MountTargetId"],
                "zone": target.get("AvailabilityZoneName", ""),
                "subnet_id": target["SubnetId"],
                "address": target.get("IpAddress", ""),
            }
            for target in targets
        ],
    }
