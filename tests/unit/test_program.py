"""Talking to the nodes' program: what it answers, what it refuses, and listening to it."""

from __future__ import annotations

import os
import stat
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _code, _program


class Connection:
    def __init__(self, transport: str = "ssh", **options: Any) -> None:
        self.transport = transport
        self._options = {"ssh_common_args": "", "private_key_file": None, "remote_user": None, "host": "h", **options}

    def get_option(self, name: str) -> Any:
        return self._options[name]


def test_an_answer_is_json_or_words_for_people() -> None:
    made = '{"run_id": "a", "warnings": [], "script": "/x"}\n'
    assert _program.answer("n", ["run", "create"], 0, made, "") == {"run_id": "a", "warnings": []}
    assert _program.answer("n", ["run", "stop", "a"], 0, "run a ended with 0\n", "") == {"said": "run a ended with 0"}
    assert _program.answer("n", ["run", "start", "a"], 0, "", "") == {"said": ""}


@pytest.mark.parametrize(
    ("code", "stderr", "said"),
    [
        (2, "deeplearning: There is no run a.\n", "There is no run a."),
        (1, "Traceback …\nKeyError: 'a'\n", "n: KeyError: 'a'"),
        (1, "", "n: it ended with 1 and said nothing"),
        (127, "sh: not found", "n has no command deeplearning: run configure.yml, which makes it a member."),
        (255, "Connection closed\n", "The connection to n was lost: Connection closed"),
    ],
)
def test_a_refusal_is_its_sentence(code: int, stderr: str, said: str) -> None:
    with pytest.raises(_program.Trouble) as trouble:
        _program.answer("n", ["run", "create"], code, "", stderr)
    assert str(trouble.value) == said
    assert isinstance(trouble.value, _program.Lost) == (code == 255)


def test_ssh_goes_the_way_of_ansibles_connection() -> None:
    way = _program.ssh(
        Connection(
            ssh_common_args="-F '/a b/c.ssh_config'", private_key_file="/k", remote_user="ubuntu", host="10.0.0.5"
        )
    )
    assert way[:5] == ["ssh", "-o", "ForwardAgent=no", "-F", "/a b/c.ssh_config"]
    assert way[-5:] == ["-i", "/k", "-l", "ubuntu", "10.0.0.5"]
    assert _program.ssh(Connection("local")) == []


def test_words_reach_the_program_as_they_are() -> None:
    assert _program.command(["run", "show", "a b$"]) == "/usr/local/bin/deeplearning run show 'a b$'"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "deeplearning"
    monkeypatch.setattr(_program, "PROGRAM", str(file))
    return file


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_lines_come_one_by_one_and_whole(program: Path) -> None:
    write(program, """printf '{"n": 1'; printf '}\\n{"n": 2}\\nrest'""")
    with _program.listening(Connection("local"), ["run"], "n") as lines:
        assert [_program.event(line) for line in lines] == [{"n": 1}, {"n": 2}]


def test_what_fails_after_its_lines_is_told_after_them(program: Path) -> None:
    write(program, """echo '{"n": 1}'; echo 'deeplearning: no more' >&2; exit 2""")
    seen = []
    with (
        pytest.raises(_program.Trouble, match="^no more$"),
        _program.listening(Connection("local"), ["run"], "n") as lines,
    ):
        seen.extend(lines)
    assert seen == ['{"n": 1}']


def test_who_stops_listening_ends_it(program: Path, tmp_path: Path) -> None:
    write(program, f"echo $$ > {tmp_path}/pid; echo first; exec sleep 600")
    with _program.listening(Connection("local"), ["run"], "n") as lines:
        assert next(lines) == "first"
        pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("line", ["", "no json", "[1]", "3"])
def test_what_is_no_event_is_none(line: str) -> None:
    assert _program.event(line) == {}


def unpacked(packed: _code.Packed) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=BytesIO(packed.archive)) as archive:
        return {member.name: member for member in archive}


def test_a_script_goes_alone_or_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    for name in ("a.py", "lib/b.py", ".git/config", "__pycache__/a.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "a.py").chmod(0o700)
    beside = tmp_path / "train.py"
    beside.write_text("train")
    assert set(unpacked(_code.pack(beside, None))) == {"train.py"}
    assert set(unpacked(_code.pack(beside, folder))) == {"a.py", "lib/b.py", "train.py"}
    within = _code.pack(folder / "lib/b.py", folder)
    assert within.script == "lib/b.py"
    assert set(unpacked(within)) == {"a.py", "lib/b.py"}
    assert unpacked(within)["a.py"].mode & 0o777 == 0o744
    assert unpacked(within)["a.py"].uid == 0


def test_data_is_not_sent_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_code, "MOST", 10)
    (tmp_path / "a.py").write_text("x" * 11)
    with pytest.raises(_code.TooMuch, match="that is more than code"):
        _code.pack(tmp_path / "a.py", tmp_path)
