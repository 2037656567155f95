"""A node's look at itself: what is made of measurements, and measurements that hang."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils._health import ADVICE
from deeplearning import machine, paths
from deeplearning.bounded import Late, within
from deeplearning.health import bandwidth, judging, looking, training
from deeplearning.members.reading import Member, Members

GIB = 2**30


@pytest.mark.parametrize(
    ("check", "ok", "words"),
    [
        (judging.disk(3 * GIB, 100 * GIB), True, "3072 of 102400 MiB free"),
        (judging.disk(GIB, 100 * GIB), False, "1024 of"),
        (judging.memory(2**20), True, "1024 MiB"),
        (judging.memory(1000), False, "0 MiB"),
        (judging.clock(1.9), True, "1.9 s ahead"),
        (judging.clock(-7.25), False, "7.2 s behind"),
        (judging.membership(True, "deeplearning-worker2", 4, {"a.timer": "active"}), True, "list 4"),
        (judging.membership(True, "x", 4, {"a.timer": "active", "b.timer": "failed"}), False, "b.timer"),
        (judging.membership(False, "", 0, {}), False, "no list"),
        (judging.names({}), True, "all resolve"),
        (judging.names({"a": "10.0.0.9", "b": ""}), False, "a leads to 10.0.0.9, b leads to nothing"),
        (judging.ssh({}, 3), True, "3 of 3"),
        (judging.ssh({"a": "Permission denied"}, 3), False, "a: Permission denied"),
        (judging.shared([], 3), True, "what 3 wrote"),
        (judging.shared(list("abcdef"), 9), False, "a, b, c, d and 2 more"),
        (judging.gpus(8, 8, {"a": 8}), True, "8"),
        (judging.gpus(8, None, {"a": 8}), True, "8"),
        (judging.gpus(0, 8, {}), False, "lists 0, the type has 8"),
        (judging.gpus(4, 4, {"a": 8, "b": 4}), False, "another number on a"),
        (judging.driver("550.54", ""), True, "550.54"),
        (judging.driver("", "couldn't communicate"), False, "couldn't communicate"),
        (judging.xid([]), True, "none"),
        (judging.xid(["NVRM: Xid (PCI:0000:00:1e): 79"]), False, "1 since boot"),
        (judging.all_reduce(True, 4, 2.5, 2.0), True, "4 ranks, 2.50 Gbit/s"),
        (judging.all_reduce(True, 4, 0.5, 2.0), False, "at least 2 is due"),
        (judging.all_reduce(False, 4, 9.0, 2.0), False, "the sum over 4 ranks is wrong"),
        (judging.space(20 * GIB), True, "20480 MiB"),
        (judging.space(GIB), False, "1024 MiB"),
        (judging.bandwidth("a", 4.0, 2.0), True, "4.00 Gbit/s to a"),
        (judging.bandwidth("a", 0.4, 2.0), False, "at least 2 is due"),
    ],
)
def test_what_is_made_of_a_measurement(check: judging.Check, ok: bool, words: str) -> None:
    assert check.ok is ok and words in check.detail
    # The operator's side has an advice for each.
    assert (f"{check.name}.{check.problem}" if check.problem else check.name) in ADVICE


def test_what_hangs_is_left_behind_and_what_fails_is_told() -> None:
    with pytest.raises(Late):
        within(0.1, lambda: time.sleep(60))
    with pytest.raises(FileNotFoundError):
        within(10, lambda: Path("/nowhere").read_text())
    with pytest.raises(Late):
        within(10, lambda: os._exit(3))
    assert within(10, lambda: ["x" * 200_000]) == ["x" * 200_000]


@pytest.fixture
def hanging_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What it has started outlives it and holds its output open, as it does itself where it cannot be killed."""
    os.mkfifo(tmp_path / "never")
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/never\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "DRIVER_SECONDS", 0.5)
    handle = os.open(tmp_path / "never", os.O_RDWR)
    yield
    os.close(handle)


@pytest.mark.usefixtures("hanging_driver")
def test_nobody_waits_for_a_driver_that_hangs() -> None:
    assert machine.gpus() == 0
    version, problem = looking.driver()
    assert version == "" and "nvidia-smi does not end within 0.5 s" in problem


def test_the_driver_tells_its_version_or_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert looking.driver() == ("", "nvidia-smi: No such file or directory")
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 550.54; echo 550.54\n")
    program.chmod(0o755)
    assert looking.driver() == ("550.54", "")
    program.write_text("#!/bin/sh\necho NVML is >&2; echo another version >&2; exit 18\n")
    assert looking.driver() == ("", "another version")


def test_a_word_is_left_where_something_is_mounted_only(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing is mounted"):
        looking.leave_word(str(tmp_path), tmp_path / "health/token", "deeplearning-worker2")
    assert list(tmp_path.iterdir()) == []


def test_a_word_tells_the_clocks_apart_and_old_words_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    old = tmp_path / "health/old"
    old.mkdir(parents=True)
    os.utime(old, (1, 1))
    offset = looking.leave_word(str(tmp_path), tmp_path / "health/token", "deeplearning-worker2")
    assert abs(offset) < judging.CLOCK_SECONDS and not old.exists()
    folder = tmp_path / "health/token"
    (folder / "deeplearning-worker3").write_text("half of")
    asked = ["deeplearning-worker2", "deeplearning-worker3", "deeplearning-worker4"]
    assert looking.missing_words(folder, asked) == asked[1:]


def test_a_word_that_is_being_replaced_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deeplearning-worker2").write_text("deeplearning-worker2")
    really, once = Path.read_text, [FileNotFoundError(errno.ENOENT, "No such file or directory")]

    def read_being_replaced(path: Path) -> str:
        if once:
            raise once.pop()
        return really(path)

    monkeypatch.setattr(Path, "read_text", read_being_replaced)
    assert looking.missing_words(tmp_path, ["deeplearning-worker2"]) == []


def test_another_node_may_remove_an_old_word_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / "gone"]))
    looking.leave_word(str(tmp_path), tmp_path / "health/token", "deeplearning-worker2")
    assert (tmp_path / "health/token/deeplearning-worker2").exists()


def test_nothing_is_removed_or_written_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    old, mount = tmp_path / "etc/old", tmp_path / "efs"
    old.mkdir(parents=True)
    os.utime(old, (1, 1))
    mount.mkdir()
    (mount / "health").symlink_to(old.parent)
    with pytest.raises(OSError, match="a link on the way"):
        looking.leave_word(str(mount), mount / "health/token", "deeplearning-worker2")
    assert list(old.parent.iterdir()) == [old]


def test_a_link_in_the_place_of_a_word_is_replaced_and_what_it_led_to_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    victim, folder = tmp_path / "victim", tmp_path / "efs/health/token"
    victim.write_text("mine")
    folder.mkdir(parents=True)
    for name in ("deeplearning-worker2", "deeplearning-worker2.new"):
        (folder / name).symlink_to(victim)
    looking.leave_word(str(tmp_path / "efs"), folder, "deeplearning-worker2")
    assert victim.read_text() == "mine"
    assert looking.missing_words(folder, ["deeplearning-worker2"]) == []
    assert [path.name for path in folder.iterdir()] == ["deeplearning-worker2"]


def test_names_that_lead_elsewhere_or_nowhere_are_found() -> None:
    wrong = looking.wrong_names({"localhost": "127.0.0.1", "127.0.0.2": "10.0.0.4", "no.such.invalid": "10.0.0.5"})
    assert wrong == {"127.0.0.2": "127.0.0.2", "no.such.invalid": ""}


def stand_in(folder: Path, text: str) -> str:
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_whom_ssh_does_not_reach_is_named_with_its_last_word(tmp_path: Path) -> None:
    ssh = stand_in(
        tmp_path, 'case $1 in a) exit 0;; b) echo "Permission denied (hostbased)." >&2; exit 255;; esac; exit 1'
    )
    assert looking.ssh_failures([ssh], ["a", "b", "c"]) == {"b": "Permission denied (hostbased).", "c": "ssh failed"}


def listening(answers: list[int], allowed: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    ports: list[int] = []
    printed = threading.Event()

    def say(number: int, flush: bool = True) -> None:
        ports.append(number)
        printed.set()

    monkeypatch.setattr("builtins.print", say)
    thread = threading.Thread(target=lambda: answers.append(bandwidth.receive(allowed)))
    thread.start()
    assert printed.wait(10)
    return thread, ports


def test_the_far_end_counts_what_comes_from_whom_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[int] = []
    thread, said = listening(answers, "127.0.0.1", monkeypatch)
    with socket.create_connection(("127.0.0.1", said[0])) as stream:
        stream.sendall(b"x" * 1000)
    thread.join(10)
    assert answers == [0] and said[1] == 1000


def test_the_far_end_takes_nothing_from_anybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[int] = []
    thread, said = listening(answers, "10.0.0.9", monkeypatch)
    with socket.create_connection(("127.0.0.1", said[0])):
        thread.join(10)
    assert answers == [1] and len(said) == 1


def test_a_peer_that_opens_no_port_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="b did not open a port"):
        bandwidth.measure([stand_in(tmp_path, "exit 255")], "b", "127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "floor"), [("t3.medium", 0.128), ("g5.xlarge", 1.25), ("p4d.24xlarge", 2.0), ("m9.x", 0.1)]
)
def test_what_is_due_follows_from_the_type(name: str, floor: float) -> None:
    assert bandwidth.floor(name) == floor


def test_versions_are_told_by_the_markers_of_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "ENVIRONMENTS", str(tmp_path))
    monkeypatch.setattr(paths, "ENVIRONMENTS", str(tmp_path))
    for name, marker in {"pytorch": '{"requirements_sha256": "abc"}', "mxnet": "[]"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / ".deeplearning.json").write_text(marker)
    (tmp_path / "half").mkdir()
    assert looking.environments() == {"mxnet": "unknown", "pytorch": "abc"}


@pytest.mark.parametrize(
    ("written", "code", "ok", "words"),
    [
        ({"preflight": {"right": True, "ranks": 3, "gbits": 4.0}}, 0, True, "3 ranks, 4.00 Gbit/s"),
        ({"preflight": {"right": True, "ranks": 3, "gbits": 0.01}}, 0, False, "at least 0.128 is due"),
        ({"preflight": {"right": False, "ranks": 3, "gbits": 4.0}}, 1, False, "the sum over 3 ranks is wrong"),
        ({"preflight": {"right": True, "ranks": 1, "gbits": 0}}, 0, True, "1 ranks"),
        ({"result": {"sentence": "run p ended with 7 (deeplearning-worker2, rank 1)"}}, 7, False, "ended with 7"),
        (
            {"preflight": {"right": True, "ranks": 3, "gbits": 4.0}, "result": {"sentence": "run p ended with 9"}},
            9,
            False,
            "ended with 9",
        ),
        ({}, 2, False, "it did not start"),
    ],
)
def test_what_is_made_of_a_short_run_over_all_nodes(
    written: dict[str, Any], code: int, ok: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in written.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    asked: list[list[str]] = []

    def run(words: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
        asked.append(words[:1])
        answer = json.dumps({"run_dir": str(tmp_path)}) if words == ["create"] else ""
        return subprocess.CompletedProcess(words, code if words[0] == "start" else 0, answer, "")

    monkeypatch.setattr(training, "_run", run)
    monkeypatch.setattr(judging, "CHECKPOINTS_FREE_MIB", 0)
    member = Member(1, ("deeplearning-worker1",), "i-1", "10.0.0.4", "ip-10-0-0-4", "t3.medium", 0, 1, (), "ready")
    members = Members("red", "sg-1", 1, 1, "i-1", "", (member,))
    summed, space = training.checks(members, "pytorch", "", "20261121T150000Z")
    assert (summed.ok, space.ok) == (ok, True) and words in summed.detail
    assert asked[-1] == ["stop"] and tmp_path.exists() is not ok
