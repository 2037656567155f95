"""What a node is like just before a start: `deeplearning run survey` on each, all at once."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import shlex
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deeplearning import Refusal, records
from deeplearning.members.reading import Member
from deeplearning.run import efa
from deeplearning.run.folder import Folder
from deeplearning.run.identity import as_root
from deeplearning.run.plan import Node

COMMAND = "/usr/local/bin/deeplearning"
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4")
# Below those that outgoing connections take, so that nothing takes one in between.
FIRST_PORT, LAST_PORT = 20000, 30000
_SIOCGIFADDR = 0x8915
"""See netdevice(7)."""
ANSWER = {
    "boot_id": records.matching(r"[0-9a-f-]{1,64}", "a boot id"),
    "gpus": records.gpus,
    "efa": records.between(0, 64),
    # See dev_valid_name() in Linux; empty with a problem.
    "interface": records.matching(r"[A-Za-z0-9_.-]{0,15}", "the name of a network interface"),
    "ports": records.a_list(records.between(1, 65535)),
    "problem": records.matching(r"[^\x00-\x1f\x7f]{0,5000}", "a line of text"),
}
"""Training code may be root on its node, so what a survey answers is checked."""


@dataclass(frozen=True)
class Wanted:
    """What a node is asked for."""

    run_id: str
    folder: str
    python: str
    ports: int


@dataclass(frozen=True)
class Found:
    member: Member
    node: Node | None = None
    boot_id: str = ""
    problem: str = ""
    """Why it cannot take part; node is None if it did not even answer."""


def surveyed(members: Sequence[Member], wanted: Wanted, own: str, seconds: float = 8) -> list[Found]:
    """Of all these members at once; `own` is this machine's instance id."""
    if not members:
        return []
    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(lambda member: _asked(member, wanted, member.instance_id == own, seconds), members))


def _asked(member: Member, wanted: Wanted, here: bool, seconds: float) -> Found:
    question = [COMMAND, "run", "survey", wanted.run_id, wanted.folder, wanted.python, member.private_ip]
    question.append(str(wanted.ports))
    words = question if here else [*SSH, member.alias, shlex.join(question)]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return Found(member, problem=f"{member.alias} does not answer within {seconds:g} s.")
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return Found(member, problem=f"{member.alias} does not answer: {said[-1] if said else 'ssh failed'}")
    try:
        answer = records.checked_part(json.loads(done.stdout), ANSWER, f"the survey of {member.alias}")
    except (ValueError, RecursionError, Refusal) as error:
        reason = f"{member.alias} has another version of our programs, or is out of order: run configure.yml. ({error})"
        return Found(member, problem=reason)
    node = Node(
        name=member.alias,
        address=member.private_ip,
        gpus=answer["gpus"],
        interface=answer["interface"],
        # No more than were asked for.
        ports=tuple(answer["ports"][: wanted.ports]),
        efa=answer["efa"],
    )
    problem, booted = answer["problem"], answer["boot_id"]
    if not problem and node.gpus < member.gpus:
        problem = f"{node.gpus} of its {member.gpus} GPUs answer (`nvidia-smi -L` there)"
    return Found(member, node, booted, f"{member.alias}: {problem}" if problem else "")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deeplearning run survey")
    for name in ("run_id", "folder", "python", "address"):
        parser.add_argument(name)
    parser.add_argument("ports", type=int)
    given = parser.parse_args(argv)
    left_from_before(given.run_id)
    interface = interface_of(given.address)
    answer = {
        "boot_id": boot_id(),
        "gpus": count_gpus(),
        "efa": efa.count(),
        "interface": interface,
        "ports": free_ports(given.ports, given.run_id),
        "problem": problem(given.folder, given.python, interface, given.address),
    }
    json.dump(answer, sys.stdout)
    return 0


def left_from_before(run_id: str) -> None:
    """What an earlier start left on this node while it was out of reach is ended before the next one."""
    from deeplearning.run.units import working_ones

    subprocess.run(as_root("systemctl", "stop", working_ones(run_id)), stderr=subprocess.DEVNULL, check=False)


def problem(folder: str, python: str, interface: str, address: str) -> str:
    if not Folder(folder).is_there():
        return f"{folder} is not to be seen there: is EFS mounted?"
    if not os.access(python, os.X_OK):
        return f"{python} is not there: install the framework on all members, or give python a path that all have."
    if not interface:
        return f"no network interface has the address {address}"
    return ""


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def count_gpus() -> int:
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=8, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def interface_of(address: str) -> str:
    """The interface that has this address; empty if none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _unused, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


def free_ports(count: int, run_id: str) -> list[int]:
    """Begins at another place for each run. They are all held until the last is found."""
    start = random.Random(run_id).randrange(FIRST_PORT, LAST_PORT)
    held: list[socket.socket] = []
    try:
        for port in [*range(start, LAST_PORT), *range(FIRST_PORT, start)]:
            if len(held) == count:
                break
            probe = socket.socket()
            try:
                probe.bind(("", port))
            except OSError:
                probe.close()
                continue
            held.append(probe)
        return [probe.getsockname()[1] for probe in held]
    finally:
        for probe in held:
            probe.close()


def still_there(nodes: Sequence[tuple[str, str, bool]], run_id: str, seconds: float = 5) -> dict[str, str]:
    """Ends what is left of a start on these (name, boot id, here) and says for each node that was lost, why.

    A node that has booted since, or another machine under its name, is lost as much as one that does not answer.
    """
    from deeplearning.run.units import working_ones

    def look(node: tuple[str, str, bool]) -> str:
        name, expected, here = node
        end = shlex.join(["sudo", "-n", "systemctl", "stop", working_ones(run_id)])
        script = f"cat /proc/sys/kernel/random/boot_id; {end} 2>/dev/null; true"
        words = ["/bin/sh", "-c", script] if here else [*SSH, name, script]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return f"it does not answer within {seconds:g} s"
        if done.returncode:
            said = done.stderr.strip().splitlines()
            return said[-1] if said else "ssh failed"
        return "" if not expected or done.stdout.strip() == expected else "it has booted since"

    if not nodes:
        return {}
    with ThreadPoolExecutor(len(nodes)) as pool:
        answers = list(pool.map(look, nodes))
    return {name: why for (name, *_rest), why in zip(nodes, answers) if why}
