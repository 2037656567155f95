"""Running the nodes' program: what it answers, what it refuses, and the lines that it prints meanwhile."""

from __future__ import annotations

import os
import stat
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers, code_archive, node_program
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.node_program import Way

from tests.unit.plugins.runs.code_kit import unpacked
from tests.unit.plugins.runs.connection_kit import Connection, lines_of, stop_clock


def test_an_answer_is_json_or_text_for_people() -> None:
    printed = '{"run_id": "a", "warnings": [], "script": "/x"}\n'
    assert answers.parse("n", ["run", "create"], printed) == {"run_id": "a", "warnings": []}
    stopped = answers.parse("n", ["run", "stop", "a"], "run a ended with 0\n")
    assert stopped == {"text": "run a ended with 0"}
    assert answers.parse("n", ["run", "start", "a"], "") == {"text": ""}


@pytest.mark.parametrize(
    ("code", "stderr", "message"),
    [
        (2, "deeplearning: There is no run a.\n", "There is no run a."),
        (1, "Traceback …\nKeyError: 'a'\n", "n: KeyError: 'a'"),
        (1, "", "n: it ended with 1 and printed no reason"),
        (
            127,
            "sh: not found",
            "n has no command deeplearning: run ansible-playbook deeplearning.aws.configure, which makes it a member.",
        ),
        (
            2,
            "deeplearning: A run has no requested_by: is asked_by meant?\n",
            "n does not know what this version requests. Its program may be another version, or changed: "
            "ansible-playbook deeplearning.aws.configure installs the right one.",
        ),
        (2, "deeplearning: A run has no nodez: is nodes meant?\n", "A run has no nodez: is nodes meant?"),
        (255, "Connection closed\n", "The connection to n was lost: Connection closed"),
    ],
)
def test_a_refusal_is_the_sentence_that_was_printed(code: int, stderr: str, message: str) -> None:
    error = node_program.failure("n", code, stderr)
    assert str(error) == message
    assert isinstance(error, node_program.ConnectionLost) == (code == 255)


def test_ssh_uses_the_options_of_ansibles_connection() -> None:
    way = node_program.ssh_command(
        Connection(
            ssh_common_args="-F '/a b/c.ssh_config'", private_key_file="/k", remote_user="ubuntu", host="10.0.0.5"
        )
    )
    assert way[:5] == ["ssh", "-o", "ForwardAgent=no", "-F", "/a b/c.ssh_config"]
    assert way[-5:] == ["-i", "/k", "-l", "ubuntu", "10.0.0.5"]
    assert node_program.ssh_command(Connection("local")) == []


def test_words_are_quoted_for_the_shell() -> None:
    assert Way("n", as_root=True).program(["page"]) == "exec sudo -n /usr/local/bin/deeplearning page"
    assert Way("n").program(["run", "show", "a b$"]) == "exec /usr/local/bin/deeplearning run show 'a b$'"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "deeplearning"
    monkeypatch.setattr(node_program, "PROGRAM", str(file))
    return file


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_lines_come_one_by_one_and_whole(program: Path) -> None:
    write(program, """printf '{"n": 1'; printf '}\\n\\n{"n": 2}'""")
    with lines_of(Way("n"), Way("n").program(["run"])) as lines:
        assert list(lines) == ['{"n": 1}', "", '{"n": 2}']
    with lines_of(Way("n"), "exec sh -c 'printf one; exit 3'", limit=100, seconds=10) as lines:
        assert next(lines) == "one"
        with pytest.raises(node_program.CommandFailed):
            next(lines)


@pytest.mark.parametrize(
    ("end", "seconds", "problem"),
    [
        ("exit 255", 0, "The connection to n was lost"),
        ("exec cat /dev/zero", 0, "n sends far more"),
        ("exec sleep 600", 21, "n did not answer completely in time"),
    ],
)
def test_a_line_that_was_cut_is_left_out(
    monkeypatch: pytest.MonkeyPatch, end: str, seconds: float, problem: str
) -> None:
    advance = stop_clock(monkeypatch)
    with lines_of(Way("n"), f"printf 'one\ntw'; {end}", limit=1 << 20, seconds=20) as lines:
        assert next(lines) == "one"
        advance(seconds)
        with pytest.raises(UserError, match=f"^{problem}"):
            next(lines)


def test_a_failure_is_raised_after_the_lines(program: Path) -> None:
    write(program, """echo '{"n": 1}'; echo 'deeplearning: no more' >&2; exit 2""")
    seen = []
    with (
        pytest.raises(UserError, match="^no more$"),
        lines_of(Way("n"), Way("n").program(["run"])) as lines,
    ):
        seen.extend(lines)
    assert seen == ['{"n": 1}']


def test_leaving_the_stream_ends_the_process(program: Path, tmp_path: Path) -> None:
    write(program, f"echo $$ > {tmp_path}/pid; echo first; exec sleep 600")
    with lines_of(Way("n"), Way("n").program(["run"])) as lines:
        assert next(lines) == "first"
        pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_reads_all_that_is_sent_to_it(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(os.urandom(1 << 18))
    with sent.open("rb") as file:
        assert node_program.run(Way("n"), "cat", file) == sent.read_bytes()
    assert node_program.run(Way("n"), "cat; echo end") == b"end\n"


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("echo one; echo two", {"failed": False, "rc": 0, "stdout": "one\ntwo", "stderr": ""}),
        (
            "echo one; echo 'deeplearning: no\033' >&2; exit 3",
            {"failed": False, "rc": 3, "stdout": "one", "stderr": "no\ufffd", "msg": "no\ufffd"},
        ),
        ("printf 'one\\ntwo'", {"rc": 0, "stdout": "one\ntwo"}),
        ("printf two; exit 3", {"rc": 3, "stdout": "two"}),
        ("exec cat /dev/zero", {"failed": False, "rc": 1, "stdout": ""}),
        ("exec sleep 600", {"rc": 1, "stdout": "", "stderr": "n did not answer completely in time."}),
        ("echo gone >&2; exit 255", {"unreachable": True, "msg": "The connection to n was lost: gone"}),
    ],
)
def test_a_raw_result_is_what_was_printed_however_it_ends(
    program: Path, monkeypatch: pytest.MonkeyPatch, script: str, result: dict[str, object]
) -> None:
    monkeypatch.setattr(node_program, "ANSWER_SECONDS", 0.5 if "sleep" in script else 30)
    write(program, script)
    returned = node_program.raw(Way("n"), ["health", "check"])
    assert returned | result == returned


def test_a_script_goes_alone_or_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    for name in ("a.py", "lib/b.py", ".git/config", "__pycache__/a.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "a.py").chmod(0o700)
    beside = tmp_path / "train.py"
    beside.write_text("train")
    assert set(unpacked(code_archive.pack(beside, None))) == {"train.py"}
    assert set(unpacked(code_archive.pack(beside, folder))) == {"a.py", "lib/b.py", "train.py"}
    within = code_archive.pack(folder / "lib/b.py", folder)
    assert within.script == "lib/b.py"
    assert set(unpacked(within)) == {"a.py", "lib/b.py"}
    assert unpacked(within)["a.py"].mode & 0o777 == 0o700
    assert unpacked(within)["a.py"].uid == 0


@pytest.mark.parametrize("target", ["lib/b.py", "../elsewhere/b.py"])
def test_a_script_that_is_a_link_is_sent_as_the_file_that_it_leads_to(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "src"
    (folder / target).parent.mkdir(parents=True)
    (folder / target).write_text("b")
    (folder / "train.py").symlink_to(target)
    packed = code_archive.pack(folder / "train.py", folder)
    with tarfile.open(fileobj=BytesIO(packed.archive)) as archive:
        started = archive.extractfile(packed.script)
        assert archive.getmember(packed.script).isreg() and started and started.read() == b"b"
        # Inside the folder the link comes along.
        links = {member.name: member.linkname for member in archive if member.issym()}
    inside = not target.startswith("..")
    assert (packed.script, links) == (("lib/b.py", {"train.py": target}) if inside else ("train.py", {}))


def test_files_that_hold_secrets_stay_here_and_are_named(tmp_path: Path) -> None:
    secret = [".env", ".env.local", "keys/id_ed25519", "keys/server.pem", "keys/ID_RSA.bak", ".aws/credentials"]
    secret += [".kube/config", ".docker/config.json", ".npmrc", "kaggle.json"]
    for name in (*secret, "train.py", "id_mapping.py", "environment.py", "keys/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o600)
    packed = code_archive.pack(tmp_path / "train.py", tmp_path)
    modes = {name: member.mode & 0o777 for name, member in unpacked(packed).items()}
    assert modes == dict.fromkeys(["environment.py", "id_mapping.py", "keys/notes.txt", "train.py"], 0o600)
    assert packed.left_out == (
        *(".aws", ".docker", ".env", ".env.local", ".kube", ".npmrc"),
        *("kaggle.json", "keys/ID_RSA.bak", "keys/id_ed25519", "keys/server.pem"),
    )
    # What is named as the script is meant.
    assert code_archive.pack(tmp_path / ".env", tmp_path).left_out == tuple(
        name for name in packed.left_out if name != ".env"
    )


def test_the_documentation_names_what_is_not_sent() -> None:
    text = (Path(__file__).parents[4] / "docs/your-script.md").read_text(encoding="utf-8")
    assert f"These stay on your machine: `{' '.join(code_archive.SECRET)}`." in " ".join(text.split())


def test_data_is_not_sent_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "MOST_BYTES", 10)
    (tmp_path / "a.py").write_text("x" * 11)
    with pytest.raises(UserError, match="that is more than code"):
        code_archive.pack(tmp_path / "a.py", tmp_path)
