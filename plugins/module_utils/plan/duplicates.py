# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Decide which duplicates of NAT gateways and Elastic IP addresses may be deleted.

Two runs of site.yml of an older version, at the same time, left a NAT gateway and an address too many. Only those that
nothing uses may be deleted, and only after the operator has named them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..aws.resource_ids import kind_of_id
from ..contract.names import Names, tags_of
from ..contract.run_cost import phrase
from ..contract.tables import join_names
from . import offers
from .facts import AccountFacts, Cluster, Item
from .findings import Finding, note
from .prices import PriceList

OPTION = "remove_duplicates"
_LIVING = ("pending", "available")
_GOING = ("deleting",)


@dataclass(frozen=True)
class Duplicate:
    """A resource of which the cluster has more than one."""

    kind: str
    """nat_gateway or address"""
    id: str
    public_ip: str = ""
    """Of an address."""
    users: Sequence[str] = ()
    """What uses it, in words."""


@dataclass(frozen=True)
class Group:
    """All resources of which the cluster may have one only."""

    label: str
    members: Sequence[Duplicate]

    @property
    def used(self) -> list[Duplicate]:
        return [member for member in self.members if member.users]

    @property
    def unused(self) -> list[Duplicate]:
        return [member for member in self.members if not member.users]

    @property
    def is_undecidable(self) -> bool:
        """Return whether several are used, so that none of these may be deleted."""
        return len(self.used) > 1


@dataclass(frozen=True)
class Decision:
    groups: Sequence[Group]
    """Those with more than one member."""
    removable: Sequence[Duplicate]
    """All that may be deleted. If nothing uses any member of a group, they are all of it, and one has to stay."""
    suggested: Sequence[Duplicate]
    """Those of them to delete, so that one member of each group is left."""


def decide(facts: AccountFacts, cluster: Cluster, named: Sequence[str]) -> Decision:
    """Return which resources are duplicates, and which of these may be deleted.

    `named`: the ids that the operator has named. An address is free when the NAT gateways that use it are deleted.
    """
    living = _gateways(facts, _LIVING)
    # In a VPC of the user's own, the NAT gateways are theirs, whatever tags they have.
    replaceable = [] if cluster["vpc_id"] else living
    gateways = Group("NAT gateways", _gateway_members(replaceable, facts.nat_route_tables or ()))
    leaving = {gateway.id for gateway in _choose(gateways, named)}
    leaving |= {str(gateway["NatGatewayId"]) for gateway in _gateways(facts, _GOING)}
    addresses = [
        Group(f"Elastic IP addresses called {name}", _address_members(facts, name, leaving))
        for name in (Names(cluster["name"]).of("nat"), Names(cluster["name"]).of("master"))
    ]
    removable: list[Duplicate] = []
    suggested: list[Duplicate] = []
    groups = [group for group in (gateways, *addresses) if len(group.members) > 1]
    for group in groups:
        removable += group.unused
        suggested += _choose(group, named)
    return Decision(groups, removable, suggested)


def _gateways(facts: AccountFacts, states: Sequence[str]) -> list[Item]:
    """Return the NAT gateways in these states. An id of another form than AWS's would end up in a command."""
    return [
        gateway
        for gateway in facts.nat_gateways or ()
        if gateway.get("State") in states and kind_of_id(str(gateway["NatGatewayId"])) == "nat_gateway"
    ]


def _gateway_members(gateways: Iterable[Item], tables: Sequence[Item]) -> list[Duplicate]:
    """Return the NAT gateways, the oldest first, with the route tables that use them."""
    by_age = sorted(gateways, key=lambda gateway: (str(gateway.get("CreateTime", "")), str(gateway["NatGatewayId"])))
    members = []
    for gateway in by_age:
        gateway_id = str(gateway["NatGatewayId"])
        users = [f"route table {table['RouteTableId']}" for table in tables if _leads_to(table, gateway_id)]
        members.append(Duplicate("nat_gateway", gateway_id, users=users))
    return members


def _leads_to(table: Item, gateway_id: str) -> bool:
    return any(route.get("NatGatewayId") == gateway_id for route in table.get("Routes") or ())


def _address_members(facts: AccountFacts, name: str, leaving: Iterable[str]) -> list[Duplicate]:
    """Return the addresses with a name. `leaving`: NAT gateways that do not count as users."""
    members = []
    for address in facts.addresses or ():
        address_id = str(address["AllocationId"])
        if tags_of(address.get("Tags")).get("Name") == name and kind_of_id(address_id) == "address":
            users = _users_of_address(address, facts.nat_gateways or (), frozenset(leaving))
            members.append(Duplicate("address", address_id, str(address.get("PublicIp", "")), users))
    return sorted(members, key=lambda member: member.id)


def _users_of_address(address: Item, gateways: Sequence[Item], leaving: frozenset[str]) -> list[str]:
    holders = [gateway for gateway in gateways if gateway.get("State") in (*_LIVING, *_GOING)]
    holders = [gateway for gateway in holders if _has_address(gateway, address)]
    if holders:
        staying = [str(gateway["NatGatewayId"]) for gateway in holders if gateway["NatGatewayId"] not in leaving]
        return [f"NAT gateway {gateway_id}" for gateway_id in staying]
    if address.get("InstanceId"):
        return [f"instance {address['InstanceId']}"]
    if address.get("NetworkInterfaceId"):
        return [f"network interface {address['NetworkInterfaceId']}"]
    if address.get("AssociationId"):
        return [f"association {address['AssociationId']}"]
    return []


def _has_address(gateway: Item, address: Item) -> bool:
    return any(
        item.get("AllocationId") == address["AllocationId"] for item in gateway.get("NatGatewayAddresses") or ()
    )


def _choose(group: Group, named: Sequence[str]) -> list[Duplicate]:
    """Return the members to delete. If nothing uses any member, the first one that the operator has not named stays."""
    if len(group.members) < 2:
        return []
    if group.used:
        return group.unused
    keep = next((member for member in group.members if member.id not in named), group.members[0])
    return [member for member in group.members if member is not keep]


def check(facts: AccountFacts, cluster: Cluster, named: Sequence[str]) -> Iterator[Finding]:
    """Refuse to go on with duplicates that the operator has not named, and ids that name something else."""
    yield from _check_vpcs(facts, cluster)
    decision = decide(facts, cluster, named)
    for group in decision.groups:
        if group.is_undecidable:
            yield _undecidable(group, facts.region)
    removable = {duplicate.id for duplicate in decision.removable}
    suggested = {duplicate.id for duplicate in decision.suggested}
    refused = [name for name in named if name not in removable and name in facts.existing_duplicates]
    refused += [name for name in named if name in removable - suggested]
    if refused:
        allowed = join_names([duplicate.id for duplicate in decision.suggested]) or "none"
        yield Finding(
            f"{OPTION} names {join_names(refused)}, and only duplicates that nothing uses can be deleted, as long as "
            f"one of each kind stays: {allowed}. Nothing was deleted."
        )
    elif suggested - set(named):
        yield _unconfirmed(decision, facts)
    for name in named:
        if name not in removable and name not in facts.existing_duplicates:
            yield note(f"{OPTION} names {name}, which does not exist any more.")


def _check_vpcs(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    vpcs = sorted(str(vpc["VpcId"]) for vpc in facts.vpcs or ())
    if cluster["vpc_id"] or len(vpcs) < 2:
        return
    yield Finding(
        f"The VPCs {join_names(vpcs)} all have this cluster's tag and name, and site.yml never deletes a VPC. To see "
        f"what is in them: aws ec2 describe-network-interfaces --region {facts.region} --filters "
        f"Name=vpc-id,Values={','.join(vpcs)}. destroy.yml would delete all of them, with the machines in them."
    )


def _undecidable(group: Group, region: str) -> Finding:
    used = join_names([f"{member.id} ({join_names(member.users)})" for member in group.used])
    text = f"The cluster has {len(group.members)} {group.label}, and more than one of them is used: {used}. "
    if group.members[0].kind == "nat_gateway":
        kept = group.used[0].id
        text += (
            "Choose the one that stays, and lead all routes to it. Example: aws ec2 replace-route --region "
            f"{region} --route-table-id rtb-0123456789abcdef0 --destination-cidr-block 0.0.0.0/0 --nat-gateway-id "
            f"{kept}. Then run the playbook again: it names the one that is not used any more."
        )
    else:
        ids = " ".join(member.id for member in group.used)
        text += (
            f"To see what they are used for: aws ec2 describe-addresses --region {region} --allocation-ids {ids}. "
            "Choose the one that stays, and take the other one off what uses it (aws ec2 disassociate-address). Then "
            "run the playbook again: it names the one that is not used any more."
        )
    return Finding(text)


def _unconfirmed(decision: Decision, facts: AccountFacts) -> Finding:
    suggested = decision.suggested
    shown = join_names([describe(duplicate, facts.prices) for duplicate in suggested])
    ids = ",".join(duplicate.id for duplicate in suggested)
    playbook = "site" if facts.emr is None else "emr"
    look = "; ".join(_look_commands(suggested, facts.region))
    text = (
        f"The cluster has duplicates, as two runs of site.yml at the same time can leave them: {shown}. They cost "
        f"money, and nothing that stays uses them. To delete them and go on: ansible-playbook "
        f"deeplearning.aws.{playbook} -e {OPTION}={ids}. To look at them first: {look}."
    )
    for group in decision.groups:
        if not group.used:
            kept = next(member.id for member in group.members if member not in suggested)
            text += (
                f" None of the {group.label} is used ({join_names([member.id for member in group.members])}): {kept} "
                "would stay. To keep another one, name the others."
            )
    return Finding(text)


def _look_commands(duplicates: Sequence[Duplicate], region: str) -> list[str]:
    gateways = [duplicate.id for duplicate in duplicates if duplicate.kind == "nat_gateway"]
    addresses = [duplicate.id for duplicate in duplicates if duplicate.kind == "address"]
    commands = []
    if gateways:
        ids = " ".join(gateways)
        commands.append(f"aws ec2 describe-nat-gateways --region {region} --nat-gateway-ids {ids}")
    if addresses:
        ids = " ".join(addresses)
        commands.append(f"aws ec2 describe-addresses --region {region} --allocation-ids {ids}")
    return commands


def describe(duplicate: Duplicate, prices: PriceList) -> str:
    """Return a duplicate as text, with what it costs an hour."""
    if duplicate.kind == "nat_gateway":
        return f"NAT gateway {duplicate.id} ({phrase(prices.amount(offers.NAT_GATEWAY))})"
    return f"Elastic IP address {duplicate.id} ({duplicate.public_ip}, {phrase(prices.amount(offers.ADDRESS))})"


def to_remove(facts: AccountFacts, cluster: Cluster, named: Sequence[str]) -> dict[str, Any]:
    """Return what the role network deletes: the duplicates that may be deleted and that the operator has named."""
    confirmed = [duplicate for duplicate in decide(facts, cluster, named).suggested if duplicate.id in named]
    gateways = [duplicate for duplicate in confirmed if duplicate.kind == "nat_gateway"]
    addresses = [duplicate for duplicate in confirmed if duplicate.kind == "address"]
    return {
        "nat_gateways": [duplicate.id for duplicate in gateways],
        "addresses": [{"id": duplicate.id, "public_ip": duplicate.public_ip} for duplicate in addresses],
        "lines": [describe(duplicate, facts.prices) for duplicate in confirmed],
    }
