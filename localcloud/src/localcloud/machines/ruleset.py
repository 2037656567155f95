"""A VPC's rules as one nftables table: security groups, routes to the internet, translated addresses.

Pure functions from the API's records to input of `nft -f`. The table is in the VPC's network namespace, which every
packet between two machines passes, as each machine has a link of its own. The host has a table too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from localcloud.core.settings import EDGE_ADDRESS, METADATA_ADDRESS, PUBLIC_NETWORK, RESOLVER_ADDRESS, TLS_PORT
from localcloud.core.views import InstanceView, MountTargetView, Permission, SecurityGroupView, SubnetView, VpcView

TABLE = "localcloud"
UPLINK = "up0"
LINK_PREFIX = "lc-"
"""Begins the names of the host's links to VPCs."""
NFS = 2049

_PROTOCOLS = {"6": "tcp", "17": "udp", "1": "icmp"}


def ruleset(vpc: VpcView, transit: str, cut: Iterable[str] = ()) -> str:
    """Return the whole table. `transit` is the VPC's source address for S3, `cut` the addresses without a network."""
    groups = {group.id: group for group in vpc.security_groups}
    machines = list(vpc.instances)
    lines = [
        f"add table ip {TABLE}",
        f"delete table ip {TABLE}",
        f"table ip {TABLE} {{",
        _set("cut", cut),
        *(_set(group.id, _addresses(group, machines)) for group in groups.values()),
        *(_chain(f"out-{machine.id}", _egress(machine, groups)) for machine in machines),
        *(_chain(f"in-{machine.id}", _ingress(machine.security_groups, groups)) for machine in machines),
        *(_chain(f"in-{target.id}", _ingress(target.security_groups, groups)) for target in vpc.mount_targets),
        _chain("internet", _internet(vpc, machines)),
        _chain("forward", _forward(vpc, machines), "type filter hook forward priority 0; policy drop;"),
        _chain("input", _input(vpc, machines), "type filter hook input priority 0; policy drop;"),
        _chain("prerouting", _inbound(vpc, machines), "type nat hook prerouting priority -100;"),
        _chain("postrouting", _outbound(vpc, machines, transit), "type nat hook postrouting priority 100;"),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _set(name: str, addresses: Iterable[str]) -> str:
    listed = sorted(set(addresses), key=ipaddress.ip_address)
    elements = f" elements = {{ {', '.join(listed)} }}" if listed else ""
    return f"  set {name} {{ type ipv4_addr;{elements} }}"


def _chain(name: str, rules: Iterable[str], hook: str = "") -> str:
    body = "".join(f"    {rule}\n" for rule in ([hook] if hook else []) + list(rules))
    return f"  chain {name} {{\n{body}  }}"


def _addresses(group: SecurityGroupView, machines: Iterable[InstanceView]) -> list[str]:
    return [machine.private_ip for machine in machines if group.id in machine.security_groups]


def _verdicts(pairs: Iterable[tuple[str, str]]) -> str:
    return "{ " + ", ".join(f"{address} : {verdict}" for address, verdict in pairs) + " }"


# Security groups ---------------------------------------------------------------------------------------------------


def _egress(machine: InstanceView, groups: dict[str, SecurityGroupView]) -> Iterator[str]:
    """Return from the chain for allowed packets, and drop all others."""
    for name in machine.security_groups:
        for permission in groups[name].egress if name in groups else ():
            yield from (f"{match} return".strip() for match in _matches(permission, "daddr", groups))
    yield "drop"


def _ingress(names: Iterable[str], groups: dict[str, SecurityGroupView]) -> Iterator[str]:
    for name in names:
        for permission in groups[name].ingress if name in groups else ():
            yield from (f"{match} accept".strip() for match in _matches(permission, "saddr", groups))
    yield "drop"


def _matches(permission: Permission, side: str, groups: dict[str, SecurityGroupView]) -> Iterator[str]:
    """Yield the matches of a permission: one for each address range and each group in it."""
    ports = _ports(permission)
    for cidr in permission.cidrs:
        yield f"ip {side} {cidr} {ports}" if cidr != "0.0.0.0/0" else ports
    for name in permission.groups:
        if name in groups:
            yield f"ip {side} @{name} {ports}"


def _ports(permission: Permission) -> str:
    protocol = _PROTOCOLS.get(permission.protocol, permission.protocol)
    if protocol == "-1":
        return ""
    low, high = permission.from_port, permission.to_port
    if protocol in ("tcp", "udp"):
        whole = low is None or high is None or (low, high) in ((0, 65535), (-1, -1))
        return f"meta l4proto {protocol}" if whole else f"{protocol} dport {low}-{high}"
    if protocol == "icmp":
        return "meta l4proto icmp" if low in (None, -1) else f"icmp type {low}"
    return f"meta l4proto {protocol}"


# Routes ------------------------------------------------------------------------------------------------------------


def _outside(subnet: SubnetView) -> list[tuple[str, str, str]]:
    """Return (destination, kind, target) of the routes that leave the VPC, the most specific first."""
    routes = [route for route in subnet.routes if route.kind != "local"]
    routes.sort(key=lambda route: -ipaddress.ip_network(route.destination).prefixlen)
    return [(route.destination, route.kind, route.target) for route in routes]


def _to(destination: str) -> str:
    return "" if destination == "0.0.0.0/0" else f"ip daddr {destination} "


def _to_s3(subnet: SubnetView) -> str:
    return f"ip saddr {subnet.cidr} ip daddr {EDGE_ADDRESS} tcp dport {TLS_PORT}"


def _nat_addresses(vpc: VpcView) -> dict[str, str]:
    """Return the public addresses of working NAT gateways: available, in a subnet with a route to the internet."""
    public = {subnet.id for subnet in vpc.subnets if any(kind == "internet" for _, kind, _ in _outside(subnet))}
    return {nat.id: nat.public_ip for nat in vpc.nat_gateways if nat.state == "available" and nat.subnet_id in public}


def _public_machines(subnet: SubnetView, machines: Iterable[InstanceView]) -> list[InstanceView]:
    return [machine for machine in machines if machine.subnet_id == subnet.id and machine.public_ip]


def _internet(vpc: VpcView, machines: list[InstanceView]) -> Iterator[str]:
    """Accept packets that leave the VPC by the route table of their subnet."""
    nats = _nat_addresses(vpc)
    for subnet in vpc.subnets:
        if subnet.s3_endpoint:
            yield f"{_to_s3(subnet)} accept"
        for destination, kind, target in _outside(subnet):
            to = _to(destination)
            if kind == "internet":
                for machine in _public_machines(subnet, machines):
                    yield f"ip saddr {machine.private_ip} {to}accept"
            elif kind == "nat" and target in nats:
                yield f"ip saddr {subnet.cidr} {to}accept"
            yield f"ip saddr {subnet.cidr} {to}drop"
    yield "drop"


def _outbound(vpc: VpcView, machines: list[InstanceView], transit: str) -> Iterator[str]:
    """Translate the source addresses of packets that leave the VPC."""
    nats = _nat_addresses(vpc)
    leaving = f'oifname "{UPLINK}"'
    for subnet in vpc.subnets:
        for destination, kind, target in _outside(subnet):
            to = _to(destination)
            if kind == "internet":
                for machine in _public_machines(subnet, machines):
                    yield f"{leaving} ip saddr {machine.private_ip} {to}snat to {machine.public_ip}"
            elif kind == "nat" and target in nats:
                yield f"{leaving} ip saddr {subnet.cidr} {to}snat to {nats[target]}"
        if subnet.s3_endpoint:
            # The last rule, as all services have one address here: to packets from this source only S3 answers.
            yield f"{leaving} {_to_s3(subnet)} snat to {transit}"


def _inbound(vpc: VpcView, machines: list[InstanceView]) -> Iterator[str]:
    """Translate public addresses to their machines' private ones, for packets that enter by the internet gateway."""
    for subnet in vpc.subnets:
        if any(kind == "internet" for _, kind, _ in _outside(subnet)):
            for machine in _public_machines(subnet, machines):
                yield f'iifname "{UPLINK}" ip daddr {machine.public_ip} dnat to {machine.private_ip}'


# The hooks ---------------------------------------------------------------------------------------------------------


def _forward(vpc: VpcView, machines: list[InstanceView]) -> Iterator[str]:
    yield "ip saddr @cut drop"
    yield "ip daddr @cut drop"
    yield "tcp flags syn tcp option maxseg size set rt mtu"
    yield "ct state established,related accept"
    yield "ct state invalid drop"
    if machines:
        leaving = _verdicts((machine.private_ip, f"jump out-{machine.id}") for machine in machines)
        arriving = _verdicts((machine.private_ip, f"goto in-{machine.id}") for machine in machines)
        yield f'iifname != "{UPLINK}" ip saddr vmap {leaving}'
        yield f"ip daddr vmap {arriving}"
    for cidr in vpc.cidrs:
        yield f"ip daddr {cidr} drop"
    yield f'iifname != "{UPLINK}" oifname "{UPLINK}" goto internet'


def _input(vpc: VpcView, machines: list[InstanceView]) -> Iterator[str]:
    """Accept packets to AWS's services inside a VPC: metadata, names, the gateway's ping, and the mount targets."""
    targets: list[MountTargetView] = [target for target in vpc.mount_targets if target.state == "available"]
    yield "ip saddr @cut drop"
    yield "ct state established,related accept"
    yield 'iifname "lo" accept'
    yield f'iifname "{UPLINK}" drop'
    yield f"ip daddr {METADATA_ADDRESS} tcp dport 80 accept"
    yield f"ip daddr {RESOLVER_ADDRESS} meta l4proto {{ tcp, udp }} th dport 53 accept"
    yield "icmp type echo-request accept"
    if targets and machines:
        addresses = ", ".join(target.ip for target in targets)
        leaving = _verdicts((machine.private_ip, f"jump out-{machine.id}") for machine in machines)
        arriving = _verdicts((target.ip, f"goto in-{target.id}") for target in targets)
        yield f"ip daddr != {{ {addresses} }} drop"
        yield f"tcp dport != {NFS} drop"
        yield f"ip saddr vmap {leaving}"
        yield f"ip daddr vmap {arriving}"


# The host ----------------------------------------------------------------------------------------------------------


def host_rules(machines_only: bool, bridges: Iterable[str] = ()) -> str:
    """Return the host's table: machines may reach the API on the host and the internet, but nothing else on the host.

    `machines_only` limits what the host routes to the traffic of machines, for a host that routed nothing before.
    `bridges` are the host's other bridges. br_netfilter shows frames within a bridge as forwarded, although they
    are not routed.
    """
    hook = "type filter hook {} priority 0; policy accept;"
    nat = "type nat hook postrouting priority 100;"
    lines = [
        f"add table ip {TABLE}",
        f"delete table ip {TABLE}",
        f"table ip {TABLE} {{",
        _chain("input", _host_input(), hook.format("input")),
        *([_chain("forward", _host_forward(bridges), hook.format("forward"))] if machines_only else []),
        _chain("postrouting", [f'ip saddr {PUBLIC_NETWORK} oifname != "{LINK_PREFIX}*" masquerade'], nat),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _host_input() -> Iterator[str]:
    yield f'iifname != "{LINK_PREFIX}*" accept'
    yield "ct state established,related accept"
    yield f"ip daddr {EDGE_ADDRESS} tcp dport {TLS_PORT} accept"
    yield f"ip daddr {EDGE_ADDRESS} icmp type echo-request accept"
    yield "drop"


def _host_forward(bridges: Iterable[str]) -> Iterator[str]:
    yield f'iifname "{LINK_PREFIX}*" accept'
    yield f'oifname "{LINK_PREFIX}*" ct state established,related accept'
    for bridge in bridges:
        yield f'iifname "{bridge}" oifname "{bridge}" accept'
    yield "drop"
