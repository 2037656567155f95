"""NAT gateways: slow to create and delete, and listed for an hour after."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from moto.ec2.models.nat_gateways import NatGateway

from localcloud.api.ec2.addresses import bind, requested_address
from localcloud.api.ec2.filters import listing, refuse_dry_run, tag_list, tags_of
from localcloud.api.ec2.moto_records import (
    backend_of,
    internet_gateway_of,
    new_id,
    set_tags,
    spelled,
    subnet_named,
    tags_in,
)
from localcloud.api.ec2.patches import check_free
from localcloud.api.ec2.records import SHOWN_AFTER_DEATH, now, once
from localcloud.api.quotas import NAT_GATEWAYS, check_limit
from localcloud.core.cloud import Call, Cloud, answers
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error


class Gateway(NatGateway):
    """In moto's records, so that routes can name it; made without moto's random address."""

    def __init__(self, backend: Any, subnet: Any, address: Any, interface: Any, moment: datetime) -> None:
        self.id = new_id("nat")
        self.ec2_backend = backend
        self.subnet_id = subnet.id
        self.vpc_id = subnet.vpc_id
        self.state = "pending"
        self.connectivity_type = "public"
        self.private_ip = interface.private_ip_address
        self.interface_id = interface.id
        self.allocation_id = address.allocation_id
        self.association_id = address.association_id
        self.public_ip = address.public_ip
        self.failure: tuple[str, str] | None = None
        self.deleted_at: datetime | None = None
        self._created_at = moment
        self._eni = interface


@answers("ec2", "CreateNatGateway")
def create_nat_gateway(call: Call) -> dict[str, Any]:
    gateways = backend_of(call.region).nat_gateways
    gateway = once(call, lambda made: made.id in gateways, lambda: _create(call))
    token = call.params.get("ClientToken")
    return {"NatGateway": _described(call.region, gateway)} | ({"ClientToken": token} if token else {})


def _create(call: Call) -> Gateway:
    params, cloud, region = call.params, call.cloud, call.region
    backend = backend_of(region)
    subnet = subnet_named(backend, str(params.get("SubnetId")))
    if params.get("ConnectivityType") == "private":
        raise AwsError("UnsupportedOperation", "The local cloud has no private NAT gateways.")
    address = requested_address(call)
    if params.get("PrivateIpAddress"):
        check_free(subnet, str(params["PrivateIpAddress"]))
    zone = subnet.availability_zone
    existing = [gateway for gateway in backend.nat_gateways.values() if gateway.state not in ("deleted", "failed")]
    check_limit(cloud, NAT_GATEWAYS, sum(gateway._eni.subnet.availability_zone == zone for gateway in existing))
    refuse_dry_run(params)
    failure = _failure(backend, subnet, address)
    interface = backend.create_network_interface(subnet, params.get("PrivateIpAddress"))
    if failure is None:
        bind(cloud, address, interface)
    make: Any = Gateway  # abstract to mypy: moto leaves out what only CloudFormation would call
    gateway: Gateway = make(backend, subnet, address, interface, now(cloud))
    interface.description = f"Interface for NAT Gateway {gateway.id}"
    interface.interface_type = "nat_gateway"
    interface.requester_managed = True
    interface.status = "in-use"
    interface.source_dest_check = False
    interface._group_set = []
    backend.nat_gateways[gateway.id] = gateway
    set_tags(region, gateway.id, tags_of(params, "natgateway"))
    if failure:
        cloud.clock.later(0, lambda: _fail(cloud, gateway, failure))
    elif cloud.faults.nat_gateway_fails():
        internal = _INTERNAL_ERROR[0], _INTERNAL_ERROR[1].format(interface.id)
        cloud.clock.later(cloud.latency.of("nat_gateway_available"), lambda: _fail(cloud, gateway, internal))
    else:
        cloud.clock.later(cloud.latency.of("nat_gateway_available"), lambda: _available(cloud, gateway))
    return gateway


def _failure(backend: Any, subnet: Any, address: Any) -> tuple[str, str] | None:
    """Return the error that AWS reports only after the state "pending"."""
    if address.eni is not None:
        return "Resource.AlreadyAssociated", f"Elastic IP address [{address.allocation_id}] is already associated"
    if internet_gateway_of(backend, subnet.vpc_id) is None:
        return "Gateway.NotAttached", f"Network {subnet.vpc_id} has no Internet gateway attached"
    return None


_INTERNAL_ERROR = (
    "InternalError",
    "Network interface {}, created and used internally by this NAT gateway is in an invalid state. Please try again.",
)


def _available(cloud: Cloud, gateway: Gateway) -> None:
    if gateway.state == "pending":
        gateway.state = "available"
        cloud.network.changed()


def _fail(cloud: Cloud, gateway: Gateway, failure: tuple[str, str]) -> None:
    if gateway.state != "pending":
        return
    gateway.failure = failure
    gateway.allocation_id = gateway.association_id = gateway.public_ip = None
    _gone(cloud, gateway, "failed")


def _gone(cloud: Cloud, gateway: Gateway, state: str) -> None:
    """Remove the interface of a gateway that was deleted or has failed, and free its Elastic IP address."""
    backend = gateway.ec2_backend
    for address in backend.addresses:
        if address.eni is gateway._eni:
            address.eni = address.instance = address.association_id = None
    if gateway._eni.id in backend.enis:
        backend.delete_network_interface(gateway._eni.id)
    gateway.state = state
    gateway.deleted_at = now(cloud)
    cloud.clock.later(SHOWN_AFTER_DEATH, lambda: _forget(gateway))
    cloud.network.changed()


def _forget(gateway: Gateway) -> None:
    gateway.ec2_backend.nat_gateways.pop(gateway.id, None)
    gateway.ec2_backend.tags.pop(gateway.id, None)


def _named(region: str, gateway_id: str) -> Any:
    gateway = backend_of(region).nat_gateways.get(gateway_id)
    if gateway is None:
        if not gateway_id.startswith("nat-"):
            raise AwsError("NatGatewayMalformed", f"The ID '{gateway_id}' is not valid for a NAT gateway.")
        raise aws_error("ec2:*", "NatGatewayNotFound", id=gateway_id)
    return gateway


@answers("ec2", "DeleteNatGateway")
def delete_nat_gateway(call: Call) -> dict[str, Any]:
    cloud = call.cloud
    gateway = _named(call.region, str(call.params.get("NatGatewayId")))
    refuse_dry_run(call.params)
    if gateway.state in ("pending", "available"):
        gateway.state = "deleting"
        cloud.clock.later(cloud.latency.of("nat_gateway_deleted"), lambda: _gone(cloud, gateway, "deleted"))
    return {"NatGatewayId": gateway.id}


def _described(region: str, gateway: Any) -> dict[str, Any]:
    address = {
        "AllocationId": gateway.allocation_id,
        "AssociationId": gateway.association_id,
        "IsPrimary": True,
        "NetworkInterfaceId": gateway.interface_id,
        "PrivateIp": gateway.private_ip,
        "PublicIp": gateway.public_ip,
        "Status": {"pending": "associating", "available": "succeeded"}.get(gateway.state, "disassociating"),
    }
    described: dict[str, Any] = {
        "ConnectivityType": gateway.connectivity_type,
        "CreateTime": spelled(gateway._created_at),
        "NatGatewayAddresses": [{key: value for key, value in address.items() if value is not None}],
        "NatGatewayId": gateway.id,
        "State": gateway.state,
        "SubnetId": gateway.subnet_id,
        "Tags": tag_list(tags_in(region, gateway.id)),
        "VpcId": gateway.vpc_id,
    }
    if gateway.deleted_at:
        described["DeleteTime"] = spelled(gateway.deleted_at)
    if gateway.failure:
        described["FailureCode"], described["FailureMessage"] = gateway.failure
    return described


@answers("ec2", "DescribeNatGateways")
def describe_nat_gateways(call: Call) -> dict[str, Any]:
    ids = call.params.get("NatGatewayIds") or ()
    named = [_named(call.region, str(key)) for key in dict.fromkeys(ids)]
    described = [_described(call.region, gateway) for gateway in named or backend_of(call.region).nat_gateways.values()]
    # This operation alone calls its filters "Filter".
    return listing(call, "NatGateways", described, filters="Filter")
