"""The command line: what may be given, what is asked of the service, what is printed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from localcloud import cli, daemon, state
from localcloud_kits.cli_kit import COMMANDS, FAULTS, refused


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What was asked of the service, which answers everything with a fault."""
    questions: list[tuple[str, dict[str, Any]]] = []

    def ask(command: str, **arguments: Any) -> Any:
        questions.append((command, arguments))
        return {"id": "fault-1"} if command == "fault" and arguments["kind"] != "kill" else {}

    monkeypatch.setattr(state, "ask", ask)
    return questions


@pytest.mark.parametrize(
    "words", [[], *([name] for name in COMMANDS), *(["fault", name] for name in FAULTS), ["image", "build"]]
)
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {' '.join(['localcloud', *words])} ")


def test_help_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = capsys.readouterr().out
    assert [name for name in COMMANDS if f"    {name}" not in listed] == []
    with pytest.raises(SystemExit):
        cli.main(["fault", "--help"])
    listed = capsys.readouterr().out
    assert [name for name in FAULTS if f"    {name}" not in listed] == []


# Values

Value = Callable[[str], Any]


@pytest.mark.parametrize(
    "value, text, meant",
    [
        (cli._size, "1", 1),
        (cli._size, "4096", 4096),
        (cli._size, "1k", 1 << 10),
        (cli._size, "512M", 512 << 20),
        (cli._size, "512m", 512 << 20),
        (cli._size, "2G", 2 << 30),
        (cli._positive, "0.5", 0.5),
        (cli._positive, "2", 2.0),
        (cli._count, "0", 0),
        (cli._count, "12", 12),
        (cli._times, "1", 1),
        (cli._error_status, "503", 503),
        (cli._share, "0", 0.0),
        (cli._share, "0.25", 0.25),
        (cli._share, "1", 1.0),
        (cli._since, "2026-11-20T10:00:00+00:00", 1795168800.0),
        (cli._since, "2026-11-20", datetime(2026, 11, 20).timestamp()),
    ],
)
def test_values(value: Value, text: str, meant: Any) -> None:
    assert value(text) == meant


@pytest.mark.parametrize("text, seconds", [("60", 60), ("60s", 60), ("5m", 300), ("2h", 7200), ("0.5h", 1800)])
def test_since_so_long_ago(text: str, seconds: float) -> None:
    assert time.time() - cli._since(text) == pytest.approx(seconds, abs=30)


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["up", "--memory-per-instance", text], f"{text} is not a size: give bytes, or such as 512M or 2G")
        for text in ("0", "0M", "M", "1.5G", "512X", "-1", "a lot", "")
    ]
    + [(["up", "--cpus-per-instance", text], f"{text} is not a number above 0") for text in ("0", "inf", "nan", "some")]
    + [(["fault", "capacity", text], f"{text} is not a whole number, 0 or more") for text in ("1.5", "two", "²")]
    + [(["fault", "throttle", text], f"{text} is not a number from 0 to 1") for text in ("2", "1.01", "nan", "half")]
    + [
        (["calls", "--since", text], f"{text} is not a time: give such as 60s, 5m, 2h or 2026-11-20T10:00:00")
        for text in ("5d", "noon", "")
    ]
    + [
        (["fault", "error", "Throttling", "--count", "0"], "0 times is never: give 1 or more"),
        (["fault", "error", "Throttling", "--status", "200"], "200 is not the HTTP status of an error"),
        (["fault", "late-iam", "-1"], "-1 is not a number above 0"),
        (["fault", "clear", "one", "two"], "unrecognized arguments: two"),
        (["launch"], "invalid choice: 'launch'"),
        ([], "the following arguments are required: COMMAND"),
        # Ours
        (["fault"], "localcloud: say which fault: localcloud fault --help lists them."),
        (["image"], "localcloud: say what to do with images. Example: localcloud image build"),
        (["exec", "i-1"], "localcloud: give a command to run."),
        (["exec", "i-1", "--"], "localcloud: give a command to run."),
        (["up", "--latency", "aws*fast"], "localcloud: latency profile aws*fast: what follows aws* must be a number"),
        (["up", "--latency", "/no/such"], "localcloud: latency profile /no/such cannot be read"),
    ],
)
def test_what_cannot_be(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in refused(capsys, *words)


@pytest.mark.parametrize(
    "words",
    [["env"], ["status"], ["status", "--json"], ["calls"], ["console", "i-1"], ["exec", "i-1", "--", "true"],
     ["fault", "clear"], ["fault", "kill", "i-1"]],
)  # fmt: skip
def test_without_a_service_there_is_one_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state, "_MACHINE", tmp_path)
    monkeypatch.setattr(state, "_ROOTS_MACHINE", tmp_path)
    assert refused(capsys, *words) == "localcloud: the local cloud is down: start it with localcloud up."


# Commands


@pytest.mark.parametrize(
    "words, started",
    [
        ([], ("none", None, None, False, False)),
        (["--strict"], ("none", None, None, False, True)),
        (["--latency", "aws*0.1", "--api-only"], ("aws*0.1", None, None, True, False)),
        (["--cpus-per-instance", "0.5", "--memory-per-instance", "512M"], ("none", 0.5, 512 << 20, False, False)),
    ],
)
def test_up(words: list[str], started: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[Any] = []
    monkeypatch.setattr(daemon, "up", lambda *arguments: passed.extend(arguments))
    assert cli.main(["up", *words]) == 0
    assert tuple(passed) == started


def test_up_hands_on_where_a_profile_is_whatever_folder_the_service_runs_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passed: list[Any] = []
    monkeypatch.setattr(daemon, "up", lambda *arguments: passed.extend(arguments))
    (tmp_path / "slow.json").write_text('{"call": 1}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["up", "--latency", "slow.json"]) == 0
    assert passed[0] == str(tmp_path / "slow.json")


@pytest.mark.parametrize(
    "features, names", [("", []), ("pytorch", ["pytorch"]), (" mxnet,,pytorch ", ["mxnet", "pytorch"])]
)
def test_image_build(features: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[Any] = []
    monkeypatch.setattr(daemon, "build_image", lambda *arguments: passed.extend(arguments))
    assert cli.main(["image", "build", "--with", features, "--recipes", "recipes.py"]) == 0
    assert passed == [names, "recipes.py"]


@pytest.mark.parametrize(
    "words, kind, target, value, left",
    [
        (["capacity", "2", "--type", "t3.*", "--zone", "z-1a"], "capacity", {"type": "t3.*", "zone": "z-1a"}, 2, None),
        (["capacity", "0"], "capacity", {}, 0, None),
        (["quota", "8", "--code", "L-1216C47A"], "quota", {"code": "L-1216C47A"}, 8, None),
        (["ebs-key", "arn:aws:kms:1"], "ebs-key", {}, "arn:aws:kms:1", None),
        (["throttle", "0.2", "--action", "ec2:*"], "throttle", {"action": "ec2:*"}, 0.2, None),
        (["late-iam", "30"], "late-iam", {}, 30.0, None),
        (["late-reads", "5"], "late-reads", {}, 5.0, None),
        (["late-tags", "5"], "late-tags", {}, 5.0, None),
        (["keep-fields"], "keep-fields", {}, None, None),
        (["skew", "-3600"], "skew", {}, -3600.0, None),
        (["foreign-bucket", "data"], "foreign-bucket", {"bucket": "data"}, None, None),
        (["fail-nat"], "fail-nat", {}, None, 1),
        (["fail-nat", "--count", "2"], "fail-nat", {}, None, 2),
        (["kill", "i-1"], "kill", {"instance": "i-1"}, None, None),
        (["freeze", "i-1"], "frozen", {"instance": "i-1"}, None, None),
        (["cut", "i-1"], "cut", {"instance": "i-1"}, None, None),
        (["stall", "fs-1"], "stalled", {"file_system": "fs-1"}, None, None),
        (["expire", "worker"], "expired", {"session": "worker"}, None, None),
        (
            ["error", "InternalError", "--action", "ec2:RunInstances", "--count", "3", "--status", "500"],
            "error", {"action": "ec2:RunInstances"},
            {"code": "InternalError", "message": "InternalError was asked for.", "status": 500}, 3,
        ),
        (
            ["error", "Denied", "--message", "so it is"],
            "error", {}, {"code": "Denied", "message": "so it is", "status": 400}, None,
        ),
    ],
)  # fmt: skip
def test_faults(
    words: list[str],
    kind: str,
    target: dict[str, str],
    value: Any,
    left: int | None,
    asked: list[tuple[str, dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["fault", *words]) == 0
    [(command, arguments)] = asked
    seed = 0 if kind == "throttle" else None
    assert command == "fault"
    assert arguments == {"kind": kind, "target": target, "value": value, "left": left, "seed": seed}
    assert capsys.readouterr().out == ("done\n" if kind == "kill" else "fault-1 is in force\n")


@pytest.mark.parametrize(
    "words, which, kind",
    [
        (["clear"], None, None),
        (["clear", "fault-1"], "fault-1", None),
        (["thaw", "i-1"], "i-1", "frozen"),
        (["mend", "i-1"], "i-1", "cut"),
        (["resume", "fs-1"], "fs-1", "stalled"),
    ],
)
def test_lifting_faults(
    words: list[str], which: str | None, kind: str | None, asked: list[tuple[str, dict[str, Any]]]
) -> None:
    assert cli.main(["fault", *words]) == 0
    assert asked == [("clear", {"which": which, "kind": kind})]


@pytest.mark.parametrize(
    "words, run",
    [
        (["--", "ls", "-l"], ["ls", "-l"]),
        (["ls", "-l"], ["ls", "-l"]),
        (["--", "sh", "-c", "echo -- --json"], ["sh", "-c", "echo -- --json"]),
        (["--", "cmd", "--", "-x"], ["cmd", "--", "-x"]),
    ],
)
def test_exec_joins_the_machine_and_becomes_the_command(
    words: list[str], run: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    joined = tmp_path / "cgroup.procs"
    became: list[Any] = []
    monkeypatch.setattr(state, "ask", lambda *_given, **_more: {"pid": 42, "groups": [str(joined)]})
    monkeypatch.setattr("os.execvp", lambda *passed: became.extend(passed))
    cli.main(["exec", "i-1", *words])
    program, line = became
    assert program == "nsenter"
    assert line[1:3] == ["--target", "42"]
    assert line[-len(run) :] == run
    assert "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" in line
    assert joined.read_text(encoding="ascii").isdecimal()


def test_env_is_for_a_shell_to_evaluate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(state, "ask", lambda _command: {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKIA"})
    assert cli.main(["env"]) == 0
    assert capsys.readouterr().out == "export AWS_REGION=us-east-1\nexport AWS_ACCESS_KEY_ID=AKIA\n"


STATUS: dict[str, Any] = {
    "pid": 4711,
    "endpoint": "http://127.0.0.1:4599",
    "started": 1.0,
    "latency": "none",
    "strict": False,
    "instances": [
        {
            "id": "i-1", "name": "", "type": "t3.micro", "region": "us-east-1", "zone": "us-east-1a",
            "private_ip": "10.0.0.4", "public_ip": None, "state": "running", "since": 1.0, "pid": 42,
        }
    ],
    "file_systems": [],
    "faults": [{"id": "fault-1", "kind": "capacity", "target": {"type": "t3.*"}, "value": 0, "left": None}],
}  # fmt: skip


def test_status_as_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(state, "ask", lambda _command: STATUS)
    assert cli.main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("API at http://127.0.0.1:4599, latency profile none, pid 4711")
    [row] = [line.split() for line in lines if line.startswith("  i-1")]
    assert row[:7] == ["i-1", "-", "t3.micro", "us-east-1a", "10.0.0.4", "-", "running"]
    assert "file systems: none" in lines
    assert [line.split() for line in lines][-1] == ["fault-1", "capacity", "type=t3.*", "0", "-"]


def test_status_shows_whether_the_cloud_is_strict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(state, "ask", lambda _command: {**STATUS, "strict": True})
    assert cli.main(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("latency profile none, strict, pid 4711")


def test_status_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(state, "ask", lambda _command: STATUS)
    assert cli.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == STATUS


CALL = {
    "time": 1.0,
    "caller": "arn:aws:sts::123456789012:assumed-role/worker/i-1",
    "service": "efs",
    "operation": "CreateFileSystem",
    "action": "elasticfilesystem:CreateFileSystem",
    "required": [{"action": "elasticfilesystem:CreateFileSystem"}, {"action": "elasticfilesystem:TagResource"}] * 2,
    "resource": "*",
    "result": "AccessDeniedException",
    "milliseconds": 1.5,
}


def test_calls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    since: list[float] = []
    monkeypatch.setattr(state, "ask", lambda _command, **passed: since.append(passed["since"]) or [CALL, CALL])
    assert cli.main(["calls"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[1:] == [
        "assumed-role/worker/i-1", "efs", "CreateFileSystem", "elasticfilesystem:CreateFileSystem",
        "elasticfilesystem:TagResource", "*", "AccessDeniedException", "1.5",
    ]  # fmt: skip
    assert cli.main(["calls", "--json", "--since", "1h"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [CALL, CALL]
    assert since[0] == 0
    assert time.time() - since[1] == pytest.approx(3600, abs=60)


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(daemon, "down", interrupt)
    assert cli.main(["down"]) == 130
    assert capsys.readouterr().err == "localcloud: interrupted\n"


@pytest.mark.parametrize("words", [["up"], ["image", "build"]])
@pytest.mark.parametrize(
    ("lacking", "problem"),
    [
        ("os.geteuid", "needs root to boot machines (sudo localcloud up)"),
        ("shutil.which", "programs are missing on this machine (apt-get install bindfs "),
        ("subprocess.run", "refuses them (unshare: not permitted)"),
        ("localcloud.machines.cgroups.are_writable", "cannot be written on this machine"),
        ("pathlib.Path.exists", "this machine has no /dev/fuse"),
    ],
)
def test_a_machine_that_cannot_boot_others_is_told_what_it_lacks(
    words: list[str], lacking: str, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.CompletedProcess([], 0)
    answers: dict[str, Any] = {
        "os.geteuid": (0, 1000),
        "shutil.which": ("/usr/bin/it", None),
        "subprocess.run": (done, subprocess.CompletedProcess([], 1, stderr="unshare: not permitted\n")),
        "localcloud.machines.cgroups.are_writable": (True, False),
        "pathlib.Path.exists": (True, False),
    }
    for name, (good, bad) in answers.items():
        answer = bad if name == lacking else good
        monkeypatch.setattr(name, lambda *_words, answer=answer, **_more: answer)
    assert cli.main(words) == 2
    message = capsys.readouterr().err
    assert problem in message
    assert message.endswith("Without machines it works: localcloud up --api-only\n")
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("words", [["up"], ["image", "build"]])
def test_an_unknown_release_of_debian_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daemon, "SUITE", "jessie")
    assert refused(capsys, *words) == "localcloud: LOCALCLOUD_SUITE is jessie: give one of bullseye, bookworm, trixie."


def test_roots_service_is_for_root(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(state, "_MACHINE", tmp_path)
    state.remember_service()
    monkeypatch.setattr(state, "_ROOTS_MACHINE", tmp_path)
    monkeypatch.setattr(state, "_MACHINE", tmp_path / "own")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert refused(capsys, "status").endswith("is root's. Example: sudo localcloud status")


@pytest.mark.parametrize("verb", ["up", "down"])
def test_the_service_of_another_home_is_left_alone(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(state, "_MACHINE", tmp_path)
    state.remember_service()
    monkeypatch.setattr(state, "HOME", tmp_path / "other")
    monkeypatch.setattr(daemon, "_check_machine", lambda: None)
    monkeypatch.setattr(daemon, "_sweep", lambda: pytest.fail("it removes what the service uses"))
    assert refused(capsys, verb).startswith("localcloud: a local cloud with LOCALCLOUD_HOME=")
