"""What the EC2 extension keeps beside moto's records, and how both are looked up."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.backends import get_backend

from localcloud.api import ec2_moto as _mended  # noqa: F401
from localcloud.cloud import Cloud
from localcloud.errors import AwsError
from localcloud.settings import ACCOUNT, PUBLIC_NETWORK

if TYPE_CHECKING:
    from localcloud.api.ec2_instance import Instance
    from localcloud.api.ec2_placement import PlacementGroup

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

    def take(self) -> str | None:
        return self._free.pop(0) if self._free else None

    def give_back(self, address: str) -> None:
        if ipaddress.ip_address(address) in ipaddress.ip_network(PUBLIC_NETWORK) and address not in self._free:
            self._free.append(address)

    def take_unreal(self) -> str:
        """For API-only instances, which nothing can reach: from another documentation range, over and over."""
        self._unreal = self._unreal % 254 + 1
        return f"203.0.113.{self._unreal}"


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


def records_of(cloud: Cloud) -> Ec2Records:
    records: Ec2Records = cloud.records("ec2", Ec2Records)
    return records


def backend_of(region: str) -> Any:
    """moto's records of a region."""
    return get_backend("ec2")[ACCOUNT][region]


def backends_in_use() -> list[tuple[str, Any]]:
    """Regions that somebody has asked something of, so far; others are not conjured up."""
    regions: dict[str, Any] = get_backend("ec2")[ACCOUNT]
    return list(regions.items())


def zones_of(region: str) -> list[Any]:
    return list(backend_of(region).describe_availability_zones())


def new_id(prefix: str) -> str:
    return f"{prefix}-0{secrets.token_hex(8)}"


def now(cloud: Cloud) -> datetime:
    return datetime.fromtimestamp(int(cloud.clock.time()), UTC)


def spelled(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def instance_of(cloud: Cloud, region: str, instance_id: str) -> Instance:
    return instances_named(cloud, region, [instance_id])[0]


def instances_named(cloud: Cloud, region: str, ids: Iterable[str]) -> list[Instance]:
    """The instances with these ids, or AWS's refusal."""
    known = records_of(cloud).instances
    asked = [str(instance_id) for instance_id in dict.fromkeys(ids)]
    for instance_id in asked:
        if not instance_id.startswith("i-") or not instance_id[2:].isalnum():
            raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
    missing = [key for key in asked if key not in known or known[key].region_name != region]
    if missing:
        plural = f"IDs '{', '.join(missing)}' do" if len(missing) > 1 else f"ID '{missing[0]}' does"
        raise AwsError("InvalidInstanceID.NotFound", f"The instance {plural} not exist")
    return [known[key] for key in asked]


def instances_in(cloud: Cloud, region: str) -> list[Instance]:
    return [instance for instance in records_of(cloud).instances.values() if instance.region_name == region]


def tags_in(region: str, resource_id: str) -> Mapping[str, str]:
    tags: Mapping[str, str] = backend_of(region).tags.get(resource_id) or {}
    return tags


def set_tags(region: str, resource_id: str, tags: Mapping[str, str]) -> None:
    if tags:
        backend_of(region).create_tags([resource_id], dict(tags))


def subnets_in(backend: Any) -> Iterator[Any]:
    for of_zone in backend.subnets.values():
        yield from of_zone.values()


def groups_in(backend: Any) -> Iterator[Any]:
    for of_vpc in list(backend.groups.values()):
        yield from of_vpc.values()


def subnet_named(backend: Any, subnet_id: str) -> Any:
    for of_zone in backend.subnets.values():
        if subnet_id in of_zone:
            return of_zone[subnet_id]
    raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")


def internet_gateway_of(backend: Any, vpc_id: str) -> Any:
    """The internet gateway that is attached to a VPC, or None."""
    gateways = backend.internet_gateways.values()
    return next((gateway for gateway in gateways if gateway.vpc is not None and gateway.vpc.id == vpc_id), None)


def interface_named(backend: Any, interface_id: str) -> Any:
    if interface_id not in backend.enis:
        raise AwsError("InvalidNetworkInterfaceID.NotFound", f"The networkInterface ID '{interface_id}' does not exist")
    return backend.enis[interface_id]


def group_named(backend: Any, group_id: str, vpc_id: str) -> Any:
    for of_vpc, groups in backend.groups.items():
        if group_id in groups:
            if of_vpc != vpc_id:
                raise AwsError(
                    "InvalidParameter", f"Security group {group_id} and the subnet belong to different networks."
                )
            return groups[group_id]
    raise AwsError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
