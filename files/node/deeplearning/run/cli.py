"""`deeplearning run`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from deeplearning import Refusal
from deeplearning.config import read_config
from deeplearning.run.identity import become

# Started for each process and on each node: nothing else of ours is imported for them, and nobody types them.
INNER = {"exec": "deeplearning.run.wrapper", "survey": "deeplearning.run.survey"}


def main(argv: list[str]) -> int:
    if argv and argv[0] in INNER:
        return int(import_module(INNER[argv[0]]).main(argv[1:]))
    given = _parser().parse_args(argv)
    config = read_config()
    asked_by = os.environ.get("SUDO_USER") or os.environ.get("USER") or config.user
    become(config.user)
    try:
        return int(given.action(given, config, asked_by))
    except BrokenPipeError:
        # Whoever was reading has gone; the run has not.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deeplearning run")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(name: str, do: Callable[..., int], text: str, run: str = "ID") -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=text)
        if run:
            made.add_argument("run_id", metavar=run)
        made.set_defaults(action=do)
        return made

    action("create", _create, "check the request (JSON) on standard input and make the run's folder", run="")
    action("incoming", _incoming, "make or check the folder that scripts are sent into", run="FOLDER")
    action("start", _start, "start a run that was created")
    follow = action("follow", _follow, "print the run's events, a JSON object a line, until it has ended")
    follow.add_argument("--from-line", type=int, default=0, metavar="N", help="leave out the first N events")
    follow.add_argument("--output", action="store_true", help="with what the first worker prints")
    action("wait", _wait, "wait for the end; exit with the run's own code")
    action("stop", _stop, "end a run on all nodes, and nothing else", run="ID|all")
    for name, do, text, run in (
        ("list", _list, "all runs", ""),
        ("show", _show, "a run and its processes", "ID"),
        ("plan", _plan, "the launch plan of a run, or of a request on standard input", "ID|-"),
    ):
        action(name, do, text, run).add_argument("--json", action="store_true")
    action("unit", _unit, "what the run's unit does")
    action("clean", _clean, "what the run's unit does after its end")
    action("recover", _recover, "start runs again that broke off with the master", run="")
    return parser


def _request() -> Any:
    try:
        return json.load(sys.stdin)
    except ValueError as error:
        raise Refusal(f"The request on standard input is no JSON ({error}).") from None


def _create(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run.create import created

    request = _request()
    if isinstance(request, dict):
        request.setdefault("asked_by", asked_by)
    print(json.dumps(created(request, config)))
    return 0


def _incoming(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run.create import incoming

    incoming(given.run_id, config)
    return 0


def _start(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run import showing, units
    from deeplearning.run.folder import check_place

    check_place(config, given.run_id)
    folder = _folder(config, given.run_id)
    showing.startable(folder)
    units.start(folder.id)
    return 0


def _follow(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run import showing

    showing.as_lines(showing.followed(_folder(config, given.run_id), given.from_line, given.output))
    return 0


def _wait(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run import showing

    return showing.waited(_folder(config, given.run_id))


def _stop(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run import showing

    return showing.stopped(config, given.run_id, asked_by)


def _list(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run import showing

    runs = showing.overview(config) if given.json else None
    print(json.dumps({"schema": 1, "runs": runs}) if given.json else showing.listed(config))
    return 0


def _show(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run import showing

    folder = _folder(config, given.run_id)
    print(json.dumps(showing.detail(folder)) if given.json else showing.shown(folder))
    return 0


def _plan(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run import plan as plans
    from deeplearning.run.create import planned

    request = given.run_id
    if request == "-":
        request = _request()
        if isinstance(request, dict):
            request.setdefault("asked_by", asked_by)
    plan = planned(request, config)
    print(json.dumps({"schema": 1, **plans.as_json(plan)}) if given.json else plans.table(plan))
    return 0


def _unit(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run.unit import watch_over

    return watch_over(given.run_id, config)


def _clean(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run.unit import clean

    # The unit's own program has cleaned up if it came to its end.
    return 0 if os.environ.get("EXIT_STATUS") == "0" else clean(given.run_id, config)


def _recover(given: argparse.Namespace, config: Any, asked_by: str) -> int:
    from deeplearning.run.unit import recover

    return recover(config)


def _folder(config: Any, run_id: str) -> Any:
    from deeplearning.run.folder import existing

    return existing(config, run_id)
