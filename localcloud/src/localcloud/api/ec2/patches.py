"""What is mended in moto's EC2 itself, where wrapping an operation would not do. Importing this applies it.

* Tags of one resource are looked up and not searched for among all (moto: 10 ms a resource in an account of 1,000).
* A subnet gives out its lowest free address, from .4 on, to whatever asks: instances, NAT gateways, mount targets,
  endpoints. moto draws addresses of interfaces at random and counts those of instances on their own.
* An interface has a MAC address of its own, AWS's DNS names, and the security groups that were given to it.
"""

from __future__ import annotations

import hashlib
import ipaddress
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import elastic_network_interfaces as interfaces
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.route_tables import Route
from moto.ec2.models.subnets import Subnet

from localcloud.core.errors import AwsError
from localcloud.core.kinds import type_of
from localcloud.core.words import aws_error


class Refused(AwsError, EC2ClientError):
    """A refusal from within moto's records: moto tells it to its callers, and we to ours."""

    def __init__(self, code: str, message: str) -> None:
        AwsError.__init__(self, code, message)


def _refused(operation: str, code: str, **values: str) -> Refused:
    error = aws_error(operation, code, **values)
    return Refused(error.code, error.message)


def private_dns(address: str, region: str) -> str:
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"


def public_dns(address: str, region: str) -> str:
    domain = "compute-1" if region == "us-east-1" else f"{region}.compute"
    return f"ec2-{address.replace('.', '-')}.{domain}.amazonaws.com"


def mac_of(interface_id: str) -> str:
    """Return a MAC address that follows from the id. Its first byte marks it as locally administered."""
    digest = hashlib.sha256(interface_id.encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x0A, *digest[:5]))


def _get_tags(self: Any) -> list[dict[str, str]]:
    kind = type_of(self.id or "")
    tags = self.ec2_backend.tags.get(self.id) or {}
    return [{"resource_id": self.id, "key": key, "value": value, "resource_type": kind} for key, value in tags.items()]


def _take_lowest(self: Any, owner: Any) -> str:
    """AWS keeps the first four addresses and the last one of each subnet for itself."""
    network = self.cidr
    last = network.num_addresses - 2
    offset = getattr(self, "_lowest_free", 4)
    while offset <= last and str(network[offset]) in self._subnet_ips:
        offset += 1
    if offset > last:
        raise _refused("ec2:CreateNetworkInterface", "InsufficientFreeAddressesInSubnet")
    self._lowest_free = offset + 1
    address = str(network[offset])
    self._subnet_ips[address] = owner
    return address


def check_free(subnet: Any, address: str) -> None:
    """Raise AwsError unless the subnet can give this address."""
    try:
        offset = int(ipaddress.IPv4Address(address)) - int(subnet.cidr.network_address)
    except ValueError as error:
        raise Refused("InvalidParameterValue", f"Invalid IPv4 address: {address}") from error
    if not 0 <= offset < subnet.cidr.num_addresses:
        raise Refused("InvalidParameterValue", f"Address {address} does not fall within the subnet's address range")
    if offset < 4 or offset == subnet.cidr.num_addresses - 1:
        raise Refused("InvalidParameterValue", f"Address {address} is in subnet's reserved address range")
    if address in subnet._subnet_ips:
        raise Refused("InvalidIPAddress.InUse", f"Address {address} is in use.")


def _take_given(self: Any, address: str, owner: Any) -> None:
    check_free(self, address)
    self._subnet_ips[address] = owner


def _give_back(self: Any, address: str) -> None:
    if self._subnet_ips.pop(address, None) is not None:
        offset = int(ipaddress.IPv4Address(address)) - int(self.cidr.network_address)
        self._lowest_free = min(getattr(self, "_lowest_free", 4), offset)


def _free_addresses(self: Any) -> int:
    return int(self.cidr.num_addresses) - 5 - len(self._subnet_ips)


_create_interface = interfaces.NetworkInterfaceBackend.create_network_interface


def _create_network_interface(
    self: Any, subnet: Any, private_ip_address: Any = None, private_ip_addresses: Any = None, *args: Any, **more: Any
) -> Any:
    """Create an interface as moto does, but with a free primary address of the subnet."""
    subnet = self.get_subnet(subnet) if isinstance(subnet, str) else subnet
    address = (
        private_ip_address[0] if isinstance(private_ip_address, list) and private_ip_address else private_ip_address
    )
    listed = [item if isinstance(item, dict) else {"PrivateIpAddress": item} for item in private_ip_addresses or []]
    address = address or next((item["PrivateIpAddress"] for item in listed if item.get("Primary")), None)
    holder = subnet._subnet_ips.get(address)
    if address is None or (holder is None and not _is_inside(subnet, address)):
        # moto asks for addresses outside of the subnet where it makes interfaces for NAT gateways and endpoints.
        address = _take_lowest(subnet, "reserved")
        listed = []
    elif holder is None:
        _take_given(subnet, address, "reserved")
    elif isinstance(holder, interfaces.NetworkInterface):
        raise Refused("InvalidIPAddress.InUse", f"Address {address} is in use.")
    interface = _create_interface(self, subnet, address, listed or None, *args, **more)
    for item in interface.private_ip_addresses:
        subnet._subnet_ips[item["PrivateIpAddress"]] = interface
        if "PrivateDnsName" in item:
            item["PrivateDnsName"] = private_dns(item["PrivateIpAddress"], self.region_name)
    if hasattr(interface, "private_dns_name"):
        interface.private_dns_name = private_dns(address, self.region_name)
    interface.mac_address = mac_of(interface.id)
    return interface


def _is_inside(subnet: Any, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in subnet.cidr
    except ValueError:
        return True


def _delete_network_interface(self: Any, eni_id: str) -> None:
    interface = self.enis.pop(eni_id, None)
    if interface is None:
        raise _refused("ec2:*", "InvalidNetworkInterfaceID.NotFound", id=eni_id)
    for item in interface.private_ip_addresses:
        _give_back(interface.subnet, item["PrivateIpAddress"])
    self.tags.pop(eni_id, None)


def _groups(self: Any) -> list[Any]:
    return list(self._group_set)


def _attachment(self: Any) -> Any:
    if not self.attachment_id or self.instance is None:
        return None
    attachment = interfaces.Attachment(self)
    attachment.device_index = getattr(self, "shown_index", self.device_index)
    attachment.network_card_index = getattr(self, "card_index", 0)
    return attachment


def _route_state(self: Any) -> str:
    """Return the state of a route: blackhole if its target does not exist."""
    backend = self.route_table.ec2_backend
    if self.nat_gateway is not None:
        return "active" if self.nat_gateway.state in ("pending", "available") else "blackhole"
    if self.gateway is not None and self.gateway.id.startswith("igw-"):
        match = backend.internet_gateways.get(self.gateway.id)
        return "active" if match is not None and match.vpc is not None else "blackhole"
    return "active"


def _association(self: Any) -> dict[str, Any]:
    """Return the public address of an interface, elastic or not."""
    if not self.public_ip:
        return {}
    match = next((address for address in self.ec2_backend.addresses if address.public_ip == self.public_ip), None)
    association = {
        "IpOwnerId": self.ec2_backend.account_id if match else "amazon",
        "PublicDnsName": public_dns(self.public_ip, self.ec2_backend.region_name),
        "PublicIp": self.public_ip,
    }
    if match:
        association |= {"AllocationId": match.allocation_id, "AssociationId": match.association_id}
    return association


def _apply() -> None:
    mended: Any = TaggedEC2Resource
    mended.get_tags = _get_tags
    mended = Subnet
    mended.get_available_subnet_ip = _take_lowest
    mended.request_ip = _take_given
    mended.del_subnet_ip = _give_back
    mended.available_ip_address_count = property(_free_addresses)
    mended = interfaces.NetworkInterfaceBackend
    mended.create_network_interface = _create_network_interface
    mended.delete_network_interface = _delete_network_interface
    mended = interfaces.NetworkInterface
    mended.group_set = property(_groups)
    mended.association = property(_association)
    mended.attachment = property(_attachment)
    mended = Route
    mended.state = property(_route_state)


_apply()
