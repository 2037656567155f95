"""The end of a run, and the files that are kept of it."""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import atomic_file
from deeplearning.contract.schema import format_time
from deeplearning.runs import allocation, survey, unit
from deeplearning.runs import plan as plans
from deeplearning.runs.attempt import AttemptOutcome, write_start_files
from deeplearning.runs.folder import Folder, find_run, runs_root
from deeplearning.runs.plan import Node
from deeplearning.runs.run_log import ProcessLog, RunLog

from tests.unit.node.master_kit import Master, master_of, meanwhile, sigterm_restored, threads_joined
from tests.unit.node.members_kit import Node as MemberNode
from tests.unit.node.members_kit import cluster_in, instance, replaced
from tests.unit.node.runs_kit import CONFIG, UNREADABLE, replace_file


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Master:
    """The master of four machines."""
    return master_of(cluster_in(tmp_path, monkeypatch), 2, 3, 4)


@pytest.fixture
def ending(run: Folder) -> Iterator[unit.Unit]:
    run.write("environment.json", {"environment": {"SECRET": "s"}})
    with sigterm_restored():
        yield unit.Unit(CONFIG, run)


def terminate() -> None:
    """As systemd does, if the unit is stopped."""
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("state", ["finished", "failed", "stopped"])
def test_the_environment_is_removed_at_the_end_of_a_run_that_cannot_be_resumed(
    run: Folder, ending: unit.Unit, state: str
) -> None:
    Path(run.file("checkpoints/.begun")).touch()
    ending._end(AttemptOutcome(state, 0))
    assert run.result() and not os.path.exists(run.file("environment.json"))


def test_a_run_that_can_be_resumed_keeps_its_environment(run: Folder, ending: unit.Unit) -> None:
    Path(run.file("checkpoints/1")).touch()
    ending._end(AttemptOutcome("failed", 1))
    assert run.result() and (run.read("environment.json") or {})["environment"] == {"SECRET": "s"}


def test_a_run_whose_end_could_not_be_written_keeps_its_environment(
    run: Folder, ending: unit.Unit, capsys: pytest.CaptureFixture[str]
) -> None:
    # A file cannot replace a folder, and a unit that is stopped does not try again.
    os.mkdir(run.file("result.json"))
    terminate()
    ending._end(AttemptOutcome("failed", 1))
    assert os.path.exists(run.file("environment.json")) and run.state()["state"] == "failed"
    assert "the result could not be written: run r1 ended with 1" in capsys.readouterr().err


# Attempts


def stop_all(node: str = "") -> str:
    """Return what systemd is asked for on a node, to leave nothing of its last attempt there."""
    return f"{node and f'deeplearning-worker{node}: '}stop deeplearning-run-r1:0.service"


def test_a_run_goes_on_without_a_lost_node_and_its_result_has_the_machines_of_each_attempt(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        master.aws.instances[instance(number)]["InstanceType"] = "p5.48xlarge"
    master.node.publish()
    master.node.apply()
    run = master.create_run(max_restarts=1)
    # Otherwise the list is waited for, which a silent node may be about to leave.
    monkeypatch.setattr(allocation, "SHORTEST_WAIT", 0.0)
    master.loses("deeplearning-worker4", attempt=0, code=7)
    master.supervise()
    result = run.result() or {}
    first, second = result["attempts"]
    assert (first["cause"], first["exit_code"]) == ("lost", 7)
    assert (second["cause"], second["exit_code"]) == ("finished", 0)
    assert first["machines"] == {"p5.48xlarge": 2, "p3.16xlarge": 2}
    assert second["machines"] == {"p5.48xlarge": 2, "p3.16xlarge": 1}
    assert first["started"] <= first["ended"] and first["generation"] == second["generation"]
    assert (result["state"], result["exit_code"], result["sentence"]) == (
        *("finished", 0),
        "run r1 has finished, on 3 of the 4 nodes that it began with",
    )
    state = run.state()
    assert (state["state"], state["nodes"], len(state["processes"])) == ("finished", [], 3)
    reasons = [event["reason"] for event in run.events() if event.get("state") == "recovering"]
    assert reasons[0].startswith("lost deeplearning-worker4: it does not answer: ssh: connect to host")


def test_a_run_that_starts_again_does_not_grow_by_workers_that_were_added_meanwhile(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch would change. Who resumes it by hand may name more."""
    run = master.create_run(max_restarts=1)
    sizes: list[int | None] = []

    class Allocator(allocation.Allocator):
        def wait(self) -> allocation.Allocation | None:
            sizes.append(self.most)
            return super().wait()

    monkeypatch.setattr(unit, "Allocator", Allocator)
    monkeypatch.setattr(allocation, "SHORTEST_WAIT", 0.0)
    master.loses("deeplearning-worker4", attempt=0, code=7)
    master.supervise()
    assert (run.result() or {})["state"] == "finished" and sizes == [None, 4]


def test_a_run_that_loses_a_node_too_often_fails(master: Master) -> None:
    run = master.create_run(max_restarts=0)
    master.loses("deeplearning-worker4", attempt=0, code=7)
    master.supervise()
    result = run.result() or {}
    assert (result["state"], result["exit_code"], result["unanswered"]) == ("failed", 7, ["deeplearning-worker4"])
    assert "It was started again 0 times, which is max_restarts" in run.state()["reason"]
    assert len(result["attempts"]) == 1


def wait_for_another_run(master: Master) -> Folder:
    """Create a run that waits, because another one uses a node."""
    master.create_run("other").write("state.json", {"nodes": ["deeplearning-worker3"]})
    master.active("other", "r1")
    return master.create_run()


def test_a_run_is_stopped_while_it_waits(master: Master) -> None:
    run = wait_for_another_run(master)
    run.write("environment.json", {"environment": {"SECRET": "s"}})

    def stop() -> None:
        run.write("stop.json", {"requested_by": "me"})
        terminate()

    with meanwhile(lambda: bool(run.state().get("reason")), stop):
        master.supervise()
    result = run.result() or {}
    assert (result["state"], result["exit_code"], result["attempts"]) == ("stopped", 0, [])
    assert (result["sentence"], result["final"], result["unanswered"]) == ("run r1 was stopped", {}, [])
    assert (run.state()["state"], run.state()["nodes"]) == ("stopped", [])
    assert not os.path.exists(run.file("environment.json"))
    events = list(run.events())
    waiting = "Needed nodes are in use: deeplearning-worker3 (run other)."
    assert ("waiting", waiting) in [(event.get("state"), event.get("reason")) for event in events]
    assert (events[-1]["event"], events[-1]["state"]) == ("end", "stopped")
    # It is over: started again, the unit does nothing.
    master.supervise()
    assert run.result() == result and list(run.events()) == events


def test_a_run_is_stopped_while_a_node_does_not_answer_its_survey(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unit has 14 s to stop, and the survey of a node with GPUs takes up to 40 s."""
    monkeypatch.setattr(survey, "_seconds", lambda _member: 300)
    run, asked, answers = master.create_run(), master.folder / "asked", master.folder / "answers"
    master.before("survey", f"touch {asked}; while [ ! -e {answers} ]; do sleep 0.1; done")
    begun: list[float] = []

    def stop() -> None:
        begun.append(time.monotonic())
        run.write("stop.json", {"requested_by": "me"})
        terminate()

    with threads_joined():
        with meanwhile(asked.exists, stop):
            master.supervise()
        seconds = time.monotonic() - begun[0]
        answers.touch()
    assert (run.result() or {})["state"] == "stopped" and run.state()["nodes"] == []
    assert seconds < 300 / 5


def test_a_run_whose_master_goes_down_while_it_waits_has_no_end(master: Master) -> None:
    run = wait_for_another_run(master)
    with meanwhile(lambda: bool(run.state().get("reason")), terminate):
        master.supervise()
    assert run.result() is None and run.state()["state"] == "recovering"


@pytest.mark.parametrize(("asked", "state"), [(False, "recovering"), (True, "failed")])
def test_a_run_whose_master_goes_down_has_no_end_whatever_breaks_then(
    master: Master, monkeypatch: pytest.MonkeyPatch, asked: bool, state: str
) -> None:
    run = master.create_run()

    def breaks(_allocator: unit.Allocator) -> None:
        if asked:
            run.write("stop.json", {"requested_by": "me"})
        terminate()
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(unit.Allocator, "wait", breaks)
    master.supervise()
    assert (run.result() is None, run.state()["state"]) == (not asked, state)


def test_a_run_whose_master_dies_in_a_stall_is_stalled_no_more(master: Master) -> None:
    run = master.create_run()
    log = RunLog(run)
    log.state["attempts"] = [
        {"started": "2026-01-01T00:00:00Z", "ended": None, "machines": {"t3.micro": 4}, "cause": None, "generation": 1}
    ]
    log.state.update(stall={"since": format_time(time.time() - 600), "silent": [], "hourly": None}, stalled_seconds=7)
    log.enter("stalled", "no process has reported progress or output for 10 minutes")
    master.supervise()
    result = run.result() or {}
    assert [attempt["cause"] for attempt in result["attempts"]] == ["lost", "finished"]
    assert run.state()["stall"] is None and result["stalled_seconds"] == pytest.approx(607, abs=60)


# What is left


@pytest.fixture
def died(master: Master) -> Folder:
    """A run on three nodes whose unit has died in its first attempt."""
    run = master.create_run(nodes=3)
    nodes = [Node(f"deeplearning-worker{rank}", f"10.0.0.{rank + 4}") for rank in (1, 2, 4)]
    write_start_files(run, run.run(), 0, plans.make(run.run(), nodes), master.config.efs_mount)
    return run


def clean(master: Master, node: MemberNode | None = None) -> list[str]:
    """Return what systemd was asked for on the nodes."""
    with (node or master.node).here():
        unit.clean("r1", master.config)
    return sorted(master.asked("stop"))


def test_what_is_left_of_a_run_is_stopped_on_the_nodes_of_its_last_attempt(master: Master, died: Folder) -> None:
    assert clean(master) == [stop_all("2"), stop_all("4"), stop_all()]


def test_a_node_that_does_not_answer_keeps_no_other_from_being_cleaned(master: Master, died: Folder) -> None:
    master.silence("deeplearning-worker2")
    assert clean(master) == [stop_all("4"), stop_all()]


def test_a_run_without_an_attempt_has_left_nothing(master: Master) -> None:
    master.create_run()
    assert clean(master) == []


def test_a_replaced_master_leaves_the_nodes_to_its_successor(master: Master, died: Folder) -> None:
    successor = replaced(master.cluster)
    assert clean(master) == []
    assert len(clean(master, successor)) == 3


def test_after_a_boot_the_clusters_runs_without_an_end_are_started(master: Master) -> None:
    interrupted = master.create_run("interrupted")
    for name in ("ended", "stopped", "active"):
        master.create_run(name).write("state.json", {"state": "running"})
    interrupted.write("state.json", {"state": "recovering"})
    master.create_run("foreign", cluster_id="sg-of-an-earlier-cluster").write("state.json", {"state": "running"})
    master.create_run("new")
    runs = Path(interrupted.path).parent
    Folder(str(runs / "ended")).write("result.json", {"state": "failed"})
    Folder(str(runs / "stopped")).write("stop.json", {"requested_by": "me"})
    master.active("active")
    with master.node.here():
        unit.recover(replace(master.config, role="worker"))
        assert master.asked("start") == []
        unit.recover(master.config)
    assert master.asked("start") == ["start deeplearning-run@interrupted.service"]


@pytest.mark.parametrize(("name", "form"), UNREADABLE)
def test_a_run_that_cannot_be_read_keeps_no_other_from_being_resumed(
    master: Master, capsys: pytest.CaptureFixture[str], name: str, form: str
) -> None:
    for run_id in ("a", "b", "c"):
        master.create_run(run_id).write("state.json", {"state": "running"})
    replace_file(Folder(f"{runs_root(master.config)}/b"), name, form)
    with master.node.here():
        unit.recover(master.config)
    assert master.asked("start") == ["start deeplearning-run@a.service", "start deeplearning-run@c.service"]
    assert "/b" in capsys.readouterr().err


# Logs and files


def test_a_full_file_system_is_reported_once_and_ends_nothing(run: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    record = RunLog(run)
    full = ProcessLog(record, run, "x", 0)
    full._path = "/dev/full"
    for _ in range(3):
        full.line(1.0, "text")
        record.flush([full])
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert [event["event"] for event in run.events()] == ["note"]


def test_a_state_is_recorded_once_and_again_with_another_reason(run: Folder) -> None:
    record = RunLog(run)
    for reason in ("", "", "busy", "busy", "unsettled"):
        record.enter("waiting", reason)
    assert [(event["n"], event["reason"]) for event in run.events()] == [(1, ""), (2, "busy"), (3, "unsettled")]
    assert [event["n"] for event in run.events(after=2)] == [3]
    assert (run.read("state.json") or {})["state"] == "waiting"


@pytest.fixture
def replacing(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a file is still said to be away, by its name: by turns not there and stale."""
    left: dict[str, int] = {}

    def away(really: Any, path: Any, *positional: Any, **named: Any) -> Any:
        name = os.path.basename(path) if isinstance(path, str) else ""
        if left.get(name, 0) > 0:
            left[name] -= 1
            number = (errno.ENOENT, errno.ESTALE)[left[name] % 2]
            raise OSError(number, os.strerror(number), path)
        return really(path, *positional, **named)

    monkeypatch.setattr("builtins.open", functools.partial(away, open))
    monkeypatch.setattr(os, "open", functools.partial(away, os.open))
    monkeypatch.setattr(os, "stat", functools.partial(away, os.stat))
    monkeypatch.setattr(atomic_file, "RETRY_SECONDS", 0.0)
    return left


def test_reads_are_retried_while_a_file_is_replaced(run: Folder, tmp_path: Path, replacing: dict[str, int]) -> None:
    RunLog(run).enter("running")
    config = replace(CONFIG, efs_mount=str(tmp_path))
    replacing.update({"run.json": 2, "state.json": 2})
    assert RunLog(run).state["state"] == "running" and run.run()["requested_by"] == "me"
    replacing["run.json"] = 2
    assert find_run(config, "r1").id == "r1"
    replacing["run.json"] = 2
    survey.require_basics(run, sys.executable, "lo", "127.0.0.1")
    # That there is no result yet is seen at once.
    replacing["result.json"] = 3
    assert run.result() is None and replacing["result.json"] == 2


def test_the_end_of_a_resumed_run_is_archived(run: Folder) -> None:
    os.mkdir(run.file("attempts/0"))
    run.write("result.json", {"state": "failed"})
    run.write("state.json", {"state": "failed"})
    RunLog(run).event("end")
    run.archive_last_end()
    assert run.result() is None and run.state() == {} and list(run.events()) == []
    assert sorted(os.listdir(run.file("attempts/0"))) == ["events.jsonl", "result.json"]
