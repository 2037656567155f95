"""The package that pip installs from the folder has all of its files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BUILD = "import setuptools.build_meta as backend, sys; print(backend.build_wheel(sys.argv[1]))"


def test_a_wheel_has_each_file_with_its_mode(tmp_path: Path) -> None:
    """Without one of the files of machines, another image would be built."""
    copy = tmp_path / "localcloud"
    unwanted = shutil.ignore_patterns("__pycache__", ".*_cache", "*.egg-info", "build", "tests")
    shutil.copytree(PROJECT, copy, ignore=unwanted)
    built = subprocess.run(
        [sys.executable, "-c", BUILD, tmp_path], cwd=copy, capture_output=True, text=True, check=True
    )
    with zipfile.ZipFile(tmp_path / built.stdout.splitlines()[-1]) as wheel:
        modes = {info.filename: info.external_attr >> 16 & 0o100 for info in wheel.infolist()}
    sources = [path for path in (copy / "src/localcloud").rglob("*") if path.is_file()]
    expected = {str(path.relative_to(copy / "src")): path.stat().st_mode & 0o100 for path in sources}
    assert len(expected) > 150
    assert {name: mode for name, mode in modes.items() if name in expected} == expected
    assert any(name.endswith("licenses/LICENSE") for name in modes)
