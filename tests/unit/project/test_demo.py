"""The demo's closing lines."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A copy of the demo in a checkout whose programs do nothing."""
    for name in ("tools/demo", "tools/step"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("localcloud", "ansible-playbook", "ssh-keygen"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    return tmp_path / "tools/demo"


def seconds_of(demo: Path, **environment: str) -> int:
    done = subprocess.run([demo], env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    match = re.search(r"The demo took (\d+):(\d\d)\.", done.stdout)
    assert match, done.stdout
    return 60 * int(match[1]) + int(match[2])


def test_the_demo_counts_from_its_beginning_with_what_was_installed_before(demo: Path) -> None:
    started = int(time.time()) - 100
    assert seconds_of(demo, DEMO_STARTED=str(started)) >= 100
    assert seconds_of(demo) < 100
    makefile = (ROOT / "Makefile").read_text()
    assert "demo: started := $(shell date +%s)\n" in makefile
    assert "\t@DEMO_STARTED=$(started) tools/demo $(log)\n" in makefile
