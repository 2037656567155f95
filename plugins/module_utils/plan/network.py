# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check zones, network, security groups and file system, and choose the zones to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from typing import Any, NamedTuple

from ..contract.names import MASTER, WORKER, Names
from ..contract.tables import join_names
from ..resources.file_system import throughput_mode_of
from . import images
from .facts import AccountFacts, Cluster, Item
from .findings import Finding, note, setting_problem

ENDPOINTS = ("autoscaling", "ec2", "s3", "sts")
"""What machines call that configure themselves."""
LIMITED_ZONES = ("use1-az3",)
"""The ids of zones that lack services, so that they are tried last. Names differ between accounts."""
RESERVED_ADDRESSES = 5
"""AWS keeps them in every subnet."""


def needed_subnets(cluster: Cluster) -> tuple[str, ...]:
    """Return which kinds of subnets the machines are in."""
    return ("public", "private") if cluster["public"] else ("private",)


def halves(cidr: str) -> tuple[str, str]:
    """Return the blocks of the public and the private subnet of a new VPC."""
    public, private = IPv4Network(cidr).subnets(1)
    return str(public), str(private)


def cidrs_in_use(vpc: Item) -> list[str]:
    """Return the address blocks of a VPC, and none of those that are being removed."""
    blocks = vpc.get("CidrBlockAssociationSet") or [vpc]
    states = ((block, block.get("CidrBlockState", {}).get("State", "associated")) for block in blocks)
    return [str(block["CidrBlock"]) for block, state in states if state == "associated" and "CidrBlock" in block]


def vpc_of_plan(facts: AccountFacts, cluster: Cluster) -> dict[str, Any]:
    """Return the VPC of the settings with their subnets by zone, or the cluster's own one, which may not exist yet."""
    vpc, is_external = facts.vpcs[0] if facts.vpcs else {}, bool(cluster["vpc_id"])
    cidr = vpc.get("CidrBlock", "") if is_external else cluster["vpc_cidr"]
    public, private = ("", "") if is_external else halves(cidr)
    return {
        "external": is_external,
        "id": cluster["vpc_id"] or vpc.get("VpcId", ""),
        "cidr": cidr,
        "cidrs": cidrs_in_use(vpc) or ([] if is_external else [cidr]),
        "public_cidr": public,
        "private_cidr": private,
        "subnets": _complete_zones(facts, cluster) if is_external else {},
    }


class _Subnet(NamedTuple):
    kind: str
    id: str
    described: Item | None
    """None if it does not exist."""


def _requested_subnets(facts: AccountFacts, cluster: Cluster) -> list[_Subnet]:
    """Return the subnets of the settings; none if it is unknown which exist."""
    if facts.subnets is None:
        return []
    existing = {str(subnet["SubnetId"]): subnet for subnet in facts.subnets}
    return [
        _Subnet(kind, subnet_id, existing.get(subnet_id))
        for kind in needed_subnets(cluster)
        for subnet_id in cluster[f"{kind}_subnet_ids"]
    ]


def _subnets_by_zone(facts: AccountFacts, cluster: Cluster) -> dict[str, dict[str, str]]:
    by_zone: dict[str, dict[str, str]] = {}
    for subnet in _requested_subnets(facts, cluster):
        if subnet.described and subnet.described["VpcId"] == cluster["vpc_id"]:
            by_zone.setdefault(str(subnet.described["AvailabilityZone"]), {})[subnet.kind] = subnet.id
    return by_zone


def _complete_zones(facts: AccountFacts, cluster: Cluster) -> dict[str, dict[str, str]]:
    needed = set(needed_subnets(cluster))
    return {zone: subnets for zone, subnets in _subnets_by_zone(facts, cluster).items() if needed <= set(subnets)}


def check_vpc(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    yield from _check_place_of_master(facts, cluster)
    if facts.vpcs is None:
        return
    if cluster["vpc_id"]:
        yield from _check_external_vpc(facts, cluster)
    elif facts.vpcs and facts.vpcs[0]["CidrBlock"] != cluster["vpc_cidr"]:
        block = facts.vpcs[0]["CidrBlock"]
        problem = f"the cluster's network has {block}, which cannot be changed: keep it, or destroy first"
        yield setting_problem("vpc_cidr", cluster["vpc_cidr"], problem, block)
    else:
        yield from _check_own_addresses(cluster)


def _groups(facts: AccountFacts) -> dict[str, Item]:
    return {str(group["AutoScalingGroupName"]): group for group in facts.groups or ()}


def _check_place_of_master(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    """Refuse to move an existing master between the subnets."""
    groups, names = _groups(facts), Names(cluster["name"])
    master, workers = groups.get(names.master_group, {}), groups.get(names.workers_group, {})
    if not master.get("Instances") or not workers:
        return
    is_public = master.get("VPCZoneIdentifier") != workers.get("VPCZoneIdentifier")
    if is_public != cluster["public"]:
        place = "public" if is_public else "private"
        problem = f"the cluster's master is in the {place} subnet and does not move: keep it there, or destroy first"
        yield setting_problem("public", cluster["public"], problem, is_public)


def _machines_in(kind: str, cluster: Cluster) -> dict[str, int]:
    """Return how many machines of each role are in a subnet. Each uses one address, with EFA as well."""
    workers = cluster["worker_count"] if kind == "private" else 0
    return {MASTER: int(kind == needed_subnets(cluster)[0]), WORKER: workers}


def _check_own_addresses(cluster: Cluster) -> Iterator[Finding]:
    for kind, block in zip(("public", "private"), halves(cluster["vpc_cidr"])):
        room = IPv4Network(block).num_addresses - RESERVED_ADDRESSES
        # One more is the NAT gateway's, or the mount target's.
        need = sum(_machines_in(kind, cluster).values()) + 1
        if room < need:
            problem = f"its half {block}, the {kind} subnet, has room for {room} addresses, and {need} are needed"
            yield setting_problem("vpc_cidr", cluster["vpc_cidr"], problem, "10.0.0.0/16")


def _check_free_addresses(subnet: _Subnet, facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    existing = {name: len(group.get("Instances") or ()) for name, group in _groups(facts).items()}
    names = Names(cluster["name"]).groups
    machines = _machines_in(subnet.kind, cluster)
    need = sum(max(count - existing.get(names[role], 0), 0) for role, count in machines.items())
    if subnet.kind == "private" and not facts.mount_targets:
        need += 1
    free = int((subnet.described or {}).get("AvailableIpAddressCount", need))
    if free < need:
        problem = f"it has {free} free addresses, and {need} are needed: take a larger subnet, or fewer workers"
        yield setting_problem(f"{subnet.kind}_subnet_ids", subnet.id, problem)


def _check_external_vpc(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    if not facts.vpcs:
        yield setting_problem("vpc_id", cluster["vpc_id"], f"{facts.region} has no such VPC in this account")
        return
    findings = [finding for subnet in _requested_subnets(facts, cluster) for finding in _check(subnet, facts, cluster)]
    yield from findings
    by_zone = _subnets_by_zone(facts, cluster)
    if by_zone and not findings and not _complete_zones(facts, cluster):
        shown = [f"{subnet} in {zone}" for zone, pair in sorted(by_zone.items()) for subnet in pair.values()]
        yield Finding(
            f"No zone has both a public and a private one of the given subnets ({join_names(shown)}): the cluster is "
            "in one, so give one of each in the same."
        )


def _check(subnet: _Subnet, facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    setting, vpc_id = f"{subnet.kind}_subnet_ids", cluster["vpc_id"]
    if subnet.described is None:
        yield setting_problem(setting, subnet.id, f"{facts.region} has no such subnet in this account")
        return
    if subnet.described["VpcId"] != vpc_id:
        problem = f"it belongs to {subnet.described['VpcId']} and not to {vpc_id}"
        yield setting_problem(setting, subnet.id, problem)
        return
    if facts.route_tables:
        target = default_route_target(subnet.id, facts.route_tables)
        yield from _check_route(subnet, target)
        if subnet.kind == "private" and not target:
            yield from _check_without_route(subnet, facts, cluster)
    yield from _check_free_addresses(subnet, facts, cluster)


def _check_route(subnet: _Subnet, target: str) -> Iterator[Finding]:
    if subnet.kind == "public" and not target.startswith("igw-"):
        how = f"has its default route to {target}" if target else "has no default route"
        problem = f"it {how}, and the master needs one with an internet gateway"
        yield setting_problem("public_subnet_ids", subnet.id, problem)
    if subnet.kind == "private" and target.startswith("igw-"):
        problem = f"it is a public one (its default route leads to {target}), and its machines have no public addresses"
        yield setting_problem("private_subnet_ids", subnet.id, problem)


def _check_without_route(subnet: _Subnet, facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    """Without a route to the internet, machines need endpoints, and the image all that would be installed."""
    nat = "add a default route to a NAT gateway"
    lacking = [name for name in ENDPOINTS if not _has_endpoint(name, subnet.id, facts)]
    described = (facts.image.described or [{}])[0]
    if lacking:
        problem = f"it has no default route, and no VPC endpoint of {join_names(lacking)}: {nat}, or these endpoints"
    elif not images.matches(described, images.OWN_NEW_PYTHON):
        problem = (
            f"it has no default route, and the image {described.get('Name') or cluster['image']} shows no Python 3.11 "
            f"or newer of its own, which could not be installed: {nat}, or take another image"
        )
    else:
        yield note(
            f"{subnet.id} has no default route, so its machines reach no package index: the image must contain the "
            "packages and frameworks, or lead pip and the package manager to indexes in your network."
        )
        return
    yield setting_problem("private_subnet_ids", subnet.id, problem)


def _has_endpoint(service: str, subnet_id: str, facts: AccountFacts) -> bool:
    """Return whether machines in a subnet reach a service of AWS under its usual name."""
    table = _route_table(subnet_id, facts.route_tables or ())
    for endpoint in facts.endpoints or ():
        if endpoint["ServiceName"].endswith(f".{facts.region}.{service}") and endpoint["State"] == "available":
            if endpoint["VpcEndpointType"] == "Gateway" and table.get("RouteTableId") in endpoint["RouteTableIds"]:
                return True
            if endpoint["VpcEndpointType"] == "Interface" and endpoint.get("PrivateDnsEnabled"):
                return True
    return False


def default_route_target(subnet_id: str, tables: Sequence[Item]) -> str:
    """Return the target of a subnet's default route, such as igw-…; empty if it has none."""
    for route in _route_table(subnet_id, tables).get("Routes") or ():
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State", "active") == "active":
            ways = ("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "VpcPeeringConnectionId")
            return next((str(route[way]) for way in ways if route.get(way)), "elsewhere")
    return ""


def _route_table(subnet_id: str, tables: Sequence[Item]) -> Item:
    """Return a subnet's route table: without one of its own it is the VPC's main one."""
    own = main = None
    for table in tables:
        for association in table.get("Associations") or ():
            if association.get("SubnetId") == subnet_id:
                own = table
            elif association.get("Main"):
                main = table
    return own or main or {}


def check_security_groups(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    if facts.security_groups is None:
        return
    vpc_id = vpc_of_plan(facts, cluster)["id"]
    vpcs = {group["GroupId"]: group["VpcId"] for group in facts.security_groups}
    for group_id in cluster["security_group_ids"]:
        if group_id not in vpcs:
            problem = f"{facts.region} has no such security group in this account"
        elif not vpc_id:
            problem = (
                f"it belongs to {vpcs[group_id]}, and the cluster gets a network of its own: make the cluster in that "
                f"VPC (-e cluster_vpc_id={vpcs[group_id]} and its subnets)"
            )
        elif vpcs[group_id] != vpc_id:
            problem = f"it belongs to {vpcs[group_id]}, and the cluster is in {vpc_id}"
        else:
            continue
        yield setting_problem("security_group_ids", group_id, problem)


def file_system_of_plan(facts: AccountFacts, cluster: Cluster) -> dict[str, Any]:
    """Return the user's own file system, or the one with the cluster's tag; its id is empty if there is none yet."""
    system = facts.file_systems[0] if facts.file_systems else {}
    return {
        "id": system.get("FileSystemId", ""),
        "external": bool(cluster["efs_id"]),
        "zone": system.get("AvailabilityZoneName") or "",
        "throughput": throughput_mode_of(system, cluster["efs_throughput"], bool(cluster["efs_id"])),
        "mount_targets": [
            {
                "id": target["MountTargetId"],
                "zone": target.get("AvailabilityZoneName", ""),
                "subnet_id": target["SubnetId"],
                "address": target.get("IpAddress", ""),
            }
            for target in facts.mount_targets or ()
        ],
    }


def check_file_system(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    requested = cluster["efs_id"]
    if facts.file_systems == [] and requested:
        yield setting_problem("efs_id", requested, f"{facts.region} has no such file system in this account")
    if not facts.file_systems:
        return
    if len(facts.file_systems) > 1:
        ids = sorted(str(system["FileSystemId"]) for system in facts.file_systems)
        yield Finding(
            f"The file systems {join_names(ids)} all have this cluster's tag: choose the one to use (-e "
            f"cluster_efs_id={ids[0]}). To look at them: aws efs describe-file-systems --region {facts.region}. "
            "site.yml never deletes a file system. destroy.yml keeps all of them, and with -e cluster_keep_efs=false "
            "it deletes all of them, with what is stored."
        )
    system = facts.file_systems[0]
    if requested and system.get("LifeCycleState") not in ("available", "updating"):
        problem = f"the file system is {system.get('LifeCycleState')} and not available"
        yield setting_problem("efs_id", requested, problem)
    yield from _check_throughput(system, cluster)
    vpc_id = vpc_of_plan(facts, cluster)["id"]
    vpcs = {str(target["VpcId"]) for target in facts.mount_targets or () if target.get("VpcId")}
    others = sorted(vpcs - {vpc_id})
    if others:
        where = f"the cluster is in {vpc_id}" if vpc_id else "the cluster gets a network of its own"
        yield Finding(
            f"The file system {system['FileSystemId']} has mount targets in {join_names(others)}, and {where}: it can "
            f"have them in one VPC only. Make the cluster in that VPC (-e cluster_vpc_id={others[0]} and its subnets), "
            "or delete them."
        )


def _check_throughput(system: Item, cluster: Cluster) -> Iterator[Finding]:
    """Print a note if the setting of the throughput mode does not apply, because the file system is the user's own."""
    current, chosen = system.get("ThroughputMode", ""), cluster["efs_throughput"]
    if cluster["efs_id"] and chosen and current != chosen:
        yield note(
            f"cluster_efs_throughput is {chosen}, but the file system {system['FileSystemId']} keeps its throughput "
            f"mode ({current or 'not known'}), because cluster_efs_id names it. To change it: aws efs "
            f"update-file-system --file-system-id {system['FileSystemId']} --throughput-mode {chosen}"
        )


def throughput_change(facts: AccountFacts, cluster: Cluster) -> list[str]:
    """Return the change of the cluster's own file system as a line of text, if there is one."""
    if not facts.file_systems:
        return []
    system = facts.file_systems[0]
    before = str(system.get("ThroughputMode", ""))
    after = throughput_mode_of(system, cluster["efs_throughput"], bool(cluster["efs_id"]))
    if before == after:
        return []
    return [f"throughput mode of file system {system['FileSystemId']} {before or 'not known'} → {after}"]


def _limits(facts: AccountFacts, cluster: Cluster) -> Iterator[tuple[list[str], str]]:
    """Return each group of zones that something confines the cluster to, and why."""
    instances = [instance for group in facts.groups or () for instance in group.get("Instances") or ()]
    for zone in sorted({str(instance["AvailabilityZone"]) for instance in instances})[:1]:
        yield [zone], f"the cluster's machines are in {zone} and do not move"
    subnets = sorted(vpc_of_plan(facts, cluster)["subnets"])
    if subnets:
        yield subnets, f"the given subnets are in {join_names(subnets)}"
    efs = file_system_of_plan(facts, cluster)
    if efs["zone"]:
        yield [efs["zone"]], f"the file system {efs['id']} is in {efs['zone']} alone"


def choose_zones(facts: AccountFacts, cluster: Cluster) -> tuple[list[str], list[Finding]]:
    """Return the zones to try, in order, and why there are none, or which do not exist.

    They offer the types, and have the existing machines, the user's subnets and a file system of a single zone.
    """
    if facts.zones is None or facts.offers is None:
        return [], []
    findings = []
    ordered = sorted(facts.zones, key=lambda zone: (zone.get("ZoneId") in LIMITED_ZONES, str(zone["ZoneName"])))
    existing = [str(zone["ZoneName"]) for zone in ordered]
    setting = cluster["availability_zones"]
    unknown = [zone for zone in setting if zone not in existing]
    if unknown:
        problem = f"{facts.region} has {join_names(existing)}"
        findings.append(setting_problem("availability_zones", unknown, problem, existing[:2]))
    requested = [zone for zone in setting if zone in existing] if setting else existing
    offered = {(str(offer["InstanceType"]), str(offer["Location"])) for offer in facts.offers}
    # A type that does not exist has been reported already.
    fit = [zone for zone in existing if all((name, zone) in offered for name in facts.types or ())]
    left = [zone for zone in requested if zone in fit]
    if requested and not left and facts.types:
        findings.append(_no_zone_offers(facts, cluster, requested, fit))
    for allowed, why in _limits(facts, cluster):
        before, left = left, [zone for zone in left if zone in allowed]
        if before and not left:
            text = f"The cluster cannot be in {join_names(before)}, although the instance types are available there"
            findings.append(Finding(f"{text}: {why}."))
    return left, findings


def _no_zone_offers(facts: AccountFacts, cluster: Cluster, requested: Sequence[str], fit: Sequence[str]) -> Finding:
    types = " and ".join(sorted(facts.types or ()))
    if fit:
        problem = f"none of them has {types}, which {join_names(fit)} have"
        return setting_problem("availability_zones", requested, problem, fit[:2])
    problem = f"no zone of {facts.region} offers {types}: choose other types"
    return setting_problem("instance_type", cluster["instance_type"], problem)
