"""Whether a recorded process has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import process


def test_a_process_is_known_to_have_ended_only_on_its_own_machine() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        described = process.describe(child.pid)
        assert not process.has_ended(described) and process.is_running(child.pid, described.started)
        child.communicate(b"\n")
    assert process.has_ended(described) and not process.is_running(child.pid, described.started)
    # In another container the number may be that of another process; after a boot nothing is known.
    assert not process.has_ended(replace(described, namespace="pid:[1]"))
    assert not process.has_ended(replace(described, boot="another"))


@pytest.mark.parametrize("field", ["boot", "namespace", "started"])
def test_without_such_facts_nothing_is_known(field: str) -> None:
    ended = replace(process.describe(os.getpid()), started="0")
    assert process.has_ended(ended)
    assert not process.has_ended(replace(ended, **{field: ""}))


def test_a_number_that_another_process_has_now_is_not_the_same_process() -> None:
    described = process.describe(os.getpid())
    assert not process.has_ended(described)
    assert process.has_ended(replace(described, started="1"))


def test_without_proc_a_signal_says_whether_a_process_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert process.is_running(os.getpid(), started="")
    assert not process.is_running(child.pid, started="")


def test_a_process_that_nobody_has_waited_for_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        described = process.describe(child.pid)
        assert child.stdin
        child.stdin.write(b"\n")
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process.has_ended(described) and not process.is_running(child.pid, described.started)


def test_a_process_that_is_hidden_from_us_is_not_known_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    described = process.describe(os.getpid())
    monkeypatch.setattr(process, "_status", lambda _pid: None)
    assert not process.has_ended(described)

    def of_another_user(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(process.os, "kill", of_another_user)
    assert not process.has_ended(described)


def test_a_suspended_process_is_recognized() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not process.is_stopped(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert process.is_stopped(child.pid) and not process.has_ended(process.describe(child.pid))
        os.kill(child.pid, signal.SIGCONT)
        child.communicate(b"\n")
