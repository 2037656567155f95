"""The commands of `deeplearning members`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from deeplearning import machine
from deeplearning.aws import AwsClient
from deeplearning.config import read_config
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.tables import text_table
from deeplearning.members import check_times, load
from deeplearning.members.applying import apply, unapply
from deeplearning.members.master_address import associate
from deeplearning.members.member_list import Members, read_applied, unsettled
from deeplearning.members.publishing import Usage, is_quiet, publish
from deeplearning.members.report import report
from deeplearning.runs import units
from deeplearning.runs.allocation import nodes_in_use
from deeplearning.upkeep import money_guard
from deeplearning.views import metrics

Action = Callable[[argparse.Namespace], None]


def main(argv: list[str]) -> None:
    options = _parser().parse_args(argv)
    action: Action = options.action
    if getattr(options, "repeated", False):
        _run_for_timer(action, options)
    else:
        action(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deeplearning members", description="The members of the cluster, and this node's copy of their list."
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="name")

    def add(name: str, action: Action, purpose: str, timer: bool = False) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        added.set_defaults(action=action)
        if name != "wait":
            added.add_argument("--json", action="store_true", help="print the outcome as JSON")
        if timer:
            added.add_argument(
                "--repeated", action="store_true", help="for timers: print an error only once, and exit with 0"
            )
        return added

    add("report", _report, "write this machine's host keys, GPUs and state to the cluster's bucket", timer=True)
    add("load", _load, "write how busy this node is to the shared file system", timer=True)
    add("metrics", _metrics, "on the master: write figures of members and runs for Prometheus", timer=True)
    add("publish", _publish, "on the master: assign ranks, and publish the member list if it has changed", timer=True)
    add("apply", _apply, "verify the published member list, and make this node's files follow it", timer=True)
    add("address", _address, "on a worker: give a master that cannot be reached the cluster's address", timer=True)
    add("show", _show, "print the member list that this node uses")
    add("forget", _forget, "remove everything that `apply` has written")
    wait = add(
        "wait", _wait, "wait until the member list is complete: as many members as are desired, all of them ready"
    )
    wait.add_argument("--count", type=int, required=True, help="so many machines, the master included")
    wait.add_argument("--generation", type=int, default=0, help="at least this generation of the list")
    wait.add_argument("--timeout", type=float, default=300, help="seconds until it gives up (default: %(default)s)")
    return parser


def _run_for_timer(action: Action, options: argparse.Namespace) -> None:
    """Print an error only when it is new. Otherwise a timer would fill the journal with it."""
    last_error = f"{paths.RUNTIME}/{options.name}.refusal"
    try:
        action(options)
    except (UserError, OSError) as error:
        if atomic_file.write_if_changed(last_error, f"{error}\n"):
            print(error, file=sys.stderr)
    else:
        if atomic_file.remove(last_error):
            print(f"members {options.name}: recovered")


def _report(options: argparse.Namespace) -> None:
    changed, fault = report(read_config(), trust_cache=options.repeated)
    _print(options, changed, {"changed": changed, "fault": fault}, "reported" if changed else "nothing new to report")
    if fault:
        raise UserError(f"{fault}.")


def _load(options: argparse.Namespace) -> None:
    config = read_config()
    _print(options, False, load.publish(config.efs_mount, config.cluster, machine.instance_id()), "written")


def _metrics(options: argparse.Namespace) -> None:
    metrics.write(read_config())
    _print(options, False, {"path": paths.METRICS}, "written")


def _publish(options: argparse.Namespace) -> None:
    config = read_config()
    aws = AwsClient(config.region)

    def usage() -> Usage:
        return Usage(nodes_in_use(config), bool(units.active_runs()))

    try:
        if options.repeated and is_quiet(config, aws, usage):
            return
        outcome = publish(config, aws, usage)
    finally:
        # Also if the list cannot be published: the idle end comes closer.
        if not options.repeated or check_times.is_due("end"):
            money_guard.check(config, aws, units.active_runs())
            check_times.record_end_check()
    summary = f"generation {outcome.generation} {'published' if outcome.changed else 'is still current'}"
    _print(options, outcome.changed, dataclasses.asdict(outcome), summary)
    if outcome.left_out:
        raise UserError(" ".join(outcome.left_out))


def _apply(options: argparse.Namespace) -> None:
    config = read_config()
    outcome = apply(config, lambda: AwsClient(config.region))
    summary = f"generation {outcome.generation} {'applied' if outcome.changed else 'is in place'}"
    _print(options, outcome.changed, dataclasses.asdict(outcome), summary)


def _address(options: argparse.Namespace) -> None:
    allocation = atomic_file.read_or_none(paths.MASTER_ADDRESS)
    config = read_config()
    changed = bool(allocation) and associate(read_applied(), AwsClient(config.region), str(allocation))
    _print(options, changed, {"changed": changed}, "associated" if changed else "nothing to do")


def _forget(options: argparse.Namespace) -> None:
    changed = unapply()
    _print(options, changed, {"changed": changed}, "forgotten" if changed else "nothing to forget")


def _print(options: argparse.Namespace, changed: bool, outcome: dict[str, Any], summary: str) -> None:
    """Print the outcome of an action, which has succeeded."""
    if options.json:
        print(json.dumps(outcome))
    elif changed or not getattr(options, "repeated", False):
        print(summary)


def _show(options: argparse.Namespace) -> None:
    members = read_applied()
    print(json.dumps(dataclasses.asdict(members)) if options.json else _table(members))


def _table(members: Members) -> str:
    rows = [["name", "instance", "address", "type", "gpus", "slots", "state"]]
    rows += [
        [m.alias, m.instance_id, m.private_ip, m.instance_type, str(m.gpus), str(m.slots), m.state]
        for m in members.members
    ]
    count = f"generation {members.generation}, {len(members.members)} of {members.desired} desired machines"
    return "\n".join([*text_table(rows), count])


def _wait(options: argparse.Namespace) -> None:
    end = time.monotonic() + options.timeout
    while reason := _reason_to_wait(options.count, options.generation):
        if time.monotonic() >= end:
            raise UserError(f"after {options.timeout:g} s {reason}.")
        time.sleep(1)


def _reason_to_wait(count: int, generation: int) -> str:
    try:
        members = read_applied()
    except UserError as error:
        return str(error).rstrip(".")
    if len(members.members) != count:
        return f"{len(members.members)} members are in the list, and not {count}"
    if members.generation < generation:
        return f"this node has generation {members.generation} of the member list, not {generation}"
    return "; ".join(unsettled(members))
