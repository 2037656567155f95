"""`deeplearning members`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

from deeplearning import Refusal
from deeplearning.members.reading import Members, read_applied, unsettled


def main(argv: list[str]) -> int:
    given = _parser().parse_args(argv)
    return int(given.action(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deeplearning members")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    show = actions.add_parser("show", help="print the member list that this node goes by")
    show.add_argument("--json", action="store_true")
    show.set_defaults(action=_show)

    wait = actions.add_parser("wait", help="wait until so many members are there and ready, and no more are expected")
    wait.add_argument("--count", type=int, required=True, help="machines, the master among them")
    wait.add_argument("--generation", type=int, default=0, help="of the list, or a later one")
    wait.add_argument("--timeout", type=float, default=300, help="seconds (default: %(default)s)")
    wait.set_defaults(action=_wait)
    return parser


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
