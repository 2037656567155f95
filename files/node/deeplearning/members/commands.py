"""What can be asked of `deeplearning members`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from deeplearning import Refusal, files, paths
from deeplearning.members.reading import Members, read_applied, unsettled

Action = Callable[[argparse.Namespace], int]


def main(argv: list[str]) -> int:
    given = _parser().parse_args(argv)
    action: Action = given.action
    return _once(given.name, action, given) if getattr(given, "repeated", False) else action(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deeplearning members", description="Who is in the cluster, and what this node knows of it."
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="name")

    def add(name: str, action: Action, what: str, timer: bool = False) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        added.set_defaults(action=action)
        if name != "wait":
            added.add_argument("--json", action="store_true", help="print the outcome as JSON")
        if timer:
            added.add_argument(
                "--repeated", action="store_true", help="for timers: say a refusal only once, and exit 0"
            )
        return added

    add("report", _report, "put this machine's host keys, GPUs and state into the cluster's bucket", timer=True)
    add("publish", _publish, "on the master: give ranks, and publish the member list if it has changed", timer=True)
    add("apply", _apply, "check the published member list, and make this node's files follow it", timer=True)
    add("show", _show, "print the member list that this node goes by")
    add("forget", _forget, "take away all that `apply` has written")
    wait = add(
        "wait", _wait, "wait until the member list is complete: as many members as are wanted, all of them ready"
    )
    wait.add_argument("--count", type=int, required=True, help="at least so many machines, the master among them")
    wait.add_argument("--generation", type=int, default=0, help="at least this generation of the list")
    wait.add_argument("--timeout", type=float, default=300, help="seconds until it gives up (default: %(default)s)")
    return parser


def _once(name: str, action: Action, given: argparse.Namespace) -> int:
    """A timer would fill the journal with one sentence."""
    said = f"{paths.RUNTIME}/{name}.refusal"
    try:
        code = action(given)
    except (Refusal, OSError) as problem:
        if files.put(said, f"{problem}\n"):
            print(problem, file=sys.stderr)
        return 0
    if files.remove(said):
        print(f"members {name}: all is well again")
    return code


def _report(given: argparse.Namespace) -> int:
    from deeplearning.config import read_config
    from deeplearning.members.report import report

    changed, fault = report(read_config(), trusting=given.repeated)
    _say(given, changed, {"changed": changed, "fault": fault}, "reported" if changed else "nothing new to report")
    if fault:
        raise Refusal(f"{fault}.")
    return 0


def _publish(given: argparse.Namespace) -> int:
    from deeplearning.aws import Aws
    from deeplearning.config import read_config
    from deeplearning.members.publishing import publish

    config = read_config()
    outcome = publish(config, Aws(config.region))
    what = f"generation {outcome.generation} {'published' if outcome.changed else 'still holds'}"
    _say(given, outcome.changed, dataclasses.asdict(outcome), what)
    if outcome.left_out:
        raise Refusal(" ".join(outcome.left_out))
    return 0


def _apply(given: argparse.Namespace) -> int:
    from deeplearning.aws import Aws
    from deeplearning.config import read_config
    from deeplearning.members.applying import apply

    config = read_config()
    outcome = apply(config, lambda: Aws(config.region))
    what = f"generation {outcome.generation} {'applied' if outcome.changed else 'is in place'}"
    _say(given, outcome.changed, dataclasses.asdict(outcome), what)
    return 0


def _forget(given: argparse.Namespace) -> int:
    from deeplearning.members.applying import forget

    changed = forget()
    _say(given, changed, {"changed": changed}, "forgotten" if changed else "there was nothing to forget")
    return 0


def _say(given: argparse.Namespace, changed: bool, outcome: dict[str, Any], sentence: str) -> None:
    if given.json:
        print(json.dumps(outcome))
    elif changed or not getattr(given, "repeated", False):
        print(sentence)


def _show(given: argparse.Namespace) -> int:
    members = read_applied()
    print(json.dumps(dataclasses.asdict(members)) if given.json else _table(members))
    return 0


def _table(members: Members) -> str:
    rows = [["name", "instance", "address", "type", "gpus", "slots", "state"]]
    rows += [
        [m.alias, m.instance_id, m.private_ip, m.instance_type, str(m.gpus), str(m.slots), m.state]
        for m in members.members
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.append(f"generation {members.generation}, {len(members.members)} of {members.wanted} wanted machines")
    return "\n".join(lines)


def _wait(given: argparse.Namespace) -> int:
    end = time.monotonic() + given.timeout
    while True:
        lacking = _lacking(given.count, given.generation)
        if not lacking:
            return 0
        if time.monotonic() >= end:
            raise Refusal(f"after {given.timeout:g} s {lacking}.")
        time.sleep(1)


def _lacking(count: int, generation: int) -> str:
    try:
        members = read_applied()
    except Refusal as refusal:
        return str(refusal).rstrip(".")
    if len(members.members) < count:
        return f"{len(members.members)} of {count} members are there"
    if members.generation < generation:
        return f"this node has generation {members.generation} of the member list, not {generation}"
    return "; ".join(unsettled(members))
