"""The host forwards what machines send and receive. For its neighbours it becomes no router."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from localcloud.machines import namespaces
from localcloud.testing.booted import Network, command, localcloud, up

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
PORT = 8080


@dataclass(frozen=True)
class Neighbour:
    """A machine next to the host, in a network of its own, with the host as its gateway and a server at PORT."""

    namespace: Path
    address: str

    def reaches(self, address: str, port: int = PORT) -> bool:
        def connect() -> bool:
            try:
                socket.create_connection((address, port), timeout=2).close()
            except OSError:
                return False
            return True

        return namespaces.within(self.namespace, connect)


@contextmanager
def neighbour(namespace: Path, link: str, host: str, address: str) -> Iterator[Neighbour]:
    try:
        namespaces.create(namespace)
        for where, words in (
            (None, f"link add {link} type veth peer name up0 netns {namespace}"),
            (None, f"addr add {host}/30 dev {link}"),
            (None, f"link set {link} up"),
            (namespace, f"addr add {address}/30 dev up0"),
            (namespace, "link set up0 up"),
            (namespace, f"route add default via {host}"),
        ):
            namespaces.run(where, ["ip", *words.split()])
        with namespaces.within(namespace, lambda: socket.create_server(("", PORT))):
            yield Neighbour(namespace, address)
    finally:
        command("ip", "link", "del", link)
        namespaces.remove(namespace)


@pytest.fixture
def forwarding(request: pytest.FixtureRequest, nothing_up: dict[str, object]) -> Iterator[bool]:
    """Whether the host forwards packets before the local cloud is up."""
    before = FORWARDING.read_text(encoding="ascii")
    FORWARDING.write_text(str(int(request.param)), encoding="ascii")
    try:
        yield request.param
    finally:
        localcloud("down")
        assert FORWARDING.read_text(encoding="ascii").strip() == str(int(request.param))
        FORWARDING.write_text(before, encoding="ascii")


@pytest.fixture
def neighbours(forwarding: bool, tmp_path: Path) -> Iterator[tuple[Neighbour, Neighbour]]:
    with ExitStack() as stack:
        yield (
            stack.enter_context(neighbour(tmp_path / "first", "nb-1", "203.0.113.1", "203.0.113.2")),
            stack.enter_context(neighbour(tmp_path / "second", "nb-2", "203.0.113.5", "203.0.113.6")),
        )


@pytest.mark.parametrize("forwarding", [False, True], indirect=True)
def test_neighbours_reach_each_other_through_the_host_only_if_they_did_before(
    forwarding: bool, neighbours: tuple[Neighbour, Neighbour], key: Path
) -> None:
    first, second = neighbours
    assert first.reaches(second.address) == second.reaches(first.address) == forwarding
    network = Network.create(up(), key)
    (machine,) = network.launch()
    assert first.reaches(second.address) == second.reaches(first.address) == forwarding
    # The way out of machines: to the neighbours, and through the host's own gateway to a package index.
    for host, port in ((first.address, PORT), (second.address, PORT), ("deb.debian.org", 80)):
        network.says(machine, f"timeout 10 bash -c 'exec 3<>/dev/tcp/{host}/{port}'")
    # The way in: the host alone, not even where a security group would let a neighbour in.
    network.cloud.ec2.authorize_security_group_ingress(
        GroupId=network.group,
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": f"{first.address}/32"}]}
        ],
    )
    assert first.reaches(network.address(machine), 22) == forwarding
    network.says(machine, "true")
