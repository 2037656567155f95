"""Open MPI: the command that starts a plan, and the parser that splits its output by process."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from deeplearning.config import Config
from deeplearning.contract import open_mpi, paths, schema
from deeplearning.contract.errors import UserError
from deeplearning.identity import as_root
from deeplearning.runs import messages, stacks
from deeplearning.runs.plan import Plan
from deeplearning.runs.units import attempt_unit

AGENT = f"{os.path.dirname(__file__)}/agent.sh"

SETTINGS = {
    # Start each daemon from here, so that a lost node cuts off no other.
    "plm_rsh_no_tree_spawn": "1",
    # Open MPI 4 and 5 ignore each other's name. 5 takes the other names of 4, too.
    "orte_keep_fqdn_hostnames": "1",
    "prte_keep_fqdn_hostnames": "1",
    # By default, 5 recognizes its own machine by its hostname only, and starts a second daemon on it.
    "prte_do_not_resolve": "0",
    # Notice a cut network within ten seconds; the default is five minutes.
    "oob_tcp_keepalive_time": "5",
    "oob_tcp_keepalive_intvl": "2",
    "oob_tcp_keepalive_probes": "3",
    # Use plain TCP between nodes, which every cluster has. Frameworks bring NCCL for more.
    "pml": "ob1",
    "btl": "^openib",
    # Needs ptrace, which containers and hardened kernels refuse.
    "btl_vader_single_copy_mechanism": "none",
}

MOST_AT_ONCE = 128
"""How many daemons Open MPI starts by default."""

UNIT_OPTIONS = (
    *("--quiet", "--collect", "--pipe", "--wait"),
    *("--property=KillMode=mixed", "--property=TimeoutStopSec=4", "--property=OOMPolicy=continue"),
    *("--property=LimitNOFILE=65536", "--property=LimitMEMLOCK=infinity", "--property=TasksMax=infinity"),
    f"--setenv=HWLOC_COMPONENTS={open_mpi.HWLOC_COMPONENTS}",
)
"""systemd-run's, for an attempt's unit on each node, so that an attempt ends in the same way on all of them."""


def hostfile(plan: Plan) -> str:
    return "".join(f"{node.name} slots={len(plan.on(node.name))}\n" for node in plan.nodes if plan.on(node.name))


def command(plan: Plan, run_id: str, attempt: int, config: Config, files: str) -> Sequence[str]:
    """Return the command that starts a plan. `files` is the attempt's folder, with its hostfile and plan.json."""
    program = shutil.which("mpirun", path=os.pathsep.join(open_mpi.FOLDERS))
    if program is None:
        raise UserError("This machine has no mpirun: install Open MPI (Debian and Ubuntu: openmpi-bin).")
    # A path tells mpirun where it is on other nodes, too. The system's would take /usr as a prefix for libraries.
    is_systems = os.path.dirname(program) == open_mpi.SYSTEM_FOLDER
    options = (f"--uid={config.user}", *UNIT_OPTIONS)
    networks = member_networks(plan, config.vpc_cidrs)
    daemons = str(max(MOST_AT_ONCE, len(plan.nodes)))
    settings = {
        **SETTINGS,
        # Open MPI refuses to start more daemons than these if it stays attached to them. The names in 4 and in 5.
        "plm_rsh_num_concurrent": daemons,
        "plm_ssh_num_concurrent": daemons,
        "plm_rsh_agent": f"/bin/sh {AGENT} {run_id} {attempt} {' '.join(options)} --",
        "oob_tcp_if_include": networks,
        "btl_tcp_if_include": networks,
    }
    # Open MPI 5 crashes if a network's name is empty.
    mca = [word for name, value in settings.items() if value for word in ("--mca", name, value)]
    return [
        *as_root("systemd-run", f"--unit={attempt_unit(run_id, attempt)}", *options, "--"),
        *(["/usr/bin/env", "mpirun"] if is_systems else [program]),
        *("--hostfile", f"{files}/hostfile", "-np", str(len(plan.processes)), "--map-by", "slot", "--bind-to", "none"),
        *("--tag-output", "--merge-stderr-to-stdout", "--leave-session-attached"),
        *mca,
        *(paths.PROGRAM, "run", "exec", f"{files}/plan.json"),
    ]


def member_networks(plan: Plan, ranges: Sequence[str]) -> str:
    """Return the VPC's ranges that the nodes are in, so that neither docker0 nor lo is used."""
    addresses = [ipaddress.ip_address(node.address) for node in plan.nodes]
    return ",".join(text for text in ranges if any(address in ipaddress.ip_network(text) for address in addresses))


_CONTINUED = messages.CONTINUED.encode()
LONGEST_MESSAGE = 1 << 24
"""In bytes. What a process writes beyond it before the end of a line is discarded."""
MESSAGE = {
    "time": schema.number(0, 2**33),
    "line": schema.string,
    "stacks": schema.list_of(schema.matching(rf"(?s).{{0,{stacks.MOST_BYTES}}}", "a line"), most=stacks.MOST_LINES),
    "state": schema.string,
    "note": schema.text(1000),
    "pid": schema.between(1, 2**31),
    "end": schema.between(0, 255),
    "gpu_busy": schema.between(0, 100),
}
"""What a wrapper reports. Training code may write in its place, so the values are validated."""


class Sorter:
    """Splits mpirun's output by process.

    mpirun mixes what it reads of all processes. With --tag-output, Open MPI 4 puts `[job,rank]<stdout>:` before each
    piece and each line, wherever a piece was cut. Open MPI 5 does so before each line only, with a space behind it; of
    wrappers it reads whole lines (see messages.py). They write no `<`, so such a tag is always mpirun's, and the pieces
    of one process, joined, are exactly what it wrote.
    """

    _TAG = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err)>:")
    _PARTIAL_TAG = re.compile(rb"\[\d*(,\d*(\](<[a-z]*(>:?)?)?)?)?$")
    _LONGEST_TAG = 40

    def __init__(self) -> None:
        self._rest = b""
        self._rank = -1
        self._space: bool | None = None
        """A space follows each tag, as it does the first one: no message begins with one."""
        self._begun: dict[int, bytearray] = defaultdict(bytearray)

    def feed(self, data: bytes, last: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rank and the content of each message that is complete."""
        data = self._rest + data
        # What may be the beginning of a tag is kept for the next call.
        partial = None if last else self._PARTIAL_TAG.search(data, max(0, len(data) - self._LONGEST_TAG))
        end = partial.start() if partial else len(data)
        data, self._rest = data[:end], data[end:]
        start = 0
        for tag in self._TAG.finditer(data):
            yield from self._add(data[start : tag.start()])
            self._rank = int(tag[1])
            start = tag.end()
            follows = data.startswith(b" ", start)
            self._space = follows if self._space is None else self._space
            start += self._space and follows
        yield from self._add(data[start:])

    def _add(self, piece: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        *complete, rest = piece.split(b"\n")
        for line in complete:
            text = self._begun[self._rank]
            text += line
            if text.endswith(_CONTINUED):
                del text[-len(_CONTINUED) :]
                del text[LONGEST_MESSAGE:]
                continue
            del self._begun[self._rank]
            if text:
                yield self._rank, _message(bytes(text[:LONGEST_MESSAGE]))
        if rest:
            text = self._begun[self._rank]
            text += rest
            # The last byte says whether the message is continued.
            del text[LONGEST_MESSAGE:-1]


def _message(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(schema.InvalidValue):
        message = schema.from_json(line)
        if isinstance(message, dict):
            for key in message.keys() & MESSAGE.keys():
                MESSAGE[key](message[key])
            return message
    # Not from a wrapper: the dynamic linker's complaint, for example.
    return {"line": line.decode(errors="replace").strip("\r")}
