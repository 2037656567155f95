"""The command from its start to its end, with stand-ins for AWS and playbooks: signals, failures, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processes import marked

STAND_IN = Path(__file__).with_name("standin.py")
SECONDS = 60
VARIABLES = {"SMOKE_ACCOUNT": "123456789012", "SMOKE_USD": "3", "SMOKE_STAGES": "1", "SMOKE_CIDR": "203.0.113.7/32"}


class Command:
    def __init__(self, folder: Path, **variables: str) -> None:
        environment = {**os.environ, **VARIABLES, "AWS_ENDPOINT_URL": "", "CALLER": str(folder), **variables}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, STAND_IN, folder],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def work(self) -> Path:
        """The folder in which the playbooks run, once it exists."""
        folder: Path = until(lambda: next(iter((self.folder / "smoke").glob("[0-9]*")), None))
        return folder

    def until(self, name: str) -> None:
        until(lambda: (self.work() / name).exists())

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, output

    def entries(self) -> list[dict[str, Any]]:
        (record,) = (self.folder / "smoke").glob("*.jsonl")
        return [json.loads(line) for line in record.read_text().splitlines()]

    def played(self) -> list[str]:
        return (self.work() / "played").read_text().split()


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while not (result := condition()):
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.05)
    return result


@pytest.mark.parametrize("stubborn", [False, True], ids=["ends", "does not end"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_playbook_and_destroys_and_audits(
    number: signal.Signals, stubborn: bool, tmp_path: Path
) -> None:
    command = Command(tmp_path)
    if stubborn:
        (command.work() / "stubborn").touch()
    command.until("playing")
    command.process.send_signal(number)
    code, output = command.end()
    assert code == 1 and f"interrupted by {number.name}" in output, output
    assert command.played() == ["site.yml", "destroy.yml", "audit.yml"]
    assert not marked(f"CALLER={tmp_path}")
    assert any("item" in entry for entry in command.entries())
    assert "spent: at most 0.10 USD" in output and "record: " in output


def test_further_signals_do_not_end_the_destruction(tmp_path: Path) -> None:
    command = Command(tmp_path)
    (command.work() / "slow").touch()
    command.until("playing")
    command.process.send_signal(signal.SIGINT)
    command.until("destroying")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        command.process.send_signal(number)
    line = "what was created is being destroyed: wait for that"
    assert command.process.stdout
    until(lambda: line in command.process.stdout.readline())  # type: ignore[union-attr]
    (command.work() / "slow").unlink()
    code, _ = command.end()
    assert code == 1 and command.played() == ["site.yml", "destroy.yml", "audit.yml"]


def test_a_stage_that_fails_ends_the_stages_in_one_sentence_and_destroys(tmp_path: Path) -> None:
    command = Command(tmp_path, SMOKE_STAGES="0,1")
    (command.work() / "failing").touch()
    (command.work() / "go").touch()
    code, output = command.end()
    lines = [line for line in output.splitlines() if "no room in the zone" in line]
    assert code == 1 and len(lines) == 1 and lines[0].startswith("stage 0    FAILED"), output
    assert "site.yml ended with 2: no room in the zone" in lines[0] and "stage 1" not in output
    assert command.played() == ["site.yml", "destroy.yml", "audit.yml"]
    assert [entry["outcome"] for entry in command.entries() if "seconds" in entry] == ["failed"]


def test_what_cannot_be_destroyed_is_named_with_its_end(tmp_path: Path) -> None:
    """As with credentials that expire in the middle: only AWS can end the machines."""
    command = Command(tmp_path)
    (command.work() / "refused").touch()
    (command.work() / "go").touch()
    code, output = command.end()
    assert code == 1 and "-net is not destroyed: destroy.yml ended with 2: ExpiredToken" in output, output
    assert "its machines end by themselves within the hour" in output and "SMOKE_DESTROY=smoke-" in output
    assert any("item" in entry for entry in command.entries())


def test_stages_that_pass_are_counted_against_the_budget(tmp_path: Path) -> None:
    command = Command(tmp_path, SMOKE_STAGES="0,1", SMOKE_USD="0.5")
    (command.work() / "go").touch()
    code, output = command.end()
    assert code == 0 and "stage 0, a stage that waits: may cost 0.50 USD" in output, output
    assert "stage 1 was not run: it may cost 0.50 USD, and 0.40 USD are left" in output
    assert command.played() == ["site.yml", "destroy.yml", "audit.yml"]


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"SMOKE_ACCOUNT": "210987654321"}, "SMOKE_ACCOUNT is 210987654321, and these credentials are of 123456789012"),
        ({"SMOKE_ACCOUNT": ""}, "SMOKE_ACCOUNT is not set: name the account. Example: SMOKE_ACCOUNT=123456789012"),
        ({"SMOKE_USD": ""}, "SMOKE_USD is no number"),
        ({"SMOKE_USD": "0.1"}, "SMOKE_USD is 0.1, and stage 1 may cost 0.50 USD: give more"),
        ({"SMOKE_STAGES": "1,9"}, "SMOKE_STAGES has 9: there are 0, 1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_is_refused_is_one_sentence_and_nothing_is_created(
    variables: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    code, output = Command(tmp_path, **variables).end()
    assert code == 2 and len(output.splitlines()) == 1 and output.startswith(sentence), output
    assert not (tmp_path / "smoke").exists()
