"""Parts of a network that something depends on cannot be deleted, and tags go with what they are on. The rest of these
operations is moto's."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from localcloud.api.ec2.errors import has_dependencies, invalid
from localcloud.api.ec2.filters import refuse_dry_run
from localcloud.api.ec2.moto_records import backend_of, internet_gateway_of, subnets_in, zones_of
from localcloud.core.cloud import Call, answers
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error


@answers("ec2", "DeleteInternetGateway", "DeleteVolume")
def delete(call: Call) -> dict[str, Any]:
    answer = call.moto()
    backend_of(call.region).tags.pop(call.params.get("InternetGatewayId") or call.params.get("VolumeId"), None)
    return answer


@answers("ec2", "DeleteRouteTable")
def delete_route_table(call: Call) -> dict[str, Any]:
    table_id, backend = str(call.params.get("RouteTableId")), backend_of(call.region)
    table = backend.route_tables.get(table_id)
    if table is not None and table.main_association_id:
        raise has_dependencies(f"routeTable '{table_id}'")
    answer = call.moto()
    for endpoint in backend.vpc_end_points.values():
        # moto would look for the endpoint's route in this table when the endpoint is deleted, and fail.
        endpoint.route_table_ids = [key for key in endpoint.route_table_ids if key != table_id]
    backend.tags.pop(table_id, None)
    return answer


@answers("ec2", "DeleteKeyPair")
def delete_key_pair(call: Call) -> dict[str, Any]:
    backend = backend_of(call.region)
    requested = call.params.get("KeyName"), call.params.get("KeyPairId")
    for key in backend.key_pairs.values():
        if key.key_name == requested[0] or key.id == requested[1]:
            backend.tags.pop(key.id, None)
            return call.moto(KeyName=key.key_name)
    # A key pair that is not there counts as deleted.
    return {"Return": True}


@answers("ec2", "CreateSubnet")
def create_subnet(call: Call) -> dict[str, Any]:
    """moto takes us-east-1a where no zone is named, in every region, and makes the first subnet of a zone public."""
    params = dict(call.params)
    zones = zones_of(call.region)
    requested = params.get("AvailabilityZone")
    if requested is not None and requested not in [zone.name for zone in zones]:
        names = ", ".join(zone.name for zone in zones)
        raise invalid(
            f"Value ({requested}) for parameter availabilityZone is invalid. Subnets can currently only be created in "
            f"the following availability zones: {names}."
        )
    if not 16 <= _prefix_length(params) <= 28:
        raise AwsError("InvalidSubnet.Range", f"The CIDR '{params['CidrBlock']}' is invalid.")
    if requested is None and params.get("AvailabilityZoneId") is None:
        params["AvailabilityZone"] = zones[0].name
    answer = call.moto(**params)
    made = next(subnet for subnet in subnets_in(backend_of(call.region)) if subnet.id == answer["Subnet"]["SubnetId"])
    made.default_for_az = made.map_public_ip_on_launch = False
    return {"Subnet": answer["Subnet"] | {"DefaultForAz": False, "MapPublicIpOnLaunch": False}}


def _prefix_length(params: Mapping[str, Any]) -> int:
    """Of the block; 16 if it is not one, which moto refuses."""
    try:
        return ipaddress.IPv4Network(str(params.get("CidrBlock")), strict=False).prefixlen
    except ValueError:
        return 16


@answers("ec2", "DeleteSubnet")
def delete_subnet(call: Call) -> dict[str, Any]:
    subnet_id = str(call.params.get("SubnetId"))
    backend = backend_of(call.region)
    if any(interface.subnet.id == subnet_id for interface in backend.enis.values()):
        raise has_dependencies(f"subnet '{subnet_id}'")
    answer = call.moto()
    for table in backend.route_tables.values():
        # The association goes with the subnet; moto would hold the table for it.
        for key in [key for key, target in table._associations.items() if target == subnet_id]:
            del table._associations[key]
    backend.tags.pop(subnet_id, None)
    return answer


@answers("ec2", "DeleteVpc")
def delete_vpc(call: Call) -> dict[str, Any]:
    vpc_id = str(call.params.get("VpcId"))
    backend = backend_of(call.region)
    if vpc_id in backend.vpcs and _has_dependencies(backend, vpc_id):
        raise has_dependencies(f"vpc '{vpc_id}'")
    parts = [table.id for table in backend.route_tables.values() if table.vpc_id == vpc_id]
    parts += [group.id for group in backend.groups.get(vpc_id, {}).values()]
    answer = call.moto()
    for part in (vpc_id, *parts):
        backend.tags.pop(part, None)
    backend.groups.pop(vpc_id, None)
    return answer


def _has_dependencies(backend: Any, vpc_id: str) -> bool:
    return (
        any(subnet.vpc_id == vpc_id for subnet in subnets_in(backend))
        or internet_gateway_of(backend, vpc_id) is not None
        or any(not group.is_default for group in backend.groups.get(vpc_id, {}).values())
        or any(table.vpc_id == vpc_id and not table.main_association_id for table in backend.route_tables.values())
        or any(
            endpoint.vpc_id == vpc_id and endpoint.state != "deleted" for endpoint in backend.vpc_end_points.values()
        )
    )


@answers("ec2", "DetachInternetGateway")
def detach_internet_gateway(call: Call) -> dict[str, Any]:
    vpc_id = str(call.params.get("VpcId"))
    backend = backend_of(call.region)
    gateway = internet_gateway_of(backend, vpc_id)
    attached = gateway is not None and gateway.id == call.params.get("InternetGatewayId")
    if attached and any(
        interface.public_ip and interface.subnet.vpc_id == vpc_id for interface in backend.enis.values()
    ):
        raise aws_error("ec2:DetachInternetGateway", "DependencyViolation", network=vpc_id)
    return call.moto()


@answers("ec2", "DeleteNetworkInterface")
def delete_network_interface(call: Call) -> dict[str, Any]:
    refuse_dry_run(call.params)
    interface = backend_of(call.region).enis.get(str(call.params.get("NetworkInterfaceId")))
    if interface is not None and (interface.instance is not None or interface.requester_managed):
        raise aws_error("ec2:DeleteNetworkInterface", "InvalidNetworkInterface.InUse", id=interface.id)
    return call.moto()


@answers("ec2", "DeleteVpcEndpoints")
def delete_vpc_endpoints(call: Call) -> dict[str, Any]:
    """Delete endpoints and their interfaces, which release their addresses."""
    backend = backend_of(call.region)
    ids = [str(key) for key in call.params.get("VpcEndpointIds") or ()]
    missing = [key for key in ids if key not in backend.vpc_end_points]
    existing = [key for key in ids if key not in missing]
    for key in existing:
        endpoint = backend.vpc_end_points[key]
        for interface_id in endpoint.network_interface_ids or ():
            backend.delete_network_interface(interface_id)
        endpoint.network_interface_ids = []
    if existing:
        call.moto(VpcEndpointIds=existing)
    for key in existing:
        backend.vpc_end_points.pop(key, None)
        backend.tags.pop(key, None)
    return {
        "Unsuccessful": [
            {
                "ResourceId": key,
                "Error": {
                    "Code": "InvalidVpcEndpointId.NotFound",
                    "Message": f"The Vpc Endpoint Id '{key}' does not exist",
                },
            }
            for key in missing
        ]
    }
