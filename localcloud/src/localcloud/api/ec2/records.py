"""What is kept of EC2 in addition to moto's records."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from localcloud.api.ec2.instance import Instance
from localcloud.core.cloud import Call, Cloud
from localcloud.core.errors import AwsError
from localcloud.core.settings import PUBLIC_NETWORK
from localcloud.core.words import aws_error

SHOWN_AFTER_DEATH = 3600.0
"""AWS goes on listing terminated instances and deleted NAT gateways for about an hour."""


class PublicAddresses:
    """The one pool of public addresses, for all regions: lowest free first, but a freed one is not reused at once, as
    long as there are others (ssh would complain of a changed host key)."""

    def __init__(self) -> None:
        network = ipaddress.ip_network(PUBLIC_NETWORK)
        reserved = {network[0], network[1], network[2], network[-1]}
        self._free = [str(address) for address in network if address not in reserved]
        self._unreal = 0

    @property
    def left(self) -> int:
        return len(self._free)

    def take(self) -> str | None:
        return self._free.pop(0) if self._free else None

    def give_back(self, address: str) -> None:
        if ipaddress.ip_address(address) in ipaddress.ip_network(PUBLIC_NETWORK) and address not in self._free:
            self._free.append(address)

    def take_unreal(self) -> str:
        """For API-only instances, which nothing can reach: from another documentation range, over and over."""
        self._unreal = self._unreal % 254 + 1
        return f"203.0.113.{self._unreal}"


@dataclass(frozen=True)
class PlacementGroup:
    id: str
    name: str
    region: str
    strategy: str


def no_public_addresses() -> AwsError:
    return AwsError(
        "InsufficientAddressCapacity", "Not enough available public addresses to satisfy your request.", 500
    )


@dataclass
class Ec2Records:
    instances: dict[str, Instance] = field(default_factory=dict)
    """of all regions, the terminated ones included while they are shown"""
    public: PublicAddresses = field(default_factory=PublicAddresses)
    placement_groups: dict[tuple[str, str], PlacementGroup] = field(default_factory=dict)
    """by region and name"""
    tokens: dict[tuple[str, ...], Any] = field(default_factory=dict)
    """what was made for a client token, so that a repeated call makes nothing"""
    listeners: list[Callable[[Instance], None]] = field(default_factory=list)


def once(call: Call, exists: Callable[[Any], bool], make: Callable[[], Any]) -> Any:
    """Return what an earlier call with the same client token has made, if it exists; otherwise make it."""
    tokens, client_token = records_of(call.cloud).tokens, call.params.get("ClientToken")
    key = call.operation, call.region, str(client_token)
    if client_token and key in tokens and exists(tokens[key]):
        return tokens[key]
    made = make()
    if client_token:
        tokens[key] = made
    return made


def records_of(cloud: Cloud) -> Ec2Records:
    records: Ec2Records = cloud.records("ec2", Ec2Records)
    return records


def now(cloud: Cloud) -> datetime:
    return datetime.fromtimestamp(int(cloud.clock.time()), UTC)


def instance_of(cloud: Cloud, region: str, instance_id: str) -> Instance:
    return instances_named(cloud, region, [instance_id])[0]


def instances_named(cloud: Cloud, region: str, ids: Iterable[str]) -> list[Instance]:
    """Return the instances with these ids, or raise AWS's error."""
    existing = records_of(cloud).instances
    requested = [str(instance_id) for instance_id in dict.fromkeys(ids)]
    for instance_id in requested:
        if not instance_id.startswith("i-") or not instance_id[2:].isalnum():
            raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
    missing = [key for key in requested if key not in existing or existing[key].region_name != region]
    if len(missing) > 1:
        raise aws_error("ec2:*", "InvalidInstanceID.NotFound", ids=", ".join(missing))
    if missing:
        raise aws_error("ec2:*", "InvalidInstanceID.NotFound", id=missing[0])
    return [existing[key] for key in requested]


def instances_in(cloud: Cloud, region: str) -> list[Instance]:
    return [instance for instance in records_of(cloud).instances.values() if instance.region_name == region]
