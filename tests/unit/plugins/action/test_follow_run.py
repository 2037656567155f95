"""The action `follow_run`: a run is followed to its end, over connections that are lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.action import follow_run
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program

from tests.unit.actions import run_action

END = {"event": "end", "state": "finished", "exit_code": 0, "first_failure": None, "sentence": "mine finished."}
PROGRESS = {"event": "progress", "time": 60, "epoch": 2, "loss": 0.5, "seconds_left": 60, "n": 3}
STATE = {"event": "state", "state": "running", "reason": "", "time": 1, "n": 1}


@pytest.fixture
def follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Follow the run `mine` on this machine. Each connection prints some events, and all but the last are lost.

    What is printed is returned as `printed`, the words of each connection as `asked`.
    """
    program = tmp_path / "deeplearning"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\nn=$(wc -l < {tmp_path}/asked)\n'
        f"cat {tmp_path}/events$n || exit 1\ntest -e {tmp_path}/events$((n + 1)) && exit 255\nexit 0\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(program))
    pauses: list[float] = []
    monkeypatch.setattr(follow_run, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))

    def call(*connections: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        for number, events in enumerate(connections, 1):
            (tmp_path / f"events{number}").write_text("".join(f"{json.dumps(event)}\n" for event in events))
        capsys.readouterr()
        result = run_action("follow_run", run_id="mine", **options)
        printed, asked = capsys.readouterr().out, (tmp_path / "asked").read_text().splitlines()
        return {**result, "printed": printed, "asked": asked, "pauses": pauses}

    return call


def test_a_run_that_finishes_is_followed_to_its_sentence(follow: Callable[..., dict[str, Any]]) -> None:
    result = follow([STATE, PROGRESS, {**END, "n": 4}], output=False)
    assert (result["changed"], result["msg"], "failed" in result) == (False, "mine finished.", False)
    assert result["end"]["state"] == "finished" and result["asked"] == ["run follow mine --from-line 0"]
    assert result["printed"].splitlines() == [
        "Following mine. It continues without this terminal (Ctrl-C detaches).",
        "  to attach again: ansible-playbook deeplearning.aws.follow -e run_id=mine",
        "  to stop it:      ansible-playbook deeplearning.aws.stop -e run_id=mine",
        "mine runs",
        "  epoch 2, 1:00 left, loss 0.5000",
        "mine finished.",
    ]


@pytest.mark.parametrize(
    ("results", "lines"),
    [
        (
            {"model": "/efs/runs/red/mine/model", "checkpoints": "/efs/c"},
            [
                "  its model on the nodes: /efs/runs/red/mine/model",
                "  to get it: ansible-playbook deeplearning.aws.get -e run_id=mine",
            ],
        ),
        (
            {"checkpoints": "/efs/c"},
            [
                "  its checkpoints on the nodes: /efs/c",
                "  to get them: ansible-playbook deeplearning.aws.get -e run_id=mine -e what=checkpoints",
            ],
        ),
        ({}, []),
        ({"model": "not a path"}, []),
        ({"/etc": "/efs"}, []),
    ],
)
def test_at_its_end_it_says_where_the_model_is_and_how_to_get_it(
    follow: Callable[..., dict[str, Any]], results: Any, lines: list[str]
) -> None:
    printed = follow([{**END, "results": results}])["printed"].splitlines()
    assert printed[printed.index("mine finished.") + 1 :] == lines


@pytest.mark.parametrize(("state", "failed"), [("stopped", False), ("failed", True)])
def test_a_run_that_failed_fails_the_task_and_one_that_was_stopped_does_not(
    follow: Callable[..., dict[str, Any]], state: str, failed: bool
) -> None:
    result = follow([{**END, "state": state, "sentence": "It is over."}])
    assert ("failed" in result, result["msg"]) == (failed, "It is over.")
    # Ansible prints the sentence of a failure itself.
    assert ("It is over." in result["printed"]) is not failed
    assert result["end"]["state"] == state


def test_a_run_without_a_result_has_failed(follow: Callable[..., dict[str, Any]]) -> None:
    result = follow([STATE])
    assert result["failed"] and result["msg"] == "run mine ended without reporting a result" and result["end"] == {}


def test_a_lost_connection_is_made_again_after_the_last_event(follow: Callable[..., dict[str, Any]]) -> None:
    result = follow([STATE, {**PROGRESS, "n": 7}], [], [], [{**END, "n": 8}], output=True)
    assert "failed" not in result
    assert result["asked"] == [f"run follow mine --from-line {line} --output" for line in (0, 7, 7, 7)]
    assert result["pauses"] == [follow_run.PAUSE] * 3
    lost = "The connection to deeplearning-master was lost: it ended with 255 and printed no reason"
    assert result["printed"].count(f"{lost} The run continues; reconnecting.\n") == 1


def test_each_loss_after_something_came_is_reported(follow: Callable[..., dict[str, Any]]) -> None:
    result = follow([STATE], [{**STATE, "n": 2}], [END])
    assert result["printed"].count("reconnecting") == 2


def test_after_a_while_it_gives_up(follow: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_run, "RECONNECT_SECONDS", -1.0)
    result = follow([STATE, PROGRESS], [END])
    assert result["failed"] and result["msg"].startswith("The connection to deeplearning-master was lost: ")
    assert len(result["asked"]) == 1 and result["pauses"] == []


def test_what_the_program_refuses_is_the_message(follow: Callable[..., dict[str, Any]]) -> None:
    result = follow()
    assert result["failed"] and "deeplearning-master: " in result["msg"] and len(result["asked"]) == 1
