"""Elastic IPs: allocation and association."""

from __future__ import annotations

from typing import Any

from moto.ec2.models.elastic_ip_addresses import ElasticAddress

from localcloud.api.ec2.errors import invalid, missing
from localcloud.api.ec2.filters import by_name, listing, refuse_dry_run, tag_list, tags_of
from localcloud.api.ec2.lifecycle import give_automatic_address, release_automatic_address
from localcloud.api.ec2.moto_records import (
    backend_of,
    interface_named,
    internet_gateway_of,
    new_id,
    set_tags,
    tags_in,
)
from localcloud.api.ec2.records import instance_of, records_of
from localcloud.api.quotas import ADDRESSES, check_limit
from localcloud.core.cloud import Call, Cloud, answers
from localcloud.core.errors import AwsError
from localcloud.core.kinds import KINDS
from localcloud.core.words import aws_error


@answers("ec2", "AllocateAddress")
def allocate_address(call: Call) -> dict[str, Any]:
    params = call.params
    # "standard" meant EC2-Classic, which is gone: an address is of the VPC kind whatever is asked for.
    if params.get("Domain") not in (None, "", "vpc", "standard"):
        raise invalid(f"Invalid value '{params['Domain']}' for domain.")
    refuse_dry_run(params)
    check_limit(call.cloud, ADDRESSES, len(backend_of(call.region).addresses))
    public_ip = records_of(call.cloud).public.take()
    if public_ip is None:
        raise aws_error("ec2:AllocateAddress", "AddressLimitExceeded")
    backend = backend_of(call.region)
    make: Any = ElasticAddress
    address = make(backend, "vpc", public_ip)
    set_tags(call.region, address.allocation_id, tags_of(params, "elastic-ip"))
    backend.addresses.append(address)
    answer = _described(call.region, address)
    del answer["Tags"]
    return answer


def requested_address(call: Call) -> Any:
    """Return the address of a request's AllocationId."""
    allocation_id = call.params.get("AllocationId")
    if not allocation_id:
        raise missing("AllocationId")
    for address in backend_of(call.region).addresses:
        if address.allocation_id == allocation_id:
            return address
    raise KINDS["eipalloc"].not_found(str(allocation_id))


def _unknown_address(public_ip: str) -> AwsError:
    return aws_error("ec2:*", "InvalidAddress.NotFound", address=public_ip)


@answers("ec2", "AssociateAddress")
def associate_address(call: Call) -> dict[str, Any]:
    params = call.params
    address = requested_address(call)
    interface = _target(call)
    if address.eni is interface:
        return {"AssociationId": address.association_id}
    if address.eni is not None and params.get("AllowReassociation") is False:
        raise AwsError(
            "Resource.AlreadyAssociated",
            f"resource {address.allocation_id} is already associated with associate-id {address.association_id}",
        )
    if _holds_gateway(address):
        raise aws_error("ec2:AssociateAddress", "AuthFailure", "permission")
    backend, vpc_id = interface.ec2_backend, interface.subnet.vpc_id
    # A default VPC has a gateway in AWS, and none in moto.
    if internet_gateway_of(backend, vpc_id) is None and not backend.vpcs[vpc_id].is_default:
        raise aws_error("ec2:AssociateAddress", "Gateway.NotAttached", network=vpc_id)
    refuse_dry_run(params)
    if address.eni is not None:
        unbind(call.cloud, address)
    bind(call.cloud, address, interface)
    return {"AssociationId": address.association_id}


def _target(call: Call) -> Any:
    """Return the interface of the request for an association."""
    backend = backend_of(call.region)
    if call.params.get("NetworkInterfaceId"):
        interface = interface_named(backend, str(call.params["NetworkInterfaceId"]))
        if interface.instance is not None and interface.instance.state == "pending":
            raise aws_error("ec2:AssociateAddress", "IncorrectInstanceState", interface=interface.id)
        return interface
    if not call.params.get("InstanceId"):
        raise AwsError("MissingParameter", "Either 'instanceId' or 'networkInterfaceId' must be specified")
    instance = instance_of(call.cloud, call.region, str(call.params["InstanceId"]))
    if instance.state not in ("running", "stopping", "stopped"):
        raise aws_error("ec2:AssociateAddress", "InvalidInstanceID", state=instance.state, id=instance.id)
    if len(instance.nics) > 1:
        raise AwsError(
            "InvalidInstanceID",
            f"There are multiple interfaces attached to instance '{instance.id}'. Please specify an interface ID for "
            "the operation instead.",
        )
    return instance.nics[0]


def bind(cloud: Cloud, address: Any, interface: Any) -> None:
    """Bind an address to an interface; what the interface had before is given back."""
    for other in interface.ec2_backend.addresses:
        if other.eni is interface and other is not address:
            other.eni = other.instance = other.association_id = None
            interface.public_ip = None
    release_automatic_address(cloud, interface)
    address.eni = interface
    address.instance = interface.instance
    address.association_id = new_id("eipassoc")
    interface.public_ip = address.public_ip


def unbind(cloud: Cloud, address: Any) -> None:
    """Disassociate an address. The interface gets an automatic address again if its launch requested one."""
    interface = address.eni
    address.eni = address.instance = address.association_id = None
    if interface is None:
        return
    interface.public_ip = None
    instance = interface.instance
    if instance is not None and instance.state in ("pending", "running"):
        give_automatic_address(cloud, interface, instance)


def _holds_gateway(address: Any) -> bool:
    """Return whether a NAT gateway uses the address: only its deletion releases it."""
    if address.eni is None:
        return False
    gateways = address.ec2_backend.nat_gateways.values()
    return any(
        gateway._eni is address.eni and gateway.state in ("pending", "available", "deleting") for gateway in gateways
    )


@answers("ec2", "DisassociateAddress")
def disassociate_address(call: Call) -> dict[str, Any]:
    association_id = call.params.get("AssociationId")
    for address in backend_of(call.region).addresses:
        if association_id and address.association_id == association_id:
            if _holds_gateway(address):
                raise aws_error("ec2:AssociateAddress", "AuthFailure", "permission")
            refuse_dry_run(call.params)
            unbind(call.cloud, address)
            return {}
    raise aws_error("ec2:DisassociateAddress", "InvalidAssociationID.NotFound", id=association_id)


@answers("ec2", "ReleaseAddress")
def release_address(call: Call) -> dict[str, Any]:
    address = requested_address(call)
    if address.eni is not None:
        raise aws_error("ec2:ReleaseAddress", "InvalidIPAddress.InUse", address=address.public_ip)
    refuse_dry_run(call.params)
    backend = backend_of(call.region)
    backend.addresses.remove(address)
    backend.tags.pop(address.allocation_id, None)
    records_of(call.cloud).public.give_back(address.public_ip)
    return {}


def _described(region: str, address: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "AllocationId": address.allocation_id,
        "Domain": "vpc",
        "NetworkBorderGroup": region,
        "PublicIp": address.public_ip,
        "PublicIpv4Pool": "amazon",
        "Tags": tag_list(tags_in(region, address.allocation_id)),
    }
    if address.eni is not None:
        described |= {
            "AssociationId": address.association_id,
            "NetworkInterfaceId": address.eni.id,
            "NetworkInterfaceOwnerId": address.eni.owner_id,
            "PrivateIpAddress": address.eni.private_ip_address,
        }
        if address.eni.instance is not None:
            described["InstanceId"] = address.eni.instance.id
    return described


@answers("ec2", "DescribeAddresses")
def describe_addresses(call: Call) -> dict[str, Any]:
    addresses = backend_of(call.region).addresses
    for key, field, unknown in (
        ("AllocationIds", "allocation_id", KINDS["eipalloc"].not_found),
        ("PublicIps", "public_ip", _unknown_address),
    ):
        addresses = by_name(addresses, field, call.params.get(key) or (), unknown)
    described = [_described(call.region, address) for address in addresses]
    return listing(call, "Addresses", described, default=None)
