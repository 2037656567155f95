"""Measure the bandwidth from this node to the next with one TCP stream, whose other end is started over ssh."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence

SECONDS = 1.0
WAIT_SECONDS = 10.0
BLOCK = bytes(1 << 18)
MOST_DIGITS = 20
"""Training code may be root on the other node, and print a line without end."""

# What AWS lets such a machine send for hours, in Gbit/s. Half of it is expected, and no more than one stream can carry.
_SUSTAINED = {
    "g4dn.xlarge": 5.0,
    "g5.xlarge": 2.5,
    "g5.2xlarge": 5.0,
    "g6.xlarge": 2.5,
    "g6.2xlarge": 5.0,
    "p3.2xlarge": 2.5,
    "p3.8xlarge": 10.0,
    "t3.medium": 0.256,
}
# Bus bandwidth of NCCL's all-reduce of 1 GiB with EFA, in GB/s, by type and number of nodes.
# 2 x p4d.24xlarge: https://github.com/skypilot-org/skypilot/pull/8966. p4de.24xlarge has the same network cards.
# p5 is missing: the public figures (390 to 487) do not name their number of nodes.
_BUS = {("p4d.24xlarge", 2): 77.0, ("p4de.24xlarge", 2): 77.0}
SHARE = 0.8
"""Of the published figure: the least to expect."""
_LARGE = 2.0
_UNKNOWN = 0.1


def floor(instance_type: str) -> float:
    """Return the least Gbit/s to expect. Large GPU machines have much more than those in the table."""
    if instance_type in _SUSTAINED:
        return min(_SUSTAINED[instance_type] / 2, _LARGE)
    large = instance_type.startswith(("p3", "p4", "p5", "p6", "trn")) or instance_type.endswith("48xlarge")
    return _LARGE if large else _UNKNOWN


def bus_floor(types: Sequence[str]) -> float | None:
    """Return the least Gbit/s of NCCL's all-reduce of 1 GiB on these nodes; None if no figure is published."""
    figure = _BUS.get((types[0], len(types))) if len(set(types)) == 1 else None
    return None if figure is None else SHARE * figure * 8


def receive(allowed: str) -> int:
    """Receive a bandwidth test: print the port, accept one connection, from `allowed` only, and print the bytes."""
    with socket.socket() as listening:
        listening.bind(("", 0))
        listening.listen(1)
        listening.settimeout(WAIT_SECONDS)
        print(listening.getsockname()[1], flush=True)
        try:
            connection, (address, _port) = listening.accept()
        except socket.timeout:
            return 1
        with connection:
            if address != allowed:
                return 1
            connection.settimeout(WAIT_SECONDS)
            size = 0
            while part := connection.recv(1 << 20):
                size += len(part)
    print(size, flush=True)
    return 0


def measure(ssh: list[str], alias: str, address: str, own: str) -> float:
    """Return the Gbit/s to the node `alias`, or raise OSError."""
    command = [*ssh, alias, "deeplearning", "health", "receive", own]
    far = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        if far.stdout is None:
            raise OSError(f"ssh to {alias} was started without a pipe for its output")
        port = _number(far.stdout.readline(MOST_DIGITS))
        if port is None:
            raise OSError(f"{alias} did not open a port")
        started = time.monotonic()
        with socket.create_connection((address, port), timeout=WAIT_SECONDS) as stream:
            while time.monotonic() - started < SECONDS:
                stream.sendall(BLOCK)
        received = _number(far.stdout.readline(MOST_DIGITS))
        if received is None:
            raise OSError(f"{alias} received nothing")
        return received * 8 / (time.monotonic() - started) / 1e9
    finally:
        far.kill()
        far.wait()


def _number(line: str) -> int | None:
    return int(line) if line.strip().isdecimal() else None
