"""One attempt of a run: what its processes report, why it ends, and the wrapper of a process."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract.errors import UserError
from deeplearning.runs import attempt as attempts
from deeplearning.runs import run_log, script, unit, units, wrapper
from deeplearning.runs.attempt import AttemptState
from deeplearning.runs.folder import Folder
from deeplearning.runs.plan import Node
from deeplearning.runs.run_log import RunLog

from tests.unit.node.runs_kit import send, started


def test_a_lost_rank_does_not_count_in_the_progress_of_an_attempt_on_fewer_nodes(
    run: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "is_superseded", lambda config: False)
    metrics = [Path(run.file(f"metrics/rank{rank}.jsonl")) for rank in range(3)]
    for file in metrics:
        file.write_text("".join(f'{{"epoch": {epoch}, "step": {epoch * 13}}}\n' for epoch in (1, 2, 3)))
    attempt = started(run)
    # The trainers remove what they repeat, and the one of rank 0 does so for ranks that are no more.
    for file in metrics:
        file.write_text('{"epoch": 1, "step": 13}\n')
    for file in metrics[:2]:
        with file.open("a") as more:
            more.write('{"epoch": 3, "step": 39}\n')
    attempt.tick()
    progress = attempt.run_log.state["progress"]
    assert (progress["epoch"], progress["step"], progress["ranks"]) == (3, 39, 2)


def test_the_first_failure_ends_the_attempt_and_is_reported_with_its_last_lines(run: Folder) -> None:
    attempt = started(run)
    send(attempt, *[(2, {"time": 1.5, "line": f"line {n}"}) for n in range(40)])
    assert attempt.state is not AttemptState.STOPPING
    send(attempt, (2, {"time": 2.0, "end": 7}), (1, {"time": 2.1, "end": 1}))
    assert attempt.state is AttemptState.STOPPING
    outcome = attempt.outcome(143, {})
    assert (outcome.cause, outcome.exit_code) == ("failed", 7)
    assert outcome.first_failure == {
        "node": "deeplearning-worker2",
        "role": "worker",
        "rank": 1,
        "exit_code": 7,
        "signal": None,
        "tail": [f"line {n}" for n in range(10, 40)],
    }
    assert unit.end_sentence("r1", outcome) == "run r1 ended with 7 (deeplearning-worker2, rank 1)"


def test_a_failure_after_a_member_was_lost_counts_as_the_loss(run: Folder) -> None:
    attempt = started(run)
    send(attempt, (1, {"time": 2.0, "end": 1}))
    outcome = attempt.outcome(143, {"deeplearning-worker2": "it has booted since"})
    assert (outcome.cause, outcome.exit_code, outcome.lost) == (
        "lost",
        1,
        {"deeplearning-worker2": "it has booted since"},
    )


def test_a_signal_after_a_stop_is_no_failure(run: Folder) -> None:
    attempt = started(run, stop=True)
    send(attempt)
    assert attempt.state is AttemptState.STOPPING
    send(attempt, (1, {"time": 2.0, "end": 143}))
    assert attempt.processes.failure is None
    assert attempt.outcome(143, {"deeplearning-worker2": "it hangs"}).cause == "stopped"


def test_servers_are_stopped_some_time_after_the_last_worker(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, now = started(run), [100.0]
    monkeypatch.setattr(attempts.time, "monotonic", lambda: now[0])
    send(attempt, (1, {"time": 2.0, "end": 0}))
    send(attempt, (2, {"time": 2.0, "end": 0}))
    assert attempt.state is not AttemptState.STOPPING
    now[0] += attempts.SERVERS_GRACE + 0.1
    send(attempt)
    assert attempt.state is AttemptState.STOPPING
    assert attempt.outcome(143, {}).cause == "finished"


def test_the_reason_is_reported_if_mpirun_could_not_start(run: Folder) -> None:
    attempt = started(run)
    # As Open MPI 5 begins and ends.
    attempt.handle_mpirun_output(
        b"[m:1] plm:ssh: Warning: setpgid(2,2) failed in parent with errno=Permission denied(13)\n"
    )
    attempt.handle_mpirun_output(b"-----\nno such host\n-----\n\0")
    outcome = attempt.outcome(213, {})
    assert (outcome.cause, outcome.exit_code) == ("failed", 213)
    assert unit.end_sentence("r1", outcome) == "run r1 ended with 213: no such host"


def test_mpirun_is_stopped_as_soon_as_all_processes_have_ended(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrappers wait for it."""
    attempt = started(run)
    monkeypatch.setattr(attempts.time, "monotonic", lambda: 100.0)
    send(attempt, *[(number, {"time": 2.0, "end": 0}) for number in range(3)])
    assert attempt.state is AttemptState.STOPPING
    assert attempt.outcome(1, {}).cause == "finished"


def test_a_signal_has_its_name(run: Folder) -> None:
    attempt = started(run)
    send(attempt, (1, {"time": 2.0, "end": 137}))
    failure = attempt.processes.failure
    assert failure and (failure["exit_code"], failure["signal"]) == (137, "SIGKILL")


def started_event(number: int) -> tuple[int, dict[str, Any]]:
    return number, {"pid": 1000 + number}


def ended(number: int, code: int) -> tuple[int, dict[str, Any]]:
    return number, {"time": 2.0, "end": code}


PS, WORKER0, WORKER1 = range(3)


@pytest.mark.parametrize(
    ("messages", "stop", "state"),
    [
        ([], False, AttemptState.STARTING),
        ([started_event(PS), started_event(WORKER0)], False, AttemptState.STARTING),
        ([started_event(PS), started_event(WORKER0), started_event(WORKER1)], False, AttemptState.RUNNING),
        ([started_event(PS), ended(WORKER0, 0)], False, AttemptState.STARTING),
        ([ended(WORKER0, 0), ended(WORKER1, 0)], False, AttemptState.DRAINING),
        ([ended(WORKER0, 0), ended(WORKER1, 0), ended(PS, 0)], False, AttemptState.STOPPING),
        ([ended(WORKER0, 0), ended(WORKER1, 1)], False, AttemptState.STOPPING),
        ([ended(PS, 1)], False, AttemptState.STOPPING),
        ([], True, AttemptState.STOPPING),
    ],
)
def test_the_state_follows_from_the_processes(
    run: Folder, messages: list[tuple[int, dict[str, Any]]], stop: bool, state: AttemptState
) -> None:
    attempt = started(run, stop=stop)
    send(attempt, *messages)
    assert attempt.state is state
    assert attempt.processes.stopping == (state is AttemptState.STOPPING)
    assert bool(units.stop_attempt.call_count) == (state is AttemptState.STOPPING)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("messages", "stop", "exit_code", "lost", "outcome"),
    [
        ([ended(WORKER0, 0), ended(WORKER1, 0)], True, 143, {"node": "gone"}, ("finished", 0)),
        ([ended(WORKER0, 1)], True, 143, {"node": "gone"}, ("stopped", 0)),
        ([ended(WORKER0, 3)], False, 143, {"node": "gone"}, ("lost", 3)),
        ([], False, 9, {"node": "gone"}, ("lost", 9)),
        ([], False, 0, {"node": "gone"}, ("lost", 1)),
        ([ended(WORKER0, 3)], False, 143, {}, ("failed", 3)),
        ([], False, 9, {}, ("failed", 9)),
        # Open MPI 5, after it has lost a daemon.
        ([], False, 0, {}, ("failed", 1)),
    ],
)
def test_the_outcome_is_the_first_reason_that_applies(
    run: Folder,
    messages: list[tuple[int, dict[str, Any]]],
    stop: bool,
    exit_code: int,
    lost: dict[str, str],
    outcome: tuple[str, int],
) -> None:
    attempt = started(run, stop=stop)
    for number, message in messages:
        attempt.handle_message(number, message)
    judged = attempt.outcome(exit_code, lost)
    assert (judged.cause, judged.exit_code) == outcome


@pytest.mark.parametrize(
    ("messages", "exit_code"),
    [
        ([ended(WORKER0, 0), ended(WORKER1, 0)], 0),
        ([ended(WORKER0, 0), ended(WORKER1, 0)], 1),
        ([ended(WORKER0, 0)], 1),
        # Open MPI 5, after it has lost a daemon.
        ([ended(WORKER0, 0)], 0),
    ],
)
def test_the_nodes_are_asked_after_each_attempt(
    run: Folder, monkeypatch: pytest.MonkeyPatch, messages: list[tuple[int, dict[str, Any]]], exit_code: int
) -> None:
    attempt = started(run)
    output = "".join(f"[1,{number}]<stdout>: {json.dumps(message)}\n" for number, message in messages)
    mpirun = [sys.executable, "-c", f"import sys; sys.stdout.write({output!r}); sys.exit({exit_code})"]
    monkeypatch.setattr(attempts.mpirun, "command", lambda *_unused: mpirun)
    stopped: list[str] = []
    monkeypatch.setattr(
        attempts, "stop_leftovers", lambda *_unused: stopped.append("") or {"deeplearning-worker2": "gone"}
    )
    outcome = attempt.run()
    assert len(stopped) == 1
    succeeded = len(messages) == 2
    assert outcome.cause == ("finished" if succeeded else "lost")


def test_a_tag_that_mpirun_writes_in_two_pieces_is_read_as_one(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "is_superseded", lambda config: False)
    monkeypatch.setattr(attempts, "stop_leftovers", lambda *_unused: {})
    attempt = started(run)
    ends = [json.dumps({"end": 0})] * 3
    pieces = [f"[1,0]<stdout>:{ends[0]}\n[1,1]<std", f"out>:{ends[1]}\n[1,", f"2]<stdout>:{ends[2]}\n"]
    program = f"import sys, time\nfor piece in {pieces!r}: print(piece, end='', flush=True); time.sleep(0.05)"
    monkeypatch.setattr(attempts.mpirun, "command", lambda *_unused: [sys.executable, "-c", program])
    assert attempt.run().cause == "finished"
    # Who reads the state sees that they have ended.
    processes = run.state()["processes"]
    assert [(process["state"], process["exit_code"]) for process in processes] == [("ended", 0)] * 3


def test_the_end_of_a_process_is_in_the_state_soon(run: Folder) -> None:
    attempt = started(run)
    attempt.run_log.state["processes"] = attempt.processes.statuses
    attempt.handle_message(1, {"pid": 4711})
    attempt.handle_message(1, {"time": 1.0, "end": 0})
    attempt.save_pending()
    assert run.state()["processes"][1] == {
        **{"node": "deeplearning-worker1", "role": "worker", "rank": 0, "gpus": []},
        **{"pid": 4711, "state": "ended", "exit_code": 0},
    }
    for number in (-1, 3):
        attempt.handle_message(number, {"time": 1.0, "end": 7})
    assert attempt.processes.failure is None


def test_the_state_of_many_processes_is_written_once_a_second(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = started(run)
    attempt.run_log.state["processes"] = attempt.processes.statuses
    now = 100.0
    monkeypatch.setattr(run_log.time, "monotonic", lambda: now)
    saved: list[float] = []
    save = RunLog.save
    monkeypatch.setattr(RunLog, "save", lambda log: (saved.append(now), save(log)))
    for _half_seconds in range(5):
        for _unused in range(100):
            attempt.handle_message(1, {"time": 1.0, "end": 0})
            attempt.save_pending()
        now += 0.5
    assert saved == [100.0, 101.0, 102.0]
    attempt.handle_message(2, {"time": 1.0, "end": 0})
    attempt.superseded = True
    attempt.save_pending(0)
    assert saved == [100.0, 101.0, 102.0] and run.state()["processes"][2]["state"] == "planned"
    attempt.superseded = False
    attempt.save_pending(0)
    assert run.state()["processes"][2]["state"] == "ended"


def test_the_events_of_all_processes_need_one_open_file(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """On EFS each opening takes milliseconds, and each process has two events."""
    attempt = started(run)
    attempt.run_log.event("note", text="opens the file")
    handles: list[str] = []
    monkeypatch.setattr(run_log.os, "fsync", lambda handle: handles.append(os.readlink(f"/proc/self/fd/{handle}")))
    os.rename(run.file("events.jsonl"), run.file("moved"))
    for number in range(2):
        attempt.handle_message(number, {"pid": 4711})
        attempt.handle_message(number, {"time": 1.0, "end": 0})
    os.rename(run.file("moved"), run.file("events.jsonl"))
    # A user who follows the run sees them at once, and the next master with the state.
    assert [event["event"] for event in run.events()].count("process") == 4 and not handles
    attempt.save_pending()
    assert handles[0] == os.path.realpath(run.file("events.jsonl"))


OPENS = """
import resource, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(int(sys.argv[2]), most), most))
from deeplearning.runs.folder import Folder
from deeplearning.runs.run_log import ProcessLog, RunLog
folder = Folder(sys.argv[1])
log = RunLog(folder)
logs = [ProcessLog(log, folder, f"worker{rank}", 0) for rank in range(1100)]
for each in logs:
    each.line(1.0, "begun")
"""


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_stale_handle_of_the_events_keeps_neither_the_state_nor_later_events(
    run: Folder, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    log, fsync, stale = RunLog(run), os.fsync, list[int]()

    def fail_once(handle: int) -> None:
        if not stale:
            stale.append(handle)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        fsync(handle)

    log.event("first")
    if call == "fsync":
        monkeypatch.setattr(os, "fsync", fail_once)
    else:
        assert log._events
        log._events.close()
        log._events = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
        log.event("lost")
    log.enter("running")
    monkeypatch.undo()
    assert run.state()["state"] == "running"
    log.event("last")
    texts = [event.get("text", event["event"]) for event in run.events()]
    assert (texts[0], texts[-1]) == ("first", "last")
    assert any(text.endswith("Logs and events are incomplete.") for text in texts)


def test_a_runs_unit_may_open_the_logs_of_many_processes(run: Folder) -> None:
    text = (ROOT / "files/node/units/deeplearning-run@.service").read_text()
    [limit] = re.findall(r"^LimitNOFILE=(\d+)$", text, re.MULTILINE)
    assert int(limit) > 2 * 8184
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "files/node")}
    for files, is_enough in ((limit, True), ("1024", False)):
        opens = [sys.executable, "-c", OPENS, run.path, files]
        done = subprocess.run(opens, env=environment, capture_output=True, text=True, check=False)
        assert ("Too many open files" in done.stderr) is not is_enough, done.stderr


def test_the_files_for_the_wrappers_have_what_they_need(run: Folder) -> None:
    attempt = started(run)
    attempts.write_start_files(run, run.run(), 0, attempt.plan, "/efs")
    start = json.loads(Path(run.file("attempts/0/plan.json")).read_text())
    assert start["command"] == ["/p/bin/python", "/efs/x/train.py"]
    assert (start["folder"], start["arguments"]) == ("/efs/x", ["{job_name}"])
    assert Path(run.file("attempts/0/hostfile")).read_text() == (
        "deeplearning-worker1 slots=2\ndeeplearning-worker2 slots=1\n"
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/x/a.py", ["/py", "/x/a.py"]), ("/x/a.sh", ["/bin/bash", "/x/a.sh"]), ("/x/a", ["/x/a"])],
)
def test_the_command_depends_on_the_kind_of_script(path: str, expected: list[str]) -> None:
    assert script.command({"python": "/py", "script": path}) == expected


@pytest.mark.parametrize("file", ["pkg/train.py", "pkg/train/__main__.py"])
def test_a_module_is_started_by_its_name_in_the_root_of_the_code(run: Folder, file: str) -> None:
    # A folder of this name, and a run.json next to it, are the user's own.
    path = Path(run.file("code"), file)
    Path(run.file("code/code")).mkdir(parents=True)
    Path(run.file("code/run.json")).touch()
    record = {"python": "/py", "script": str(path), "as_module": True}
    assert script.command(record) == ["/py", "-m", "pkg.train"]
    assert script.working_folder(str(path)) == run.file("code")
    assert script.working_folder(run.file("code/code/train.py")) == run.file("code")


ROOT = Path(__file__).resolve().parents[3]
WRAPPED = """
import os, subprocess, sys
print("to stdout", os.environ["DEEPLEARNING_RANK"], os.environ["SECRET"], sys.argv[1:], flush=True)
print("<b>to stderr</b>\\rprogress", file=sys.stderr, flush=True)
subprocess.Popen(["sleep", "600"])
print("no end", end="", flush=True)
os._exit(3)
"""


def wrapped(
    run: Folder, script: Path, text: str, **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[float]]:
    """Run a wrapper by the command that mpirun starts. Its waits take no time. Return these, too."""
    script.write_text(text)
    request = {**run.run(), "script": str(script), "python": sys.executable, "script_args": ["{rank} <"]}
    run.write("run.json", {**request, "distribution": "multi_worker_mirrored"})
    run.write("environment.json", {"environment": {"SECRET": "s"}})
    attempt = started(run)
    attempt.plan = attempts.plans.make(run.run(), [Node("deeplearning-worker1", "127.0.0.1", ports=(1, 2))])
    attempts.write_start_files(run, run.run(), 0, attempt.plan, "/efs")
    program = "import sys, time; from deeplearning import cli; waits = []; time.sleep = waits.append; "
    program += f"from deeplearning.runs import caches; caches.FOLDER = {str(script.parent / 'cache')!r}; "
    program += "code = cli.main(sys.argv[2:]); open(sys.argv[1], 'w').write(repr(waits)); sys.exit(code)"
    waits = script.with_suffix(".waits")
    done = subprocess.run(
        [sys.executable, "-c", program, str(waits), "run", "exec", run.file("attempts/0/plan.json")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "files/node"), "OMPI_COMM_WORLD_RANK": "0", **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done, json.loads(waits.read_text())


def test_a_wrapper_reports_lines_and_the_end_and_leaves_nothing(tmp_path: Path, run: Folder) -> None:
    done, _ = wrapped(run, tmp_path / "x.py", WRAPPED)
    assert done.returncode == 3, done.stderr
    assert "<" not in done.stdout
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    lines = [message["line"] for message in messages if "line" in message]
    assert lines == ["to stdout 0 s ['0 <']", "<b>to stderr</b>", "progress", "no end"]
    assert (messages[-1]["end"], list(messages[0])) == (3, ["pid"])
    assert not os.path.exists(f"/proc/{messages[0]['pid']}")


def test_what_else_is_to_be_known_of_a_process_is_in_its_log(tmp_path: Path, run: Folder) -> None:
    """Here, that a folder is not used, as anything may be in its place."""
    cache = tmp_path / f"cache-{os.getuid()}"
    cache.symlink_to("/nowhere")
    text = "import os; print('TRITON_CACHE_DIR' in os.environ)"
    done, _waits = wrapped(run, tmp_path / "x.py", text)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    (note,) = (message["note"] for message in messages if "note" in message)
    assert note.startswith(f"what it compiles is not kept on this node's disk: {cache} is a link")
    assert [message["line"] for message in messages if "line" in message] == ["False"]
    cache.unlink()
    done, _waits = wrapped(run, tmp_path / "x.py", text)
    assert '"line":"True"' in done.stdout.replace(" ", "") and "note" not in done.stdout

    attempt = started(run)
    attempt.handle_message(1, {"time": 1.5, "note": note})
    attempt.run_log.flush(attempt.processes.logs)
    log = Path(run.file(f"logs/{attempt.plan.processes[1].name}.log"))
    assert log.read_text().endswith(f" ==== {note}\n")


@pytest.mark.parametrize("open_mpi_5", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_a_wrapper_waits_to_be_stopped_as_mpirun_would_drop_its_output(
    tmp_path: Path, run: Folder, code: int, open_mpi_5: bool
) -> None:
    namespace = "prterun-m-1@1" if open_mpi_5 else "1234"
    done, waited = wrapped(run, tmp_path / "x.py", f"raise SystemExit({code})", PMIX_NAMESPACE=namespace)
    assert (done.returncode, waited) == (code, [14.0])
    assert f'"end":{code}' in (done.stderr if open_mpi_5 else done.stdout)


def test_a_program_that_cannot_be_started_is_reported(tmp_path: Path, run: Folder) -> None:
    done, waited = wrapped(run, tmp_path / "x", "#!/nowhere/interpreter\n")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, waited, messages[-1]["end"]) == (127, [14.0], 127)
    assert "cannot be started: " in messages[-2]["line"] and str(tmp_path / "x") in messages[-2]["line"]


def test_a_process_on_another_node_than_planned_is_refused(tmp_path: Path) -> None:
    wrapper.check_node(Node("deeplearning-worker1", "127.0.0.1"))
    with pytest.raises(UserError, match="mpirun has started a process of deeplearning-worker2 on .*does /etc/hosts"):
        wrapper.check_node(Node("deeplearning-worker2", "192.0.2.1"))


@pytest.mark.parametrize(("processes", "processors", "threads"), [(1, 8, None), (2, 8, "4"), (3, 8, "2"), (9, 8, "1")])
def test_a_process_has_its_environment(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, processors: int, threads: str | None
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("INHERITED", "yes")
    (tmp_path / "environment.json").write_text('{"environment": {"PYTHONUNBUFFERED": "", "OWN": "o"}}')
    record = {**run.run(), "distribution": "ddp", "framework": "pytorch", "processes_per_node": processes}
    plan = attempts.plans.make(record, [Node("a", "10.0.0.1"), Node("b", "10.0.0.2")])
    start: dict[str, Any] = {"environment_file": str(tmp_path / "environment.json"), "python": "/env/bin/python"}
    start |= {"command": ["/env/bin/python", "x.py"], "arguments": ["{rank}/{world}"], "efs_mount": "/efs"}
    start |= {"run_id": "r1", "run_dir": run.path, "data": "", "attempt": 2, "folder": "/efs/x"}
    environment, command = wrapper.prepare(start, plan, plan.processes[-1], "/c")
    last = 2 * processes - 1
    assert command == ["/env/bin/python", "x.py", f"{last}/{last + 1}"]
    expected = {"PATH": "/env/bin:/usr/bin", "INHERITED": "yes", "OWN": "o", "DEEPLEARNING_RANK": str(last)}
    # What the user sets wins.
    expected |= {"PYTHONUNBUFFERED": "", "DEEPLEARNING_RESTART": "2"}
    assert {name: environment[name] for name in expected} == expected
    assert environment.get("OMP_NUM_THREADS") == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert wrapper.prepare(start, plan, plan.processes[-1], "/c")[0]["OMP_NUM_THREADS"] == "7"


CHILD = """
import sys
from deeplearning.runs import wrapper
wrapper.QUIET_SECONDS = {quiet}
sys.exit(wrapper.Child([sys.executable, "-c", {text!r}], {{}}, {folder!r}).wait())
"""


def child(folder: Path, text: str, quiet: float = 1.0) -> subprocess.Popen[str]:
    """Start a program below a wrapper, which is in a process of its own."""
    program = CHILD.format(quiet=quiet, text=text, folder=str(folder))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "files/node")}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)


def messages_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert process.stdout
    joined = process.stdout.read().replace("\\\n", "")
    process.wait(20)
    return [json.loads(line) for line in joined.splitlines()]


def wait_for_the_end(pid: int) -> None:
    for _try in range(6000):
        try:
            if " Z " in Path(f"/proc/{pid}/stat").read_text():
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)  # between two looks at the kernel's table
    raise AssertionError(f"{pid} lives on")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_process_and_its_children(tmp_path: Path, number: signal.Signals) -> None:
    text = f"import signal, time; signal.signal({int(number)}, lambda *_: exit(5)); "
    text += "print('ready', flush=True); time.sleep(60)"
    process = child(tmp_path, text)
    assert process.stdout and "pid" in process.stdout.readline()
    assert json.loads(process.stdout.readline())["line"] == "ready"
    process.send_signal(number)
    assert messages_of(process)[-1]["end"] == 5 and process.returncode == 5


@pytest.mark.parametrize(("text", "code"), [("import os; os.kill(os.getpid(), 9)", 137), ("", 0), ("exit(255)", 255)])
def test_the_end_is_reported_as_a_shell_does(tmp_path: Path, text: str, code: int) -> None:
    process = child(tmp_path, text)
    messages = messages_of(process)
    assert (messages[-1]["end"], process.returncode) == (code, code) and abs(messages[-1]["time"] - time.time()) < 60
    assert [sorted(message) for message in messages] == [["pid"], ["end", "time"]]


def test_output_is_reported_while_it_comes(tmp_path: Path) -> None:
    """A line without an end is reported after some time, and the rest of it later; one that is too long in pieces."""
    text = "import os, sys, time; print('wait', end='', flush=True); sys.stdin.read(); time.sleep(3); print('ing')"
    lines = [message["line"] for message in messages_of(child(tmp_path, text, 0.1)) if "line" in message]
    assert lines == ["wait", "ing"]
    text = "import os; print('a\\r\\nb\\rc\\n\\nd', os.getcwd()); print('x' * 150000)"
    lines = [message["line"] for message in messages_of(child(tmp_path, text)) if "line" in message]
    assert lines[:5] == ["a", "b", "c", "", f"d {tmp_path}"]
    assert "".join(lines[5:]) == "x" * 150000 and max(map(len, lines)) <= 2 * wrapper.LONGEST_LINE


def test_who_holds_the_output_for_ever_is_not_waited_for_and_ends(tmp_path: Path) -> None:
    text = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    messages = messages_of(child(tmp_path, text, 0.1))
    assert messages[-1]["end"] == 0
    wait_for_the_end(messages[1]["line"])


def test_the_process_ends_with_its_wrapper(tmp_path: Path) -> None:
    process = child(tmp_path, "import time; time.sleep(60)")
    assert process.stdout
    pid = json.loads(process.stdout.readline())["pid"]
    process.kill()
    process.wait()
    wait_for_the_end(pid)
