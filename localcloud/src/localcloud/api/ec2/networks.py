"""Refuse mistakes in a network that AWS refuses and moto accepts.

Each check reads moto's records and the parameters of a call, and raises AWS's error. The operation itself, and every
refusal that moto knows, stay moto's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moto.ec2.models.vpcs import AWS_ENDPOINT_SERVICES

from localcloud.api.ec2.errors import invalid
from localcloud.api.ec2.filters import refuse_dry_run
from localcloud.api.ec2.moto_records import backend_of, internet_gateway_of, subnet_named
from localcloud.api.quotas import INTERNET_GATEWAYS, VPCS, check_limit
from localcloud.core.cloud import Call, answers
from localcloud.core.errors import AwsError
from localcloud.core.kinds import KINDS
from localcloud.core.words import aws_error

Params = Mapping[str, Any]

_GATEWAY_SERVICES = ("dynamodb", "s3")
_GROUP_TEXT = re.compile(r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{1,255}")


def _table_named(backend: Any, table_id: Any, code: str = "") -> Any:
    if table_id not in backend.route_tables:
        raise KINDS["rtb"].not_found(table_id, code=code)
    return backend.route_tables[table_id]


def _different_networks(table: Any, other: str, code: str = "InvalidParameterValue") -> AwsError:
    return AwsError(code, f"route table {table.id} and {other} belong to different networks")


# Route tables --------------------------------------------------------------------------------------------------------


def check_association(backend: Any, params: Params) -> None:
    """AssociateRouteTable: moto keeps the old association of a subnet and reports success."""
    table = _table_named(backend, params.get("RouteTableId"))
    if not params.get("SubnetId"):
        return
    subnet = subnet_named(backend, str(params["SubnetId"]))
    if subnet.vpc_id != table.vpc_id:
        raise _different_networks(table, f"subnet {subnet.id}")
    others = (other for other in backend.route_tables.values() if other is not table)
    if any(subnet.id in other._associations.values() for other in others):
        raise AwsError(
            "Resource.AlreadyAssociated",
            f"the specified association for route table {table.id} conflicts with an existing association",
        )


def check_new_association(backend: Any, params: Params) -> None:
    """ReplaceRouteTableAssociation."""
    table, association = _table_named(backend, params.get("RouteTableId")), params.get("AssociationId")
    for other in backend.route_tables.values():
        if association in other.all_associations_ids and other.vpc_id != table.vpc_id:
            subnet_id = other._associations.get(association)
            raise _different_networks(table, f"subnet {subnet_id}" if subnet_id else f"network {other.vpc_id}")


def check_disassociation(backend: Any, params: Params) -> None:
    """DisassociateRouteTable."""
    association = params.get("AssociationId")
    if any(association and table.main_association_id == association for table in backend.route_tables.values()):
        raise invalid(f"cannot disassociate the main route table association {association}")


def check_new_route(backend: Any, params: Params) -> None:
    """CreateRoute."""
    table = _table_named(backend, params.get("RouteTableId"))
    if _route_to(table, params) is not None:
        raise AwsError("RouteAlreadyExists", f"The route identified by {_destination(params)} already exists.")
    check_target(backend, params)


def check_target(backend: Any, params: Params) -> None:
    """ReplaceRoute, and the second half of CreateRoute."""
    table = _table_named(backend, params.get("RouteTableId"))
    gateway_id, nat_id = str(params.get("GatewayId") or ""), params.get("NatGatewayId")
    interface = backend.enis.get(params.get("NetworkInterfaceId"))
    if gateway_id.startswith(("igw-", "nat-")):
        gateway = backend.internet_gateways.get(gateway_id)
        if gateway is None:
            raise aws_error("ec2:CreateRoute", "InvalidGatewayID.NotFound", id=gateway_id)
        if gateway.vpc is None or gateway.vpc.id != table.vpc_id:
            raise _different_networks(table, f"network gateway {gateway_id}")
    if nat_id:
        nat_gateway = backend.nat_gateways.get(nat_id)
        if nat_gateway is None or nat_gateway.state not in ("pending", "available"):
            raise aws_error("ec2:CreateRoute", "InvalidNatGatewayID.NotFound", id=nat_id)
        interface = nat_gateway._eni
    if interface is not None and interface.subnet.vpc_id != table.vpc_id:
        raise _different_networks(table, f"interface {interface.id}")


def check_old_route(backend: Any, params: Params) -> None:
    """DeleteRoute: moto deletes the local route, too."""
    table = _table_named(backend, params.get("RouteTableId"))
    route = _route_to(table, params)
    if route is not None and route.local:
        raise invalid(f"cannot remove local route {_destination(params)} in route table {table.id}")


def _destination(params: Params) -> Any:
    keys = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")
    return next((params[key] for key in keys if params.get(key)), None)


def _route_to(table: Any, params: Params) -> Any:
    destination = _destination(params)
    for route in table._routes.values():
        existing = (route.destination_cidr_block, route.destination_ipv6_cidr_block, route.destination_prefix_list_id)
        if destination in existing:
            return route
    return None


# Gateways, endpoints, groups -----------------------------------------------------------------------------------------


def check_attachment(backend: Any, params: Params) -> None:
    """AttachInternetGateway: moto lets a VPC have several."""
    gateway = backend.internet_gateways.get(params.get("InternetGatewayId"))
    if gateway is not None and gateway.vpc is not None:
        raise AwsError(
            "Resource.AlreadyAssociated", f"resource {gateway.id} is already attached to network {gateway.vpc.id}"
        )
    vpc_id = str(params.get("VpcId"))
    if internet_gateway_of(backend, vpc_id) is not None:
        raise invalid(f"Network {vpc_id} already has an internet gateway attached")


def check_endpoint(backend: Any, params: Params) -> None:
    """CreateVpcEndpoint: moto takes any service, and records the endpoint before it looks up the tables."""
    kind, service, vpc_id = params.get("VpcEndpointType") or "Gateway", str(params.get("ServiceName")), params["VpcId"]
    name = service.rpartition(f"com.amazonaws.{backend.region_name}.")[2]
    if name == service or name not in AWS_ENDPOINT_SERVICES:
        raise AwsError("InvalidServiceName", f"The Vpc Endpoint Service '{service}' does not exist")
    if kind == "Gateway" and name not in _GATEWAY_SERVICES:
        raise AwsError(
            "InvalidParameter", f"Endpoint type ({kind}) does not match available service types ([Interface])."
        )
    if vpc_id in backend.vpcs:
        check_endpoint_tables(backend, vpc_id, service, params.get("RouteTableIds") or ())


def check_endpoint_tables(backend: Any, vpc_id: str, service: str, table_ids: Iterable[str]) -> None:
    """CreateVpcEndpoint and ModifyVpcEndpoint: a route table has one route to a service."""
    taken = {
        table_id: endpoint.destination_prefix_list_id
        for endpoint in backend.vpc_end_points.values()
        if endpoint.service_name == service
        for table_id in endpoint.route_table_ids
    }
    for table_id in table_ids:
        table = _table_named(backend, table_id, "InvalidRouteTableId.NotFound")
        if table.vpc_id != vpc_id:
            raise _different_networks(table, f"network {vpc_id}", "InvalidParameter")
        if table_id in taken:
            raise AwsError(
                "RouteAlreadyExists",
                f"route table {table_id} already has a route with destination-prefix-list-id {taken[table_id]}",
            )


def check_group(backend: Any, params: Params) -> None:
    """CreateSecurityGroup: moto takes any VPC and any text."""
    vpc_id = params.get("VpcId")
    if vpc_id and vpc_id not in backend.vpcs:
        raise KINDS["vpc"].not_found(vpc_id)
    for key, parameter in (("GroupName", "GroupName"), ("Description", "GroupDescription")):
        value = str(params.get(key) or "")
        if value and not _GROUP_TEXT.fullmatch(value):
            raise invalid(
                f"Value ({value}) for parameter {parameter} is invalid. Character sets beyond ASCII are not supported."
            )


_CHECKS: Mapping[str, Callable[[Any, Params], None]] = {
    "AssociateRouteTable": check_association,
    "AttachInternetGateway": check_attachment,
    "CreateRoute": check_new_route,
    "CreateSecurityGroup": check_group,
    "DeleteRoute": check_old_route,
    "DisassociateRouteTable": check_disassociation,
    "ReplaceRoute": check_target,
    "ReplaceRouteTableAssociation": check_new_association,
}


@answers("ec2", *_CHECKS)
def check_and_ask_moto(call: Call) -> dict[str, Any]:
    _CHECKS[call.operation](backend_of(call.region), call.params)
    return call.moto()


_LIMITED = {"CreateVpc": (VPCS, "vpcs"), "CreateInternetGateway": (INTERNET_GATEWAYS, "internet_gateways")}


@answers("ec2", *_LIMITED)
def create_within_quota(call: Call) -> dict[str, Any]:
    limit, records = _LIMITED[call.operation]
    check_limit(call.cloud, limit, len(getattr(backend_of(call.region), records)))
    refuse_dry_run(call.params)
    return call.moto()


@answers("ec2", "ImportKeyPair")
def import_key_pair(call: Call) -> dict[str, Any]:
    try:
        return call.moto()
    except AwsError as error:
        raise AwsError(error.code.replace("InvalidKeyPair.Format", "InvalidKey.Format"), error.message) from error


@answers("ec2", "CreateVpcEndpoint")
def create_vpc_endpoint(call: Call) -> dict[str, Any]:
    check_endpoint(backend_of(call.region), call.params)
    # moto cannot delete an endpoint without a type.
    return call.moto(**{"VpcEndpointType": "Gateway", **call.params})


@answers("ec2", "ModifyVpcEndpoint")
def modify_vpc_endpoint(call: Call) -> dict[str, Any]:
    """moto notes which tables an endpoint has, and leaves their routes as they are."""
    backend = backend_of(call.region)
    endpoint = backend.vpc_end_points.get(call.params.get("VpcEndpointId"))
    before = set(endpoint.route_table_ids) if endpoint else set()
    if endpoint:
        added = [table for table in call.params.get("AddRouteTableIds") or () if table not in before]
        check_endpoint_tables(backend, endpoint.vpc_id, endpoint.service_name, added)
    answer = call.moto()
    prefix_list = endpoint.destination_prefix_list_id
    for table_id in set(endpoint.route_table_ids) - before:
        backend.create_route(table_id, None, gateway_id=endpoint.id, destination_prefix_list_id=prefix_list)
    for table_id in before - set(endpoint.route_table_ids):
        backend.delete_route(table_id, prefix_list)
    return answer
