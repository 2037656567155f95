"""The commands of `deeplearning run` that people, playbooks and units call."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Optional

from deeplearning import machine
from deeplearning.config import Config, read_config
from deeplearning.contract import run_files
from deeplearning.contract.errors import UserError
from deeplearning.identity import become
from deeplearning.runs import plan as plans
from deeplearning.runs import results, script, unit, units, views
from deeplearning.runs.create import create, plan_of_request, plan_of_run
from deeplearning.runs.folder import check_folder_safety, expected_form, find_run, unfinished_frameworks

MOUNT_POLL_SECONDS = 1.0

Command = Callable[[argparse.Namespace, Config], Optional[int]]
"""It returns an exit code, if that is not always 0."""


def main(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    config = read_config()
    arguments.requested_by = os.environ.get("SUDO_USER") or os.environ.get("USER") or config.user
    become(config.user)
    command: Command = arguments.command
    try:
        return command(arguments, config) or 0
    except BrokenPipeError:
        # The reader has gone; the run goes on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deeplearning run")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def add(name: str, command: Command, text: str, run: str = "ID") -> argparse.ArgumentParser:
        subparser = actions.add_parser(name, help=text, description=text)
        if run:
            subparser.add_argument("run_id", metavar=run)
        subparser.set_defaults(command=command)
        return subparser

    add("create", _create, "validate the request (JSON) on standard input and create the run", run="").add_argument(
        "--code", choices=["-"], help="the request is one line, and is followed by a tar.gz with the script's folder"
    )
    add("start", _start, "start a run that was created")
    follow = add("follow", _follow, "print the run's events as JSON lines until it has ended")
    follow.add_argument("--from-line", type=int, default=0, metavar="N", help="skip the first N events")
    follow.add_argument("--output", action="store_true", help="include what its processes print")
    add("wait", _wait, "wait for the end; exit with the run's own code")
    add("stop", _stop, "stop a run on all nodes", run="ID|all")
    add("evaluation", _evaluation, "print the result of the run's last evaluation (JSON)")
    files = add("files", _files, "list files that the run has written (JSON)")
    files.add_argument("what", choices=list(run_files.KINDS))
    add("send", _send, "send files that are requested (JSON) on standard input")
    for name, command, text, run in (
        ("list", _list, "list all runs", ""),
        ("frameworks", _frameworks, "list the frameworks that unfinished runs need", ""),
        ("show", _show, "show a run and its processes", "ID"),
        ("plan", _plan, "print the launch plan of a run, or of a request on standard input", "ID|-"),
    ):
        add(name, command, text, run).add_argument("--json", action="store_true")
    add("unit", _unit, "supervise a run (the run's systemd unit)")
    add("clean", _clean, "stop what is left of a run (the run's systemd unit, after its end)")
    add("recover", _recover, "resume runs that were interrupted by a master outage", run="")
    return parser


def _read_request(requested_by: str, first_line: bool = False) -> Any:
    try:
        if first_line:
            # Unbuffered, so that another process can read what follows.
            with open(0, "rb", buffering=0, closefd=False) as stdin:
                request = json.loads(stdin.readline())
        else:
            request = json.load(sys.stdin)
    except ValueError as error:
        raise UserError(f"The request on standard input is not JSON ({error}).") from None
    if isinstance(request, dict):
        request.setdefault("requested_by", requested_by)
    return request


def _create(arguments: argparse.Namespace, config: Config) -> None:
    request = _read_request(arguments.requested_by, first_line=bool(arguments.code))
    with script.receive(request, config) if arguments.code else contextlib.nullcontext(request) as complete:
        print(json.dumps(create(complete, config)))


def _start(arguments: argparse.Namespace, config: Config) -> None:
    check_folder_safety(config, arguments.run_id)
    folder = find_run(config, arguments.run_id)
    if folder.result() is not None:
        raise UserError(f"Run {folder.id} has ended: resume it instead. Example: -e resume={folder.id}")
    units.control("start", units.supervisor_unit(folder.id))


def _follow(arguments: argparse.Namespace, config: Config) -> None:
    for event in views.follow(find_run(config, arguments.run_id), arguments.from_line, arguments.output):
        print(json.dumps(event), flush=True)


def _wait(arguments: argparse.Namespace, config: Config) -> int:
    return views.wait(find_run(config, arguments.run_id))


def _stop(arguments: argparse.Namespace, config: Config) -> int:
    return views.stop(config, arguments.run_id, arguments.requested_by)


def _list(arguments: argparse.Namespace, config: Config) -> None:
    runs = views.overviews(config)
    print(json.dumps({"schema": 1, "runs": runs}) if arguments.json else views.overview_table(runs))


def _frameworks(arguments: argparse.Namespace, config: Config) -> None:
    needed = unfinished_frameworks(config)
    print(json.dumps({"frameworks": needed}) if arguments.json else "\n".join(each["framework"] for each in needed))


def _show(arguments: argparse.Namespace, config: Config) -> None:
    folder = find_run(config, arguments.run_id)
    with expected_form(folder):
        print(json.dumps(views.detail(folder)) if arguments.json else views.detail_text(folder))


def _evaluation(arguments: argparse.Namespace, config: Config) -> None:
    print(json.dumps({"evaluation": views.evaluation(find_run(config, arguments.run_id))}))


def _files(arguments: argparse.Namespace, config: Config) -> None:
    print(json.dumps(results.listing(find_run(config, arguments.run_id), arguments.what)))


def _send(arguments: argparse.Namespace, config: Config) -> None:
    try:
        files = run_files.requested(sys.stdin.read())
    except ValueError as error:
        raise UserError(f"The request on standard input is malformed ({error}).") from None
    results.send(find_run(config, arguments.run_id), files, sys.stdout.buffer)


def _plan(arguments: argparse.Namespace, config: Config) -> None:
    if arguments.run_id == "-":
        plan = plan_of_request(_read_request(arguments.requested_by), config)
    else:
        plan = plan_of_run(arguments.run_id, config)
    print(json.dumps({"schema": 1, **plans.as_json(plan)}) if arguments.json else plans.table(plan))


def _unit(arguments: argparse.Namespace, config: Config) -> None:
    unit.run_unit(arguments.run_id, config)


def _clean(arguments: argparse.Namespace, config: Config) -> None:
    # The unit's own program has cleaned up if it came to its end.
    if os.environ.get("EXIT_STATUS") != "0":
        unit.clean(arguments.run_id, config)


def _recover(arguments: argparse.Namespace, config: Config) -> None:
    # No boot waits for the file system. Until this process has ended, interrupted runs do not count as lost.
    while not machine.is_mounted(config.efs_mount):
        time.sleep(MOUNT_POLL_SECONDS)
    unit.recover(config)
