"""The network: a namespace for each VPC and each machine, and a link from each VPC to the host.

A machine's only link leads into its VPC's namespace, which is router and firewall, and has the services of AWS inside a
VPC (metadata, names, mount targets). Addresses are those in the API; two VPCs may use the same ones.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from localcloud.core.errors import Refusal
from localcloud.core.settings import EDGE_ADDRESS, METADATA_ADDRESS, PUBLIC_NETWORK, RESOLVER_ADDRESS, TRANSIT_NETWORK
from localcloud.core.views import InstanceView, VpcView
from localcloud.machines import namespaces
from localcloud.machines.ruleset import LINK_PREFIX, TABLE, UPLINK, host_rules, ruleset

log = logging.getLogger(__name__)

EDGE = "lc-edge"
MACHINE_LINK = "ens5"
"""the name on EC2 instances"""

_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


@dataclass
class Vpc:
    """The current network of a VPC."""

    id: str
    number: int
    namespace: Path
    view: VpcView | None = None
    rules: str = ""
    machines: dict[str, InstanceView] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    """addresses that the namespace answers for: gateways of subnets, mount targets"""
    public: set[str] = field(default_factory=set)
    close: Callable[[], None] = lambda: None

    @property
    def link(self) -> str:
        return f"{LINK_PREFIX}{self.number}"

    @property
    def transit(self) -> str:
        return str(ipaddress.ip_network(TRANSIT_NETWORK)[self.number])


class HostNetwork:
    """Applies the API's records to the network. Called under the cloud's lock."""

    def __init__(
        self,
        folder: Path,
        views: Callable[[], list[VpcView]],
        cut: Callable[[], set[str]],
        serve: Callable[[Vpc], Callable[[], None]],
    ) -> None:
        """`views` returns the API's records, `cut` the instances without a network. `serve` starts the services in
        a VPC and returns a function that stops them."""
        self._folder = folder
        self._views = views
        self._cut = cut
        self._serve = serve
        self._vpcs: dict[str, Vpc] = {}
        self._last: tuple[list[VpcView], set[str]] = ([], set())
        self._attached: dict[str, str] = {}

    def open(self) -> None:
        """Configure the host: an address from which the operator reaches machines, and their route to the internet."""
        before = _FORWARDING.read_text(encoding="ascii")
        (self._folder / "ip_forward").write_text(before, encoding="ascii")
        _ip(
            None,
            f"link add {EDGE} type bridge\n"
            f"addr add {EDGE_ADDRESS}/32 dev {EDGE}\n"
            f"link set {EDGE} up\n"
            f"route add unreachable {PUBLIC_NETWORK}\n"
            f"route add unreachable {TRANSIT_NETWORK}\n",
        )
        # The rules come first, so that the host never routes for its neighbours.
        rules = host_rules(machines_only=before.strip() == "0", bridges=_bridges())
        namespaces.run(None, ["nft", "-f", "-"], rules)
        _FORWARDING.write_text("1", encoding="ascii")

    def changed(self) -> None:
        views = self._views()
        cut = self._cut()
        if (views, cut) == self._last:
            return
        desired = {view.id: view for view in views if view.mount_targets or view.instances}
        in_use = {*desired, *self._attached.values()}
        for name in self._vpcs.keys() - in_use:
            self._remove(self._vpcs.pop(name))
        for name, view in desired.items():
            self._apply(self._vpcs.get(name) or self._create(name), view, cut)
        self._last = (views, cut)  # set last, so that the next call retries a failed change

    def attach(self, machine: InstanceView, subnet_cidr: str) -> Path:
        """Create a machine's namespace with a link to its VPC. The machine must be in the records already."""
        self.changed()
        vpc = self._vpcs[machine.vpc_id]
        namespace = namespace_of(self._folder, machine.id)
        link = _link_name(machine.id)
        prefix = ipaddress.ip_network(subnet_cidr).prefixlen
        gateway = str(ipaddress.ip_network(subnet_cidr)[1])
        namespaces.create(namespace)
        _ip(
            vpc.namespace,
            f"link add {link} type veth peer name {MACHINE_LINK} address {machine.mac} netns {namespace}\n"
            f"link set {link} up\n"
            f"route add {machine.private_ip}/32 dev {link}\n"
            f"neigh add {machine.private_ip} lladdr {machine.mac} dev {link} nud permanent\n",
        )
        # The VPC answers ARP requests for other machines, at once, as each machine has a link of its own.
        settings = (f"net.ipv4.conf.{link}.proxy_arp=1", f"net.ipv4.neigh.{link}.proxy_delay=0")
        namespaces.run(vpc.namespace, ["sysctl", "-qw", *settings])
        _ip(
            namespace,
            "link set lo up\n"
            f"addr add {machine.private_ip}/{prefix} dev {MACHINE_LINK}\n"
            f"link set {MACHINE_LINK} up\n"
            f"route add default via {gateway} dev {MACHINE_LINK}\n",
        )
        self._attached[machine.id] = vpc.id
        return namespace

    def detach(self, machine_id: str) -> None:
        """Remove a machine's link and its namespace."""
        vpc = self._vpcs.get(self._attached.pop(machine_id, ""))
        if vpc is not None:
            # Now, as the next machine may get the same address before the kernel has removed the namespace.
            delete = ["nsenter", f"--net={vpc.namespace}", "ip", "link", "del", _link_name(machine_id)]
            subprocess.run(delete, check=False, stderr=subprocess.DEVNULL)
        namespaces.remove(namespace_of(self._folder, machine_id))
        self._last = ([], set())

    def close(self) -> None:
        for vpc in self._vpcs.values():
            self._remove(vpc)
        self._vpcs.clear()
        sweep(self._folder)

    def _create(self, name: str) -> Vpc:
        taken = {vpc.number for vpc in self._vpcs.values()}
        number = next(number for number in itertools.count(1) if number not in taken)
        vpc = Vpc(name, number, namespace_of(self._folder, name))
        try:
            self._connect(vpc)
            vpc.close = self._serve(vpc)
        except BaseException:
            self._remove(vpc)
            raise
        self._vpcs[name] = vpc
        return vpc

    def _connect(self, vpc: Vpc) -> None:
        """Create the VPC's namespace and its link to the host."""
        namespaces.create(vpc.namespace)
        _ip(
            None,
            f"link add {vpc.link} mtu {_mtu()} type veth peer name {UPLINK} mtu {_mtu()} netns {vpc.namespace}\n"
            f"link set {vpc.link} up\n"
            f"route add {vpc.transit}/32 dev {vpc.link} src {EDGE_ADDRESS}\n",
        )
        _ip(
            vpc.namespace,
            "link set lo up\n"
            f"addr add {METADATA_ADDRESS}/32 dev lo\n"
            f"addr add {RESOLVER_ADDRESS}/32 dev lo\n"
            f"addr add {vpc.transit}/32 dev {UPLINK}\n"
            f"link set {UPLINK} up\n"
            f"route add default via {EDGE_ADDRESS} dev {UPLINK} onlink src {vpc.transit}\n",
        )
        namespaces.run(vpc.namespace, ["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0"])

    def _remove(self, vpc: Vpc) -> None:
        vpc.close()
        subprocess.run(["ip", "link", "del", vpc.link], check=False, stderr=subprocess.DEVNULL)
        namespaces.remove(vpc.namespace)

    def _apply(self, vpc: Vpc, view: VpcView, cut: set[str]) -> None:
        vpc.view = view
        vpc.machines = {machine.private_ip: machine for machine in view.instances}
        self._set_local(vpc, _local_addresses(view))
        self._set_public(vpc, _public_addresses(view))
        cut_off = [machine.private_ip for machine in view.instances if machine.id in cut]
        rules = ruleset(view, vpc.transit, cut_off)
        if rules != vpc.rules:
            namespaces.run(vpc.namespace, ["nft", "-f", "-"], rules)
            vpc.rules = rules

    def _set_local(self, vpc: Vpc, addresses: set[str]) -> None:
        steps = [f"addr del {address}/32 dev lo\n" for address in vpc.local - addresses]
        steps += [f"addr add {address}/32 dev lo\n" for address in addresses - vpc.local]
        if steps:
            _ip(vpc.namespace, "".join(steps))
        vpc.local = addresses

    def _set_public(self, vpc: Vpc, addresses: set[str]) -> None:
        """Route the VPC's public addresses to it on the host, which is the internet between its machines too.

        An address may move here from another VPC at the same time, so routes are replaced.
        """
        gone = vpc.public - addresses
        new = addresses - vpc.public
        taken = set().union(*(other.public for other in self._vpcs.values() if other is not vpc))
        steps = [f"route del {address}/32 dev {vpc.link}\n" for address in gone - taken]
        steps += [
            f"route replace {address}/32 via {vpc.transit} dev {vpc.link} src {EDGE_ADDRESS}\n" for address in new
        ]
        if steps:
            namespaces.run(None, ["ip", "-force", "-batch", "-"], "".join(steps))
        vpc.public = addresses


def _ip(namespace: Path | None, steps: str) -> None:
    """Run lines of `ip` in a namespace, or in the host's own."""
    namespaces.run(namespace, ["ip", "-batch", "-"], steps)


def namespace_of(folder: Path, name: str) -> Path:
    """Return the file of the namespace of a machine or a VPC."""
    return folder / "ns" / name


def _link_name(machine_id: str) -> str:
    """Return the name of a machine's link, which may have 15 characters."""
    return "m-" + machine_id[-12:]


def _mtu() -> int:
    """Return the MTU of the host's default route, but at most 1500."""
    for line in subprocess.run(
        ["ip", "-o", "route", "show", "default"], capture_output=True, text=True, check=False
    ).stdout.splitlines():
        fields = line.split()
        if "dev" in fields:
            device = fields[fields.index("dev") + 1]
            return min(1500, int(Path(f"/sys/class/net/{device}/mtu").read_text(encoding="ascii")))
    return 1500


def _local_addresses(view: VpcView) -> set[str]:
    gateways = {str(ipaddress.ip_network(subnet.cidr)[1]) for subnet in view.subnets}
    return gateways | {target.ip for target in view.mount_targets if target.state == "available"}


def _public_addresses(view: VpcView) -> set[str]:
    machines = {machine.public_ip for machine in view.instances if machine.public_ip}
    return machines | {nat.public_ip for nat in view.nat_gateways if nat.state == "available" and nat.public_ip}


def _bridges() -> list[str]:
    """Return the host's bridges other than the local cloud's."""
    names = sorted(path.parent.name for path in Path("/sys/class/net").glob("*/bridge"))
    return [name for name in names if not name.startswith(LINK_PREFIX)]


def check_free() -> None:
    """Raise Refusal if another route of this machine uses the local cloud's addresses."""
    ranges = [ipaddress.ip_network(PUBLIC_NETWORK), ipaddress.ip_network(TRANSIT_NETWORK)]
    listing = ["ip", "-o", "route", "show", "table", "all"]
    routes = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    for line in routes.splitlines():
        fields = line.split()
        kinds = ("unreachable", "local", "broadcast", "blackhole", "prohibit", "unicast")
        text = fields[1] if fields[0] in kinds else fields[0]
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            continue
        # A VPN's route for half of all addresses does not conflict, as the local cloud's routes are more specific.
        taken = [item for item in ranges if network.version == 4 and network.prefixlen >= 8 and network.overlaps(item)]
        if taken:
            raise Refusal(
                f"the address range {taken[0]} is in use on this machine (route: {line.strip()}): "
                "the local cloud gives its machines public addresses from it. Free it, then run localcloud up again."
            )


def sweep(folder: Path) -> None:
    """Remove every link, route, table and namespace of a local cloud, whichever process has left them."""
    for line in _quietly("ip", "-o", "link", "show").splitlines():
        name = line.split(":")[1].strip().split("@")[0]
        if name.startswith(LINK_PREFIX):
            _quietly("ip", "link", "del", name)
    for network in (PUBLIC_NETWORK, TRANSIT_NETWORK):
        _quietly("ip", "route", "del", "unreachable", network)
    before = folder / "ip_forward"
    if before.exists():
        _FORWARDING.write_text(before.read_text(encoding="ascii"), encoding="ascii")
        before.unlink()
    # Forwarding is off by now, so nothing is routed without these rules.
    _quietly("nft", "delete", "table", "ip", TABLE)
    for namespace in namespace_of(folder, "*").parent.glob("*"):
        namespaces.remove(namespace)


def _quietly(*command: str) -> str:
    """Return the output of a command that may fail. Without the program there is nothing to remove."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""
