"""What a VPC's resolver knows by itself, and how it says so."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from localcloud.core.views import VpcView
from localcloud.machines import resolver
from localcloud.machines.resolver import Resolver, look_up, respond
from localcloud_kits.views_kit import machine, target, vpc

A, PTR, AAAA = 1, 12, 28
EDGE = "198.51.100.1"
EFS = "efs.us-east-1.amazonaws.com"

VPC = vpc(
    machine(10, public_ip="198.51.100.20", public_dns="ec2-198-51-100-20.compute-1.amazonaws.com"),
    machine(11),
    mount_targets=(
        target(200, zone="us-east-1a"),
        target(201, zone="us-east-1b"),
        target(202, zone="us-east-1c", state="creating"),
        target(203, file_system_id="fs-0b", region="eu-west-1", zone="us-east-1a"),
        target(204, file_system_id="fs-0d", resolvable=False),
    ),
)


@pytest.mark.parametrize(
    "name, kind, ours, answer",
    [
        # A file system's name leads to the mount target in the asking machine's zone, or in the one that is named.
        (f"fs-0a.{EFS}", A, True, "10.0.1.200"),
        (f"FS-0A.{EFS.upper()}", A, True, "10.0.1.200"),
        (f"us-east-1b.fs-0a.{EFS}", A, True, "10.0.1.201"),
        (f"us-east-1c.fs-0a.{EFS}", A, True, None),
        (f"us-east-1d.fs-0a.{EFS}", A, True, None),
        (f"fs-0b.{EFS}", A, True, None),
        ("fs-0b.efs.eu-west-1.amazonaws.com", A, True, "10.0.1.203"),
        (f"fs-0c.{EFS}", A, True, None),
        (f"fs-0d.{EFS}", A, True, None),
        (f"fs-0a.{EFS}", AAAA, True, None),
        # Machines by their names, whether they are there or not.
        ("ip-10-0-0-10.ec2.internal", A, True, "10.0.0.10"),
        ("ip-10-0-0-99.ec2.internal", A, True, "10.0.0.99"),
        ("ip-10-0-0-10.eu-west-1.compute.internal", A, True, "10.0.0.10"),
        ("ip-10-0-0-10.ec2.internal", AAAA, True, None),
        ("ip-10-0-0-999.ec2.internal", A, True, None),
        # The public name of one inside leads to its private address; of others, to what it says.
        ("ec2-198-51-100-20.compute-1.amazonaws.com", A, True, "10.0.0.10"),
        ("ec2-198-51-100-77.compute-1.amazonaws.com", A, True, "198.51.100.77"),
        ("ec2-198-51-100-77.eu-west-1.compute.amazonaws.com", A, True, "198.51.100.77"),
        # All of AWS's endpoints are one address, which has no other kind.
        ("ec2.us-east-1.amazonaws.com", A, True, EDGE),
        ("bucket.s3.us-east-1.amazonaws.com", A, True, EDGE),
        ("sts.amazonaws.com", AAAA, True, None),
        # Back from addresses.
        ("11.0.0.10.in-addr.arpa", PTR, True, "ip-10-0-0-11.ec2.internal"),
        ("11.0.0.10.in-addr.arpa", A, True, None),
        ("99.0.0.10.in-addr.arpa", PTR, True, None),
        ("8.8.8.8.in-addr.arpa", PTR, False, None),
        ("999.0.0.10.in-addr.arpa", PTR, True, None),
        # The rest is the host's to know.
        ("deb.debian.org", A, False, None),
        ("amazonaws.com.example.org", A, False, None),
        ("notamazonaws.com", A, False, None),
    ],
)
def test_what_a_name_leads_to(name: str, kind: int, ours: bool, answer: str | None) -> None:
    assert look_up(name, kind, VPC, "us-east-1a") == (ours, answer)


def test_a_machine_in_a_zone_without_a_mount_target_does_not_find_the_file_system() -> None:
    assert look_up(f"fs-0a.{EFS}", A, VPC, "us-east-1d") == (True, None)
    assert look_up(f"fs-0a.{EFS}", A, VPC, None) == (True, None)


def test_without_dns_support_private_names_lead_nowhere() -> None:
    assert look_up("ip-10-0-0-10.ec2.internal", A, vpc(dns_support=False), None) == (True, None)


@pytest.mark.parametrize("support, hostnames", [(True, False), (False, True), (False, False)])
def test_file_systems_have_names_only_where_the_vpc_has_dns_hostnames(support: bool, hostnames: bool) -> None:
    view = vpc(mount_targets=VPC.mount_targets, dns_support=support, dns_hostnames=hostnames)
    assert look_up(f"fs-0a.{EFS}", A, view, "us-east-1a") == (True, None)


# On the wire


def question(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 4711, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def read(packet: bytes) -> tuple[int, int, bytes]:
    """The code, how many answers, and what the answer says."""
    number, flags, asked, answers = struct.unpack("!HHHH", packet[:8])
    assert (number, asked) == (4711, 1)
    assert flags & 0x8180 == 0x8180, "it is an answer, of a resolver"
    at = 12
    while packet[at]:
        at += 1 + packet[at]
    return flags & 0xF, answers, packet[at + 5 + 12 :]


@contextmanager
def resolving(view: VpcView | None = VPC) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """A resolver on loopback: its addresses for datagrams and for connections."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    tcp = socket.create_server(("127.0.0.1", 0))
    serving = Resolver(udp, tcp, lambda: view, lambda _address: "us-east-1a")
    try:
        yield udp.getsockname(), tcp.getsockname()
    finally:
        serving.close()


def ask(address: tuple[str, int], packet: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(5)
        asking.sendto(packet, address)
        return asking.recv(4096)


@pytest.mark.parametrize(
    "name, kind, code, count, says",
    [
        ("ec2.us-east-1.amazonaws.com", A, 0, 1, socket.inet_aton(EDGE)),
        ("ec2.us-east-1.amazonaws.com", AAAA, 0, 0, b""),  # the name is there: clients go on with the other kind
        (f"fs-0c.{EFS}", A, 3, 0, b""),
        (f"fs-0c.{EFS}", AAAA, 3, 0, b""),
        ("11.0.0.10.in-addr.arpa", PTR, 0, 1, b"\x0cip-10-0-0-11\x03ec2\x08internal\0"),
        ("99.0.0.10.in-addr.arpa", PTR, 3, 0, b""),
    ],
)
def test_answers(name: str, kind: int, code: int, count: int, says: bytes) -> None:
    with resolving() as (udp, tcp):
        assert read(ask(udp, question(name, kind))) == (code, count, says)
        with socket.create_connection(tcp, timeout=5) as asking:
            packet = question(name, kind)
            asking.sendall(struct.pack("!H", len(packet)) + packet)
            with asking.makefile("rb") as stream:
                (length,) = struct.unpack("!H", stream.read(2))
                assert read(stream.read(length)) == (code, count, says)


@pytest.mark.parametrize("packet", [b"", b"\0" * 12, question("a.b")[:-3], b"\0" * 12 + b"\xc0\x0c\0\1\0\1"])
def test_what_is_no_question_gets_no_answer_and_does_no_harm(packet: bytes) -> None:
    with resolving() as (udp, _):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.sendto(packet, udp)
        assert read(ask(udp, question("sts.amazonaws.com")))[:2] == (0, 1)


def test_other_names_are_asked_of_the_hosts_own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    packet = question("deb.debian.org")
    theirs = respond(packet, A, len(packet), "192.0.2.1", True)
    monkeypatch.setattr(resolver, "_forward_udp", lambda asked: theirs if asked == packet else None)
    with resolving() as (udp, _):
        assert ask(udp, packet) == theirs
    with resolving(None) as (udp, _):  # before the network is known, everything is theirs
        assert ask(udp, packet) == theirs
