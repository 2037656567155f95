"""`deeplearning gpus`, for root: what is wrong with this node's GPUs, and whether runs may use the node."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from deeplearning import programs
from deeplearning.config import read_config
from deeplearning.contract.errors import UserError
from deeplearning.gpus import evidence, held, kernel_log, nvml
from deeplearning.gpus.faults import MOST_TEXT

REPORT = "deeplearning-report.service"


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="deeplearning gpus", description="The GPUs of this node, as root.")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    faults = actions.add_parser("faults", help="print the faults of this node's GPUs as JSON")
    faults.add_argument("--after", type=int, default=kernel_log.NONE, metavar="N", help="only messages after number N")
    faults.set_defaults(action=_faults)
    hold = actions.add_parser("hold", help="keep this node out of runs until it boots or is released")
    hold.add_argument("reason", help=f"up to {MOST_TEXT} printable characters")
    hold.set_defaults(action=_hold)
    actions.add_parser("release", help="let runs use this node again").set_defaults(action=_release)
    options = parser.parse_args(argv)
    options.action(options)


def _faults(options: argparse.Namespace) -> None:
    collected = evidence.collect(nvml.read(nvml.ANSWER_SECONDS), read_config().gpus, options.after)
    print(json.dumps(asdict(collected)))


def _hold(options: argparse.Namespace) -> None:
    if not options.reason.strip() or not options.reason.isprintable() or len(options.reason) > MOST_TEXT:
        raise UserError(f"the reason is {options.reason[:80]!r}: give one of up to {MOST_TEXT} printable characters.")
    held.hold(options.reason)
    _report()


def _release(options: argparse.Namespace) -> None:
    print("released" if held.release() else "it was not held")
    _report()


def _report() -> None:
    """Let the member list have the new state within seconds. The timer reports it in any case."""
    programs.run("systemctl", "start", "--no-block", REPORT)
