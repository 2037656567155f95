"""The resolver of a VPC: it answers names of mount targets and machines, and forwards others to the host's servers."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from localcloud.core.accepting import Accepting
from localcloud.core.settings import EDGE_ADDRESS
from localcloud.core.views import VpcView

log = logging.getLogger(__name__)

_TYPE_A, _TYPE_PTR, _CLASS_IN = 1, 12, 1
_SECONDS = 5
_MOUNT_TARGET = re.compile(
    r"(?:(?P<zone>[a-z0-9-]+)\.)?(?P<fs>fs-[0-9a-f]+)\.efs\.(?P<region>[a-z0-9-]+)\.amazonaws\.com$"
)
_PRIVATE = re.compile(r"ip-(\d+)-(\d+)-(\d+)-(\d+)\.(?:ec2\.internal|[a-z0-9-]+\.compute\.internal)$")
_PUBLIC = re.compile(r"ec2-(\d+)-(\d+)-(\d+)-(\d+)\.(?:compute-1|[a-z0-9-]+\.compute)\.amazonaws\.com$")
_REVERSE = re.compile(r"(\d+)\.(\d+)\.(\d+)\.(\d+)\.in-addr\.arpa$")

Lookup = tuple[bool, str | None]
"""whether the resolver answers a name by itself, and the answer"""


def look_up(name: str, kind: int, vpc: VpcView, zone: str | None) -> Lookup:
    """Resolve a name from the records of the VPC. `zone` is the client's: a file system's name resolves to the mount
    target in it."""
    name = name.lower()
    if match := _MOUNT_TARGET.match(name):
        # AWS requires both. https://docs.aws.amazon.com/efs/latest/ug/mounting-fs-mount-cmd-dns-name.html
        if not (vpc.dns_support and vpc.dns_hostnames):
            return True, None
        target_zone = match["zone"] or zone
        for target in vpc.mount_targets:
            same_name = target.file_system_id == match["fs"] and target.region == match["region"]
            if same_name and target.zone == target_zone and target.state == "available" and target.resolvable:
                return True, target.ip if kind == _TYPE_A else None
        return True, None
    if match := _PRIVATE.match(name):
        return True, _as_address(match) if kind == _TYPE_A and vpc.dns_support else None
    if match := _PUBLIC.match(name):
        address = _as_address(match)
        inside = next((machine.private_ip for machine in vpc.instances if machine.public_ip == address), address)
        return True, inside if kind == _TYPE_A else None
    if name.endswith(".amazonaws.com"):
        return True, EDGE_ADDRESS if kind == _TYPE_A else None
    if match := _REVERSE.match(name):
        address = ".".join(reversed(match.groups()))
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return True, None
        machine = next((machine for machine in vpc.instances if machine.private_ip == address), None)
        if machine is not None:
            return True, machine.private_dns if kind == _TYPE_PTR else None
        return any(ipaddress.ip_address(address) in ipaddress.ip_network(cidr) for cidr in vpc.cidrs), None
    return False, None


def _as_address(match: re.Match[str]) -> str | None:
    text = ".".join(match.groups()[:4])
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _question(packet: bytes) -> tuple[str, int, int]:
    """Return the name, the type and the end of the question."""
    labels = []
    offset = 12
    while (length := packet[offset]) != 0:
        if length > 63:
            raise ValueError("a compressed name in a question")
        labels.append(packet[offset + 1 : offset + 1 + length].decode("ascii"))
        offset += 1 + length
    (kind,) = struct.unpack("!H", packet[offset + 1 : offset + 3])
    return ".".join(labels), kind, offset + 5


def respond(packet: bytes, kind: int, end: int, answer: str | None, known: bool) -> bytes:
    """Return a response with one record, with none (for a known name), or with the error for an unknown name."""
    code = 0 if answer is not None or known else 3
    header = packet[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, 1 if answer else 0, 0, 0)
    if answer is None:
        return header + packet[12:end]
    data = ipaddress.IPv4Address(answer).packed if kind == _TYPE_A else _encode(answer)
    record = struct.pack("!HHHIH", 0xC00C, kind, _CLASS_IN, _SECONDS, len(data)) + data
    return header + packet[12:end] + record


def _encode(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.rstrip(".").split(".")) + b"\0"


class Resolver:
    """Answers one VPC on sockets that were created inside its namespace."""

    def __init__(
        self,
        udp: socket.socket,
        tcp: socket.socket,
        vpc: Callable[[], VpcView | None],
        zone_of: Callable[[str], str | None],
    ) -> None:
        self._udp = udp
        self._vpc = vpc
        self._zone_of = zone_of
        self._accepting = Accepting(tcp, self._answer_tcp, "resolver-tcp")
        threading.Thread(target=self._serve_udp, daemon=True, name="resolver").start()

    def close(self) -> None:
        self._accepting.close()
        with contextlib.suppress(OSError):
            self._udp.shutdown(socket.SHUT_RDWR)  # ends the wait in _serve_udp
        self._udp.close()

    def _serve_udp(self) -> None:
        while True:
            try:
                packet, sender = self._udp.recvfrom(4096)
            except OSError:
                return
            if sender is None:  # woken by shutdown
                return
            threading.Thread(target=self._answer_udp, args=(packet, sender), daemon=True).start()

    def _answer_udp(self, packet: bytes, sender: tuple[str, int]) -> None:
        answer = self._answer(packet, sender[0], _forward_udp)
        if answer:
            try:
                self._udp.sendto(answer, sender)
            except OSError as error:
                log.debug("cannot send an answer to %s: %s", sender, error)

    def _answer_tcp(self, client: socket.socket) -> None:
        client.settimeout(5)
        try:
            packet = _read_tcp(client)
            answer = self._answer(packet, client.getpeername()[0], _forward_tcp)
            if answer:
                client.sendall(struct.pack("!H", len(answer)) + answer)
        except OSError as error:
            log.debug("a client closed its connection to the resolver: %s", error)

    def _answer(self, packet: bytes, sender: str, forward: Callable[[bytes], bytes | None]) -> bytes | None:
        try:
            name, kind, end = _question(packet)
        except (IndexError, ValueError, struct.error):
            return None
        vpc = self._vpc()
        resolved, answer = look_up(name, kind, vpc, self._zone_of(sender)) if vpc else (False, None)
        if not resolved:
            return forward(packet)
        exists = vpc is not None and look_up(name, _TYPE_A, vpc, self._zone_of(sender))[1] is not None
        return respond(packet, kind, end, answer, exists)


def _servers() -> list[str]:
    lines = Path("/etc/resolv.conf").read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if line.startswith("nameserver") and ":" not in line]


def _forward_udp(packet: bytes) -> bytes | None:
    for server in _servers():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as upstream:
            upstream.settimeout(3)
            try:
                upstream.sendto(packet, (server, 53))
                return upstream.recv(4096)
            except OSError:
                continue
    return None


def _forward_tcp(packet: bytes) -> bytes | None:
    for server in _servers():
        try:
            with socket.create_connection((server, 53), timeout=3) as upstream:
                upstream.sendall(struct.pack("!H", len(packet)) + packet)
                return _read_tcp(upstream)
        except OSError:
            continue
    return None


def _read_tcp(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        length = stream.read(2)
        if len(length) < 2:
            raise OSError("the connection was closed")
        return stream.read(struct.unpack("!H", length)[0])
