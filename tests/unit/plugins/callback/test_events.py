"""The callbacks in this process: what is printed for each event, and that nothing is printed twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback import CallbackBase
from ansible.plugins.callback.default import CallbackModule as DefaultCallback
from ansible.plugins.loader import callback_loader


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
def short(screen: Screen) -> Any:
    callback = callback_loader.get("deeplearning.aws.short")
    callback.set_options()
    callback._display = screen
    return callback


def task(name: str = "Create", action: str = "ansible.builtin.command", **fields: Any) -> Any:
    return SimpleNamespace(get_name=lambda: name, _uuid=name, action=action, loop=None, **fields)


def result(of: Any, host: str = "red", **fields: Any) -> Any:
    return SimpleNamespace(task=of, result=fields, host=SimpleNamespace(get_name=lambda: host), exception=None)


@pytest.fixture(autouse=True)
def label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallbackBase, "host_label", staticmethod(lambda outcome: outcome.host.get_name()))
    monkeypatch.setattr(CallbackBase, "_handle_warnings_and_exception", lambda _self, _result: None)


@pytest.mark.parametrize(
    ("check", "markers", "line"),
    [(True, True, "\nPLAY [P] [CHECK MODE]"), (True, False, "\nPLAY [P]"), (False, True, "\nPLAY [P]")],
)
def test_a_play_is_printed_with_its_first_task(
    short: Any, screen: Screen, check: bool, markers: bool, line: str
) -> None:
    short.set_option("check_mode_markers", markers)
    short.v2_playbook_on_play_start(SimpleNamespace(check_mode=check, get_name=lambda: " P "))
    assert screen.lines == []
    for _host in range(2):
        short.v2_runner_on_start(None, task())
    assert screen.lines == [line]


def test_a_task_that_takes_minutes_or_waits_is_announced_once(short: Any, screen: Screen) -> None:
    long, waiting = task("Install (some minutes)"), task(" Wait ")
    for _host in range(2):
        short.v2_runner_on_start(None, long)
        short.v2_runner_on_start(None, waiting)
        short.v2_runner_retry(result(waiting))
    assert screen.lines == ["started: Install (some minutes)", "waiting: Wait"]
    assert screen.colors == [constants.COLOR_DEBUG] * 2


def test_a_message_of_all_hosts_is_printed_once_and_another_one_too(short: Any, screen: Screen) -> None:
    debug = task("Print", "ansible.builtin.debug")
    for host, message in (("red", "one"), ("blue", "one"), ("red", "two")):
        short.v2_runner_on_ok(result(debug, host, msg=message, changed=False))
    short.v2_runner_on_ok(result(task("Print again", "debug"), msg="one"))
    assert screen.lines == ["one", "two", "one"]
    # Other tasks return messages too, and a message may be no text.
    short.v2_runner_on_ok(result(task(), msg="one more"))
    short.v2_runner_on_ok(result(debug, msg={"a": 1}))
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
