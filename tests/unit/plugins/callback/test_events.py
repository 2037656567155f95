"""The callbacks in this process: what is printed for each event, and that nothing is printed twice."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback import CallbackBase
from ansible.plugins.callback.default import CallbackModule as DefaultCallback
from ansible.plugins.loader import callback_loader

ROOT = Path(__file__).resolve().parents[4]


class Screen:
    verbosity = 0

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.colors: list[str | None] = []

    def display(self, line: str, color: str | None = None, **_more: Any) -> None:
        self.lines.append(line)
        self.colors.append(color)


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def short(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> Any:
    callback = callback_loader.get("deeplearning.aws.short")
    callback.set_options()
    callback._display = screen
    monkeypatch.setattr(DefaultCallback, "v2_playbook_on_start", lambda _self, _playbook: None)
    callback.v2_playbook_on_start(None)
    return callback


def task(name: str = "Create", action: str = "ansible.builtin.command", **fields: Any) -> Any:
    fields = {"loop": None, "_role": None, "resolved_action": action} | fields
    path = "/roles/network/tasks/part.yml:3"
    return SimpleNamespace(get_name=lambda: name, get_path=lambda: path, _uuid=name, action=action, **fields)


def of_role(role: str, name: str = "Create", **fields: Any) -> Any:
    name_of = SimpleNamespace(get_name=lambda: f"deeplearning.aws.{role}")
    return task(f"deeplearning.aws.{role} : part | {name}", _role=name_of, **fields)


def result(of: Any, host: str = "red", **fields: Any) -> Any:
    return SimpleNamespace(task=of, result=fields, host=SimpleNamespace(get_name=lambda: host), exception=None)


@pytest.fixture(autouse=True)
def label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallbackBase, "host_label", staticmethod(lambda outcome: outcome.host.get_name()))
    monkeypatch.setattr(CallbackBase, "_handle_warnings_and_exception", lambda _self, _result: None)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, short: Any) -> list[float]:
    """Set what the clock reads: the last item."""
    seconds = [short._began]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[-1])
    return seconds


def play(name: str = "P", check_mode: bool = False) -> Any:
    return SimpleNamespace(check_mode=check_mode, get_name=lambda: f" {name} ")


class Stats:
    processed = ("red",)

    def __init__(self, failures: int = 0, unreachable: int = 0) -> None:
        self._outcome = {"failures": failures, "unreachable": unreachable}

    def summarize(self, _host: str) -> dict[str, int]:
        return self._outcome


@pytest.mark.parametrize(
    ("check", "markers", "line"),
    [(True, True, "PLAY [P] [CHECK MODE]"), (True, False, "PLAY [P]"), (False, True, "PLAY [P]")],
)
def test_a_play_is_named_above_its_first_line(
    short: Any, screen: Screen, check: bool, markers: bool, line: str
) -> None:
    short.set_option("check_mode_markers", markers)
    short.v2_playbook_on_play_start(play(check_mode=check))
    short.v2_runner_on_start(None, task())
    assert screen.lines == []
    for _host in range(2):
        short.v2_runner_on_ok(result(task(), changed=True))
    assert screen.lines == [line, *["changed: [red] Create"] * 2]


def test_a_play_without_a_line_and_one_that_begins_with_a_message_are_not_named(short: Any, screen: Screen) -> None:
    short.v2_playbook_on_play_start(play("Empty"))
    short.v2_playbook_on_play_start(play("Speaking"))
    screen.display("What an action prints")
    short.v2_runner_on_ok(result(task(), "localhost", changed=True))
    short.v2_playbook_on_play_start(play("Warned"))
    screen.display("[WARNING]: a warning", stderr=True)
    short.v2_runner_on_ok(result(task(), "localhost", changed=True))
    short.v2_playbook_on_play_start(play("Last"))
    short.v2_playbook_on_stats(Stats())
    lines = ["What an action prints", "changed: Create", "[WARNING]: a warning", "PLAY [Warned]", "changed: Create"]
    assert screen.lines == lines


def test_what_a_worker_prints_counts_when_it_is_passed_on(
    short: Any, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    short.v2_playbook_on_play_start(play())
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        screen.display("from a worker")
    assert short._play_line
    screen.display("passed on")
    assert not short._play_line and screen.lines == ["from a worker", "passed on"]


def test_a_task_that_takes_minutes_or_waits_is_announced_once(short: Any, screen: Screen) -> None:
    long, waiting = of_role("framework", "Install (some minutes)"), task(" Wait ")
    for _host in range(2):
        short.v2_runner_on_start(None, long)
        short.v2_runner_on_start(None, waiting)
        short.v2_runner_retry(result(waiting))
    assert screen.lines == ["started: Install (some minutes)", "waiting: Wait"]
    assert screen.colors == [constants.COLOR_DEBUG] * 2


def test_a_role_has_one_line_with_its_changes_and_its_time(short: Any, screen: Screen, times: list[float]) -> None:
    def change(of: Any, *hosts: str) -> None:
        short._task_start(of)
        times.append(times[-1] + 4)
        for host in hosts:
            short.v2_runner_on_ok(result(of, host, changed=True))

    change(of_role("network"), "localhost")
    change(of_role("network", "Create another"), "localhost")
    assert screen.lines == []
    # One that changes nothing has no line.
    change(of_role("storage"))
    change(of_role("mount_nothing"), "localhost")
    assert screen.lines == ["  network      2 changed                0:08", "changed: Create"]
    short.v2_playbook_on_play_start(play("Q"))
    change(of_role("framework"), "red", "blue")
    short.v2_playbook_on_stats(Stats())
    assert screen.lines[2:] == [
        "PLAY [Q]",
        "  environment  2 changed on 2 nodes     0:04",
        f"Finished in 0:{times[-1] - times[0]:02.0f}.",
    ]
    assert set(screen.colors[:2]) == {constants.COLOR_CHANGED}


@pytest.mark.parametrize(
    ("action", "exists", "check", "words"),
    [
        ("deeplearning.aws.plan", False, False, "1 created "),
        ("deeplearning.aws.plan", False, True, "1 would be created "),
        ("deeplearning.aws.plan", True, False, "1 changed "),
        # Another module's result may have anything.
        ("ansible.builtin.command", False, False, "1 changed "),
    ],
)
def test_what_a_new_cluster_gets_is_created(
    short: Any, screen: Screen, action: str, exists: bool, check: bool, words: str
) -> None:
    short.v2_playbook_on_play_start(play(check_mode=check))
    short.v2_runner_on_ok(result(task("Plan", action), "localhost", plan={"exists": exists}))
    created = of_role("iam")
    short._task_start(created)
    short.v2_runner_on_ok(result(created, "localhost", changed=True))
    short._task_start(task())
    assert words in screen.lines[-1]


def test_what_a_role_has_changed_is_printed_before_a_run_is_followed(short: Any, screen: Screen) -> None:
    for action, changed in (("deeplearning.aws.node_command", True), ("deeplearning.aws.follow_run", False)):
        started = of_role("training_run", action=action)
        short._task_start(started)
        screen.display(action)
        short.v2_runner_on_ok(result(started, "red", changed=changed))
    line = "  run          1 changed on 1 node      0:00"
    assert screen.lines == ["deeplearning.aws.node_command", line, "deeplearning.aws.follow_run"]


def test_a_failure_in_a_role_comes_after_what_the_role_has_changed(
    short: Any, screen: Screen, times: list[float]
) -> None:
    failing = of_role("efs_mount")
    failing._parent = None
    short._task_start(failing)
    short.v2_runner_on_ok(result(failing, "red", changed=True))
    short.v2_runner_on_failed(result(failing, "blue", msg="a reason"))
    short.v2_runner_on_ok(result(failing, "green", changed=True))
    short._task_start(task())
    line = "  mount        1 changed on 1 node      0:00"
    assert screen.lines == [
        line,
        "fatal: [blue]: a reason",
        f"  in the task: {failing.get_name()} (details with -v)",
        line,
    ]


def test_each_role_of_the_collection_has_a_word(short: Any) -> None:
    roles = {path.parent.name for path in ROOT.glob("roles/*/tasks")}
    assert roles == {*sys.modules[type(short).__module__].ROLES}


@pytest.mark.parametrize(
    ("stats", "seconds", "recap", "lines"),
    [
        (Stats(), 9.0, False, []),
        (Stats(), 130.0, False, ["Finished in 2:10."]),
        (Stats(failures=1), 130.0, True, []),
        (Stats(unreachable=1), 1.0, True, []),
    ],
)
def test_the_recap_is_printed_after_a_failure_alone(
    short: Any,
    screen: Screen,
    times: list[float],
    monkeypatch: pytest.MonkeyPatch,
    stats: Stats,
    seconds: float,
    recap: bool,
    lines: list[str],
) -> None:
    recaps: list[Any] = []
    monkeypatch.setattr(DefaultCallback, "v2_playbook_on_stats", lambda _self, of: recaps.append(of))
    times.append(times[0] + seconds)
    short.v2_playbook_on_play_start(play())
    short.v2_playbook_on_stats(stats)
    assert bool(recaps) is recap and screen.lines == lines


def test_a_change_that_lasts_has_its_time(short: Any, screen: Screen, times: list[float]) -> None:
    watch = task("provision | part | Watch the groups")
    short._task_start(watch)
    times.append(times[0] + 31)
    short.v2_runner_on_ok(result(watch, "localhost", changed=True))
    assert screen.lines == ["changed: Watch the groups  0:31"]


def test_lines_are_written_at_once(short: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(tmp_path / "output", "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        type(short)()
        file.write("a line\n")
        assert (tmp_path / "output").read_text() == "a line\n"


def test_a_message_of_all_hosts_is_printed_once_and_another_one_too(short: Any, screen: Screen) -> None:
    debug = task("Print", "ansible.builtin.debug")
    for host, message in (("red", "one"), ("blue", "one"), ("red", "two")):
        short.v2_runner_on_ok(result(debug, host, msg=message, changed=False))
    short.v2_runner_on_ok(result(task("Print again", "debug"), msg="one"))
    assert screen.lines == ["one", "two", "one"]
    # Other tasks return messages too.
    short.v2_runner_on_ok(result(task(), msg="one more"))
    assert len(screen.lines) == 3


def test_changes_are_printed_by_host_and_by_item(short: Any, screen: Screen) -> None:
    short.v2_runner_on_ok(result(task(" Create "), changed=True))
    short.v2_runner_on_ok(result(task(), changed=False))
    looped = task()
    looped.loop = ["a", "b"]
    short.v2_runner_item_on_ok(result(looped, changed=True, item="a"))
    short.v2_runner_item_on_ok(result(looped, changed=False, item="b"))
    # The items were printed, so the task as a whole is not.
    short.v2_runner_on_ok(result(looped, changed=True))
    assert screen.lines == ["changed: [red] Create", "changed: [red] Create => (item=a)"]
    assert screen.colors == [constants.COLOR_CHANGED] * 2


def test_included_files_are_not_printed(short: Any, screen: Screen) -> None:
    included = TaskInclude()
    short.v2_runner_on_ok(result(included, changed=True))
    short.v2_runner_item_on_ok(result(included, changed=True, item="a"))
    short.v2_playbook_on_include(None)
    short.v2_playbook_on_no_hosts_matched()
    assert screen.lines == []


@pytest.mark.parametrize(
    "event",
    [
        *("v2_playbook_on_play_start", "v2_playbook_on_include", "v2_runner_retry", "v2_runner_on_skipped"),
        *("v2_runner_item_on_skipped", "v2_runner_on_ok", "v2_runner_item_on_ok"),
    ],
)
@pytest.mark.parametrize("verbosity", [0, 1, 3])
def test_only_with_v_the_default_callback_prints(
    short: Any, screen: Screen, monkeypatch: pytest.MonkeyPatch, event: str, verbosity: int
) -> None:
    passed: list[Any] = []
    monkeypatch.setattr(DefaultCallback, event, lambda _self, *arguments: passed.append(arguments))
    screen.verbosity = verbosity
    subject = SimpleNamespace(check_mode=False, get_name=lambda: "P", task=task(), result={}, host=None, exception=None)
    getattr(short, event)(subject)
    assert passed == ([(subject,)] if verbosity else [])


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("v2_playbook_on_no_hosts_matched", ()),
        ("v2_runner_on_start", ("host", task("Install (some minutes)"))),
        ("_task_start", (task(), "TASK")),
    ],
)
def test_other_events_too(
    short: Any, screen: Screen, monkeypatch: pytest.MonkeyPatch, event: str, arguments: tuple[Any, ...]
) -> None:
    passed: list[Any] = []
    monkeypatch.setattr(DefaultCallback, event, lambda _self, *values: passed.append(values))
    getattr(short, event)(*arguments)
    assert passed == []
    printed = len(screen.lines)
    screen.verbosity = 1
    getattr(short, event)(*arguments)
    assert passed == [arguments] and len(screen.lines) == printed


def test_the_name_of_a_task_is_remembered_for_its_failure(short: Any) -> None:
    short._task_start(task(" Break "))
    assert short._last_task_name == "Break"


def test_control_characters_are_replaced_in_all_that_is_printed(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ansible.plugins.callback.global_display", screen, raising=False)
    monkeypatch.setattr(CallbackBase, "__init__", lambda self, *_more, **_options: setattr(self, "_display", screen))
    module = callback_loader.get("deeplearning.aws.printable", class_only=True)
    module()
    screen.display("a\x1b[2Jb\r10 %\r20 %", color="red")
    assert screen.lines == ["a�[2Jb\r10 %\r20 %"] and screen.colors == ["red"]
