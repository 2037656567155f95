"""The role framework on a node where a run trains: it changes no file, says which run, and the playbook goes on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.roles.roles_kit import ROLES

PLAY = """
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: deeplearning.aws.framework
    - ansible.builtin.debug:
        msg: it goes on
"""
FOLDER = "ENVIRONMENTS = "


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """A copy of the collection whose environments are in tmp_path/env."""
    copy = tmp_path / "ansible_collections/deeplearning/aws"
    for name in ("plugins", "meta", "roles/framework", "roles/cluster_env"):
        shutil.copytree(ROLES.parent / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    paths = copy / "plugins/module_utils/contract/paths.py"
    lines = paths.read_text().splitlines()
    (index,) = (index for index, line in enumerate(lines) if line.startswith(FOLDER))
    lines[index] = f"{FOLDER}{str(tmp_path / 'env')!r}"
    paths.write_text("\n".join(lines) + "\n")
    return tmp_path


def add_environment(folder: Path, **marker: object) -> Path:
    """An environment of PyTorch that is complete, with today's pins."""
    environment = folder / "env/pytorch"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").write_text("#!/bin/sh\nexit 1\n")
    pins = (ROLES / "framework/files/pytorch/requirements-cpu.txt").read_bytes()
    complete = {"requirements_sha256": hashlib.sha256(pins).hexdigest(), "python": "3.11.2", "versions": {}}
    (environment / ".deeplearning.json").write_text(json.dumps({**complete, **marker}))
    return environment


def play(folder: Path, **variables: object) -> str:
    (folder / "play.yml").write_text(PLAY)
    (folder / "ansible.cfg").write_text("[defaults]\n")
    options = {"ansible_python_interpreter": sys.executable, "framework_name": "pytorch", **variables}
    program = str(Path(sys.executable).parent / "ansible-playbook")
    done = subprocess.run(
        [program, "-i", "one,", "-e", json.dumps(options), "play.yml"],
        cwd=folder,
        env=os.environ | {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    return " ".join(done.stdout.split())


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files, with the time of their last change."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize(
    ("marker", "options"),
    [
        ({}, {"framework_source": "/efs/data/pytorch"}),
        ({"switching": True}, {}),
        ({"requirements_sha256": "0" * 64}, {}),
    ],
    ids=["sources", "an interrupted switch", "pins"],
)
def test_nothing_changes_under_a_run(marker: dict[str, object], options: dict[str, object], collection: Path) -> None:
    environment = add_environment(collection, **marker)
    before = state(environment.parent)
    output = play(collection, framework_runs=["r1"], **options)
    assert "failed=0" in output and "changed=0" in output and "it goes on" in output, output
    assert "The environment of pytorch stays as it is" in output and "because r1 uses it. Run this" in output
    assert state(environment.parent) == before
