"""A run whose processes fall silent: when it counts as stalled, which processes are named, and how it continues."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import run_stall
from deeplearning.contract.schema import parse_time
from deeplearning.runs import attempt as attempts
from deeplearning.runs import stacks, stall, units, variables
from deeplearning.runs.attempt import Attempt
from deeplearning.runs.folder import Folder
from deeplearning.runs.stall import EVALUATION_SECONDS, FIRST_SECONDS, QUIET_SECONDS, Silence

from tests.unit.node.runs_kit import send, started
from tests.unit.node.wrappers_kit import three_processes

ROOT = Path(__file__).resolve().parents[3]
TICK = attempts.TICK_SECONDS
MINUTE = 60.0


# The limits


def after(watch: Silence, seconds: float) -> Silence:
    """Let so many seconds pass, in ticks."""
    for _tick in range(round(seconds / TICK)):
        watch.pass_time(watch._now + TICK)
    return watch


def training(step_seconds: float, steps: int = 12) -> Silence:
    """Return the silence of two processes that have reported steps, of which the first took five minutes."""
    watch = after(Silence(2, 100.0), 5 * MINUTE)
    for step in range(1, steps + 1):
        for number in range(2):
            watch.report_metrics({number: {"step": step}})
        if step < steps:
            after(watch, step_seconds)
    return watch


def test_a_run_is_silent_too_long_after_ten_minutes() -> None:
    watch = training(3)
    assert not after(watch, QUIET_SECONDS - TICK).is_over
    assert after(watch, TICK).is_over
    watch.report(1)
    assert not watch.is_over and watch.seconds == 0


def test_long_steps_have_a_longer_limit() -> None:
    watch = training(3 * MINUTE)
    assert watch.limit == pytest.approx(30 * MINUTE)
    assert not after(watch, 29 * MINUTE).is_over and after(watch, MINUTE).is_over


def test_several_steps_between_two_reports_are_shorter_ones() -> None:
    watch = Silence(1, 0.0)
    for step in range(0, 500, 100):
        watch.report_metrics({0: {"step": step}})
        after(watch, 5 * MINUTE)
    assert watch.limit == QUIET_SECONDS


def test_a_compile_of_twenty_minutes_is_no_stall() -> None:
    watch = Silence(2, 0.0)
    watch.report(0)
    assert not after(watch, 20 * MINUTE).is_over
    watch.report_metrics({0: {"step": 1}})
    assert not after(watch, 20 * MINUTE).is_over
    watch.report_metrics({0: {"step": 2}})
    for step in range(3, 6):
        after(watch, 3).report_metrics({0: {"step": step}})
    assert watch.limit == QUIET_SECONDS


def test_a_start_that_hangs_is_a_stall() -> None:
    assert not after(Silence(2, 0.0), FIRST_SECONDS - TICK).is_over
    assert after(Silence(2, 0.0), FIRST_SECONDS).is_over


def test_an_evaluation_of_half_an_hour_is_no_stall() -> None:
    watch = training(3)
    watch.report_metrics({0: {"step": 12, "phase": "evaluation"}})
    assert not after(watch, 30 * MINUTE).is_over and watch.limit == EVALUATION_SECONDS
    watch.report_metrics({0: {"step": 12, "val_accuracy": 0.5}})
    assert watch.limit == QUIET_SECONDS
    watch.report_metrics({1: {"step": 12, "phase": "evaluation"}})
    assert after(watch, EVALUATION_SECONDS).is_over


def test_a_script_without_metrics_and_output_is_stalled_after_the_first_limit() -> None:
    """It looks like a run that hangs."""
    watch = Silence(1, 0.0)
    for minutes in range(0, 40, 8):
        assert not after(watch, 8 * MINUTE).is_over, minutes
        watch.report(0)
    # From then on, output has to come as often as from any other.
    assert not after(watch, 9 * MINUTE).is_over
    quiet = after(Silence(1, 0.0), FIRST_SECONDS)
    assert quiet.is_over and quiet.limit == QUIET_SECONDS


def test_a_script_that_prints_every_twenty_minutes_is_no_stall() -> None:
    watch = Silence(1, 0.0)
    for _line in range(6):
        assert not after(watch, 20 * MINUTE).is_over
        watch.report(0)


@pytest.mark.parametrize("step", [None, "7", True, [], float("nan"), float("inf"), 10**400, -1])
def test_metrics_without_a_step_are_reports(step: Any) -> None:
    watch = after(Silence(1, 0.0), FIRST_SECONDS)
    watch.report_metrics({0: {"step": step, "loss": 1}})
    assert watch.seconds == 0 and watch.steps == {}


def test_a_stall_that_ended_by_itself_makes_no_limit_longer() -> None:
    watch = training(3)
    after(watch, 5 * 3600)
    for number in range(2):
        watch.report_metrics({number: {"step": 13}})
    assert watch.limit == QUIET_SECONDS and max(watch._durations) < QUIET_SECONDS > max(watch._gaps)


def test_steps_that_are_repeated_shorten_nothing() -> None:
    """A trainer that resumes from a checkpoint within an attempt goes back."""
    watch = training(3 * MINUTE)
    watch.report_metrics({0: {"step": 2}})
    watch.report_metrics({1: {"step": 2}})
    assert watch.limit == pytest.approx(30 * MINUTE)


def test_a_master_that_was_frozen_calls_no_run_stalled() -> None:
    """Neither does one that a file system has kept waiting, or whose clock jumps."""
    watch = training(3)
    watch.pass_time(watch._now + 24 * 3600)
    assert not watch.is_over and watch.seconds <= stall.TICK_SECONDS
    watch.pass_time(watch._now - 24 * 3600)
    assert not watch.is_over
    assert after(watch, QUIET_SECONDS).is_over


# The attempt


class Clock:
    """The master's clock, which is advanced by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, attempt: Attempt) -> None:
        self.now, self.attempt = 1000.0, attempt
        monkeypatch.setattr(stall.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(attempts, "is_superseded", lambda config: False)
        attempt.stall._silence._now = self.now

    def pass_seconds(self, seconds: float) -> None:
        for _tick in range(round(seconds / TICK)):
            self.now += TICK
            self.attempt.tick()

    def pass_until(self, asked: list[str]) -> None:
        """Let time pass until stacks are asked for."""
        for _tick in range(round(2 * FIRST_SECONDS / TICK)):
            if not asked:
                self.pass_seconds(TICK)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked for stacks."""
    requests: list[str] = []
    monkeypatch.setattr(units, "request_stacks", lambda run_id, attempt: requests.append(f"{run_id}:{attempt}"))
    # Nothing runs in a unit of systemd here.
    monkeypatch.setattr(units, "_begin", lambda *_words: subprocess.Popen(["true"]))
    return requests


@pytest.fixture
def attempt(run: Folder) -> Attempt:
    """A parameter server and two workers, which have begun to train."""
    attempt = started(run)
    attempt.run_log.state["processes"] = attempt.processes.statuses
    send(attempt, *[(number, {"pid": 10 + number}) for number in range(3)])
    send(attempt, *[(number, {"time": 1.0, "line": "begins"}) for number in range(3)])
    return attempt


def stacks_of(state: str) -> dict[str, Any]:
    return {"time": 2.0, "stacks": ["Current thread", "  File x.py, line 3 in wait"], "state": state}


def test_a_stalled_run_is_named_with_its_silent_processes_and_their_stacks(
    run: Folder, attempt: Attempt, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, attempt)
    clock.pass_until(asked)
    assert asked == ["r1:0"] and attempt.run_log.state["state"] == "running"
    send(attempt, (0, stacks_of("S")), (1, stacks_of("S")), (2, stacks_of("T")))
    clock.pass_seconds(TICK)
    state = run.state()
    assert state["state"] == "stalled" and state["reason"] == (
        "no process has reported progress or output for 40 minutes. Silent: worker 1 on deeplearning-worker2 (stopped "
        "by a signal). The stacks of all processes are in their logs."
    )
    stall = run_stall.find(state)
    assert stall
    (silent,) = stall["silent"]
    assert silent == {
        **{"node": "deeplearning-worker2", "role": "worker", "rank": 1},
        "what": "stopped by a signal",
    }
    assert time.time() - parse_time(state["stall"]["since"]) == pytest.approx(FIRST_SECONDS, abs=60)
    for name in ("worker1.ps0", "worker1.worker0", "worker2.worker1"):
        assert "Z ====   File x.py, line 3 in wait\n" in Path(run.file(f"logs/deeplearning-{name}.log")).read_text()
    # Once is enough, however long it lasts.
    clock.pass_seconds(FIRST_SECONDS)
    assert asked == ["r1:0"]
    assert [event["state"] for event in run.events() if event["event"] == "state"] == ["running", "stalled"]


@pytest.mark.parametrize(
    ("prices", "machines", "hourly"),
    [
        ({"g5.xlarge": 1.006}, {"g5.xlarge": 2}, 2.012),
        ({"g5.xlarge": 1.006, "m5.large": 0.1, "c5.large": 9}, {"g5.xlarge": 2, "m5.large": 1}, 2.112),
        # As much as is known is no price.
        ({"g5.xlarge": 1.006}, {"g5.xlarge": 2, "m5.large": 1}, None),
        ({}, {"g5.xlarge": 2}, None),
        ({"g5.xlarge": 1.006}, {}, None),
    ],
)
def test_a_stall_has_what_its_machines_cost_an_hour(
    run: Folder,
    monkeypatch: pytest.MonkeyPatch,
    prices: dict[str, float],
    machines: dict[str, int],
    hourly: float | None,
) -> None:
    run.write("run.json", {**run.run(), "prices": prices})
    stalled(started(run, machines=machines), monkeypatch)
    expected = None if hourly is None else pytest.approx(hourly)
    stall = run_stall.find(run.state())
    assert stall and stall["hourly"] == expected
    (event,) = (event for event in run.events() if event.get("state") == "stalled")
    assert event["hourly"] == expected


def stalled(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(monkeypatch, attempt)
    clock.pass_seconds(FIRST_SECONDS + MINUTE)
    assert attempt.run_log.state["state"] == "stalled"
    return clock


@pytest.mark.parametrize("with_metrics", [False, True], ids=["output", "metrics"])
def test_a_run_that_reports_again_is_running_and_its_record_keeps_the_lost_time(
    run: Folder, attempt: Attempt, asked: list[str], monkeypatch: pytest.MonkeyPatch, with_metrics: bool
) -> None:
    clock = stalled(attempt, monkeypatch)
    clock.pass_seconds(20 * MINUTE)
    if with_metrics:
        Path(run.file("metrics/rank1.jsonl")).write_text('{"step": 1}\n')
        attempt.tick()
    else:
        send(attempt, (1, {"time": 3.0, "line": "goes on"}))
    state = run.state()
    assert (state["state"], state["stall"]) == ("running", None)
    assert state["reason"] == "it reports again, after 61 minutes of silence"
    assert state["stalled_seconds"] == pytest.approx(FIRST_SECONDS + 21 * MINUTE, abs=30)
    # Another one counts as well. With one step, it may still compile.
    lost, limit = state["stalled_seconds"], FIRST_SECONDS if with_metrics else QUIET_SECONDS
    clock.pass_seconds(limit + 10 * TICK)
    assert run.state()["state"] == "stalled" and asked == ["r1:0"] * 2
    attempt.stall.end()
    assert attempt.run_log.state["stalled_seconds"] == pytest.approx(lost + limit + 10 * TICK, abs=10)
    assert attempt.run_log.state["stall"] is None


def test_stacks_and_failures_do_not_end_a_stall(
    run: Folder, attempt: Attempt, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled(attempt, monkeypatch)
    send(attempt, (1, stacks_of("S")), (1, {"gpu_busy": 100}))
    assert run.state()["state"] == "stalled"
    send(attempt, (1, {"time": 3.0, "end": 134}))
    attempt.stall.end()
    assert attempt.processes.failure and attempt.run_log.state["stalled_seconds"] > FIRST_SECONDS
    assert [event["state"] for event in run.events() if event["event"] == "state"] == ["running", "stalled"]


@pytest.mark.parametrize(
    ("answers", "metrics", "late", "silent"),
    [
        ({0: "S", 1: "S"}, {}, [], [(2, "its node does not answer")]),
        ({0: "S", 1: "D", 2: "T"}, {}, [], [(1, stacks.STATES["D"]), (2, stacks.STATES["T"])]),
        ({0: "S", 1: "R", 2: "S"}, {1: 41, 2: 43}, [], [(1, "at step 41, others at 43")]),
        ({0: "S", 1: "R", 2: "S"}, {1: 43, 2: 43}, [], [(0, "")]),
        ({0: "S", 1: "S", 2: "S"}, {}, [1, 2], [(0, "")]),
        ({0: "S", 1: "S", 2: "S"}, {}, [0, 1, 2], [(0, ""), (1, ""), (2, "")]),
        # What cannot be true comes from training code.
        ({0: "S", 1: "rm -rf", 2: "S", 9: "T"}, {}, [0, 1, 2], [(0, ""), (1, ""), (2, "")]),
        # No wrapper answers: mpirun may hang.
        ({}, {}, [0, 2], [(1, "")]),
    ],
)
def test_the_processes_that_may_be_the_reason_are_named(
    run: Folder,
    attempt: Attempt,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[int, str],
    metrics: dict[int, int],
    late: list[int],
    silent: list[tuple[int, str]],
) -> None:
    clock = Clock(monkeypatch, attempt)
    clock.pass_seconds(MINUTE)
    send(attempt, *[(number, {"time": 2.0, "line": "later"}) for number in late])
    for number, step in metrics.items():
        Path(run.file(f"metrics/rank{number - 1}.jsonl")).write_text(json.dumps({"step": step}) + "\n")
    attempt.tick()
    clock.pass_until(asked)
    send(attempt, *[(number, stacks_of(state)) for number, state in answers.items()])
    clock.pass_seconds(stall.ANSWER_SECONDS + TICK)
    names = [("ps", 0), ("worker", 0), ("worker", 1)]
    assert [(each["role"], each["rank"], each["what"]) for each in run.state()["stall"]["silent"]] == [
        (*names[number], what) for number, what in silent
    ]


def test_processes_that_do_not_start_are_named_and_none_is_sent_a_signal(
    run: Folder, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper that has no handler yet would be ended by it."""
    attempt = started(run)
    send(attempt, (0, {"pid": 1}), (1, {"pid": 2}))
    Clock(monkeypatch, attempt).pass_seconds(FIRST_SECONDS + TICK)
    assert asked == [] and run.state()["stall"]["silent"] == [
        {"node": "deeplearning-worker2", "role": "worker", "rank": 1, "what": "not started yet"}
    ]


def test_many_silent_processes_are_counted(run: Folder, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = [replace(attempt.plan.processes[0], rank=rank) for rank in range(20)]
    detector = stall.StallDetector(plan, attempt.run_log, lambda: None)
    monkeypatch.setattr(stall.time, "monotonic", lambda: detector._silence._now + TICK)
    while attempt.run_log.state["state"] != "stalled":
        detector.tick(can_answer=True)
    state = run.state()
    assert len(state["stall"]["silent"]) == run_stall.MOST_NAMED
    assert state["reason"].endswith("ps 7 on deeplearning-worker1 and 12 more.")


def test_a_stop_that_comes_in_a_stall_is_a_stop(
    run: Folder, attempt: Attempt, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled(attempt, monkeypatch)
    attempt.stop_requested = lambda: True
    attempt.advance()
    send(attempt, (1, {"time": 2.0, "line": "stops"}), (1, {"time": 2.0, "end": 0}))
    assert run.state()["state"] == "stopping"
    attempt.save_pending(0)
    assert run.state()["stall"] is None and run.state()["stalled_seconds"] > 0


def test_metrics_that_were_read_late_are_no_silence(
    run: Folder, attempt: Attempt, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shared file system has kept the master waiting for an hour within a tick."""
    clock = Clock(monkeypatch, attempt)
    Path(run.file("metrics/rank0.jsonl")).write_text('{"step": 1}\n')
    attempt.tick()
    for _stall in range(3):
        clock.now += 3600
        attempt.tick()
    assert asked == [] and attempt.run_log.state["state"] == "running"


@pytest.mark.parametrize(
    "text",
    ["", "x", {"since": "now", "silent": []}, {"since": "2026-01-01T00:00:00Z", "silent": [{"node": "a"}]}],
)
def test_a_stall_of_another_form_is_none(text: Any) -> None:
    assert run_stall.find({"stall": text}) is None and run_stall.find(text) is None


# Stacks

WAITS = """
import sys, threading, time
def waits_for_ever():
    print("ready", flush=True)
    time.sleep(600)
waits_for_ever()
"""


def child(text: str, *words: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a program below a wrapper, which is in a process of its own, and wait until it prints a line."""
    program = "import sys; from deeplearning.runs import wrapper; "
    program += f"sys.exit(wrapper.Child({[*words, text]!r}, {environment!r}, {str(folder)!r}).wait())"
    own = {**os.environ, "PYTHONPATH": str(ROOT / "files/node")}
    process = subprocess.Popen([sys.executable, "-c", program], env=own, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert "pid" in process.stdout.readline() and '"line":"ready"' in process.stdout.readline()
    return process


def ask(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Ask a wrapper for stacks, and return its answer."""
    assert process.stdout
    process.send_signal(signal.SIGUSR1)
    text = process.stdout.readline()
    while text.endswith("\\\n"):
        text = text[:-2] + process.stdout.readline()
    answer: dict[str, Any] = json.loads(text)
    return answer


def test_a_wrapper_reports_the_stacks_of_a_python_that_waits(tmp_path: Path) -> None:
    process = child(WAITS, sys.executable, "-c", folder=tmp_path)
    for _twice in range(2):
        answer = ask(process)
        text = "\n".join(answer["stacks"])
        assert answer["state"] == "S" and text.count("in waits_for_ever") == 1
        assert "sleeping\n" in text and "no Python" not in text
    process.terminate()
    process.wait()


def test_a_program_without_a_handler_is_sent_no_signal(tmp_path: Path) -> None:
    """It would end it. Bash has neither our file nor a handler; its Python child has both."""
    script = tmp_path / "x.py"
    script.write_text(WAITS)
    process = child(f"{sys.executable} {script}; echo", "/bin/bash", "-c", folder=tmp_path)
    answer = ask(process)
    text = "\n".join(answer["stacks"])
    assert "(bash) is sleeping, and is no Python that can write its stacks" in text
    assert "in waits_for_ever" in text and ask(process)["state"] == "S"
    process.terminate()
    process.wait()


def test_a_handler_of_the_programs_own_is_left_alone(tmp_path: Path) -> None:
    text = f"""
import os, signal, time
os.environ.pop("PYTHONPATH")
signal.signal({int(stacks.SIGNAL)}, lambda *_unused: os._exit(9))
print("ready", flush=True)
time.sleep(600)
"""
    # Isolated: it has not our file open.
    process = child(text, sys.executable, "-I", "-c", folder=tmp_path)
    answer = ask(process)
    assert answer["state"] == "S" and "no Python that can write its stacks" in answer["stacks"][0]
    process.terminate()
    process.wait()


def test_a_stopped_process_is_reported_as_stopped(tmp_path: Path) -> None:
    process = child(WAITS, sys.executable, "-c", folder=tmp_path)
    # The first line that its wrapper has printed was its pid.
    pid = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    os.kill(pid, signal.SIGSTOP)
    answer = ask(process)
    assert answer["state"] == "T" and "is stopped by a signal" in answer["stacks"][0]
    os.kill(pid, signal.SIGCONT)
    process.terminate()
    process.wait()


def test_the_users_modules_and_sitecustomize_come_first(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    assert stacks.Stacks().variables({"PYTHONPATH": "/own"})["PYTHONPATH"] == f"/own:{stacks.STARTUP}"
    own = stacks.Stacks()
    for folders, mine in (([stacks.STARTUP, str(tmp_path)], "mine\n"), ([str(tmp_path), stacks.STARTUP], "mine\n")):
        environment = {**own.variables({}), "PYTHONPATH": os.pathsep.join(folders)}
        done = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, mine, "")


def test_stacks_need_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    assert stacks.VARIABLE in stacks.Stacks().variables({})


@pytest.mark.parametrize("missing", [True, False])
def test_a_program_starts_where_its_stacks_cannot_be_written(monkeypatch: pytest.MonkeyPatch, missing: bool) -> None:
    def refuse(*_arguments: Any) -> int:
        raise OSError(errno.ENFILE, "Too many open files in system")

    if missing:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    else:
        monkeypatch.setattr(os, "memfd_create", refuse)
    own = stacks.Stacks()
    assert own.variables({"PYTHONPATH": "/own"}) == {}
    own.request(os.getsid(0))
    assert any("and is no Python that can write its stacks" in line for line in own.take())


@pytest.mark.parametrize("value", ["", "nonsense", "999:/dev/null", "42:/nowhere/stacks"])
def test_no_program_fails_because_of_the_stacks(value: str) -> None:
    environment = {stacks.VARIABLE: value, "PYTHONPATH": stacks.STARTUP}
    done = subprocess.run([sys.executable, "-c", "print(1)"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


# With wrappers and processes

TRAINS = """
import json, os, pathlib, sys, time
rank, folder = int(os.environ["DEEPLEARNING_RANK"]), pathlib.Path(os.environ["DEEPLEARNING_RUN_DIR"])
def all_reduce(step):
    (folder / "metrics" / f"barrier-{step}-{rank}").touch()
    while len(list((folder / "metrics").glob(f"barrier-{step}-*"))) < 3:
        time.sleep(0.01)
for step in range(1, 100000):
    if rank == 0 and (folder / "enough").exists():
        (folder / "metrics" / f"last-{step}").touch()
    if rank == 1 and step == 1:
        (folder / "pid").write_text(str(os.getpid()))
    all_reduce(step)
    with open(folder / "metrics" / f"rank{rank}.jsonl", "a") as file:
        file.write(json.dumps({"epoch": 1, "step": step}) + "\\n")
    # All see the same, so none waits for one that has left.
    if (folder / "metrics" / f"last-{step}").exists():
        break
    time.sleep(0.05)
"""


@pytest.fixture
def three(run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempt]:
    """An attempt of three processes with wrappers, whose limits are short."""
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    monkeypatch.setattr(attempts, "TICK_SECONDS", 0.1)
    monkeypatch.setattr(stall, "QUIET_SECONDS", 8.0)
    monkeypatch.setattr(stall, "FIRST_SECONDS", 15.0)
    monkeypatch.setattr(stall, "QUIET_STEPS", 1)
    with three_processes(run, script, monkeypatch) as attempt:
        yield attempt


def wait_for(condition: Any, what: str) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_stopped_rank_of_three_is_found_and_the_run_continues(run: Folder, three: Attempt) -> None:
    outcomes: list[Any] = []
    following = threading.Thread(target=lambda: outcomes.append(three.run()))
    following.start()
    folder = Path(run.path)
    wait_for(lambda: (run.state().get("progress") or {}).get("step"), "it trains")
    pid = int((folder / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: run.state()["state"] == "stalled", "it is stalled")
    assert [(each["node"], each["rank"], each["what"]) for each in run.state()["stall"]["silent"]] == [
        ("deeplearning-worker2", 1, "stopped by a signal")
    ]
    for rank, expected in ((0, "in all_reduce"), (1, "is stopped by a signal"), (2, "in all_reduce")):
        log = folder / f"logs/deeplearning-worker{rank + 1}.worker{rank}.log"
        wait_for(lambda log=log, expected=expected: expected in log.read_text(), f"the stacks of rank {rank}")
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: run.state()["state"] == "running", "it continues")
    (folder / "enough").touch()
    following.join(30)
    assert outcomes[0].cause == "finished" and three.run_log.state["stalled_seconds"] >= 2


def test_nccl_records_its_operations_in_the_folder_of_the_run(three: Attempt) -> None:
    start = {"efs_mount": "/efs", "run_id": "r1", "run_dir": "/efs/runs/c/r1", "data": "", "attempt": 0}
    of_pytorch = variables.variables(start, three.plan, three.plan.processes[0])
    assert of_pytorch["TORCH_FR_DUMP_TEMP_FILE"] == "/efs/runs/c/r1/logs/flight-recorder.rank"
    assert (of_pytorch["TORCH_FR_BUFFER_SIZE"], of_pytorch["TORCH_NCCL_DUMP_ON_TIMEOUT"]) == ("2000", "1")
    of_mxnet = variables.variables(start, replace(three.plan, framework="mxnet"), three.plan.processes[0])
    assert not [name for name in of_mxnet if name.startswith("TORCH_FR")]
