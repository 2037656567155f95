"""`deeplearning run …`: what its commands print, return and hand to systemd."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deeplearning import cli, machine
from deeplearning.contract import paths
from deeplearning.runs import commands, survey, unit, units, views, wrapper
from deeplearning.runs.folder import Folder
from deeplearning.runs.run_log import ProcessLog, RunLog

from tests.unit.node.commands_kit import SUPERVISOR, Master, master_in
from tests.unit.node.systemd_kit import Systemd

NODES = ["deeplearning-worker1", "deeplearning-worker2"]


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Master]:
    with master_in(tmp_path, monkeypatch, capsys) as master:
        yield master


PLAN = [{"node": node, "role": "worker", "rank": rank, "gpus": None} for rank, node in enumerate(NODES)]
REQUEST = {"framework": "pytorch", "distribution": "ddp", "script": "/efs/train.py", "processes_per_node": 2}


# What people read


NO_STALL = {"reason": "", "stall": None, "stalled_seconds": 0}


def test_runs_are_listed_for_people_and_programs(master: Master) -> None:
    assert master.call("list") == (0, "There is no run yet.\n", "")
    assert master.answer("list", "--json") == {"schema": 1, "runs": []}
    master.add("late", "failed", 7, requested_at="2026-11-23T05:00:00Z", framework="mxnet", distribution="dist_sync")
    running = master.add("early", "running", requested_at="2026-11-23T04:00:00Z")
    running.write("state.json", {**running.state(), "processes": PLAN[::-1], "progress": {"epoch": 3, "loss": None}})
    master.supervise("early")
    assert [line.split() for line in master.call("list")[1].splitlines()] == [
        ["run", "state", "code", "framework", "distribution", "nodes", "epoch", "requested", "at"],
        ["early", "running", "-", "pytorch", "ddp", "2", "3", "2026-11-23T04:00:00Z"],
        ["late", "failed", "7", "mxnet", "dist_sync", "0", "-", "2026-11-23T05:00:00Z"],
    ]
    assert master.answer("list", "--json")["runs"] == [
        {
            **{"run_id": "early", "state": "running", "framework": "pytorch", "distribution": "ddp"},
            **{
                "script": "/efs/train.py",
                "requested_by": "anna",
                "requested_at": "2026-11-23T04:00:00Z",
                "nodes": NODES,
            },
            **{"progress": {"epoch": 3, "loss": None}, "exit_code": None, "sentence": ""},
            **NO_STALL,
        },
        {
            **{"run_id": "late", "state": "failed", "framework": "mxnet", "distribution": "dist_sync"},
            **{"script": "/efs/train.py", "requested_by": "anna", "requested_at": "2026-11-23T05:00:00Z", "nodes": []},
            **{"progress": None, "exit_code": 7, "sentence": "run late has failed"},
            **NO_STALL,
        },
    ]


def test_a_run_is_shown_with_its_processes(master: Master) -> None:
    folder = master.add("r1", "running")
    processes = [{**process, "pid": None, "state": "running", "exit_code": None} for process in PLAN]
    processes[1] |= {"pid": 4711, "state": "exited", "exit_code": 0}
    state = {**folder.state(), "reason": "lost x", "attempt": 2, "processes": processes}
    folder.write("state.json", {**state, "progress": {"epoch": 3, "loss": 0.123456789, "accuracy": None}})
    Path(folder.file("checkpoints/1.pt")).touch()
    master.supervise("r1")
    assert master.call("show", "r1")[1].splitlines() == [
        "run r1: running, lost x",
        "pytorch ddp, /efs/train.py, requested by anna at 2026-11-23T03:00:00Z",
        f"start 3, {folder.path}",
        "epoch 3, loss 0.123457",
        "",
        "node                  role    rank  pid   state    code",
        "deeplearning-worker1  worker  0     -     running  -",
        "deeplearning-worker2  worker  1     4711  exited   0",
    ]
    folder.write("run.json", {**folder.run(), "prices": {"g5.xlarge": 41.2}})
    hour = {"started": "2026-11-23T03:00:00Z", "ended": "2026-11-23T04:00:00Z", "machines": {"g5.xlarge": 1}}
    folder.write("state.json", {**folder.state(), "attempts": [hour]})
    assert master.call("show", "r1")[1].splitlines()[4] == "41.20 USD"
    shown = master.answer("show", "r1", "--json")
    assert shown["run"]["run_id"] == "r1" and shown["run"]["schema"] == shown["schema"] == 1
    del shown["run"]
    assert shown == {
        **{"schema": 1, "state": "running", "reason": "lost x", "attempt": 2, "processes": processes},
        **{"progress": {"epoch": 3, "loss": 0.123456789, "accuracy": None}, "checkpoints": ["1.pt"], "result": None},
        **{"stall": None, "stalled_seconds": 0},
    }


def test_a_run_of_an_earlier_version_is_shown_by_todays_names(master: Master) -> None:
    folder = master.add("r1", "stopped")
    former = {"requested_by": "asked_by", "requested_at": "asked_at", "local_copy": "own_copy"}
    folder.write(
        "run.json", {former.get(key, key): value for key, value in {**folder.run(), "local_copy": None}.items()}
    )
    assert '"asked_by"' in Path(folder.file("run.json")).read_text()
    assert "requested by anna at 2026-11-23T03:00:00Z" in master.call("show", "r1")[1]
    assert [run["requested_by"] for run in master.answer("list", "--json")["runs"]] == ["anna"]
    assert folder.run()["local_copy"] is None and "own_copy" not in folder.run()


def test_a_run_that_has_ended_is_shown_with_its_sentence(master: Master) -> None:
    master.add("r1", "stopped")
    lines = master.call("show", "r1")[1].splitlines()
    assert lines[0] == "run r1: stopped" and lines[2].startswith("start 1, ") and lines[3] == "run r1 has stopped"
    assert master.answer("show", "r1", "--json")["result"]["sentence"] == "run r1 has stopped"


@pytest.mark.parametrize(
    ("state", "supervised", "recovered", "stopped_for_end", "expected"),
    [
        ("", False, True, False, "created"),
        ("", True, True, False, "waiting"),
        ("running", True, True, False, "running"),
        ("running", False, True, False, "lost"),
        # It is resumed: after the boot of this master, or of the next one.
        ("running", False, False, False, "running"),
        ("recovering", False, True, True, "recovering"),
        ("finished", False, True, False, "finished"),
        ("finished", True, False, False, "finished"),
    ],
)
def test_the_state_of_a_run(
    master: Master, state: str, supervised: bool, recovered: bool, stopped_for_end: bool, expected: str
) -> None:
    master.add("r1", state)
    if supervised:
        master.supervise("r1")
    master.supervise("r2")
    master.systemd.recovered = recovered
    stopped = master.node.root / "run/deeplearning/stopped-runs"
    stopped.write_text("r0 r1\n" if stopped_for_end else "r0 r11\n")
    assert master.answer("show", "r1", "--json")["state"] == expected


@pytest.mark.parametrize("words", [["show", "r9"], ["start", "r9"], ["stop", "r9"], ["wait", "r9"], ["plan", "r9"]])
def test_an_unknown_run_is_refused_with_the_latest(master: Master, words: list[str]) -> None:
    code, _output, errors = master.call(*words)
    assert code == 2 and errors == "deeplearning: There is no run r9. There is none at all.\n"
    for number in range(7):
        master.add(f"r{number}", "finished", requested_at=f"2026-11-23T0{number}:00:00Z")
    assert master.call(*words)[2] == "deeplearning: There is no run r9. The latest are r2, r3, r4, r5, r6.\n"


# What is started and stopped


def test_a_run_is_started_once(master: Master) -> None:
    master.add("r1")
    assert master.call("start", "r1") == (0, "", "")
    assert master.systemd.calls == [("start", SUPERVISOR.format("r1"))]
    master.systemd.refusal = "Job failed."
    code, _output, errors = master.call("start", "r1")
    assert code == 2 and errors == "deeplearning: systemd did not start deeplearning-run@r1.service: Job failed.\n"


def test_a_run_that_has_ended_is_not_started(master: Master) -> None:
    master.add("r1", "failed")
    code, _output, errors = master.call("start", "r1")
    assert code == 2 and "Run r1 has ended: resume it instead. Example: -e resume=r1" in errors
    assert master.systemd.calls == []


def test_a_run_that_others_could_exchange_is_not_started(master: Master) -> None:
    master.add("r1")
    os.chmod(master.root, 0o777)
    code, _output, errors = master.call("start", "r1")
    assert code == 2 and master.root in errors and master.systemd.calls == []


def ends(folder: Folder, systemd: Systemd, **changes: Any) -> None:
    """Let the run end when systemd stops it."""
    really = systemd.run

    def run(*words: str, **options: Any) -> Any:
        if "stop" in words:
            end = {
                "state": "stopped",
                "exit_code": 0,
                "first_failure": None,
                "sentence": f"run {folder.id} was stopped",
            }
            folder.write("result.json", {**end, "unanswered": [], **changes})
        return really(*words, **options)

    units.programs.run = run  # undone with the fixture's own


@pytest.mark.parametrize(("unanswered", "code"), [([], 0), (NODES, 1)])
def test_a_run_is_stopped_in_the_name_of_who_asks(master: Master, unanswered: list[str], code: int) -> None:
    folder = master.add("r1", "running")
    master.supervise("r1")
    ends(folder, master.systemd, unanswered=unanswered)
    master.monkeypatch.setenv("SUDO_USER", "bob")
    status, output, errors = master.call("stop", "r1")
    assert (status, output) == (code, "run r1 was stopped\n")
    request = folder.read("stop.json") or {}
    assert request["requested_by"] == "bob" and request["requested_at"].startswith("2")
    assert master.systemd.calls == [("stop", SUPERVISOR.format("r1"))]
    named = (
        "deeplearning-worker1, deeplearning-worker2 did not answer: what runs there ends when it has lost its master."
    )
    assert errors == (f"{named}\n" if unanswered else "")


@pytest.mark.parametrize(
    ("sudo", "user", "expected"), [("bob", "root", "bob"), ("", "carl", "carl"), ("", "", "ubuntu")]
)
def test_the_user_who_asks_is_known(master: Master, sudo: str, user: str, expected: str) -> None:
    master.monkeypatch.setenv("SUDO_USER", sudo)
    master.monkeypatch.setenv("USER", user)
    asked: list[tuple[str, str]] = []
    master.monkeypatch.setattr(
        views, "stop", lambda config, run_id, requested_by: asked.append((run_id, requested_by)) or 0
    )
    assert master.call("stop", "r1")[0] == 0
    assert asked == [("r1", expected)]


def test_a_run_that_has_ended_is_not_stopped(master: Master) -> None:
    folder = master.add("r1", "finished")
    assert master.call("stop", "r1") == (0, "run r1 has ended already: finished\n", "")
    assert master.systemd.calls == [] and folder.read("stop.json") is None


def test_a_run_that_leaves_no_result_has_vanished(master: Master) -> None:
    master.add("r1", "running")
    master.supervise("r1")
    sentence = "run r1 has vanished without a result: see journalctl -u deeplearning-run@r1.service\n"
    assert master.call("stop", "r1") == (0, sentence, "")


def test_a_full_file_system_does_not_keep_a_run_from_being_stopped(master: Master) -> None:
    folder = master.add("r1", "running")
    master.supervise("r1")

    def write(self: Folder, name: str, record: dict[str, Any], mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    master.monkeypatch.setattr(Folder, "write", write)
    code, _output, errors = master.call("stop", "r1")
    expected = f"{folder.path} cannot be written (No space left on device): the run may resume after a boot\n"
    assert (code, errors) == (0, expected) and master.systemd.calls == [("stop", SUPERVISOR.format("r1"))]


def test_all_active_runs_are_stopped_and_the_worst_answer_counts(master: Master) -> None:
    assert master.call("stop", "all") == (0, "no run is going on\n", "")
    master.add("old", "finished")
    for name in ("r1", "r2"):
        master.add(name, "running")
        master.supervise(name)
    assert master.call("stop", "all")[0] == 0
    # At once: one after another, they would have the sum of their times to save.
    assert master.systemd.calls == [("stop", *(SUPERVISOR.format(name) for name in ("r1", "r2")))]
    master.monkeypatch.setattr(views, "_report_stop", lambda folder: int(folder.id == "r1"))
    for name in ("r1", "r2"):
        master.supervise(name)
    assert master.call("stop", "all")[0] == 1


# Follow and wait


def test_events_are_followed_as_json_lines(master: Master) -> None:
    folder = master.add("r1", "running")
    log = RunLog(folder)
    log.event("plan", processes=PLAN[:1])
    process = ProcessLog(log, folder, "deeplearning-worker1.worker0", 0)
    process.line(1.0, "hello")
    process.close()
    log.event("end", state="failed", exit_code=3, first_failure=None, sentence="run r1 ended with 3")

    def followed(*words: str) -> list[str]:
        code, output, _errors = master.call("follow", "r1", *words)
        assert code == 0
        return [event.get("line", event["event"]) for event in map(json.loads, output.splitlines())]

    assert followed() == ["state", "plan", "end"]
    assert followed("--from-line", "2") == ["end"]
    assert followed("--output") == ["state", "plan", "hello", "end"]
    assert followed("--output", "--from-line", "2") == ["end"]
    assert followed("--output", "--from-line", "1") == ["plan", "hello", "end"]
    assert master.call("wait", "r1") == (3, "run r1 ended with 3\n", "")


def test_a_run_without_a_unit_is_lost_after_some_time_and_not_before(master: Master) -> None:
    """Its supervisor may be about to start, and its last event about to be visible."""
    folder = master.add("r1", "running")
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 1
        if now[0] == 3:
            master.supervise("r1")
        if now[0] == 4:
            master.systemd.units.clear()
        if now[0] == 6 and ends_after_all:
            RunLog(folder).event("end", state="finished", exit_code=0, first_failure=None, sentence="it is done")

    master.monkeypatch.setattr(views, "VANISHED_SECONDS", 3.0)
    master.monkeypatch.setattr(views.time, "monotonic", lambda: now[0])
    master.monkeypatch.setattr(views.time, "sleep", sleep)
    ends_after_all = False
    code, _output, errors = master.call("wait", "r1")
    # Three seconds count from the last time that it was seen.
    assert (code, now[0]) == (1, 7) and errors.startswith("run r1 has vanished without a result: see journalctl")
    now[0], ends_after_all = 0.0, True
    assert master.call("wait", "r1") == (0, "it is done\n", "")


def test_waiting_for_a_run_that_was_never_started_says_so(master: Master) -> None:
    master.add("r1")
    assert master.call("wait", "r1") == (1, "", "run r1 has not been started\n")


def test_a_reader_that_goes_away_is_no_error(master: Master, tmp_path: Path) -> None:
    master.add("r1", "finished")
    with open(tmp_path / "out", "w") as file:

        def print_(*_words: object, **_options: object) -> None:
            raise BrokenPipeError

        master.monkeypatch.setattr("builtins.print", print_)
        master.monkeypatch.setattr(sys, "stdout", file)
        with master.node.here():
            assert cli.main(["run", "list"]) == 0
        file.write("what is left in the buffer")
    assert (tmp_path / "out").read_text() == ""


# Plans


def test_the_plan_of_a_request_is_printed_and_nothing_is_created(master: Master) -> None:
    rows = [line.split() for line in master.call("plan", "-", stdin=json.dumps(REQUEST))[1].splitlines()]
    assert rows == [
        ["process", "node", "address", "role", "rank", "gpus", "port"],
        ["0", "deeplearning-worker1", "10.0.0.5", "worker", "0", "all", "-"],
        ["1", "deeplearning-worker1", "10.0.0.5", "worker", "1", "all", "-"],
        ["2", "deeplearning-worker2", "10.0.0.6", "worker", "2", "all", "-"],
        ["3", "deeplearning-worker2", "10.0.0.6", "worker", "3", "all", "-"],
    ]
    plan = master.answer("plan", "-", "--json", stdin=json.dumps({**REQUEST, "nodes": 1}))
    assert (plan["schema"], plan["distribution"], len(plan["processes"])) == (1, "ddp", 2)
    assert [(node["name"], node["gpus"]) for node in plan["nodes"]] == [("deeplearning-worker1", 8)]
    assert os.listdir(master.root) == []


def test_the_plan_of_a_request_that_resumes_has_the_runs_values_and_its_own(master: Master) -> None:
    master.add("r1", "failed", processes_per_node=3, nodes=1)
    plan = master.answer("plan", "-", "--json", stdin='{"resume": "r1"}')
    assert len(plan["processes"]) == 3
    plan = master.answer("plan", "-", "--json", stdin='{"resume": "r1", "nodes": 2}')
    assert len(plan["processes"]) == 6


def test_the_plan_of_a_run_is_its_last_attempts(master: Master) -> None:
    folder = master.add("r1", nodes=1)
    plan = master.answer("plan", "r1", "--json")
    assert [process["node"] for process in plan.pop("processes")] == NODES[:1]
    del plan["schema"]
    for number, node in enumerate(("a", "b")):
        Path(folder.file(f"attempts/{number}")).mkdir()
        process = {"node": node, "role": "worker", "rank": 0, "local_rank": 0, "gpus": [0], "port": 20000}
        folder.write(f"attempts/{number}/plan.json", {"plan": {**plan, "processes": [process]}})
    assert [process["node"] for process in master.answer("plan", "r1", "--json")["processes"]] == ["b"]


def test_a_request_that_is_refused_has_no_plan(master: Master) -> None:
    request = {**REQUEST, "framework": "mxnet", "distribution": "local", "processes_per_node": None, "nodes": 2}
    code, output, errors = master.call("plan", "-", stdin=json.dumps(request))
    assert (code, output) == (2, "") and "distribution is local, which trains on one node" in errors


@pytest.mark.parametrize("words", [["plan", "-"], ["create"]])
def test_a_request_that_is_no_json_is_refused(master: Master, words: list[str]) -> None:
    code, _output, errors = master.call(*words, stdin="{")
    assert code == 2 and errors.startswith("deeplearning: The request on standard input is not JSON (")
    code, _output, errors = master.call(*words, stdin="[]")
    assert code == 2 and "A run's request is a JSON object, and this is none." in errors


# Create


@pytest.mark.parametrize(("request_", "requested_by"), [({}, "bob"), ({"requested_by": "anna"}, "anna")])
def test_a_request_is_that_of_its_user(master: Master, request_: dict[str, Any], requested_by: str) -> None:
    master.monkeypatch.setenv("SUDO_USER", "bob")
    asked: list[Any] = []
    master.monkeypatch.setattr(commands, "create", lambda request, config: asked.append(request) or {"run_id": "r1"})
    assert master.answer("create", stdin=json.dumps({**REQUEST, **request_})) == {"run_id": "r1"}
    assert asked == [{**REQUEST, "requested_by": requested_by}]


@pytest.fixture
def sent(master: Master, tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    """Sets standard input."""
    kept = os.dup(0)

    def send(data: bytes) -> None:
        (tmp_path / "stdin").write_bytes(data)
        file = os.open(tmp_path / "stdin", os.O_RDONLY)
        os.dup2(file, 0)
        os.close(file)

    yield send
    os.dup2(kept, 0)
    os.close(kept)


def archive() -> bytes:
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            item = tarfile.TarInfo("train.py")
            item.size = 5
            tar.addfile(item, io.BytesIO(b"pass\n"))
        return buffer.getvalue()


@pytest.mark.parametrize("own_folder", [False, True])
def test_code_that_is_sent_is_unpacked_next_to_the_runs_and_removed(
    master: Master, sent: Callable[[bytes], None], tmp_path: Path, own_folder: bool
) -> None:
    runs_dir = f"{master.node.config.efs_mount}/mine" if own_folder else master.root
    Path(runs_dir, ".incoming").mkdir(parents=True, mode=0o755)
    for name, age in (("old", 3700), ("young", 3500)):
        Path(runs_dir, ".incoming", name).mkdir()
        when = Path(runs_dir).stat().st_mtime - age
        os.utime(Path(runs_dir, ".incoming", name), (when, when))
    asked: list[Any] = []

    def create(request: dict[str, Any], config: Any) -> dict[str, Any]:
        asked.append(Path(request["code"], "train.py").read_text())
        assert request["code"].startswith(f"{runs_dir}/.incoming/")
        return {"run_id": "r1"}

    master.monkeypatch.setattr(commands, "create", create)
    request = {**REQUEST, "script": "train.py", **({"runs_dir": runs_dir} if own_folder else {})}
    sent(json.dumps(request).encode() + b"\n" + archive())
    assert master.answer("create", "--code", "-") == {"run_id": "r1"}
    assert asked == ["pass\n"] and os.listdir(f"{runs_dir}/.incoming") == ["young"]


@pytest.mark.parametrize("code", [b"", archive()[:30]], ids=["empty", "cut"])
def test_code_that_cannot_be_unpacked_is_refused_and_removed(
    master: Master, sent: Callable[[bytes], None], code: bytes
) -> None:
    sent(json.dumps({**REQUEST, "script": "train.py"}).encode() + b"\n" + code)
    status, _output, errors = master.call("create", "--code", "-")
    place = f"{master.root}/.incoming"
    assert status == 2 and errors.startswith(
        f"deeplearning: The code on standard input cannot be unpacked in {place}: "
    )
    assert os.listdir(place) == []


# What units call


def test_frameworks_of_unfinished_runs(master: Master) -> None:
    assert master.call("frameworks") == (0, "\n", "")
    with master.node.here():
        python = f"{paths.ENVIRONMENTS}/{{}}/bin/python"
    master.add("r1", python=python.format("pytorch"))
    master.add("r2", framework="mxnet", python=python.format("mxnet"))
    assert master.call("frameworks") == (0, "mxnet\npytorch\n", "")
    needed = [
        {"framework": "mxnet", "runs": ["r2"], "processor": False},
        {"framework": "pytorch", "runs": ["r1"], "processor": False},
    ]
    assert master.answer("frameworks", "--json") == {"frameworks": needed}


def test_a_machine_that_joins_needs_packages_for_gpus_if_a_run_does(master: Master) -> None:
    with master.node.here():
        python = f"{paths.ENVIRONMENTS}/pytorch/bin/python"
    for run_id, processor, expected in (("r1", True, True), ("r2", True, True), ("r3", False, False)):
        master.add(run_id, python=python, processor=processor)
        (needed,) = master.answer("frameworks", "--json")["frameworks"]
        assert needed["processor"] is expected


def test_after_a_boot_runs_are_resumed_when_the_file_system_is_mounted(master: Master) -> None:
    slept: list[float] = []
    order: list[str] = []
    master.monkeypatch.setattr(unit, "recover", lambda config: order.append("recover") or 0)
    master.monkeypatch.setattr(machine, "is_mounted", lambda path: order.append(path) or len(order) > 3)
    master.monkeypatch.setattr(time, "sleep", slept.append)
    assert master.call("recover")[0] == 0
    assert order == [master.node.config.efs_mount] * 4 + ["recover"] and slept == [1.0] * 3


def test_units_call_the_supervisor_of_their_run(master: Master) -> None:
    called: list[tuple[Any, ...]] = []
    for name in ("run_unit", "clean", "recover"):
        master.monkeypatch.setattr(unit, name, lambda *words, name=name: called.append((name, *words)))
    config = master.node.config
    assert master.call("unit", "r1")[0] == 0 and master.call("recover")[0] == 0
    master.monkeypatch.setenv("EXIT_STATUS", "1")
    assert master.call("clean", "r1")[0] == 0
    assert called == [("run_unit", "r1", config), ("recover", config), ("clean", "r1", config)]
    # It has cleaned up itself.
    master.monkeypatch.setenv("EXIT_STATUS", "0")
    assert master.call("clean", "r1")[0] == 0 and len(called) == 3
    master.monkeypatch.delenv("EXIT_STATUS")
    assert master.call("clean", "r1")[0] == 0 and len(called) == 4


@pytest.mark.parametrize(("name", "module"), [("exec", wrapper), ("survey", survey)])
def test_what_nodes_start_is_found_without_the_commands(
    monkeypatch: pytest.MonkeyPatch, name: str, module: Any
) -> None:
    monkeypatch.setattr(module, "main", lambda argv: [name, *argv] == [name, "a", "b"] and 5)
    assert cli.main(["run", name, "a", "b"]) == 5
