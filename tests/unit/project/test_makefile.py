"""The Makefile's goals, on machines that lack something."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("goal", ["help", "venv", "test"])
def test_make_refuses_a_path_with_a_space_in_one_sentence(tmp_path: Path, goal: str) -> None:
    folder = tmp_path / "my checkout"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    # `make test` hands its own flags down to the tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", goal], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert f'The path of this checkout, "{folder}", has a space: move it to a path without spaces.' in done.stderr


@pytest.mark.parametrize("goal", ["docs", "packaging"])
def test_make_creates_the_first_environment_with_the_systems_python(tmp_path: Path, goal: str) -> None:
    """A variable of one target counts for its prerequisites too, and a fresh checkout has no .venv to take it from."""
    for name in ("Makefile", "requirements.txt", "localcloud/pyproject.toml", "tests/lint/packaging.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    words = ["make", "-n", goal]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    creators = re.findall(r"(\S+) -m venv --clear (\S+?);", done.stdout)
    assert done.returncode == 0 and [folder for _python, folder in creators] == [".venv", ".venv-packaging"], (
        done.stderr
    )
    assert not creators[0][0].startswith(".venv") and creators[1][0] == ".venv/bin/python"


def test_make_installs_packages_where_systemd_is_not_installed(tmp_path: Path) -> None:
    """As in a container of Debian."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    for program, line in (("dpkg-query", "exit 1"), ("id", "echo 0"), ("tools/step", 'echo "$2"')):
        (tmp_path / program).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / program).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    words = ["make", "-s", "packages", f"python={sys.executable}"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["Debian packages (build/setup.log)"]), done
