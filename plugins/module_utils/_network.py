# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What exists of a cluster's network, found by its tags alone.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.deeplearning.aws.plugins.module_utils._names import CLUSTER_TAG, tag_filter, tags_of

if TYPE_CHECKING:
    from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws

OURS = "deeplearning: ssh from cluster_ssh_location"
"""The description of the rules that the settings have made, by which they are told from those made by hand."""

_LIVING = ("pending", "available")


def network_of(aws: Aws, cluster: str) -> dict[str, Any]:
    """Everything by what it is called (the tag Name less the cluster's name), with what is needed to see to it."""
    ours = [tag_filter(CLUSTER_TAG, cluster)]

    def listed(operation: str, key: str) -> list[Any]:
        return aws.pages("ec2", operation, key, Filters=ours)

    gateways = aws.pages("ec2", "describe_nat_gateways", "NatGateways", Filter=ours)
    groups = listed("describe_security_groups", "SecurityGroups")
    return {
        "vpcs": [{"id": one["VpcId"], "cidr": one["CidrBlock"]} for one in listed("describe_vpcs", "Vpcs")],
        "internet_gateways": [
            {"id": one["InternetGatewayId"], "vpc_id": _vpc_of_gateway(one)}
            for one in listed("describe_internet_gateways", "InternetGateways")
        ],
        "subnets": by_name(
            cluster,
            listed("describe_subnets", "Subnets"),
            {"id": "SubnetId", "vpc_id": "VpcId", "zone": "AvailabilityZone", "cidr": "CidrBlock"},
        ),
        "route_tables": by_name(
            cluster, listed("describe_route_tables", "RouteTables"), {"id": "RouteTableId", "vpc_id": "VpcId"}
        ),
        "nat_gateways": [
            {"id": one["NatGatewayId"], "subnet_id": one.get("SubnetId", ""), "state": one["State"]}
            for one in gateways
            if one["State"] in (*_LIVING, "deleting")
        ],
        "addresses": by_name(
            cluster,
            listed("describe_addresses", "Addresses"),
            {"id": "AllocationId", "public_ip": "PublicIp", "instance_id": "InstanceId"},
        ),
        "endpoints": [
            {"id": one["VpcEndpointId"], "vpc_id": one["VpcId"], "route_tables": list(one.get("RouteTableIds") or ())}
            for one in listed("describe_vpc_endpoints", "VpcEndpoints")
            if str(one.get("State", "available")).lower() in _LIVING
        ],
        "security_groups": {
            one["GroupName"].removeprefix(f"{cluster}-"): {"id": one["GroupId"], "vpc_id": one["VpcId"]}
            for one in groups
        },
        "ssh_rules_by_hand": [
            rule
            for one in groups
            if one["GroupName"] == f"{cluster}-ssh"
            for rule in rules_by_hand(one["IpPermissions"])
        ],
    }


def by_name(cluster: str, listed: Iterable[Mapping[str, Any]], wanted: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """These attributes of each, by the tag Name less the cluster's name."""
    return {
        tags_of(one.get("Tags")).get("Name", "").removeprefix(f"{cluster}-"): {
            ours: one.get(theirs, "") for ours, theirs in wanted.items()
        }
        for one in listed
    }


def _vpc_of_gateway(listed: Mapping[str, Any]) -> str:
    attached = listed.get("Attachments") or [{}]
    return str(attached[0].get("VpcId", ""))


def rules_by_hand(permissions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those that somebody has added, as amazon.aws.ec2_security_group takes them."""
    found: list[dict[str, Any]] = []
    for one in permissions:
        what: dict[str, Any] = {"proto": "all" if one["IpProtocol"] == "-1" else one["IpProtocol"]}
        if "FromPort" in one:
            what |= {"from_port": one["FromPort"], "to_port": one["ToPort"]}
        for key, source, sources in _SOURCES:
            found += [_rule(what, key, entry[source], entry) for entry in _foreign(one.get(sources))]
    return found


_SOURCES: Sequence[tuple[str, str, str]] = (
    ("cidr_ip", "CidrIp", "IpRanges"),
    ("cidr_ipv6", "CidrIpv6", "Ipv6Ranges"),
    ("group_id", "GroupId", "UserIdGroupPairs"),
    ("ip_prefix", "PrefixListId", "PrefixListIds"),
)


def _foreign(entries: Iterable[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    return [entry for entry in entries or () if entry.get("Description") != OURS]


def _rule(what: Mapping[str, Any], key: str, source: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    described = {"rule_desc": entry["Description"]} if entry.get("Description") else {}
    return {**what, key: [source], **described}


def ssh_rules(locations: Iterable[str], by_hand: Iterable[Mapping[str, Any]], exact: bool) -> list[dict[str, Any]]:
    """What the security group shall let in: the locations, and what was added by hand unless it has to go."""
    rules: list[dict[str, Any]] = [
        {
            "proto": "tcp",
            "from_port": 22,
            "to_port": 22,
            "cidr_ipv6" if ":" in location else "cidr_ip": [location],
            "rule_desc": OURS,
        }
        for location in dict.fromkeys(locations)
    ]
    known = [_bare(rule) for rule in rules]
    return rules if exact else rules + [dict(rule) for rule in by_hand if _bare(rule) not in known]


def _bare(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if key != "rule_desc"}
