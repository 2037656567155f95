"""tools/step, with which `make setup` and `make demo` run what prints much."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

STEP = Path(__file__).resolve().parents[3] / "tools/step"


def step(log: Path, *command: str) -> tuple[int, str]:
    done = subprocess.run([STEP, log, "what it does", *command], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def test_a_step_is_one_line_with_its_time_and_its_output_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "new/demo.log"
    for word in ("one", "two"):
        code, output = step(log, "bash", "-c", f"echo {word}; echo {word} >&2")
        assert code == 0 and re.fullmatch(r"what it does +0:0\d\n", output)
    assert log.read_text() == "one\none\ntwo\ntwo\n"


def test_of_a_step_that_fails_the_end_of_its_output_is_printed(tmp_path: Path) -> None:
    log = tmp_path / "demo.log"
    code, output = step(log, "bash", "-c", "seq 100; exit 3")
    title, *lines = output.splitlines()
    assert code == 3 and title.split() == ["what", "it", "does", "failed", f"({log}):"]
    assert lines == [str(number) for number in range(81, 101)]
