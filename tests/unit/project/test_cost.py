"""A layer is charged for the CPU time of all that it starts, also of what its commands leave in the background."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.layers import cost
from tests.layers.commands import command

VENV = Path(sys.prefix)
WORK = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.5: pass'"


def test_work_in_the_background_is_measured(tmp_path: Path) -> None:
    done = tmp_path / "done"
    if cost._hierarchy() is None:
        with cost.measured("test") as meter:
            assert command("bash", "-c", WORK, venv=VENV).ok
        assert meter.seconds == 0
        return
    with cost.measured("test") as meter:
        ended = command("bash", "-c", f"setsid bash -c \"{WORK}; touch {done}\" & exit 0", venv=VENV)
        deadline = time.monotonic() + 120
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert done.exists() and meter.seconds >= 0.5 > ended.cpu_seconds
    groups = [path.name for path in cost._hierarchy().iterdir() if path.name.startswith("deeplearning-tests")]  # type: ignore[union-attr]
    assert f"deeplearning-tests-{os.getpid()}-test" not in groups


def test_without_a_group_the_command_stays_as_it_is() -> None:
    assert cost.joining(("echo", "a b")) == ("echo", "a b")


@pytest.mark.parametrize(
    ("name", "text", "seconds"),
    [
        ("cpuacct.usage", "1500000000\n", 1.5),
        ("cpu.stat", "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n", 2.5),
        ("other", "7", 0.0),
    ],
)
def test_both_versions_of_control_groups_are_read(tmp_path: Path, name: str, text: str, seconds: float) -> None:
    (tmp_path / name).write_text(text)
    assert cost.usage(tmp_path) == seconds


def test_a_group_that_is_created_anew_counts_from_zero(tmp_path: Path) -> None:
    stat = tmp_path / "cpu.stat"
    stat.write_text("usage_usec 4000000\n")
    sampler = cost.Sampler(tmp_path)
    for usage in (5_000_000, 2_000_000, 3_500_000):
        stat.write_text(f"usage_usec {usage}\n")
        sampler.sample()
    assert sampler.seconds == pytest.approx(1 + 2 + 1.5)
