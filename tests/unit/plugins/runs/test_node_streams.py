"""What a node may send over a connection, how long it may take, and which options ssh gets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.schema import json_object
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers, node_program
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.node_program import Way

from tests.unit.plugins.runs.connection_kit import Connection, lines_of, stop_clock

HERE = Way("n")
ALIVE = ["-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4"]


def test_ssh_never_asks_and_notices_a_silent_end() -> None:
    assert node_program.ssh_command(Connection()) == ["ssh", "-o", "ForwardAgent=no", *ALIVE, "h"]
    key = node_program.ssh_command(Connection(private_key_file="~/key"))
    assert key[-5:] == ["-o", "IdentitiesOnly=yes", "-i", os.path.expanduser("~/key"), "h"]


def test_a_node_may_print_as_much_as_is_expected_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "LONGEST_ANSWER", 5)
    assert node_program.run(HERE, "printf 12345") == b"12345"
    with pytest.raises(UserError, match="^n sends far more than is expected: the rest is discarded."):
        node_program.run(HERE, "printf 123456")
    with lines_of(HERE, "printf '12\\n34'", limit=5, seconds=20) as lines:
        assert list(lines) == ["12", "34"]
    with (
        pytest.raises(UserError, match="sends far more"),
        lines_of(HERE, "printf 123456", limit=5, seconds=20) as lines,
    ):
        list(lines)


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    file = folder / "deeplearning"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(file))


def test_a_line_has_a_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "LONGEST_LINE", 5)
    program(tmp_path, monkeypatch, "printf '12345\\n1234567\\n12345'; sleep 0.1; echo")
    with lines_of(HERE, HERE.program([])) as lines:
        assert list(lines) == ["12345", "1234567", "12345"]
    program(tmp_path, monkeypatch, "printf 123456; sleep 20")
    with pytest.raises(UserError, match="sends far more"), lines_of(HERE, HERE.program([])) as lines:
        list(lines)


def test_what_is_printed_as_an_error_has_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "LONGEST_ANSWER", 5)
    with pytest.raises(UserError, match="^n sends far more"):
        node_program.run(HERE, "printf 123456 >&2; exec sleep 20")
    with pytest.raises(UserError, match="^n: 12345$"):
        node_program.run(HERE, "printf 12345 >&2; exit 1")


def test_the_end_of_the_process_counts_and_not_that_of_its_output() -> None:
    with pytest.raises(UserError, match="^n: late$"):
        node_program.run(HERE, "printf 1; exec >&-; sleep 0.3; echo late >&2; exit 3")


def test_a_question_has_an_input_and_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, 'printf \'{"run_id": "%s", "warnings": []}\' "$(cat)"')
    (tmp_path / "input").write_text("mine")
    with (tmp_path / "input").open("rb") as stdin:
        assert node_program.ask(HERE, ["run", "create"], stdin) == {"run_id": "mine", "warnings": []}
    program(tmp_path, monkeypatch, "echo 'deeplearning: There is no run a.' >&2; exit 2")
    with pytest.raises(UserError, match="^There is no run a.$"):
        node_program.ask(HERE, ["run", "create"])
    program(tmp_path, monkeypatch, "exec sleep 20")
    with pytest.raises(UserError, match="^n did not answer completely in time.$"):
        node_program.ask(HERE, ["run", "create"], seconds=0.1)


def test_an_answer_of_another_form_names_the_node() -> None:
    with pytest.raises(UserError, match="^n answered `deeplearning run create` with something unexpected"):
        answers.parse("n", ["run", "create"], "{}")


@pytest.mark.parametrize(
    ("text", "line"), [("a\n b\x1b \n\n  \n", "b\N{REPLACEMENT CHARACTER}"), ("", ""), (" \n", ""), ("a", "a")]
)
def test_the_last_line_is_the_last_that_has_words(text: str, line: str) -> None:
    assert node_program.last_line(text) == line


@pytest.mark.parametrize(
    ("line", "event"),
    [('{"event": "x"}', {"event": "x"}), ("[1]", {}), ("null", {}), ("x", {}), ("", {}), ("[" * 100_000, {})],
)
def test_an_event_is_an_object(line: str, event: dict[str, Any]) -> None:
    assert json_object(line) == event


def test_a_worker_ends_with_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    fake = SimpleNamespace(getppid=os.getppid, getpid=os.getpid, kill=lambda *words: sent.append(words))
    monkeypatch.setattr(node_program, "os", fake)
    node_program.end_with_parent(os.getppid())
    assert sent == []
    node_program.end_with_parent(os.getppid() + 1)
    assert sent == [(os.getpid(), signal.SIGTERM)]


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in the place of ssh, and return the file with its words, one a line."""
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\nfor last; do :; done\nexec /bin/sh -c "$last"\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "words"


def test_a_host_is_reached_by_the_written_configuration(ssh: Path) -> None:
    assert node_program.run(Way.of_config("/c.ssh_config", "n"), "printf 123") == b"123"
    assert ssh.read_text().split("\n")[:-1] == [
        *("-F", "/c.ssh_config", "-o", "BatchMode=yes", "-o", "ForwardAgent=no", "-o", "ConnectTimeout=10"),
        *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4", "n", "printf 123"),
    ]


@pytest.mark.parametrize(
    ("command", "seconds", "content", "problem"),
    [
        ("echo 12; until [ -e {read} ]; do sleep 0.05; done; echo 34", 0, ["12"], "n sends far more"),
        ("echo 12; echo no >&2; exit 1", 0, ["12"], "n: no"),
        ("echo 12; exec sleep 600", 21, ["12"], "n did not answer completely in time."),
        ("exit 255", 0, [], "The connection to n was lost: it ended with 255 and printed no reason"),
    ],
)
def test_what_has_come_counts_however_the_host_behaves(
    ssh: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    seconds: float,
    content: list[str],
    problem: str,
) -> None:
    advance = stop_clock(monkeypatch)
    received: list[str] = []
    way, script = Way.of_config("/c", "n"), command.format(read=tmp_path / "read")
    with pytest.raises(UserError, match=f"^{problem}"), lines_of(way, script, limit=5, seconds=20) as lines:
        for line in lines:
            received.append(line)
            (tmp_path / "read").touch()
            advance(seconds)
    assert received == content


def test_what_is_no_utf_8_is_no_exception(ssh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "printf 'a\\377\\n'; printf 'no\\377' >&2; exit 1")
    seen: list[str] = []
    with (
        pytest.raises(UserError, match="^n: no\N{REPLACEMENT CHARACTER}$"),
        lines_of(HERE, HERE.program([])) as lines,
    ):
        seen.extend(lines)
    assert seen == ["a\N{REPLACEMENT CHARACTER}"]
    program(tmp_path, monkeypatch, "printf 'a\\377\\n'")
    with lines_of(HERE, HERE.program([])) as lines:
        assert list(lines) == ["a\N{REPLACEMENT CHARACTER}"]
    answer = {"text": "a\N{REPLACEMENT CHARACTER}"}
    assert node_program.ask(HERE, ["version"]) == node_program.ask(Way.of_config("/c", "n"), ["version"]) == answer
