"""moto's records of EC2, and how they are looked up."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from moto.backends import get_backend

from localcloud.api.ec2 import patches  # noqa: F401 - applies what is mended in moto
from localcloud.core.kinds import KINDS
from localcloud.core.settings import ACCOUNT
from localcloud.core.words import aws_error


def backend_of(region: str) -> Any:
    """moto's records of a region."""
    return get_backend("ec2")[ACCOUNT][region]


@functools.cache
def regions() -> frozenset[str]:
    """Return the names of all regions."""
    return frozenset(get_backend("ec2")[ACCOUNT].regions)


def backends_in_use() -> list[tuple[str, Any]]:
    """Return the regions that have been used; moto creates the records of others when they are read."""
    regions: dict[str, Any] = get_backend("ec2")[ACCOUNT]
    return list(regions.items())


def zones_of(region: str) -> list[Any]:
    return list(backend_of(region).describe_availability_zones())


def new_id(prefix: str) -> str:
    return f"{prefix}-0{secrets.token_hex(8)}"


def spelled(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


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
    raise KINDS["subnet"].not_found(subnet_id)


def internet_gateway_of(backend: Any, vpc_id: str) -> Any:
    """Return the internet gateway that is attached to a VPC, or None."""
    gateways = backend.internet_gateways.values()
    return next((gateway for gateway in gateways if gateway.vpc is not None and gateway.vpc.id == vpc_id), None)


def interface_named(backend: Any, interface_id: str) -> Any:
    if interface_id not in backend.enis:
        raise KINDS["eni"].not_found(interface_id)
    return backend.enis[interface_id]


def group_named(backend: Any, group_id: str, vpc_id: str) -> Any:
    for of_vpc, groups in backend.groups.items():
        if group_id in groups:
            if of_vpc != vpc_id:
                raise aws_error("ec2:RunInstances", "InvalidParameter", group=group_id)
            return groups[group_id]
    raise KINDS["sg"].not_found(group_id)
