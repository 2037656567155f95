"""What people and programs see of runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from deeplearning.contract import paths
from deeplearning.runs import folder, units, views
from deeplearning.runs.folder import Folder, unfinished_frameworks
from deeplearning.runs.run_log import ProcessLog, RunLog

from tests.unit.node.runs_kit import CONFIG, record
from tests.unit.node.users_kit import bounded


@pytest.fixture
def nothing_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "is_active", lambda run_id: False)
    monkeypatch.setattr(units, "may_continue", lambda run_id: False)
    monkeypatch.setattr(views, "VANISHED_SECONDS", 0.0)
    monkeypatch.setattr(views, "POLL_SECONDS", 0.01)


def test_following_a_run_that_vanished_ends(run: Folder, nothing_active: None) -> None:
    RunLog(run).enter("running")
    events = list(views.follow(run, 0, with_output=False))
    assert [event["event"] for event in events] == ["state", "end"]
    assert (events[-1]["state"], events[-1]["exit_code"]) == ("lost", 1)
    assert views.state_of(run) == "lost"
    assert views.wait(run) == 1


NODE = "deeplearning-worker1"


def test_following_shows_what_each_process_prints(run: Folder, nothing_active: None) -> None:
    record = RunLog(run)
    processes = [{"node": NODE, "role": role, "rank": rank, "gpus": None} for role, rank in (("worker", 0), ("ps", 3))]
    record.event("plan", processes=processes)
    for name, line in (("worker0", "hello  world"), ("ps3", "serving")):
        log = ProcessLog(record, run, f"{NODE}.{name}", 0)
        log.line(1.0, line)
        log.close()
    record.event("end", state="finished", exit_code=0, first_failure=None, sentence="")
    events = list(views.follow(run, 0, with_output=True))
    assert [event["event"] for event in events] == ["plan", "output", "output", "end"]
    assert [(event["role"], event["rank"], event["line"]) for event in events[1:3]] == [
        ("worker", 0, "hello  world"),
        ("ps", 3, "serving"),
    ]


def test_after_a_reconnect_only_what_is_printed_then_follows(run: Folder, nothing_active: None) -> None:
    record = RunLog(run)
    record.event("plan", processes=[{"node": NODE, "role": "worker", "rank": 0, "gpus": None}])
    log = ProcessLog(record, run, f"{NODE}.worker0", 0)
    log.line(1.0, "before")
    log.flush()
    following = views.follow(run, 1, with_output=True)
    record.enter("running")
    assert next(following)["event"] == "state"
    log.line(2.0, "after")
    log.close()
    record.event("end", state="finished", exit_code=0, first_failure=None, sentence="")
    assert [event.get("line", event["event"]) for event in following] == ["after", "end"]


@pytest.mark.parametrize("is_event", [True, False])
def test_waiting_returns_the_runs_own_code(
    run: Folder, nothing_active: None, capsys: pytest.CaptureFixture[str], is_event: bool
) -> None:
    """Also if its last event could not be written."""
    end = {"state": "failed", "exit_code": 7, "first_failure": None, "sentence": "run r1 ended with 7"}
    run.write("result.json", end)
    record = RunLog(run)
    record.enter("running")
    if is_event:
        record.event("end", **end)
    assert views.wait(run) == 7
    assert capsys.readouterr() == ("run r1 ended with 7\n", "")


def test_waiting_includes_the_units_last_work(
    run: Folder, nothing_active: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = [True, True, False]
    monkeypatch.setattr(units, "is_active", lambda run_id: active.pop(0))
    RunLog(run).event("end", state="finished", exit_code=0, first_failure=None, sentence="run r1 has finished")
    assert views.wait(run) == 0 and not active


def test_a_run_that_was_not_started_is_only_created(run: Folder, nothing_active: None) -> None:
    assert views.state_of(run) == "created"


def write_endless(file: str, lines: str) -> None:
    """Append a line of 100 GiB to lines."""
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(lines)
    os.truncate(file, 100 * 2**30)


@pytest.mark.parametrize(
    "written", ["nonsense\n", "[" * 10**5 + "\n", "[]\n", '{"n": "1"}\n', '{"event": "end"}\n', ""]
)
def test_what_training_code_writes_among_the_events_is_left_out(
    run: Folder, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "EVENTS_BYTES", 2**25)
    RunLog(run).enter("running")
    file = run.file("events.jsonl")
    if written:
        with open(file, "a") as events:
            events.write(written)
    else:
        write_endless(file, Path(file).read_text())
    # A supervisor that starts again, as after a failure of the master, continues the count.
    assert bounded(lambda: [event["n"] for event in run.events()]) == [1]
    if written:
        RunLog(run).event("note", text="after")
        assert [event["n"] for event in run.events()] == [1, 2]


def test_output_is_read_in_parts_of_limited_size(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "CHUNK_BYTES", 16)
    output = views.ProcessOutput(run)
    output.handle_event({"event": "plan", "processes": [{"node": NODE, "role": "worker", "rank": 0}]})
    log = Path(run.file(f"logs/{NODE}.worker0.log"))
    log.parent.mkdir(exist_ok=True)
    log.write_text("t one\nt two\nt three\nt four\nt fi")
    lines = output.new_lines()
    assert [line["line"] for line in lines] == ["one", "two", "three", "four"]
    with log.open("a") as more:
        more.write("ve\n" + "x" * 40 + "\n")
    assert [line["line"] for line in output.new_lines()][0] == "five"
    write_endless(str(log), log.read_text())
    monkeypatch.setattr(views, "CHUNK_BYTES", 1024)
    assert bounded(lambda: len(next(output.new_lines())["line"])) == 0


def test_checkpoints_are_listed_oldest_first_and_tensorpacks_by_their_index(run: Folder) -> None:
    names = ["epoch-0002.pt", ".epoch-0003.pt", "epoch-0001.pt", "whole/weights.bin"]
    names += ["from-epoch-0/log.log", "from-epoch-0/stats.json", "from-epoch-3/log.log", "from-epoch-3/checkpoint"]
    names += ["from-epoch-3/model-9.index", "from-epoch-3/model-9.data-00000-of-00001", "from-epoch-3/graph-1.meta"]
    for modified, name in enumerate(names):
        path = Path(run.file(f"checkpoints/{name}"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (modified, modified))
    os.utime(run.file("checkpoints/whole"), (99, 99))
    assert run.checkpoints() == ["epoch-0002.pt", "epoch-0001.pt", "from-epoch-3/model-9", "whole"]
    assert views.detail(run)["checkpoints"] == run.checkpoints()
    Path(run.file("checkpoints/checkpoint")).touch()
    Path(run.file("checkpoints/model-6.index")).touch()
    assert run.checkpoints() == ["model-6"]


def test_frameworks_of_unfinished_runs_are_those_that_a_new_machine_needs(tmp_path: Path) -> None:
    config = replace(CONFIG, efs_mount=str(tmp_path))

    def add(name: str, framework: str, distribution: str = "ddp", cluster: str = "sg-1", python: str = "") -> Folder:
        folder = Folder(f"{tmp_path}/runs/c/{name}")
        Path(folder.path).mkdir(parents=True)
        own = python or f"{paths.ENVIRONMENTS}/{framework}/bin/python"
        folder.write("run.json", {**record(framework, distribution), "python": own, "cluster_id": cluster})
        return folder

    assert unfinished_frameworks(config) == []
    add("r1", "pytorch")
    add("r2", "pytorch")
    add("r3", "mxnet", "dist_sync")
    add("r4", "tensorflow").write("result.json", {"state": "finished"})
    add("r5", "tensorflow", cluster="sg-2")
    add("r6", "tensorflow", python="/home/me/python")
    add("r7", "caffe")
    Path(add("r8", "tensorflow").file("run.json")).write_text("{")
    Path(f"{tmp_path}/runs/c/r9").mkdir()
    assert unfinished_frameworks(config) == [
        {"framework": "mxnet", "runs": ["r3"], "processor": False},
        {"framework": "pytorch", "runs": ["r1", "r2"], "processor": False},
    ]
