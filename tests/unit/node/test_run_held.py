"""A GPU fails in a run: its node is held, and the run goes on without it. A program that fails ends its run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import bounded_program
from deeplearning.contract.problems import STATUS
from deeplearning.runs import allocation, blame
from deeplearning.runs.folder import Folder

from tests.unit.node.master_kit import Master, master_of, meanwhile, threads_joined
from tests.unit.node.members_kit import cluster_in

W1, W2, W3, W4 = (f"deeplearning-worker{rank}" for rank in (1, 2, 3, 4))
BUS = ("reboot", "GPU 2 fell off the bus (Xid 79)")
FAULTS = {"answering": 8, "message": 9, "log": [], "reading": [], "buses": [], "in_use": ""}
PAGE = ("program", "GPU 2 reports a page fault: an address that the program may not use (Xid 31)")


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Master:
    """The master of four machines with GPUs. All processes of the first attempt end with 1."""
    monkeypatch.setattr(allocation, "HELD_PAUSE_SECONDS", 0.1)
    master = master_of(cluster_in(tmp_path, monkeypatch), 2, 3, 4)
    (master.folder / "attempt-0").write_text("code=1\n")
    return master


def result_of(run: Folder) -> dict[str, Any]:
    result = run.result()
    assert result
    return result


def causes(run: Folder) -> list[str]:
    return [attempt["cause"] for attempt in result_of(run)["attempts"]]


def planned(run: Folder) -> list[list[str]]:
    """Return the nodes of each attempt."""
    return [[process["node"] for process in event["processes"]] for event in run.events() if event["event"] == "plan"]


@pytest.mark.parametrize("where", ["log", "reading"])
def test_a_run_goes_on_with_another_ready_node_in_the_place_of_one_with_a_bad_gpu(master: Master, where: str) -> None:
    run = master.create_run(nodes=3)
    master.shows(W3, *BUS, where=where)
    master.supervise()
    assert causes(run) == ["held", "finished"] and planned(run) == [[W1, W2, W3], [W1, W2, W4]]
    assert master.held(W3).read_text() == BUS[1] and not master.held(W4).exists()
    assert result_of(run)["sentence"] == "run r1 has finished"
    reasons = [event["reason"] for event in run.events() if event.get("state") == "recovering"]
    assert reasons[0] == f"{W3} is held: {BUS[1]}. {STATUS} has the command that replaces it"


@pytest.mark.parametrize("fault", [None, PAGE, ("monitor", "GPU 2 reports an event (Xid 63)")])
def test_a_program_that_fails_by_itself_ends_its_run(master: Master, fault: tuple[str, str] | None) -> None:
    run = master.create_run()
    if fault:
        master.shows(W3, *fault)
    master.supervise()
    result = result_of(run)
    assert causes(run) == ["failed"] and (result["state"], result["exit_code"]) == ("failed", 1)
    assert not master.held(W3).exists()
    words = f"{W3}: {PAGE[1]}, the program's fault"
    assert (words in result["sentence"]) == (fault == PAGE)


def test_faults_on_all_nodes_hold_none(master: Master) -> None:
    run = master.create_run()
    for node in (W1, W2, W3, W4):
        master.shows(node, *BUS)
    master.supervise()
    assert causes(run) == ["failed"] and not any(master.held(node).exists() for node in (W1, W2, W3, W4))
    assert "the GPUs of all 4 nodes report faults" in result_of(run)["sentence"]


def waits(run: Folder) -> bool:
    return "1 more node must be ready" in run.state().get("reason", "")


def test_without_another_node_the_run_waits_until_an_operator_releases_or_replaces_it(master: Master) -> None:
    run = master.create_run()
    master.shows(W3, *BUS)
    reasons: list[str] = []

    def release() -> None:
        reasons.append(run.state()["reason"])
        master.heals(W3)
        master.held(W3).unlink()

    with meanwhile(lambda: waits(run), release):
        master.supervise()
    assert causes(run) == ["held", "finished"] and planned(run) == [[W1, W2, W3, W4]] * 2
    assert f"{W3} is held: {BUS[1]}. ansible-playbook deeplearning.aws.status has the command" in reasons[0]


def test_a_run_on_one_node_waits_as_well(master: Master) -> None:
    run = master.create_run(nodes=[W3])
    master.shows(W3, *BUS)
    with meanwhile(lambda: waits(run), lambda: master.held(W3).unlink()):
        master.supervise()
    assert causes(run) == ["held", "finished"] and planned(run) == [[W3], [W3]]


def test_a_run_that_allows_it_goes_on_with_fewer_nodes_and_says_so(master: Master) -> None:
    run = master.create_run(nodes="3-4")
    master.shows(W3, *BUS)
    master.supervise()
    assert planned(run) == [[W1, W2, W3, W4], [W1, W2, W4]]
    assert result_of(run)["sentence"] == "run r1 has finished, on 3 of the 4 nodes that it began with"


def test_the_limit_of_attempts_holds_for_bad_gpus_too(master: Master) -> None:
    run = master.create_run(nodes=3, max_restarts=0)
    master.shows(W3, *BUS)
    master.supervise()
    result = result_of(run)
    assert result["state"] == "failed" and causes(run) == ["held"] and result["unanswered"] == []
    assert "It was started again 0 times, which is max_restarts" in result["sentence"] and W3 in result["sentence"]
    assert master.held(W3).exists()


def hold(master: Master, node: str) -> None:
    master.held(node).parent.mkdir(exist_ok=True)
    master.held(node).write_text(BUS[1])


def test_a_node_that_is_held_stays_out_of_other_runs(master: Master) -> None:
    (master.folder / "attempt-0").unlink()
    hold(master, W2)
    run = master.create_run(nodes=3)
    master.supervise()
    assert planned(run) == [[W1, W3, W4]]
    refused = master.create_run("r2", nodes=4)
    master.supervise("r2")
    sentence = result_of(refused)["sentence"]
    assert f"{W2}: it is held: {BUS[1]}. nodes is 4, and only 3 of the members can train" in sentence
    master.held(W2).unlink()
    again = master.create_run("r3", nodes=4)
    master.supervise("r3")
    assert planned(again) == [[W1, W2, W3, W4]]


def notes(run: Folder) -> list[str]:
    return [event["text"] for event in run.events() if event["event"] == "note"]


def test_a_node_that_answers_nothing_usable_is_not_held(master: Master) -> None:
    run = master.create_run()
    master.shows(W2, *PAGE)
    (master.folder / "faults" / W2).write_text("[]")
    (master.folder / "faults" / W3).write_text(json.dumps({**FAULTS, "log": [{"level": "reboot"}]}))
    master.supervise()
    assert causes(run) == ["failed"] and len(notes(run)) == 2
    for node, note in zip((W2, W3), notes(run), strict=True):
        assert note.startswith(f"{node} does not say what its GPUs report, so nothing is blamed on it: ")


@pytest.mark.parametrize("node", [W1, W3])
def test_an_answer_without_end_fills_no_memory_and_blames_nothing(master: Master, node: str) -> None:
    run = master.create_run()
    (master.folder / "faults").mkdir()
    (master.folder / "faults" / node).symlink_to("/dev/zero")
    master.supervise()
    note = f"{node} does not say what its GPUs report, so nothing is blamed on it: no answer: its program printed more "
    assert causes(run) == ["failed"] and notes(run) == [f"{note}than 1 MiB, and was read no further"]


@pytest.mark.parametrize("command", ["faults", "hold"])
def test_the_master_does_not_wait_for_its_own_program_that_cannot_be_killed(
    master: Master, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """sudo runs it as root, and other users may not kill it."""
    run, kill, begun = master.create_run(), os.killpg, list[int]()

    def refuse(group: int, number: int) -> None:
        begun.append(group)
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    monkeypatch.setattr(bounded_program, "END_SECONDS", 0.1)
    monkeypatch.setattr(blame, "GPU_SURVEY_SECONDS", 5)
    master.shows(W1, *BUS)
    master.hangs(command)
    try:
        master.supervise()
    finally:
        for group in begun:
            kill(group, signal.SIGKILL)
    if command == "faults":
        assert causes(run) == ["failed"] and notes(run) == [
            f"{W1} does not say what its GPUs report, so nothing is blamed on it: no answer within 5 s"
        ]
    else:
        assert causes(run) == ["held", "finished"]
        assert notes(run) == [f"{W1} is at fault and cannot be held: no answer within 5 s"]


@pytest.mark.parametrize("by", ["operator", "shutdown"])
def test_a_run_is_stopped_while_a_node_gives_no_answer_about_its_gpus(
    master: Master, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Its unit has 14 s to stop, and the node may take 40 s."""
    monkeypatch.setattr(blame, "GPU_SURVEY_SECONDS", 300)
    run, pipe = master.create_run(), master.folder / "faults" / W3
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    writing: list[int] = []
    begun: list[float] = []

    def begins_to_ask() -> bool:
        with contextlib.suppress(OSError):
            # Until this is closed, the node's answer has no end.
            writing.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writing)

    def stop() -> None:
        begun.append(time.monotonic())
        if by == "operator":
            run.write("stop.json", {"requested_by": "me"})
        os.kill(os.getpid(), signal.SIGTERM)

    with threads_joined():
        with meanwhile(begins_to_ask, stop):
            master.supervise()
        seconds = time.monotonic() - begun[0]
        os.close(writing[0])
    assert seconds < 300 / 5
    if by == "operator":
        assert (result_of(run)["state"], result_of(run)["exit_code"], causes(run)) == ("stopped", 0, ["stopped"])
    else:
        assert run.result() is None and run.state()["attempts"][0]["cause"] == "lost"


def test_a_run_still_waits_for_an_operator_after_its_master_went_down_meanwhile(master: Master) -> None:
    run = master.create_run()
    master.shows(W3, *BUS)
    with meanwhile(lambda: waits(run), lambda: os.kill(os.getpid(), signal.SIGTERM)):
        master.supervise()
    assert run.result() is None and [attempt["cause"] for attempt in run.state()["attempts"]] == ["held"]
    run.write("state.json", {**run.state(), "reason": ""})

    def release() -> None:
        master.heals(W3)
        master.held(W3).unlink()

    with meanwhile(lambda: waits(run), release):
        master.supervise()
    assert causes(run) == ["held", "finished"] and planned(run) == [[W1, W2, W3, W4]] * 2
