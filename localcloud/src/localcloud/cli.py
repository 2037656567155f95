"""The command `localcloud`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from localcloud import daemon, state
from localcloud.core.errors import Refusal
from localcloud.core.latency import latency_from
from localcloud.machines.namespaces import inside

Arguments = argparse.Namespace


def main(arguments: Sequence[str] | None = None) -> int:
    os.umask(0o022)  # what is made here becomes a machine's root folder: others must be able to read it
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except Refusal as refusal:
        print(f"localcloud: {refusal}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("localcloud: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return int(getattr(options, "status", 0))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localcloud", description="An AWS on this machine, with real machines behind it."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Arguments], None], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made.set_defaults(run=run)
        return made

    up = command("up", _up, "start it in the background; first use builds the machine image")
    up.add_argument("--latency", default="none", metavar="none|aws|aws*F|FILE", help="how long things take (none)")
    up.add_argument(
        "--cpus-per-instance", type=_positive, metavar="F", help="processors that an instance may use, such as 0.5"
    )
    up.add_argument(
        "--memory-per-instance", type=_size, metavar="M", help="memory that an instance may use, such as 512M"
    )
    up.add_argument("--api-only", action="store_true", help="boot no machines: instances exist in the API only")
    up.add_argument(
        "--strict", action="store_true", help="be consistent only eventually: the first call after a change misses it"
    )
    command("down", _down, "stop the local cloud; images are kept")
    command("env", _env, 'print shell lines that make AWS clients use it: eval "$(localcloud env)"')
    status = command("status", _status, "show instances, file systems and faults in force")
    status.add_argument("--json", action="store_true")
    calls = command("calls", _calls, "show the API calls with caller, permissions needed and result")
    calls.add_argument("--json", action="store_true", help="a JSON object a line")
    calls.add_argument(
        "--since", type=_since, default=0.0, metavar="T", help="seconds ago (60s, 5m, 2h), or an ISO time"
    )
    execute = command("exec", _exec, "run a command in an instance's machine, as root")
    execute.add_argument("instance", metavar="ID")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD")
    console = command("console", _console, "print the console output of an instance's machine")
    console.add_argument("instance", metavar="ID")
    _fault_commands(command("fault", _no_fault, "inject a fault, or clear it"))
    image = command("image", _no_image, "build machine images")
    build = image.add_subparsers(metavar="COMMAND").add_parser(
        "build", help="build the base image, or one with features that recipes describe"
    )
    build.add_argument("--with", dest="features", default="", metavar="A,B", help="features of the recipes")
    build.add_argument(
        "--recipes",
        default="",
        metavar="FILE",
        help="a Python file that describes features; default: LOCALCLOUD_RECIPES, or what localcloud.toml here names",
    )
    build.set_defaults(run=_image_build)
    return parser


def _fault_commands(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(metavar="FAULT")

    def fault(name: str, kind: str, text: str, targets: Sequence[str] = ()) -> argparse.ArgumentParser:
        made = kinds.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made.set_defaults(run=_fault, kind=kind, targets=targets, value=None, left=None, seed=None)
        for target in targets:
            made.add_argument(f"--{target}", metavar=target.upper(), help="default: any; * and ? match")
        return made

    capacity = fault("capacity", "capacity", "limit how many more instances can be launched", ("type", "zone"))
    capacity.add_argument("value", type=_count, metavar="N")
    quota = fault("quota", "quota", "set all quotas of vCPUs, or the quota with a code", ("code",))
    quota.add_argument("value", type=_count, metavar="N")
    fault("default-quotas", "default-quotas", "show the account's own quotas only where a fault has set one")
    key = fault("ebs-key", "ebs-key", "encrypt all new disks by default, with this KMS key")
    key.add_argument("value", metavar="ARN")
    throttle = fault("throttle", "throttle", "throttle this share of calls", ("action",))
    throttle.add_argument("value", type=_share, metavar="RATE")
    throttle.add_argument("--seed", type=int, default=0, metavar="N", help="which calls, repeatably (0)")
    error = fault("error", "error", "answer calls with an error", ("action",))
    error.add_argument("code", metavar="CODE")
    error.add_argument("--message", default="", metavar="TEXT")
    error.add_argument("--status", dest="http_status", type=_error_status, default=400, metavar="HTTP")
    error.add_argument("--count", dest="left", type=_times, metavar="N", help="how often (until it is cleared)")
    late = fault("late-iam", "late-iam", "delay the effect of new instance profiles and changes of policies")
    late.add_argument("value", type=_positive, metavar="SECONDS")
    reads = fault("late-reads", "late-reads", "hide new resources of EC2 for a while")
    reads.add_argument("value", type=_positive, metavar="SECONDS")
    tags = fault("late-tags", "late-tags", "let tags count for policies a while after they are set")
    tags.add_argument("value", type=_positive, metavar="SECONDS")
    fault("keep-fields", "keep-fields", "let scheduled actions keep the fields that a new request leaves out")
    skew = fault("skew", "skew", "set AWS's clock ahead of all others, or behind if negative")
    skew.add_argument("value", type=_finite, metavar="SECONDS")
    foreign = fault("foreign-bucket", "foreign-bucket", "make another account the owner of a bucket, existing or not")
    foreign.add_argument("bucket", metavar="NAME")
    nat = fault("fail-nat", "fail-nat", "make the next NAT gateway fail")
    nat.add_argument("--count", dest="left", type=_times, default=1, metavar="N", help="how many of them (1)")
    image = fault("deprecate-image", "deprecate-image", "deprecate an image, which hides it from other accounts")
    image.add_argument("image", metavar="ID")
    for name, kind, text in (
        ("kill", "kill", "kill a machine"),
        ("freeze", "frozen", "freeze a machine"),
        ("cut", "cut", "disconnect a machine from the network"),
    ):
        fault(name, kind, text).add_argument("instance", metavar="ID")
    fault("stall", "stalled", "stall every access to a file system").add_argument("file_system", metavar="FS-ID")
    fault("expire", "expired", "expire temporary credentials").add_argument("session", metavar="INSTANCE|ROLE|SESSION")
    clear = kinds.add_parser("clear", help="clear all faults, or one by its id, kind or target")
    clear.add_argument("which", nargs="?", metavar="FAULT")
    clear.set_defaults(run=_clear, kind=None)
    for name, kind in (("thaw", "frozen"), ("mend", "cut"), ("resume", "stalled")):
        undo = kinds.add_parser(name, help=f"clear the opposite fault: as fault clear ID ({kind})")
        undo.add_argument("which", metavar="ID")
        undo.set_defaults(run=_clear, kind=kind)


# Values ------------------------------------------------------------------------------------------------------------


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")  # which compares with nothing


def _positive(text: str) -> float:
    if not 0 < _number(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return float(text)


def _finite(text: str) -> float:
    if not abs(_number(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number")
    return float(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number, 0 or more")
    return int(text)


def _times(text: str) -> int:
    if _count(text) == 0:
        raise argparse.ArgumentTypeError("0 times is never: give 1 or more")
    return int(text)


def _error_status(text: str) -> int:
    if not 400 <= _count(text) <= 599:
        raise argparse.ArgumentTypeError(f"{text} is not the HTTP status of an error: give one from 400 to 599")
    return int(text)


def _share(text: str) -> float:
    if not 0 <= _number(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return float(text)


def _size(text: str) -> int:
    units = {"K": 10, "M": 20, "G": 30}
    number, unit = (text[:-1], units.get(text[-1:].upper())) if not text.isdecimal() else (text, 0)
    if not number.isdecimal() or unit is None or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a size: give bytes, or such as 512M or 2G")
    return int(number) << unit


def _since(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600}
    number = text[:-1] if text[-1:] in units else text
    try:
        return time.time() - float(number) * units.get(text[-1:], 1)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text} is not a time: give such as 60s, 5m, 2h or 2026-11-20T10:00:00"
        ) from error


# Commands ----------------------------------------------------------------------------------------------------------


def _up(arguments: Arguments) -> None:
    # By its name, in which the path of a file is whole: the service runs in a folder of its own.
    daemon.up(
        latency_from(arguments.latency).name,
        arguments.cpus_per_instance,
        arguments.memory_per_instance,
        arguments.api_only,
        arguments.strict,
    )


def _down(_arguments: Arguments) -> None:
    daemon.down()


def _env(_arguments: Arguments) -> None:
    for name, value in state.ask("env").items():
        print(f"export {name}={value}")


def _status(arguments: Arguments) -> None:
    response = state.ask("status")
    if arguments.json:
        print(json.dumps(response, indent=2))
        return
    print(
        f"up since {_clock(response['started'])}, API at {response['endpoint']}, "
        f"latency profile {response['latency']}, {'strict, ' if response['strict'] else ''}pid {response['pid']}"
    )
    columns = ("id", "name", "type", "zone", "private_ip", "public_ip", "state", "since", "pid")
    _table("instances", columns, [{**row, "since": _clock(row["since"])} for row in response["instances"]])
    _table("file systems", ("id", "name", "region", "state", "mount_targets"), response["file_systems"])
    _table("faults in force", ("id", "kind", "target", "value", "left"), response["faults"])


def _table(title: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{title}: {len(rows) or 'none'}")
    if not rows:
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in [list(columns), *cells]) for at in range(len(columns))]
    for line in [[column.replace("_", " ") for column in columns], *cells]:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, dict):
        return " ".join(f"{key}={content}" for key, content in value.items()) or "any"
    if isinstance(value, list):
        return " ".join(_cell(entry) for entry in value) or "-"
    return str(value)


def _clock(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds).strftime("%H:%M:%S") if seconds else "-"


def _calls(arguments: Arguments) -> None:
    records = state.ask("calls", since=arguments.since)
    if arguments.json:
        for record in records:
            print(json.dumps(record))
        return
    rows = [
        {
            **record,
            "time": _clock(record["time"]),
            "caller": record["caller"].rpartition(":")[2],
            "required": " ".join(dict.fromkeys(need["action"] for need in record["required"])),
            "ms": record["milliseconds"],
        }
        for record in records
    ]
    _table("calls", ("time", "caller", "service", "operation", "required", "resource", "result", "ms"), rows)


def _exec(arguments: Arguments) -> None:
    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not argv:
        raise Refusal("give a command to run. Example: localcloud exec i-0123456789abcdef0 -- systemctl status ssh")
    where = state.ask("process", instance=arguments.instance)
    for group in where["groups"]:
        # With version 2 alone a group that hands on controllers takes no processes: then the command is outside of it.
        with contextlib.suppress(OSError), open(group, "w", encoding="ascii") as procs:
            procs.write(str(os.getpid()))
    argv = [*inside(where["pid"]), *argv]
    sys.stdout.flush()
    os.execvp(argv[0], argv)


def _console(arguments: Arguments) -> None:
    sys.stdout.write(state.ask("console", instance=arguments.instance))


def _no_fault(_arguments: Arguments) -> None:
    raise Refusal("say which fault: localcloud fault --help lists them.")


def _no_image(_arguments: Arguments) -> None:
    raise Refusal("say what to do with images. Example: localcloud image build")


def _fault(arguments: Arguments) -> None:
    names = ("instance", "type", "zone", "code", "action", "file_system", "session", "bucket", "image")
    target = {name: getattr(arguments, name) for name in names if getattr(arguments, name, None) is not None}
    value = arguments.value
    if arguments.kind == "error":
        target.pop("code", None)
        value = {
            "code": arguments.code,
            "message": arguments.message or f"{arguments.code} was asked for.",
            "status": arguments.http_status,
        }
    fault = state.ask(
        "fault", kind=arguments.kind, target=target, value=value, left=arguments.left, seed=arguments.seed
    )
    print(f"{fault['id']} is in force" if fault else "done")


def _clear(arguments: Arguments) -> None:
    print(f"cleared {state.ask('clear', which=arguments.which, kind=arguments.kind)}")


def _image_build(arguments: Arguments) -> None:
    daemon.build_image([name.strip() for name in arguments.features.split(",") if name.strip()], arguments.recipes)


if __name__ == "__main__":
    sys.exit(main())
