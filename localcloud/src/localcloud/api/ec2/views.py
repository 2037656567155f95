"""The records for machines, network and metadata service. They are read straight from memory, as every call that
changes something needs them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from localcloud.api.ec2.instance import ALIVE, Instance
from localcloud.api.ec2.instance_types import gpus
from localcloud.api.ec2.instances import private_dns_of, public_dns_of
from localcloud.api.ec2.moto_records import backend_of, backends_in_use, groups_in, spelled, subnets_in
from localcloud.api.ec2.records import records_of
from localcloud.api.efs.file_systems import mount_target_views
from localcloud.core.cloud import Cloud
from localcloud.core.views import (
    InstanceView,
    MountTargetView,
    NatGatewayView,
    Permission,
    RouteView,
    SecurityGroupView,
    SubnetView,
    VpcView,
)


def find_instance(cloud: Cloud, instance_id: str) -> InstanceView | None:
    """Return an instance by its id in any region, also a terminated one that is still visible."""
    instance = records_of(cloud).instances.get(instance_id)
    return view_of(cloud, instance) if instance else None


def instance_views(cloud: Cloud) -> list[InstanceView]:
    """Return all visible instances of all regions, in the order of their launch."""
    return [view_of(cloud, instance) for instance in records_of(cloud).instances.values()]


def view_of(_cloud: Cloud, instance: Instance) -> InstanceView:
    interface = instance.nics.get(0)
    key = backend_of(instance.region_name).key_pairs.get(instance.key_name) if instance.key_name else None
    profile = instance.profile
    options = instance.metadata_options
    count, name, memory = gpus(instance.instance_type)
    return InstanceView(
        id=instance.id,
        region=instance.region_name,
        zone=str(instance.availability_zone),
        zone_id=interface.subnet.availability_zone_id if interface else "",
        type=instance.instance_type,
        image_id=instance.image_id,
        state=instance.state,
        vpc_id=interface.subnet.vpc_id if interface else "",
        subnet_id=interface.subnet.id if interface else "",
        private_ip=instance.private_ip or "",
        private_dns=private_dns_of(instance),
        public_ip=instance.public_ip,
        public_dns=public_dns_of(instance) if interface else "",
        mac=interface.mac_address if interface else "",
        security_groups=tuple(group.id for group in interface._group_set) if interface else (),
        security_group_names=tuple(group.name for group in interface._group_set) if interface else (),
        interface_id=interface.id if interface else "",
        launch_time=spelled(instance.launch_time),
        launch_index=instance.ami_launch_index,
        reservation_id=instance.reservation_id,
        key_name=instance.key_name,
        public_key=key.material_public.decode().strip() if key else None,
        user_data=base64.b64decode(instance.user_data or ""),
        profile_arn=profile.arn if profile else None,
        profile_id=profile.id if profile else None,
        login_user=instance.image.login_user,
        role_name=profile.roles[0].name if profile and profile.roles else None,
        role_arn=profile.roles[0].arn if profile and profile.roles else None,
        spot=instance.lifecycle == "spot",
        placement_group=instance.placement.group_name,
        http_tokens=options.http_tokens,
        hop_limit=options.http_put_response_hop_limit,
        http_endpoint=options.http_endpoint,
        tags_in_metadata=options.instance_metadata_tags == "enabled",
        gpus=count,
        gpu_name=name,
        gpu_memory_mib=memory,
        tags=dict(instance.tags),
        state_since=instance.state_since,
    )


def vpc_views(cloud: Cloud) -> list[VpcView]:
    """Every VPC of every region that has been used, with the instances that have machines."""
    instances: dict[str, list[InstanceView]] = {}
    for instance in records_of(cloud).instances.values():
        if instance.state in ALIVE and instance.nics and not instance.boots_nothing:
            instances.setdefault(str(instance.vpc_id), []).append(view_of(cloud, instance))
    targets: dict[str, list[MountTargetView]] = {}
    for target in mount_target_views(cloud):
        targets.setdefault(target.vpc_id, []).append(target)
    return [
        _vpc_view(region, backend, vpc, instances.get(vpc.id, []), targets.get(vpc.id, []))
        for region, backend in backends_in_use()
        for vpc in backend.vpcs.values()
    ]


def _vpc_view(
    region: str, backend: Any, vpc: Any, instances: list[InstanceView], targets: list[MountTargetView]
) -> VpcView:
    subnets = [subnet for subnet in subnets_in(backend) if subnet.vpc_id == vpc.id]
    return VpcView(
        id=vpc.id,
        region=region,
        cidrs=tuple(item["cidr_block"] for item in vpc.get_cidr_block_association_set(ipv6=False)),
        dns_support=_is_true(vpc.enable_dns_support),
        dns_hostnames=_is_true(vpc.enable_dns_hostnames),
        subnets=tuple(_subnet_view(backend, subnet) for subnet in subnets),
        security_groups=tuple(_group_view(group) for group in groups_in(backend) if group.vpc_id == vpc.id),
        instances=tuple(instances),
        nat_gateways=tuple(_gateway_views(backend, {subnet.id for subnet in subnets})),
        mount_targets=tuple(targets),
    )


def _is_true(value: Any) -> bool:
    """moto keeps what came over the wire where an attribute was set."""
    return str(value).lower() == "true"


def _gateway_views(backend: Any, subnets: set[str]) -> Iterator[NatGatewayView]:
    for gateway in backend.nat_gateways.values():
        if gateway.subnet_id in subnets and gateway.state in ("pending", "available", "deleting"):
            yield NatGatewayView(gateway.id, gateway.subnet_id, gateway.public_ip or "", gateway.state)


def _subnet_view(backend: Any, subnet: Any) -> SubnetView:
    table = route_table_of(backend, subnet)
    endpoints = [
        endpoint
        for endpoint in backend.vpc_end_points.values()
        if endpoint.state == "available" and endpoint.service_name.endswith(".s3") and table
    ]
    return SubnetView(
        id=subnet.id,
        vpc_id=subnet.vpc_id,
        cidr=subnet.cidr_block,
        zone=subnet.availability_zone,
        routes=tuple(_routes(backend, table)) if table else (),
        s3_endpoint=any(table.id in (endpoint.route_table_ids or ()) for endpoint in endpoints),
    )


def route_table_of(backend: Any, subnet: Any) -> Any:
    """Return the route table of a subnet, or the main one of its VPC."""
    main = None
    for table in backend.route_tables.values():
        if table.vpc_id == subnet.vpc_id:
            if subnet.id in table._associations.values():
                return table
            main = table if table.main_association_id else main
    return main


def _routes(backend: Any, table: Any) -> Iterator[RouteView]:
    for route in table._routes.values():
        if not route.destination_cidr_block:
            continue
        if route.local:
            yield RouteView(route.destination_cidr_block, "local", "local")
            continue
        kind, target = "other", ""
        if route.gateway is not None:
            target = route.gateway.id
            attached = backend.internet_gateways.get(target)
            if attached is not None and attached.vpc and attached.vpc.id == table.vpc_id:
                kind = "internet"
        elif route.nat_gateway is not None:
            target = route.nat_gateway.id
            kind = "nat" if getattr(backend.nat_gateways.get(target), "state", "") == "available" else "other"
        yield RouteView(route.destination_cidr_block, kind, target)


def _group_view(group: Any) -> SecurityGroupView:
    return SecurityGroupView(
        group.id,
        group.vpc_id,
        tuple(_permission(rule) for rule in group.ingress_rules),
        tuple(_permission(rule) for rule in group.egress_rules),
    )


def _permission(rule: Any) -> Permission:
    cidr, other = rule.ip_range.get("CidrIp"), (rule.source_group or {}).get("GroupId")
    return Permission(
        protocol=str(rule.ip_protocol),
        from_port=rule.from_port,
        to_port=rule.to_port,
        cidrs=(cidr,) if cidr else (),
        groups=(other,) if other else (),
    )
