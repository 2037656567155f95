"""`deeplearning health`: this node's part of playbooks/health.yml, and of use by itself."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path

from deeplearning import Refusal, machine
from deeplearning.bounded import Late
from deeplearning.config import Config, read_config
from deeplearning.health import bandwidth, judging, looking, training
from deeplearning.health.judging import Check
from deeplearning.members.reading import Member, Members, read_applied, this_member

TIMERS = ("deeplearning-report.timer", "deeplearning-apply.timer")
MASTERS_TIMERS = ("deeplearning-publish.timer",)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deeplearning health")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    begin = actions.add_parser("begin", help="leave a word on the shared file system, for the other nodes to see")
    begin.add_argument("token", type=_token, help="the same on all nodes, another one each time")
    begin.set_defaults(action=_begin)
    check = actions.add_parser("check", help="look at this node, once all others have begun; prints JSON")
    check.add_argument("token", type=_token)
    check.add_argument("--floor", type=float, default=0, help="Gbit/s to the next node (default: by the type)")
    check.set_defaults(action=_check)
    short_run = actions.add_parser("training", help="on the master: a short run over all nodes; prints JSON")
    short_run.add_argument("token", type=_token)
    short_run.add_argument("--framework", required=True)
    short_run.add_argument("--distribution", default="", help="(default: the framework's own)")
    short_run.set_defaults(action=_training)
    receive = actions.add_parser("receive", help="be the far end of a measurement of bandwidth")
    receive.add_argument("address", help="who alone may send")
    receive.set_defaults(action=lambda given: bandwidth.receive(given.address))
    given = parser.parse_args(argv)
    return int(given.action(given))


def _token(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,40}", text):
        raise argparse.ArgumentTypeError("a token is made of up to 40 letters, digits and dashes")
    return text


def _begin(given: argparse.Namespace) -> int:
    config = read_config()
    try:
        looking.leave_word(config.efs_mount, _folder(config, given.token), this_member(read_applied()).alias)
    except (OSError, Late) as error:
        raise Refusal(f"{config.efs_mount} cannot be written to: {looking.problem_of(error)}.") from None
    return 0


def _folder(config: Config, token: str) -> Path:
    return Path(config.efs_mount, ".deeplearning", config.cluster, "health", token)


def _check(given: argparse.Namespace) -> int:
    config = read_config()
    try:
        members: Members | None = read_applied()
        own: Member | None = this_member(members) if members else None
    except Refusal:
        members = own = None
    checks = [judging.disk(*looking.disk()), judging.memory(looking.memory_available_kib())]
    checks += _gpus(config, members)
    if members and own:
        checks += _among(members, own, config, given.token, given.floor)
    else:
        checks.append(judging.membership(False, "", 0, {}))
    answer = {
        "schema": 1,
        "node": own.alias if own else "",
        "generation": members.generation if members else 0,
        "environments": looking.environments(),
        "checks": [dataclasses.asdict(check) for check in checks],
    }
    print(json.dumps(answer))
    return 0 if all(check.ok for check in checks) else 1


def _training(given: argparse.Namespace) -> int:
    checks = training.checks(read_applied(), given.framework, given.distribution, given.token)
    answer = {"schema": 1, "framework": given.framework, "checks": [dataclasses.asdict(check) for check in checks]}
    print(json.dumps(answer))
    return 0 if all(check.ok for check in checks) else 1


def _among(members: Members, own: Member, config: Config, token: str, floor: float) -> list[Check]:
    """What concerns the others too."""
    others = [member for member in members.members if member.rank != own.rank]
    timers = (*TIMERS, *(MASTERS_TIMERS if config.role == "master" else ()))
    checks = [judging.membership(True, own.alias, members.generation, looking.timer_states(timers))]
    checks += _shared(config, _folder(config, token), own.alias, [member.alias for member in members.members])
    addresses = {alias: member.private_ip for member in members.members for alias in member.aliases}
    checks.append(judging.names(looking.wrong_names(addresses)))
    if others:
        ssh = looking.as_user(config.user)
        failed = looking.ssh_failures(ssh, [member.alias for member in others])
        checks.append(judging.ssh(failed, len(others)))
        peer = _next(own, others)
        no_ssh = Check("bandwidth", False, f"not measured, as ssh to {peer.alias} fails", "ssh")
        checks.append(no_ssh if peer.alias in failed else _bandwidth(ssh, own, peer, floor))
    return checks


def _shared(config: Config, folder: Path, own: str, all_of_them: list[str]) -> list[Check]:
    """Also in the file: how far the clocks are apart."""
    try:
        offset = looking.leave_word(config.efs_mount, folder, own)
        missing = looking.missing_words(folder, all_of_them)
    except (OSError, Late) as error:
        problem = "silent" if isinstance(error, Late) else ""
        return [Check("efs", False, f"{config.efs_mount}: {looking.problem_of(error)}", problem)]
    return [judging.shared(missing, len(all_of_them)), judging.clock(offset)]


def _next(own: Member, others: list[Member]) -> Member:
    """In a ring, so that each node sends once and receives once."""
    return next((member for member in others if member.rank > own.rank), others[0])


def _bandwidth(ssh: list[str], own: Member, peer: Member, floor: float) -> Check:
    due = floor or bandwidth.floor(own.instance_type)
    try:
        return judging.bandwidth(peer.alias, bandwidth.measure(ssh, peer.alias, peer.private_ip, own.private_ip), due)
    except OSError as error:
        return Check("bandwidth", False, f"to {peer.alias}: {looking.problem_of(error)}", "unreachable")


def _gpus(config: Config, members: Members | None) -> list[Check]:
    """Nothing where there are none and none are due."""
    seen = machine.gpus()
    if not seen and not config.gpus:
        return []
    others = {member.alias: member.gpus for member in members.training} if members else {}
    return [
        judging.gpus(seen, config.gpus, others),
        judging.driver(*looking.driver()),
        judging.xid(looking.xid_lines()),
    ]
