"""What a node may send over a connection, how long it may take, and which options ssh gets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program

from tests.unit.plugins.runs.connection_kit import Connection

LOCAL = Connection("local")
ALIVE = ["-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4"]


def test_ssh_never_asks_and_notices_a_silent_end() -> None:
    assert node_program.ssh_command(Connection()) == ["ssh", "-o", "ForwardAgent=no", *ALIVE, "h"]
    assert node_program.ssh_command(Connection(), forward_agent=True) == [
        *("ssh", "-o", "ForwardAgent=yes", "-o", "ControlPath=none", *ALIVE, "h")
    ]
    key = node_program.ssh_command(Connection(private_key_file="~/key"))
    assert key[-5:] == ["-o", "IdentitiesOnly=yes", "-i", os.path.expanduser("~/key"), "h"]


def test_a_node_may_print_as_much_as_is_expected_and_no_more() -> None:
    assert node_program.read_bytes(LOCAL, "printf 12345", "n", 5) == b"12345"
    with pytest.raises(UserError, match="^n sends more than 0 MiB where far less is expected, so all of it is disc"):
        node_program.read_bytes(LOCAL, "printf 123456", "n", 5)
    with pytest.raises(UserError, match="sends more than 2 MiB"):
        node_program.read_bytes(LOCAL, "head -c 2097153 /dev/zero", "n", 2 << 20)


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    file = folder / "deeplearning"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(file))


def test_a_line_has_a_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "LONGEST_LINE", 5)
    program(tmp_path, monkeypatch, "printf '12345\\n1234567\\n12345'; sleep 0.1; echo")
    with node_program.stream(LOCAL, [], "n") as lines:
        assert list(lines) == ["12345", "1234567", "12345"]
    program(tmp_path, monkeypatch, "printf 123456; sleep 20")
    with pytest.raises(UserError, match="sends more than 0 MiB"), node_program.stream(LOCAL, [], "n") as lines:
        list(lines)


def test_what_is_printed_as_an_error_has_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "LONGEST_ANSWER", 5)
    with pytest.raises(UserError, match="^n sends more than 0 MiB"):
        node_program.read_bytes(LOCAL, "printf 123456 >&2; exec sleep 20", "n", 5)
    with pytest.raises(UserError, match="^n: 12345$"):
        node_program.read_bytes(LOCAL, "printf 12345 >&2; exit 1", "n", 5)


def test_the_end_of_the_process_counts_and_not_that_of_its_output() -> None:
    with pytest.raises(UserError, match="^n: late$"):
        node_program.read_bytes(LOCAL, "printf 1; exec >&-; sleep 0.3; echo late >&2; exit 3", "n", 5)


def test_a_call_has_an_input_and_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    class Action:
        _connection = LOCAL
        result: dict[str, Any] = {"rc": 0, "stdout": '{"run_id": "a", "warnings": []}', "stderr": ""}

        def _low_level_execute_command(self, command: str, sudoable: bool, in_data: bytes | None) -> dict[str, Any]:
            ran.append((command, sudoable, in_data))
            return self.result

    action: Any = Action()
    words = ["run", "create"]
    assert node_program.call(action, words, "n", b"{}") == {"run_id": "a", "warnings": []}
    node_program.call(action, words, "n")
    node_program.execute(action, "id", become=True, stdin=b"x")
    line = node_program.command(words)
    assert ran == [(line, False, b"{}"), (line, False, None), ("id", True, b"x")]
    action.result = {"rc": 2, "stdout": "", "stderr": "deeplearning: There is no run a.\n"}
    with pytest.raises(UserError, match="^There is no run a.$"):
        node_program.call(action, words, "n")
    # With the agent forwarded it is another connection.
    program(tmp_path, monkeypatch, 'printf \'{"run_id": "%s", "warnings": []}\' "$(cat)"')
    assert node_program.call(action, words, "n", b"mine", forward_agent=True)["run_id"] == "mine"
    assert len(ran) == 4


def test_an_answer_of_another_form_names_the_node() -> None:
    with pytest.raises(UserError, match="^n answered `deeplearning run create` with something unexpected"):
        node_program.parse_answer("n", ["run", "create"], "{}")


@pytest.mark.parametrize(
    ("text", "line"), [("a\n b\x1b \n\n  \n", "b\N{REPLACEMENT CHARACTER}"), ("", ""), (" \n", ""), ("a", "a")]
)
def test_the_last_line_is_the_last_that_has_words(text: str, line: str) -> None:
    assert node_program.last_line(text) == line


@pytest.mark.parametrize(
    ("line", "event"), [('{"event": "x"}', {"event": "x"}), ("[1]", {}), ("null", {}), ("x", {}), ("", {})]
)
def test_an_event_is_an_object(line: str, event: dict[str, Any]) -> None:
    assert node_program.event(line) == event


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
    assert node_program.read_available(Path("/c.ssh_config"), "n", "printf 123", 3, 20) == (b"123", "")
    assert ssh.read_text().split("\n")[:-1] == [
        *("-F", "/c.ssh_config", "-o", "BatchMode=yes", "-o", "ForwardAgent=no", "-o", "ConnectTimeout=10"),
        *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4", "n", "printf 123"),
    ]


@pytest.mark.parametrize(
    ("command", "seconds", "content", "problem"),
    [
        ("printf 1234", 20, b"1234", "n sends more than 0 MiB: the rest is left out."),
        ("printf 12; echo no >&2; exit 1", 20, b"12", "n: no"),
        ("printf 12; sleep 20", 1.1, b"12", "n did not answer completely in time."),
        ("exit 255", 20, b"", "The connection to n was lost: it ended with 255 and printed no reason"),
    ],
)
def test_what_has_come_counts_however_the_host_behaves(
    ssh: Path, command: str, seconds: float, content: bytes, problem: str
) -> None:
    assert node_program.read_available(Path("/c"), "n", command, 3, seconds) == (content, problem)


def test_what_is_no_utf_8_is_no_exception(ssh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "printf 'a\\377\\n'; printf 'no\\377' >&2; exit 1")
    seen: list[str] = []
    with (
        pytest.raises(UserError, match="^n: no\N{REPLACEMENT CHARACTER}$"),
        node_program.stream(LOCAL, [], "n") as lines,
    ):
        seen.extend(lines)
    assert seen == ["a\N{REPLACEMENT CHARACTER}"]
    program(tmp_path, monkeypatch, "printf 'a\\377\\n'")
    with node_program.stream(LOCAL, [], "n") as lines:
        assert list(lines) == ["a\N{REPLACEMENT CHARACTER}"]
    action: Any = SimpleNamespace(_connection=LOCAL)
    assert node_program.call(action, ["version"], "n", forward_agent=True) == {"text": "a\N{REPLACEMENT CHARACTER}"}
    assert node_program.ask_master("/c", ["version"], 20) == {"text": "a\N{REPLACEMENT CHARACTER}"}
