"""Open MPI: the command that starts a plan, and its output, taken apart again into what each process said."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from deeplearning import Refusal
from deeplearning.config import Config
from deeplearning.run.identity import as_root
from deeplearning.run.plan import Plan
from deeplearning.run.survey import COMMAND
from deeplearning.run.units import working

AGENT = f"{os.path.dirname(__file__)}/agent.sh"
SYSTEM = "/usr/bin"
# Debian's and Ubuntu's, that of AWS's images, Amazon Linux's.
PLACES = f"{SYSTEM}:/usr/local/bin:/opt/amazon/openmpi/bin:/usr/lib64/openmpi/bin"

SETTINGS = {
    # Each daemon is started from here, and stays in its unit: a lost node breaks no other's way.
    "plm_rsh_no_tree_spawn": "1",
    "orte_keep_fqdn_hostnames": "1",
    # A cut network is noticed within ten seconds; the defaults are five minutes.
    "oob_tcp_keepalive_time": "5",
    "oob_tcp_keepalive_intvl": "2",
    "oob_tcp_keepalive_probes": "3",
    # Plain TCP between nodes: what a cluster surely has. Frameworks bring NCCL for more.
    "pml": "ob1",
    "btl": "^openib",
    # Needs ptrace, which containers and hardened kernels refuse.
    "btl_vader_single_copy_mechanism": "none",
}


def hostfile(plan: Plan) -> str:
    return "".join(f"{node.name} slots={len(plan.on(node.name))}\n" for node in plan.nodes if plan.on(node.name))


def command(plan: Plan, run_id: str, attempt: int, config: Config, files: str) -> Sequence[str]:
    """`files` is the folder of this attempt, with its hostfile and plan.json."""
    program = shutil.which("mpirun", path=PLACES)
    if program is None:
        raise Refusal("This machine has no mpirun: install Open MPI 4 (Debian and Ubuntu: openmpi-bin).")
    unit = working(run_id, attempt)
    networks = members_networks(plan, config.vpc_cidrs)
    settings = {
        **SETTINGS,
        "plm_rsh_agent": f"/bin/sh {AGENT} {run_id} {attempt} {config.user}",
        "oob_tcp_if_include": networks,
        "btl_tcp_if_include": networks,
    }
    chosen = [word for name, value in settings.items() for word in ("--mca", name, value)]
    # In a unit like those on the other nodes: the end of a start is the same everywhere.
    properties = (
        "KillMode=mixed TimeoutStopSec=4 OOMPolicy=continue LimitNOFILE=65536 LimitMEMLOCK=infinity TasksMax=infinity"
    )
    return [
        *as_root("systemd-run", "--quiet", f"--unit={unit}", f"--uid={config.user}", "--collect", "--pipe", "--wait"),
        *(f"--property={one}" for one in properties.split()),
        # hwloc looks for X displays one by one otherwise, which takes five seconds.
        "--setenv=HWLOC_COMPONENTS=-gl",
        "--",
        *named(program),
        *("--hostfile", f"{files}/hostfile", "-np", str(len(plan.processes)), "--map-by", "slot", "--bind-to", "none"),
        *("--tag-output", "--leave-session-attached"),
        *chosen,
        *(COMMAND, "run", "exec", f"{files}/plan.json"),
    ]


def named(program: str) -> Sequence[str]:
    """A path tells mpirun where it is on other nodes too; of the system's own it would make a prefix of libraries."""
    return ["/usr/bin/env", "mpirun"] if os.path.dirname(program) == SYSTEM else [program]


def members_networks(plan: Plan, ranges: Sequence[str]) -> str:
    """Never docker0 or lo: of the VPC's ranges, those that the nodes are in."""
    addresses = [ipaddress.ip_address(node.address) for node in plan.nodes]
    return ",".join(text for text in ranges if any(address in ipaddress.ip_network(text) for address in addresses))


class Sorter:
    """Takes mpirun's output apart.

    It cuts what processes write into pieces of a few KiB, at any place, and mixes the pieces of all. --tag-output puts
    `[job,rank]<stdout>:` before each piece and each line. Wrappers write JSON in which no `<` occurs, so such a tag is
    always mpirun's, and a process's pieces in a row are exactly what it wrote.
    """

    _TAG = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err)>:")
    _BEGUN = re.compile(rb"\[\d*(,\d*(\](<[a-z]*(>:?)?)?)?)?$")
    _LONGEST_TAG = 40

    def __init__(self) -> None:
        self._rest = b""
        self._rank = -1
        self._lines: dict[int, list[bytes]] = defaultdict(list)

    def feed(self, data: bytes, last: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rank and message, of those that are whole now."""
        data = self._rest + data
        # What may be the beginning of a tag waits for the next piece.
        end = len(data) if last else self._safe(data)
        data, self._rest = data[:end], data[end:]
        start = 0
        for tag in self._TAG.finditer(data):
            yield from self._add(data[start : tag.start()])
            self._rank = int(tag[1])
            start = tag.end()
        yield from self._add(data[start:])

    def _safe(self, data: bytes) -> int:
        begun = self._BEGUN.search(data, max(0, len(data) - self._LONGEST_TAG))
        return begun.start() if begun and not self._TAG.match(data, begun.start()) else len(data)

    def _add(self, piece: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            self._lines[self._rank].append(line)
            text = b"".join(self._lines.pop(self._rank))
            if text:
                yield self._rank, _message(text)
        if rest:
            self._lines[self._rank].append(rest)


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    # Not from a wrapper: the dynamic linker's complaint, for example.
    return message if isinstance(message, dict) else {"line": line.decode(errors="replace").strip("\r")}
