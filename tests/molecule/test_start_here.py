"""docs/start.md, followed by a fresh reader: a clone, an empty home, no cached image, one command after another."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.testing.booted import localcloud

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 10
"""What the page promises."""
MOST_LINES, LONGEST_LINE = 60, 120
"""Of what `make demo` prints after the first time, without empty lines."""
FIRST_TIME = ("Debian packages", "Python packages", "this project")
END_OF_DEMO = "--- end of the demo"
BLOCK = re.compile(r"<!-- run by tests/molecule/test_start_here\.py::\w+ -->\n```console\n(.*?)```", re.DOTALL)


def commands() -> list[str]:
    """Return what the page tells its reader to enter, in its order."""
    blocks = BLOCK.findall((ROOT / "docs/start.md").read_text(encoding="utf-8"))
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield an empty home, with a short path as homes have: ssh's sockets are below it."""
    with tempfile.TemporaryDirectory(prefix="home-") as folder:
        yield Path(folder)


@pytest.fixture
def reader(tmp_path: Path, home: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a user who is new to this machine. What the user starts ends with them."""
    assert localcloud("status").returncode == 2, "a local cloud is up on this machine: end it with localcloud down"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ANSIBLE_", "VIRTUAL_"))}
    environment = kept | {"HOME": str(home), "LOCALCLOUD_HOME": str(tmp_path / "localcloud"), "NO_COLOR": "1"}
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "clone"], check=True)
    try:
        yield environment
    finally:
        subprocess.run([sys.executable, "-m", "localcloud", "down"], cwd=ROOT, env=environment, check=False)


@pytest.mark.long
def test_the_page_leads_to_a_trained_model_and_leaves_nothing(reader: dict[str, str], tmp_path: Path) -> None:
    demo, *others = commands()
    lines = ["set -euo pipefail", demo, f"echo {END_OF_DEMO}", *others, "localcloud status || echo the status is $?"]
    script = "\n".join(lines)
    started = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path / "clone",
        env=reader,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=20 * 60,
        check=False,
    )
    minutes = (time.monotonic() - started) / 60
    assert done.returncode == 0, done.stdout[-6000:]
    assert len(re.findall(r"run (?:pytorch-\S+|mine) has finished", done.stdout)) == 2
    assert (tmp_path / "clone/mine/model/model.pt").stat().st_size > 0
    assert "deeplearning-worker1\ndeeplearning-worker2\ndeeplearning-worker3\n" in done.stdout
    assert done.stdout.rstrip().endswith("the status is 2"), "the local cloud is still up"
    assert minutes < MINUTES, f"{minutes:.1f} minutes"
    check_demo(demo, done.stdout.partition(END_OF_DEMO)[0])


def check_demo(command: str, output: str) -> None:
    assert command == "make demo"
    printed = [line for line in output.splitlines() if line and not line.startswith(FIRST_TIME)]
    assert len(printed) <= MOST_LINES, f"{len(printed)} lines:\n{output}"
    assert not [line for line in printed if len(line) > LONGEST_LINE], output
    # Colours, and the redrawing of bars, are for terminals.
    assert not [character for character in output if ord(character) < 32 and character != "\n"], ascii(output)
    assert "PLAY RECAP" not in output
