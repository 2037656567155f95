"""The state of nodes just before an attempt: runs `deeplearning run survey` on each of them.

Also stops what is left of an attempt on its nodes, and reports those that were lost.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import os
import random
import re
import shlex
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deeplearning import concurrency, programs
from deeplearning.contract import bounded_program, hosts, paths, schema
from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import RECORDS
from deeplearning.data import staging
from deeplearning.gpus import evidence, held
from deeplearning.gpus.evidence import Evidence
from deeplearning.identity import as_root
from deeplearning.members.member_list import Member
from deeplearning.runs import efa, gpu_proofs, packages, units
from deeplearning.runs.folder import Folder
from deeplearning.runs.plan import Node
from deeplearning.runs.units import Preparing, Unfit

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4")
SURVEY_SECONDS, GPU_SURVEY_SECONDS = 8.0, 40.0
"""For a node without and with GPUs. A node with a slow GPU driver does answer (nvml.ANSWER_SECONDS)."""
STOP_SECONDS = 5.0
UNKNOWN_OPTION = "error: unrecognized arguments: "
"""What argparse prints."""
FIRST_PORT, LAST_PORT = 20000, 30000
"""Below the ports of outgoing connections, so that none of those takes one after the survey."""
COMPARED = (
    *dict.fromkeys(name for record in RECORDS.values() for name in (record.package, record.imports[0])),
    "horovod",
)
"""Packages whose versions have to be the same on all nodes of a run."""
DAMAGED = "an environment that is damaged"
_SIOCGIFADDR = 0x8915
"""See netdevice(7)."""
_TEXT = schema.text(5000)
ANSWER = {
    "boot_id": schema.matching(r"[0-9a-f-]{1,64}", "a boot id"),
    "efa": schema.between(0, 64),
    # See dev_valid_name() in Linux; empty with a problem.
    "interface": schema.matching(r"[A-Za-z0-9_.-]{0,15}", "the name of a network interface"),
    "ports": schema.list_of(schema.between(1, 65535)),
    "environment": _TEXT,
    "preparing": _TEXT,
    "problem": _TEXT,
    "in_use": _TEXT,
    "held": _TEXT,
    "faults": lambda value: evidence.parse(value, "faults"),
}
"""Training code may be root on its node, so answers are validated."""


@dataclass(frozen=True)
class NodeSurvey:
    member: Member
    node: Node | None = None
    boot_id: str = ""
    problem: str = ""
    """Why it cannot take part; node is None if it did not even answer."""
    is_preparing: bool = False
    """True if the problem ends by itself: it tests its GPUs, installs packages or copies the data set to its disk."""
    environment: str = ""
    """What the framework's environment has, in words that are the same on all nodes."""
    is_held: bool = False
    """True if the problem is that it is kept out of runs."""
    is_in_use: bool = False
    """True if the problem is that processes hold memory of its GPUs, as killed ones do for seconds."""
    evidence: Evidence = Evidence()
    """What its GPUs show before the attempt."""


def survey_nodes(
    members: Sequence[Member],
    folder: Folder,
    python: str,
    ports: int,
    stop_requested: Callable[[], bool] = lambda: False,
) -> list[NodeSurvey]:
    command = [paths.PROGRAM, "run", "survey", folder.id, folder.path, python]
    if os.path.exists(folder.file(packages.FILE)):
        # A node with an older program, which would start without them, refuses the option.
        command.append("--packages")
    if attempt := folder.attempts():
        # A single word: a program that does not know it would take the number for the address.
        command.append(f"--attempt={attempt}")

    def survey(member: Member, seconds: float) -> NodeSurvey:
        return _survey(member, [*command, member.private_ip, str(ports)], ports, seconds)

    seconds = max(map(_seconds, members))
    return refuse_other_environments(concurrency.ask_nodes(survey, members, seconds, stop_requested))


def longest(members: Sequence[Member]) -> float:
    """Return the longest time that a survey of these members takes."""
    return concurrency.longest(len(members), max(map(_seconds, members)))


def _seconds(member: Member) -> float:
    return GPU_SURVEY_SECONDS if member.gpus else SURVEY_SECONDS


def refuse_other_environments(surveys: Sequence[NodeSurvey]) -> list[NodeSurvey]:
    """Let nodes whose environment differs from that of most nodes take no part; of as many, the first is right."""
    counts = Counter(survey.environment for survey in surveys if not survey.problem)
    usual = max(counts, key=counts.__getitem__, default="")

    def judge(survey: NodeSurvey) -> NodeSurvey:
        if survey.problem or survey.environment == usual:
            return survey
        problem = (
            f"{survey.member.alias}: it has {survey.environment or 'no environment'}, and other nodes have "
            f"{usual or 'none'}: train.yml with `framework` installs the same on all nodes, or run "
            "ansible-playbook deeplearning.aws.configure"
        )
        return replace(survey, problem=problem)

    return list(map(judge, surveys))


def problems_of(surveys: Sequence[NodeSurvey]) -> str:
    """Return all problems as a text, in which nodes that have the same one are named together."""
    nodes: dict[str, list[str]] = {}
    for survey in surveys:
        prefix = f"{survey.member.alias}: "
        if survey.problem.startswith(prefix):
            nodes.setdefault(survey.problem[len(prefix) :], []).append(survey.member.alias)
        elif survey.problem:
            nodes[survey.problem] = []
    return " ".join(f"{', '.join(names)}: {problem}" if names else problem for problem, names in nodes.items())


def _survey(member: Member, command: Sequence[str], ports: int, seconds: float) -> NodeSurvey:
    try:
        output = output_of(member.alias, command, min(seconds, _seconds(member)))
        answer = schema.validate_part(json.loads(output), ANSWER, f"the survey of {member.alias}")
    except (NotUnderstood, ValueError, RecursionError, UserError) as error:
        problem = (
            f"{member.alias} has another version of our programs, or is broken: run ansible-playbook "
            f"deeplearning.aws.configure. ({programs.printable(str(error)).removeprefix(': ')})"
        )
        return NodeSurvey(member, problem=problem)
    except Unanswered as error:
        return NodeSurvey(member, problem=f"{member.alias} does not answer{error}.")
    shown = answer["faults"]
    node = Node(
        name=member.alias,
        address=member.private_ip,
        gpus=shown.answering,
        interface=answer["interface"],
        # No more than were requested.
        ports=tuple(answer["ports"][:ports]),
        efa=answer["efa"],
        buses=shown.buses,
    )
    is_held = bool(answer["held"])
    problem = f"it is held: {answer['held']}" if is_held else answer["problem"] or answer["preparing"]
    if not problem and node.gpus < member.gpus:
        problem = f"{node.gpus} of its {member.gpus} GPUs answer: run `nvidia-smi -L` there"
    is_in_use = not problem and bool(answer["in_use"])
    if is_in_use:
        problem = f"its {answer['in_use']}: end what is left there, and start the run again"
    is_preparing = problem == answer["preparing"] != ""
    named = f"{member.alias}: {problem}" if problem else ""
    return NodeSurvey(
        member, node, answer["boot_id"], named, is_preparing, answer["environment"], is_held, is_in_use, shown
    )


class Unanswered(Exception):
    """A command on a node has not ended in time or has failed; the text follows "does not answer"."""


class NotUnderstood(Unanswered):
    """The node's program does not know the command or one of its options."""


def output_of(node: str, command: Sequence[str], seconds: float) -> str:
    """Return what a command prints on a node. Raise Unanswered. Only the master, which is this machine, asks nodes."""
    try:
        remote = [*SSH, node, shlex.join(command)]
        done = bounded_program.run(command if node == hosts.MASTER else remote, seconds)
    except subprocess.TimeoutExpired:
        raise Unanswered(f" within {math.ceil(seconds)} s") from None
    except bounded_program.TooMuchOutput as error:
        raise Unanswered(f": its program {error}") from None
    if done.returncode:
        problem = f": {programs.last_line(done.stderr, 'ssh failed')}"
        raise NotUnderstood(problem) if UNKNOWN_OPTION in problem else Unanswered(problem)
    return done.stdout


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="deeplearning run survey")
    for name in ("run_id", "folder", "python", "address"):
        parser.add_argument(name)
    parser.add_argument("ports", type=int)
    parser.add_argument("--packages", action="store_true")
    parser.add_argument("--attempt", type=int, default=0, help="the number of the attempt that is to come")
    arguments = parser.parse_args(argv)
    stop_earlier_attempts(arguments.run_id, arguments.attempt)
    interface = interface_of(arguments.address)
    folder, shown = Folder(arguments.folder), Evidence()
    environment, preparing, problem, holders = "", "", "", ""
    try:
        shown = gpu_evidence()
        require_basics(folder, arguments.python, interface, arguments.address)
        run = folder.run()
        environment = describe_environment(arguments.python)
        holders = "" if run.get("processor") else shown.in_use
        if run["distribution"] == "horovod":
            require_horovod(environment)
        gpu_proofs.require(run, folder, arguments.python, shown.answering)
        if arguments.packages:
            packages.require(run, folder)
        require_local_copy(run)
    except Preparing as step:
        preparing = str(step)
    except Unfit as error:
        problem = str(error)
    answer = {
        "boot_id": boot_id(),
        "efa": efa.count(),
        "interface": interface,
        "ports": free_ports(arguments.ports, arguments.run_id),
        "environment": programs.printable(environment),
        "preparing": programs.printable(preparing),
        "problem": programs.printable(problem),
        "in_use": holders,
        "held": programs.printable(held.reason()),
        "faults": asdict(shown),
    }
    json.dump(answer, sys.stdout)


def require_local_copy(run: dict[str, Any]) -> None:
    """Raise Preparing or Unfit if this node has no copy of the data set, and has to have its own.

    A copy of the data set on this node's own disk takes longer than a survey, so a unit of its own makes it, and the
    next survey asks again. A machine in the place of a lost one makes it again.
    """
    local_copy = run.get("local_copy")
    if local_copy and not staging.has_local_copy(local_copy["data"]):
        data = local_copy["data"]
        argv = [paths.PROGRAM, "data", "stage", data, "--on", "node"]
        argv += ["--bucket", local_copy["bucket"], "--from", local_copy["source"]]
        unit = f"deeplearning-copy-{run['run_id']}.service"
        units.prepare(unit, argv, f"{data} is copied to its disk", f"{data} cannot be copied to its disk")


def stop_earlier_attempts(run_id: str, attempt: int) -> None:
    """Stop what attempts before this one have left on this node while it could not be reached.

    By name: where the network is cut, a master's request may come when another attempt runs already.
    """
    if attempt:
        programs.run(*as_root("systemctl", "stop", *(units.attempt_unit(run_id, number) for number in range(attempt))))


def gpu_evidence() -> Evidence:
    """Return what this node's GPUs show. Raise Unfit if that is not known.

    Root reads it, for the kernel's log. With nothing in its place, all faults since the boot would seem new afterwards.
    """
    if not os.path.exists(paths.NVIDIA_DRIVER):
        return Evidence()
    done = programs.run(*as_root(paths.PROGRAM, "gpus", "faults"))
    try:
        return evidence.parse(json.loads(done.stdout), "what they show")
    except (ValueError, UserError):
        reason = programs.last_line(done.stderr, f"code {done.returncode}")
        raise Unfit(f"its GPUs cannot be read (`sudo deeplearning gpus faults`): {reason}") from None


def require_basics(folder: Folder, python: str, interface: str, address: str) -> None:
    """Raise Unfit if this node lacks what all runs need."""
    if not folder.exists():
        raise Unfit(f"{folder.path} is missing: is EFS mounted?")
    if not os.access(python, os.X_OK):
        advice = "install the framework on all members, or set python to a path that all have."
        raise Unfit(f"{python} is missing: {advice}")
    if not interface:
        raise Unfit(f"no network interface has the address {address}")


def describe_environment(python: str) -> str:
    """Return the versions in an environment of ours that all ranks share; empty for a user's own Python.

    Machines with and without GPUs have different packages of the same versions.
    """
    if not paths.is_in_environment(python):
        return ""
    try:
        marker = json.loads(Path(python).parents[1].joinpath(paths.MARKER).read_text(encoding="utf-8"))
        version = ".".join(marker["python"].split(".")[:2])
        versions = {re.sub(r"-(cpu|cu\d+)$", "", name): text for name, text in marker["versions"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return DAMAGED
    words = [f"{name} {versions[name]}" for name in COMPARED if name in versions]
    # Without the build's own mark, such as +cpu.
    return re.sub(r"\+[\w.]+", "", ", ".join([*words, f"Python {version}"]))


def require_horovod(environment: str) -> None:
    """Raise Unfit if a run with Horovod cannot use a described environment."""
    if environment not in ("", DAMAGED) and "horovod " not in environment:
        raise Unfit(f"its environment has {environment} and no Horovod: run deeplearning.aws.train again.")


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def interface_of(address: str) -> str:
    """Return the interface that has this address; empty if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _unused, name in socket.if_nameindex():
            # One without an address is an error.
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return ""


def free_ports(count: int, run_id: str) -> list[int]:
    """Return free ports. Each run starts to search elsewhere. All ports are held until the last one is found."""
    start = random.Random(run_id).randrange(FIRST_PORT, LAST_PORT)
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in [*range(start, LAST_PORT), *range(FIRST_PORT, start)]:
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("", port))
                ports.append(port)
            except OSError:
                probe.close()
    return ports


def stop_leftovers(boot_ids: Mapping[str, str], run_id: str, attempt: int) -> dict[str, str]:
    """Stop what is left of an attempt on its nodes. Return the nodes that were lost, each with the reason.

    `boot_ids`: by node, the boot in which it was started; empty if that does not matter.
    A node that has rebooted, or another machine under its name, is lost as much as one that does not answer.
    """

    def stop(node: str, seconds: float) -> str:
        stop_unit = f"sudo -n systemctl stop {units.attempt_unit(run_id, attempt)} 2>/dev/null"
        script = f"cat /proc/sys/kernel/random/boot_id; {stop_unit}; true"
        try:
            output = output_of(node, ["/bin/sh", "-c", script], seconds)
        except Unanswered as error:
            return f"it does not answer{error}"
        return "" if boot_ids[node] in ("", output.strip()) else "it has booted since"

    reasons = dict(zip(boot_ids, concurrency.ask_nodes(stop, list(boot_ids), STOP_SECONDS)))
    return {node: reason for node, reason in reasons.items() if reason}
