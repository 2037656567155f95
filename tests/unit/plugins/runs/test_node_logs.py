"""The logs of a node: the command that prints them, run here, and answers of nodes that are not to be trusted."""

from __future__ import annotations

import base64
import gzip
import os
import shlex
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_files, node_logs
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import InvalidValue

RUN = "runs/lenet-1"


def run_command(folder: Path, command: str) -> dict[str, str]:
    """Run the command as the node's shell does, with a sudo that is none."""
    sudo = folder / "bin/sudo"
    sudo.parent.mkdir(exist_ok=True)
    sudo.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    sudo.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        env=os.environ | {"PATH": f"{sudo.parent}:{os.environ['PATH']}"},
        check=True,
    )
    return dict(node_logs.read(done.stdout.decode().splitlines()))


@pytest.fixture
def efs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    efs = tmp_path / "my efs"
    for run, names in {"lenet-1": ("run.json", "logs/deeplearning-worker1.worker0.log"), "old": ("run.json",)}.items():
        for name in names:
            file = efs / "runs/red" / run / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{run} {name}\n")
    monkeypatch.setattr(node_logs, "COMMANDS", {"versions.txt": "uname", "efs.txt": "ls {efs}; echo {cluster}"})
    return efs


def test_a_node_prints_its_files_and_those_of_runs(tmp_path: Path, efs: Path) -> None:
    files = run_command(tmp_path, node_logs.collect_command("red", str(efs), with_runs=True))
    assert files["versions.txt"] == "Linux\n" and files["efs.txt"] == "runs\nred\n"
    assert files[f"{RUN}/logs/deeplearning-worker1.worker0.log"].startswith("lenet-1 logs/")
    assert {name for name in files if name.startswith("runs/")} == {
        f"{RUN}/logs/deeplearning-worker1.worker0.log",
        f"{RUN}/run.json",
        "runs/old/run.json",
    }


def test_one_run_or_none_is_sent(tmp_path: Path, efs: Path) -> None:
    one = run_command(tmp_path, node_logs.collect_command("red", str(efs), with_runs=True, run_id="old"))
    assert [name for name in one if name.startswith("runs/")] == ["runs/old/run.json"]
    assert list(run_command(tmp_path, node_logs.collect_command("red", str(efs), False))) == ["versions.txt", "efs.txt"]


def test_the_name_of_a_file_of_a_run_is_no_command(tmp_path: Path, efs: Path) -> None:
    """Users of the cluster choose these names, and root reads the files."""
    trap, logs = tmp_path / "trap", efs / "runs/red/lenet-1/logs"
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for name in (f"$(touch {shlex.quote(trap.name)}).log", f"a;touch {trap.name};.log", "`touch trap`.log", "-rf.log"):
        (logs / name).write_text("x")
    (logs / "link.log").symlink_to(secret)
    (efs / "runs/red" / "$(touch trap)").mkdir()
    (efs / "runs/red" / "-delete").mkdir()
    files = run_command(
        tmp_path, f"cd {shlex.quote(str(tmp_path))} && {node_logs.collect_command('red', str(efs), True)}"
    )
    assert not trap.exists() and not list(efs.rglob("trap"))
    assert "secret" not in files.values() and len(files) == 5, files


def test_only_the_end_of_a_long_file_is_sent_and_a_command_that_hangs_is_left(
    tmp_path: Path, efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = node_files.functions(node_logs.LARGEST_FILE).replace("-k 2 15", "-k 0.5 0.5")
    monkeypatch.setattr(node_files, "functions", lambda largest: functions)
    commands = {"boot.log": "seq 200000", "journal.log": "echo first; sleep 600", "versions.txt": "echo last"}
    monkeypatch.setattr(node_logs, "COMMANDS", commands)
    files = run_command(tmp_path, node_logs.collect_command("red", str(efs), False))
    assert len(files["boot.log"]) == node_logs.LARGEST_FILE and files["boot.log"].endswith("200000\n")
    assert files["journal.log"] == "first\n" and files["versions.txt"] == "last\n"


def packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


@pytest.mark.parametrize(
    "line",
    [
        "../../etc/passwd " + packed(b"x"),
        "/etc/passwd " + packed(b"x"),
        "runs/../../x/run.json " + packed(b"x"),
        "runs/a/logs/../../../x.log " + packed(b"x"),
        "runs/a/logs/a\x1b[2J.log " + packed(b"x"),
        "unknown.txt " + packed(b"x"),
        "boot.log not base64",
        "boot.log " + base64.b64encode(b"not gzip").decode(),
        "boot.log " + packed(b"x")[:8],
        "boot.log",
        "\xff\xfe " + packed(b"x"),
        "",
    ],
)
def test_anything_else_in_an_answer_is_left_out(line: str) -> None:
    assert list(node_logs.read([line, "versions.txt " + packed(b"v")])) == [("versions.txt", "v")]


def test_a_file_that_was_cut_counts_as_far_as_it_came_and_the_first_of_a_name_counts() -> None:
    answer = [f"boot.log {packed(b'first')}", f"boot.log {packed(b'second')}", "journal.log H4sI"]
    assert list(node_logs.read(answer)) == [("boot.log", "first")]


def test_an_answer_that_unpacks_to_more_than_expected_is_cut() -> None:
    bomb, size = packed(b"0" * (256 << 20)), 0
    tracemalloc.start()
    with pytest.raises(InvalidValue, match="more than 64 MiB"):
        for _name, text in node_logs.read(f"runs/a/logs/n{number}.log {bomb}" for number in range(200)):
            size += len(text)
    assert 0 < size <= node_logs.MOST_UNPACKED
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
