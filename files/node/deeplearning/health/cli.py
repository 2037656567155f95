"""`deeplearning health`: this node's part of playbooks/health.yml. People may call it too."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deeplearning import machine, programs
from deeplearning.config import Config, read_config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.deadline import DeadlineExceeded
from deeplearning.gpus import evidence, held, kernel_log, nvml
from deeplearning.health import bandwidth, checks, probes, training
from deeplearning.health.checks import Check
from deeplearning.members.member_list import Member, Members, read_applied, this_member
from deeplearning.runs import efa

TIMERS = ("deeplearning-report.timer", "deeplearning-apply.timer")
MASTERS_TIMERS = ("deeplearning-publish.timer",)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deeplearning health")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def add(name: str, action: Callable[[argparse.Namespace], int | None], purpose: str) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=purpose)
        added.set_defaults(action=action)
        return added

    begin = add("begin", _begin, "write a file to the shared file system, for the other nodes to see")
    begin.add_argument("token", type=_token, help="the same on all nodes, a different one each time")
    check = add("check", _check, "check this node, once all others have begun; prints JSON")
    check.add_argument("token", type=_token)
    check.add_argument("--floor", type=float, default=0, help="Gbit/s to the next node (default: by the type)")
    short_run = add("training", _training, "on the master: a short run over all nodes; prints JSON")
    short_run.add_argument("token", type=_token)
    short_run.add_argument("--framework", required=True)
    short_run.add_argument("--distribution", default="", help="(default: the framework's own)")
    short_run.add_argument("--nodes", default="", help="names with commas (default: all that train)")
    short_run.add_argument("--processor", action="store_true", help="train on the processors of nodes with GPUs")
    short_run.add_argument("--preflight", action="store_true", help="before a run: for a few minutes at most")
    send = add("send", _send, "measure the bandwidth to other nodes; prints JSON")
    send.add_argument("aliases", nargs="+")
    receive = add(
        "receive", lambda options: bandwidth.receive(options.address), "be the far end of a bandwidth measurement"
    )
    receive.add_argument("address", help="the only address that may send")
    add("losses", _losses, "what EFA has lost and sent again here; prints JSON")
    options = parser.parse_args(argv)
    return int(options.action(options) or 0)


def _token(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,40}", text):
        raise argparse.ArgumentTypeError("a token is made of up to 40 letters, digits and dashes")
    return text


def _begin(options: argparse.Namespace) -> None:
    config = read_config()
    try:
        probes.write_token_file(config.efs_mount, _folder(config, options.token), this_member(read_applied()).alias)
    except (OSError, DeadlineExceeded) as error:
        raise UserError(f"{config.efs_mount} cannot be written to: {probes.problem_of(error)}.") from None


def _folder(config: Config, token: str) -> Path:
    return Path(paths.health(config.efs_mount, config.cluster), token)


def _check(options: argparse.Namespace) -> int:
    config = read_config()
    try:
        members: Members | None = read_applied()
        own: Member | None = this_member(members) if members else None
    except UserError:
        members = own = None
    results = [checks.disk(*probes.disk()), checks.memory(machine.memory()[0])]
    results += _gpus(config, members)
    if reason := held.reason():
        results.append(Check("held", False, reason))
    if losses := efa.losses():
        results.append(checks.efa_losses(losses))
    if members and own:
        results += _check_cluster(members, own, config, options.token, options.floor)
    else:
        results.append(Check("member", False, "it has no member list yet"))
    generation = members.generation if members else 0
    return _print(results, node=own.alias if own else "", generation=generation, environments=probes.environments())


def _print(results: Sequence[Check], **facts: Any) -> int:
    """Print the answer. Return 1 if a check fails."""
    print(json.dumps({"schema": 1, **facts, "checks": [dataclasses.asdict(check) for check in results]}))
    return 0 if all(check.ok for check in results) else 1


def _training(options: argparse.Namespace) -> int:
    nodes = options.nodes.split(",") if options.nodes else []
    results = training.run_checks(
        read_applied(),
        options.framework,
        options.distribution,
        options.token,
        read_config().user,
        nodes,
        options.preflight,
        options.processor,
    )
    return _print(results, framework=options.framework)


def _send(options: argparse.Namespace) -> None:
    members = read_applied()
    own, ssh = this_member(members), probes.as_user(read_config().user)
    addresses = {member.alias: member.private_ip for member in members.members}
    speeds = {}
    for alias in options.aliases:
        try:
            speeds[alias] = bandwidth.measure(ssh, alias, addresses[alias], own.private_ip)
        except OSError:
            speeds[alias] = 0.0
    print(json.dumps(speeds))


def _losses(options: argparse.Namespace) -> None:
    print(json.dumps(efa.losses()))


def _check_cluster(members: Members, own: Member, config: Config, token: str, floor: float) -> list[Check]:
    """Check what concerns the other nodes too."""
    others = [member for member in members.members if member.rank != own.rank]
    timers = (*TIMERS, *(MASTERS_TIMERS if config.role == "master" else ()))
    states = dict(zip(timers, programs.run("systemctl", "is-active", *timers).stdout.split("\n")))
    results = [checks.membership(own.alias, members.generation, states)]
    results += _shared(config, _folder(config, token), own.alias, [member.alias for member in members.members])
    addresses = {alias: member.private_ip for member in members.members for alias in member.aliases}
    results.append(checks.names(probes.wrong_names(addresses)))
    if others:
        ssh = probes.as_user(config.user)
        failed = probes.ssh_failures(ssh, [member.alias for member in others])
        results.append(checks.ssh(failed, len(others)))
        peer = _next_in_ring(own, others)
        no_ssh = Check("bandwidth", False, f"not measured, as ssh to {peer.alias} fails", "ssh")
        results.append(no_ssh if peer.alias in failed else _bandwidth(ssh, own, peer, floor))
    return results


def _shared(config: Config, folder: Path, own: str, aliases: list[str]) -> list[Check]:
    """Check the shared file system, and this node's clock against it."""
    try:
        offset = probes.write_token_file(config.efs_mount, folder, own)
        missing = probes.missing_token_files(folder, aliases)
    except (OSError, DeadlineExceeded) as error:
        problem = "silent" if isinstance(error, DeadlineExceeded) else ""
        return [Check("efs", False, f"{config.efs_mount}: {probes.problem_of(error)}", problem)]
    return [checks.shared(missing, len(aliases)), checks.clock(offset)]


def _next_in_ring(own: Member, others: list[Member]) -> Member:
    """Return the next node in a ring, so that each node sends once and receives once."""
    return next((member for member in others if member.rank > own.rank), others[0])


def _bandwidth(ssh: list[str], own: Member, peer: Member, floor: float) -> Check:
    expected = floor or bandwidth.floor(own.instance_type)
    try:
        return checks.bandwidth(
            peer.alias, bandwidth.measure(ssh, peer.alias, peer.private_ip, own.private_ip), expected
        )
    except OSError as error:
        return Check("bandwidth", False, f"to {peer.alias}: {probes.problem_of(error)}", "unreachable")


def _gpus(config: Config, members: Members | None) -> list[Check]:
    """Return no check where no GPUs are present or expected."""
    reading = nvml.read()
    if not reading.gpus and not config.gpus:
        return []
    others = {member.alias: member.gpus for member in members.training} if members else {}
    return [
        checks.gpus(reading, config.gpus, others),
        checks.driver(reading),
        checks.faults(evidence.collect(reading, None, kernel_log.NONE)),
    ]
