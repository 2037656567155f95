"""Molecule leaves nothing of the local cloud on this machine when a scenario fails or the run is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localcloud.testing.booted import localcloud, traces, wait_for

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = "agent_forwarding"


@pytest.fixture(autouse=True)
def clean_machine() -> Iterator[None]:
    """Compare this machine with what it was before, when no guard works any more."""
    assert localcloud("status").returncode == 2, "a local cloud is up on this machine: end it with localcloud down"
    before = traces()
    try:
        yield
        wait_for(lambda: not guards(), 120, "the guard ends")
        assert traces() == before
    finally:
        localcloud("down")


def guards() -> list[str]:
    commands = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(process.read_text().replace("\0", " "))
        except OSError:
            continue  # it ended meanwhile
    return [command for command in commands if "shared/cloud.py guard" in command]


@contextmanager
def molecule(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A run of molecule, in a process group of its own."""
    tools = Path(sys.executable).parent
    with subprocess.Popen(
        [tools / "molecule", *words],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def starting() -> bool:
    """Return whether the local cloud's service runs. `localcloud up` has not ended then, or only just."""
    return bool(traces()["processes"])


def launched() -> bool:
    """Return whether the local cloud has a machine."""
    return "running" in localcloud("status").stdout


def test_a_run_that_is_killed_while_the_local_cloud_starts_leaves_nothing() -> None:
    with molecule("test", "-s", SCENARIO) as process:
        wait_for(starting, 120, "the local cloud starts")
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.long
def test_the_run_after_an_interrupted_one_waits_until_that_is_cleaned_up() -> None:
    with molecule("test", "-s", SCENARIO) as process:
        wait_for(launched, 120, "the machine runs")
        # As Ctrl-C in a terminal does, to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode != 0
    with molecule("test", "-s", SCENARIO) as process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output


@pytest.mark.long
def test_a_failing_scenario_leaves_nothing() -> None:
    with molecule("test", "-s", SCENARIO, "--", "--extra-vars=agent_forwarding_state=unknown") as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "value of agent_forwarding_state must be one of" in output
    assert "[default > destroy] Executed: Successful" in output
