"""The health check of a node: judged measurements, and measurements that hang."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning import machine, safe_files
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.problems import CHECKS
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.gpus.evidence import Evidence
from deeplearning.gpus.faults import Fault
from deeplearning.gpus.reading import Gpu, Reading
from deeplearning.health import bandwidth, checks, losses, nccl, pairs, probes, training
from deeplearning.members.member_list import Member, Members

from tests.nvml import Gpus
from tests.unit.node.users_kit import HOSTILE, bounded, prepare

GIB = 2**30


def reading(count: int, lost: int | None = None) -> Reading:
    return Reading("595", gpus=tuple(Gpu(index, "GPU is lost" if index == lost else None) for index in range(count)))


@pytest.mark.parametrize(
    ("check", "ok", "words"),
    [
        (checks.disk(3 * GIB, 100 * GIB), True, "3072 of 102400 MiB free"),
        (checks.disk(GIB, 100 * GIB), False, "1024 of"),
        (checks.disk(2 * GIB, 100 * GIB), True, "2048 of"),
        (checks.disk(2 * GIB - 1, 100 * GIB), False, "2047 of"),
        (checks.memory(2**18), True, "256 MiB"),
        (checks.memory(2**18 - 1), False, "255 MiB"),
        (checks.clock(2.0), True, "2.0 s ahead"),
        (checks.clock(-2.0), True, "2.0 s behind"),
        (checks.clock(2.1), False, "2.1 s ahead"),
        (checks.space(10 * GIB), True, "10240 MiB"),
        (checks.space(10 * GIB - 1), False, "10239 MiB"),
        (checks.shared(list("abcd"), 9), False, "of a, b, c, d"),
        (checks.bandwidth("a", 2.0, 2.0), True, "at least 2 is"),
        (checks.all_reduce(True, 4, 2.0, 2.0), True, "at least 2 is"),
        (checks.gpus(reading(8), 8, {}), True, "8"),
        (checks.memory(2**20), True, "1024 MiB"),
        (checks.memory(1000), False, "0 MiB"),
        (checks.clock(1.9), True, "1.9 s ahead"),
        (checks.clock(-7.25), False, "7.2 s behind"),
        (checks.membership("deeplearning-worker2", 4, {"a.timer": "active"}), True, "list 4"),
        (checks.membership("x", 4, {"a.timer": "active", "b.timer": "failed"}), False, "b.timer"),
        (checks.names({}), True, "all resolve"),
        (checks.names({"a": "10.0.0.9", "b": ""}), False, "a resolves to 10.0.0.9, b resolves to nothing"),
        (checks.ssh({}, 3), True, "3 of 3"),
        (checks.ssh({"a": "Permission denied"}, 3), False, "a: Permission denied"),
        (checks.shared([], 3), True, "what 3 wrote"),
        (checks.shared(list("abcdef"), 9), False, "a, b, c, d and 2 more"),
        (checks.gpus(reading(8), 8, {"a": 8}), True, "8"),
        (checks.gpus(reading(8), None, {"a": 8}), True, "8"),
        (checks.gpus(reading(0), 8, {}), False, "0 answer, the type has 8"),
        (checks.gpus(reading(8, lost=3), 8, {}), False, "7 answer, the type has 8 (GPU 3: GPU is lost)"),
        (checks.gpus(reading(8, lost=3), None, {}), False, "7 answer, of 8 (GPU 3: GPU is lost)"),
        (checks.gpus(reading(4), 4, {"a": 8, "b": 4}), False, "another number on a"),
        (checks.driver(Reading("550.54")), True, "550.54"),
        (checks.driver(Reading(error="couldn't communicate")), False, "couldn't communicate"),
        (checks.faults(Evidence()), True, "none since boot"),
        (checks.faults(Evidence(log=(Fault("reset", "a"),), reading=(Fault("reboot", "b"),))), False, "a, b"),
        # One bug in a program must not mark a node until it boots.
        (checks.faults(Evidence(log=(Fault("program", "GPU 0: Xid 31"),))), True, "none of the node's: GPU 0: Xid 31"),
        (checks.efa_losses({"rx_drops": 10**9, "retrans_pkts": 2}), True, "rx_drops 1000000000, retrans_pkts 2"),
        (losses.check({"a": {"rx_drops": 2}}, {"a": {"rx_drops": 2}}), True, "EFA has lost nothing"),
        (
            losses.check(
                {"a": {"rx_drops": 2, "retrans_pkts": 0}, "b": {"rx_drops": 9}, "c": {"rx_drops": 1}},
                {
                    "a": {"rx_drops": 5, "retrans_pkts": 7},
                    "b": {"rx_drops": 9},
                    "c": {"rx_drops": 0},
                    "d": {"rx_drops": 4},
                },
            ),
            True,
            "during the test, EFA has counted on a rx_drops +3 retrans_pkts +7",
        ),
        (checks.all_reduce(True, 4, 2.5, 2.0), True, "4 ranks, 2.50 Gbit/s"),
        (checks.all_reduce(True, 4, 0.5, 2.0), False, "at least 2 is expected"),
        (checks.all_reduce(False, 4, 9.0, 2.0), False, "the sum over 4 ranks is wrong"),
        (checks.space(20 * GIB), True, "20480 MiB"),
        (checks.space(GIB), False, "1024 MiB"),
        (checks.bandwidth("a", 4.0, 2.0), True, "4.00 Gbit/s to a"),
        (checks.bandwidth("a", 0.4, 2.0), False, "at least 2 is expected"),
    ],
)
def test_measurements_become_checks(check: checks.Check, ok: bool, words: str) -> None:
    assert check.ok is ok and words in check.detail
    # The operator's side has an advice for each.
    assert (f"{check.name}.{check.problem}" if check.problem else check.name) in CHECKS


def test_a_hanging_call_is_abandoned_and_a_failure_is_raised() -> None:
    with pytest.raises(DeadlineExceeded):
        within(0.1, lambda: time.sleep(60))
    with pytest.raises(FileNotFoundError):
        within(10, lambda: Path("/nowhere").read_text())
    with pytest.raises(DeadlineExceeded):
        within(10, lambda: os._exit(3))
    assert within(10, lambda: ["x" * 200_000]) == ["x" * 200_000]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_that_dies_or_hangs_in_the_middle_of_its_answer_has_none(
    monkeypatch: pytest.MonkeyPatch, end: signal.Signals
) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(os, "pipe", lambda: (reading, writing))

    def answer() -> None:
        os.write(writing, b'{"value": "a')
        os.kill(os.getpid(), end)

    with pytest.raises(DeadlineExceeded):
        within(1, answer)


def test_a_hanging_driver_is_not_waited_for(gpus: Gpus) -> None:
    gpus.set(count=8, hang=1)
    assert machine.gpus(0.5) == 0


def test_a_token_is_written_only_below_a_mount(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing is mounted"):
        probes.write_token_file(str(tmp_path), tmp_path / "health/token", "deeplearning-worker2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_a_token_shows_the_clock_offset_and_old_tokens_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    old = tmp_path / "health/old"
    old.mkdir(parents=True)
    os.utime(old, (1, 1))
    offset = probes.write_token_file(str(tmp_path), tmp_path / "health/token", "deeplearning-worker2")
    assert abs(offset) < CHECKS["clock"].threshold and not old.exists()
    folder = tmp_path / "health/token"
    (folder / "deeplearning-worker3").write_text("half of")
    monkeypatch.setattr(probes, "REPLACED_SECONDS", 0.1)
    asked = ["deeplearning-worker2", "deeplearning-worker3", "deeplearning-worker4"]
    assert probes.missing_token_files(folder, asked) == asked[1:]


@pytest.mark.parametrize("code", atomic_file.BEING_REPLACED)
def test_a_token_that_is_being_replaced_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "deeplearning-worker2").write_text("deeplearning-worker2")
    # On a machine whose processors are busy, for longer than a file is usually replaced.
    really, errors = safe_files.read, [OSError(code, os.strerror(code))] * 6

    def read_being_replaced(path: str) -> bytes:
        if errors:
            raise errors.pop()
        return really(path)

    monkeypatch.setattr(safe_files, "read", read_being_replaced)
    assert probes.missing_token_files(tmp_path, ["deeplearning-worker2"]) == []


@pytest.mark.root
def test_another_node_may_remove_an_old_token_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / "gone"]))
    probes.write_token_file(str(tmp_path), tmp_path / "health/token", "deeplearning-worker2")
    assert (tmp_path / "health/token/deeplearning-worker2").exists()


def test_nothing_behind_a_link_is_removed_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    old, mount = tmp_path / "etc/old", tmp_path / "efs"
    old.mkdir(parents=True)
    os.utime(old, (1, 1))
    mount.mkdir()
    (mount / "health").symlink_to(old.parent)
    with pytest.raises(OSError, match="Not a directory|Too many levels"):
        probes.write_token_file(str(mount), mount / "health/token", "deeplearning-worker2")
    assert list(old.parent.iterdir()) == [old]


@pytest.mark.root
def test_a_link_in_place_of_a_token_is_replaced_and_its_target_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    victim, folder = tmp_path / "victim", tmp_path / "efs/health/token"
    victim.write_text("mine")
    folder.mkdir(parents=True)
    (folder / "deeplearning-worker2").symlink_to(victim)
    probes.write_token_file(str(tmp_path / "efs"), folder, "deeplearning-worker2")
    assert victim.read_text() == "mine"
    assert probes.missing_token_files(folder, ["deeplearning-worker2"]) == []
    assert [path.name for path in folder.iterdir()] == ["deeplearning-worker2"]


@pytest.mark.root
@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_token_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    prepare(tmp_path / "deeplearning-worker2", kind)
    assert bounded(lambda: probes.missing_token_files(tmp_path, ["deeplearning-worker2"])) == ["deeplearning-worker2"]
    prepare(tmp_path / "result.json", kind)
    assert bounded(lambda: training.json_object(tmp_path / "result.json")) == {}


def test_names_with_a_wrong_address_or_none_are_reported() -> None:
    wrong = probes.wrong_names({"localhost": "127.0.0.1", "127.0.0.2": "10.0.0.4", "no.such.invalid": "10.0.0.5"})
    assert wrong == {"127.0.0.2": "127.0.0.2", "no.such.invalid": ""}


def stand_in(folder: Path, text: str) -> str:
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_nodes_that_ssh_does_not_reach_are_reported_with_the_last_line(tmp_path: Path) -> None:
    ssh = stand_in(
        tmp_path, 'case $1 in a) exit 0;; b) echo "Permission denied (hostbased)." >&2; exit 255;; esac; exit 1'
    )
    assert probes.ssh_failures([ssh], ["a", "b", "c"]) == {"b": "Permission denied (hostbased).", "c": "ssh failed"}


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


def test_the_receiver_counts_the_bytes_of_the_allowed_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[int] = []
    thread, printed = listening(answers, "127.0.0.1", monkeypatch)
    with socket.create_connection(("127.0.0.1", printed[0])) as stream:
        stream.sendall(b"x" * 1000)
    thread.join(10)
    assert answers == [0] and printed[1] == 1000


def test_the_receiver_refuses_other_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[int] = []
    thread, printed = listening(answers, "10.0.0.9", monkeypatch)
    with socket.create_connection(("127.0.0.1", printed[0])):
        thread.join(10)
    assert answers == [1] and len(printed) == 1


def test_a_sender_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "WAIT_SECONDS", 0.05)
    answers: list[int] = []
    thread, printed = listening(answers, "127.0.0.1", monkeypatch)
    thread.join(10)
    assert answers == [1] and len(printed) == 1


def test_a_peer_that_opens_no_port_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="b did not open a port"):
        bandwidth.measure([stand_in(tmp_path, "exit 255")], "b", "127.0.0.1", "127.0.0.1")
    for endless in ("cat /dev/zero", "echo ²"):
        with pytest.raises(OSError, match="b did not open a port"):
            bandwidth.measure([stand_in(tmp_path, f"exec {endless}")], "b", "127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "floor"), [("t3.medium", 0.128), ("g5.xlarge", 1.25), ("p4d.24xlarge", 2.0), ("m9.x", 0.1)]
)
def test_the_expected_bandwidth_follows_from_the_type(name: str, floor: float) -> None:
    assert bandwidth.floor(name) == floor


def test_digests_of_versions_come_from_the_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "ENVIRONMENTS", str(tmp_path))
    monkeypatch.setattr(paths, "ENVIRONMENTS", str(tmp_path))
    for name, marker in {"pytorch": '{"requirements_sha256": "abc"}', "mxnet": "[]"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / ".deeplearning.json").write_text(marker)
    (tmp_path / "half").mkdir()
    assert probes.environments() == {"mxnet": "unknown", "pytorch": "abc"}


@pytest.mark.parametrize(
    ("written", "code", "ok", "words"),
    [
        ({"preflight": {"right": True, "ranks": 3, "gbits": 4.0}}, 0, True, "3 ranks, 4.00 Gbit/s"),
        # The processes of one node use no network.
        ({"preflight": {"right": True, "ranks": 3, "gbits": 0.01}}, 0, True, "at least 0 is expected"),
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
def test_a_short_run_over_all_nodes_becomes_checks(
    written: dict[str, Any], code: int, ok: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {} if code else {"result": {"sentence": "run p has finished"}}
    for name, content in {**ended, **written}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    asked: list[list[str]] = []
    requests: list[str] = []

    def run(words: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        asked.append(words[:1])
        requests.extend([stdin] if words == ["create"] else [])
        answer = json.dumps({"run_dir": str(tmp_path)}) if words == ["create"] else ""
        return subprocess.CompletedProcess(words, code if words[0] == "start" else 0, answer, "")

    monkeypatch.setattr(training, "_run", run)
    monkeypatch.setitem(CHECKS, "space", replace(CHECKS["space"], threshold=0))
    member = Member(1, ("deeplearning-worker1",), "i-1", "10.0.0.4", "ip-10-0-0-4", "t3.medium", 0, 1, (), "ready")
    members = Members("red", "sg-1", 1, 1, "i-1", "", (member,))
    summed, space = training.run_checks(members, "pytorch", "", "20261121T150000Z", "ubuntu", processor=ok)
    assert (summed.ok, space.ok) == (ok, True) and words in summed.detail
    assert asked[-1] == ["stop"] and tmp_path.exists() is not ok
    assert json.loads(requests[0])["processor"] is ok


def members_of_type(count: int, kind: str) -> Members:
    nodes = [
        Member(n, (f"deeplearning-worker{n}",), f"i-{n}", f"10.0.0.{n}", "", kind, 8, 8, (), "ready")
        for n in range(1, count + 1)
    ]
    return Members("red", "sg-1", 1, count, "i-1", "", tuple(nodes))


@pytest.mark.parametrize(
    ("kind", "count", "nccl", "gigabits", "ok", "words"),
    [
        ("p4d.24xlarge", 2, True, 8 * 62.0, True, "at least 492.8 is expected"),
        ("p4d.24xlarge", 2, True, 8 * 61.0, False, "at least 492.8 is expected"),
        ("p4de.24xlarge", 2, True, 8 * 20.0, False, "at least 492.8 is expected"),
        # Without a published figure the pairs are compared, and the sum has TCP's floor.
        ("p4d.24xlarge", 3, True, 8 * 20.0, True, "at least 2 is expected"),
        ("p5.48xlarge", 2, True, 8 * 20.0, True, "at least 2 is expected"),
        ("p4d.24xlarge", 2, False, 20.0, True, "at least 2 is expected"),
        ("t3.medium", 2, False, 0.13, True, "at least 0.128 is expected"),
        ("t3.medium", 2, False, 0.12, False, "at least 0.128 is expected"),
    ],
)
def test_the_sum_of_gpus_is_compared_with_the_published_figure(
    kind: str, count: int, nccl: bool, gigabits: float, ok: bool, words: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    measured = {"right": True, "ranks": 8 * count, "gbits": gigabits, "nccl": nccl}
    (tmp_path / "preflight.json").write_text(json.dumps(measured))
    (tmp_path / "result.json").write_text('{"state": "finished"}')
    answer = json.dumps({"run_dir": str(tmp_path)})
    monkeypatch.setattr(
        training, "_run", lambda words, *_stdin, **_limit: subprocess.CompletedProcess(words, 0, answer, "")
    )
    monkeypatch.setattr(pairs, "measure", lambda ssh, aliases: {("a", "b"): 10.0, ("b", "a"): 10.0})
    monkeypatch.setattr(losses, "read", lambda ssh, aliases: {})
    _, summed, _ = training.run_checks(members_of_type(count, kind), "pytorch", "", "t", "ubuntu")
    assert (summed.name, summed.ok) == ("all-reduce", ok) and words in summed.detail


SLOW_SENDER = {("1", "2"): 9, ("1", "3"): 8, ("2", "3"): 0.05, ("2", "1"): 0.05, ("3", "1"): 10, ("3", "2"): 9}


@pytest.mark.parametrize(
    ("speeds", "ok", "words"),
    [
        ({("1", "2"): 9, ("2", "1"): 8}, True, "8.00 Gbit/s or more between nodes, median 8.50"),
        (SLOW_SENDER, False, "2 has 0.05 Gbit/s, and the median of all pairs of nodes is 8.50"),
        ({(b, a): speed for (a, b), speed in SLOW_SENDER.items()}, False, "2 has 0.05 Gbit/s, and"),
        # With two nodes it may be either.
        ({("1", "2"): 0.05, ("2", "1"): 9}, False, "1 has 0.05 and 2 has 0.05 Gbit/s"),
        # One slow pair of several is no node's fault.
        ({**SLOW_SENDER, ("2", "1"): 7}, True, "0.05 Gbit/s or more"),
    ],
)
def test_the_node_that_is_slow_with_all_others_is_named(
    speeds: dict[tuple[str, str], float], ok: bool, words: str
) -> None:
    check = pairs.judge(speeds)
    assert check.ok is ok and check.detail.startswith(words)


RING = {("1", "2"): 800.0, ("2", "3"): 800.0, ("3", "4"): 800.0, ("4", "5"): 800.0, ("5", "1"): 800.0}


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        (RING, ""),
        (RING | {("2", "3"): 639.0, ("3", "4"): 639.0}, "3 has 79.9 GB/s to its neighbours by NCCL, and the median"),
        (RING | {("2", "3"): 641.0, ("3", "4"): 641.0}, ""),
        # One slow pair is no node's fault.
        (RING | {("2", "3"): 100.0}, ""),
        ({("1", "2"): 800, ("2", "3"): 400, ("3", "4"): 400, ("4", "1"): 800}, "3 has 50.0 GB/s"),
        ({("1", "2"): 400, ("2", "3"): 400, ("3", "1"): 800}, "2 has 50.0 GB/s"),
        # Of two nodes nothing is judged.
        ({("1", "2"): 1.0}, ""),
        ({("1", "2"): 0.0, ("2", "3"): 0.0, ("3", "1"): 0.0}, ""),
    ],
)
def test_a_node_that_nccl_reaches_more_slowly_than_the_others_is_named(
    speeds: dict[tuple[str, str], float], slow: str
) -> None:
    check = nccl.judge("pairs", speeds)
    assert (check.name, check.ok) == ("pairs", not slow)
    more = " or more" if len(speeds) > 1 else ""
    assert check.detail.startswith(slow or f"{min(speeds.values()) / 8:.1f} GB/s{more} between nodes by NCCL")
    assert " and " not in check.detail.partition(", and the median")[0]


@pytest.mark.parametrize(
    ("speeds", "ok", "words"),
    [
        ({"1": 2800.0}, True, "350.0 GB/s inside each node"),
        ({"1": 2800.0, "2": 1000.0}, True, "125.0 GB/s or more inside each node"),
        ({"1": 2800.0, "2": 1000.0, "3": 2900.0}, False, "2 has 125.0 GB/s between its GPUs, and the median of the"),
        ({"1": 2800.0, "2": 2300.0, "3": 2800.0}, True, "287.5 GB/s or more inside each node"),
    ],
)
def test_a_node_whose_gpus_exchange_slowly_is_named(speeds: dict[str, float], ok: bool, words: str) -> None:
    check = nccl.judge("inside", {(node,): speed for node, speed in speeds.items()})
    assert (check.name, check.ok) == ("inside", ok) and check.detail.startswith(words)
    assert check.name in CHECKS


def processes_on(*nodes: str) -> list[dict[str, Any]]:
    workers = [{"node": node, "role": "worker", "rank": rank} for rank, node in enumerate(nodes)]
    return [{"node": "other", "role": "ps", "rank": 0}, *workers]


@pytest.mark.parametrize(
    ("measured", "nodes", "shown"),
    [
        ({"nccl": False, "gbits": 9.0, "pairs": [[0, 2, 80.0]]}, "aabb", []),
        ({"gbits": 9.0}, "aabb", []),
        # Horovod's sum does not compare nodes.
        ({"nccl": True, "gbits": 9.0}, "aabb", []),
        ({"nccl": True, "gbits": 2800.0}, "aaaaaaaa", ["350.0 GB/s inside each node"]),
        ({"nccl": True, "gbits": 0.0}, "a", []),
        (
            {"nccl": True, "gbits": 9.0, "pairs": [[0, 2, 80.0]], "inside": [[0, 800.0], [2, 880.0]]},
            "aabb",
            ["10.0 GB/s between nodes by NCCL", "100.0 GB/s or more inside each node"],
        ),
        (
            {"nccl": True, "gbits": 9.0, "pairs": [[0, 1, 80.0], [1, 2, 8.0], [2, 0, 8.0]], "inside": []},
            "abc",
            ["c has 1.0 GB/s to its neighbours by NCCL, and the median of the others is 10.0"],
        ),
        ({"nccl": True, "gbits": 9.0, "pairs": [[0, 7, 80.0]]}, "ab", ["10.0 GB/s between nodes by NCCL"]),
    ],
)
def test_ranks_of_the_preflight_become_nodes(measured: dict[str, Any], nodes: str, shown: list[str]) -> None:
    assert [check.detail for check in nccl.checks(measured, processes_on(*nodes))] == shown


@pytest.mark.parametrize(
    "changed",
    [
        {"pairs": "no"},
        {"pairs": [[0, 1]]},
        {"pairs": [[0, 1, "fast"]]},
        {"pairs": [[0, -1, 1.0]]},
        {"pairs": [[0, True, 1.0]]},
        {"inside": [[0, 1, 2.0]]},
        {"inside": [[0, float("nan")]]},
        {"inside": [None]},
    ],
)
def test_malformed_figures_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^preflight.json: (pairs|inside) is "):
        nccl.checks({"nccl": True, "gbits": 1.0, **changed}, processes_on("a", "b"))


@pytest.mark.parametrize(
    ("answer", "counters"),
    [
        ('{"rx_drops": 3, "retrans_pkts": 0}', {"rx_drops": 3, "retrans_pkts": 0}),
        ("{}", {}),
        ('{"rx_drops": -1}', {}),
        ('{"rx_drops": true}', {}),
        ('{"tx_bytes": 1}', {}),
        ('{"rx_drops": 1, "rm": 1}', {}),
        ("[]", {}),
        ("no", {}),
        ("[" * 100_000, {}),
    ],
)
def test_counters_of_efa_are_read_from_each_node(answer: str, counters: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(answer)
    script = f'[ "$1" = b ] && exit 255\n[ "$*" = "$1 deeplearning health losses" ] && cat {tmp_path}/answer'
    assert losses.read([stand_in(tmp_path, script)], ["a", "b"]) == ({"a": counters} if counters else {})


@pytest.mark.parametrize(("gpus", "processor", "asked"), [(8, False, 2), (8, True, 0), (0, False, 0)])
def test_losses_are_read_before_and_after_a_test_of_gpus(
    gpus: int, processor: bool, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PlayedRun(tmp_path, monkeypatch)
    answers = iter([{"deeplearning-worker1": {"rx_drops": 1}}, {"deeplearning-worker1": {"rx_drops": 4}}])
    read: list[list[str]] = []
    monkeypatch.setattr(losses, "read", lambda ssh, aliases: read.append(list(aliases)) or next(answers))
    listed = members_of_type(2, "g5.xlarge")
    listed = replace(listed, members=tuple(replace(member, gpus=gpus) for member in listed.members))
    results = training.run_checks(listed, "pytorch", "", "t", "ubuntu", preflight=True, processor=processor)
    assert read == [["deeplearning-worker1", "deeplearning-worker2"]] * asked
    shown = [check.detail for check in results if check.name == "efa"]
    assert shown == (["during the test, EFA has counted on deeplearning-worker1 rx_drops +3"] if asked else [])


@pytest.mark.parametrize(
    ("kinds", "ok"), [(("p5.48xlarge",) * 3, False), (("p5e.48xlarge", *["p5.48xlarge"] * 2), True)]
)
def test_nodes_of_one_type_are_compared(
    kinds: tuple[str, ...], ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PlayedRun(tmp_path, monkeypatch)
    figures = {"pairs": [[0, 1, 80.0], [1, 2, 400.0], [2, 0, 80.0]], "inside": []}
    measured = {"right": True, "ranks": 3, "gbits": 400.0, "nccl": True, **figures}
    state = {"processes": processes_on("a", "b", "c")}
    record = {"preflight.json": measured, "state.json": state, "result.json": {"sentence": "run p has finished"}}
    monkeypatch.setattr(training, "json_object", lambda file: record[file.name])
    members = members_of_type(3, "")
    listed = [replace(member, instance_type=kind) for member, kind in zip(members.members, kinds, strict=True)]
    results = training.run_checks(replace(members, members=tuple(listed)), "pytorch", "", "t", "ubuntu", preflight=True)
    failed = [check.detail for check in results if not check.ok and check.name == "pairs"]
    assert failed == ([] if ok else ["a has 10.0 GB/s to its neighbours by NCCL, and the median of the others is 50.0"])


def test_the_gpus_of_one_node_are_tested_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PlayedRun(tmp_path, monkeypatch)
    measured = {"right": True, "ranks": 8, "gbits": 1.6, "nccl": True}
    really = training.json_object

    def record(file: Path) -> dict[str, Any]:
        answers = {"preflight.json": measured, "state.json": {"processes": processes_on(*["deeplearning-worker1"] * 8)}}
        return answers.get(file.name) or really(file)

    monkeypatch.setattr(training, "json_object", record)
    (tmp_path / "result.json").write_text('{"sentence": "run p has finished"}')
    members = members_of_type(1, "p5.48xlarge")
    summed, inside, _space = training.run_checks(members, "pytorch", "", "t", "ubuntu", preflight=True)
    assert summed.ok and summed.detail == "8 ranks, 1.60 Gbit/s each, at least 0 is expected"
    assert (inside.name, inside.detail) == ("inside", "0.2 GB/s inside each node")


def test_each_node_sends_to_the_next_two_and_silence_is_no_speed(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        """#!/bin/sh
        [ $1 = c ] && exit 255
        echo "{\\"$5\\": 2.5, \\"$6\\": 3}"
        """
    )
    ssh.chmod(0o755)
    speeds = pairs.measure([str(ssh)], ["a", "b", "c", "d"])
    assert speeds == {
        **{("a", "b"): 2.5, ("a", "c"): 3, ("b", "c"): 2.5, ("b", "d"): 3},
        **{("c", "d"): 0, ("c", "a"): 0, ("d", "a"): 2.5, ("d", "b"): 3},
    }


@pytest.mark.parametrize(
    "answer", ["cat /dev/zero", "echo []", """echo '{"a": 1, "b": "x"}'""", """echo '{"a": NaN, "b": 1}'""", "echo 1"]
)
def test_a_node_with_an_invalid_answer_has_no_speed(tmp_path: Path, answer: str) -> None:
    ssh = stand_in(tmp_path, f"""[ $1 = c ] && exec {answer}; echo "{{\\"$5\\": 2.5, \\"$6\\": 3}}\"""")
    speeds = pairs.measure([ssh], ["a", "b", "c"])
    assert {pair for pair, speed in speeds.items() if not speed} == {("c", "a"), ("c", "b")}


def test_a_refused_short_run_is_no_reason_not_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess(["create"], 1, "", "the nodes are busy\n")
    monkeypatch.setattr(training, "_run", lambda words, stdin: refused)
    members = members_of_type(2, "g5.xlarge")
    (check,) = training.run_checks(members, "pytorch", "", "t", "ubuntu", preflight=True)
    assert check.ok and check.detail == "not tested: the nodes are busy"
    (check,) = training.run_checks(members, "pytorch", "", "t", "ubuntu")
    assert not check.ok


class PlayedRun:
    """A run of the sum, without processes: it is in each state for some seconds of a clock that sleeping advances."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **states: float) -> None:
        self._folder, self._states, self.now, self.asked = folder, states, 1000.0, list[str]()
        monkeypatch.setattr(training, "_run", self._run)
        monkeypatch.setattr(training.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(training.time, "sleep", self._sleep)
        monkeypatch.setattr(pairs, "measure", lambda ssh, aliases: {("a", "b"): 10.0, ("b", "a"): 10.0})
        monkeypatch.setattr(losses, "read", lambda ssh, aliases: {})

    def _run(self, words: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        self.asked.append(words[0])
        return subprocess.CompletedProcess(words, 0, json.dumps({"run_dir": str(self._folder)}), "")

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        left = self.now - 1000.0
        for state, length in self._states.items():
            left -= length
            if state == "summing":
                (self._folder / "preflight-connected").touch()
            if left < 0:
                shown = "running" if state == "summing" else state
                (self._folder / "state.json").write_text(json.dumps({"state": shown}))
                return
        (self._folder / "preflight.json").write_text('{"right": true, "ranks": 16, "gbits": 9.0}')
        (self._folder / "result.json").write_text('{"sentence": "run p has finished"}')


LONG = 10**6
FRAMEWORK = "the framework had not started on all nodes"
WITH_GPUS = "the survey of the nodes, with the test of their GPUs, had not ended"


@pytest.mark.parametrize(
    ("nodes", "states", "detail"),
    [
        (2, {"waiting": LONG}, f"{WITH_GPUS} after 370 s"),
        (256, {"waiting": LONG}, f"{WITH_GPUS} after 410 s"),
        # The framework is imported on each node, to prove that it uses the GPUs.
        (2, {"waiting": 365, "starting": LONG}, "not all processes had started after 30 s"),
        (256, {"waiting": 40, "starting": LONG}, "not all processes had started after 94 s"),
        (2, {"waiting": 35, "starting": 30, "running": LONG}, f"{FRAMEWORK} after 180 s"),
        (256, {"waiting": 40, "starting": 90, "running": LONG}, f"{FRAMEWORK} after 206 s"),
        # The time of the framework's start is not the sum's.
        (2, {"waiting": 5, "starting": 5, "running": 175, "summing": LONG}, "the sum had not ended after 90 s"),
        (256, {"waiting": 5, "starting": 5, "running": 175, "summing": LONG}, "the sum had not ended after 116 s"),
        (2, {"waiting": 3, "running": 5, "summing": 5, "stopping": LONG}, "the sum had not ended after 90 s"),
        (2, {"waiting": 3, "recovering": LONG}, f"{WITH_GPUS} after 370 s"),
    ],
)
def test_each_phase_of_a_preflight_has_a_limit_that_grows_with_the_nodes(
    nodes: int, states: dict[str, float], detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = PlayedRun(tmp_path, monkeypatch, **states)
    _, late, _ = training.run_checks(members_of_type(nodes, "g5.xlarge"), "pytorch", "", "t", "ubuntu", preflight=True)
    assert (late.ok, late.problem, late.detail) == (False, "late", f"{detail}: see {tmp_path}/logs")
    assert played.asked == ["create", "start", "stop"] and tmp_path.exists()
    assert played.now - 1000 < 500


@pytest.mark.parametrize(("gpus", "processor", "seconds"), [(8, True, 70), (0, False, 38)])
def test_a_preflight_that_proves_no_gpus_is_not_waited_for_longer(
    gpus: int, processor: bool, seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PlayedRun(tmp_path, monkeypatch, waiting=LONG)
    listed = members_of_type(2, "g5.xlarge")
    listed = replace(listed, members=tuple(replace(member, gpus=gpus) for member in listed.members))
    _, late, _ = training.run_checks(listed, "pytorch", "", "t", "ubuntu", preflight=True, processor=processor)
    assert late.detail == f"the survey of the nodes had not ended after {seconds} s: see {tmp_path}/logs"


def test_a_preflight_that_is_slow_in_each_phase_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they take longer than any of them may."""
    played = PlayedRun(tmp_path, monkeypatch, waiting=35, starting=30, running=180, summing=90)
    members = members_of_type(2, "g5.xlarge")
    _, summed, _ = training.run_checks(members, "pytorch", "", "t", "ubuntu", preflight=True)
    assert summed.ok and played.asked == ["create", "start", "wait", "stop"]


def test_a_command_that_hangs_ends_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        if words[0] == "start":
            raise subprocess.TimeoutExpired(words, 300)
        return subprocess.CompletedProcess(words, 0, json.dumps({"run_dir": str(tmp_path)}), "")

    monkeypatch.setattr(training, "_run", run)
    late, _ = training.run_checks(members_of_type(1, "g5.xlarge"), "pytorch", "", "t", "ubuntu")
    assert (late.problem, late.detail) == ("late", f"a command had not ended after 300 s: see {tmp_path}/logs")


def test_pairs_have_half_a_minute_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 60\n")
    ssh.chmod(0o755)
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 2)
    started = time.monotonic()
    nodes = [f"node{number}" for number in range(30)]
    assert set(pairs.measure([str(ssh)], nodes).values()) == {0}
    # One after the other, they would take 30 times as long as one.
    assert time.monotonic() - started < len(nodes) * 2 / 2


def test_the_short_run_is_asked_of_the_command_for_runs_which_may_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "deeplearning"
    program.write_text('#!/bin/sh\n[ "$2" = wait ] && exec sleep 60\necho "$*: $(cat)"\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    created = training._run(["create"], "{}")
    assert (created.returncode, created.stdout) == (3, "run create: {}\n")
    monkeypatch.setattr(training, "SECONDS", 0.1)
    with pytest.raises(subprocess.TimeoutExpired):
        training._run(["wait", "r"])
