"""Packages on machines whose lock is held, or whose network comes up late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deeplearning.boot import system
from deeplearning.contract.boot import NETWORK_SECONDS

from tests.unit.roles.roles_kit import ROLES, value

# The role's own package manager: it fails with the next text, and records its arguments.
MODULE = """\
#!/usr/bin/python
import json
import pathlib
from ansible.module_utils.basic import AnsibleModule

def main():
    options = {"name": {"type": "list"}, "update_cache": {"type": "bool"}, "lock_timeout": {"type": "int"}}
    module = AnsibleModule({**options, "install_recommends": {"type": "bool"}})
    place = pathlib.Path("PLACE")
    with place.with_name("calls").open("a") as calls:
        calls.write(json.dumps(module.params["update_cache"]) + "\\n")
    texts = json.loads(place.read_text())
    place.write_text(json.dumps(texts[1:]))
    if texts:
        module.fail_json(msg=texts[0])
    module.exit_json(changed=True)

main()
"""
PLAY = """
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: cluster_env
        tasks_from: packages.yml
"""
ABSENT = "No package matching 'prometheus' is available"
FETCH = (
    "Failed to update apt cache: W:Failed to fetch http://archive.ubuntu.com/ubuntu/dists/jammy/InRelease  Could not "
    "connect to archive.ubuntu.com:80, connection timed out"
)
LISTS = "Failed to lock apt for exclusive operation: Failed to lock directory /var/lib/apt/lists/: E:Could not get lock"
DNF = "Failed to download metadata for repo 'amazonlinux': Cannot download repomd.xml: All mirrors were tried"
LOCK, NETWORK = system.PASSING


def play(folder: Path, texts: list[str], seconds: int) -> tuple[str, int]:
    """Return the output, and how many of the failures were not needed."""
    (folder / "roles").mkdir()
    (folder / "roles/cluster_env").symlink_to(ROLES / "cluster_env")
    (folder / "library").mkdir()
    (folder / "library/other_packages.py").write_text(MODULE.replace("PLACE", str(folder / "texts")))
    (folder / "texts").write_text(json.dumps(texts))
    (folder / "play.yml").write_text(PLAY)
    variables = {
        "ansible_python_interpreter": sys.executable,
        "ansible_package_use": "other_packages",
        "cluster_env_packages": ["prometheus"],
        "__cluster_env_network_seconds": seconds,
        "__cluster_env_pause_seconds": 1,
    }
    program = str(Path(sys.executable).parent / "ansible-playbook")
    command = [program, "-i", "one,", "-e", json.dumps(variables), "play.yml"]
    (folder / "ansible.cfg").write_text("[defaults]\n")
    dpkg = folder / "dpkg"
    dpkg.write_text("#!/bin/sh\n")
    dpkg.chmod(0o755)
    environment = {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr, len(json.loads((folder / "texts").read_text()))


def test_packages_wait_for_the_lock_and_the_network(tmp_path: Path) -> None:
    """The first attempt has old package lists."""
    output, left = play(tmp_path, [ABSENT, LISTS, FETCH], seconds=600)
    assert "failed=0" in output and left == 0, output
    assert output.count("Set the end of the attempts") == 1


def test_a_node_that_needs_none_waits_for_nothing(tmp_path: Path) -> None:
    """One call, which neither updates the lists nor is repeated: in a network without internet that would fail."""
    output, _left = play(tmp_path, [], seconds=600)
    assert "failed=0" in output and "rescued=0" in output, output
    assert (tmp_path / "calls").read_text().splitlines() == ["null"]


@pytest.mark.parametrize(("text", "cause"), [(ABSENT, ""), (FETCH, NETWORK)])
def test_what_does_not_pass_is_reported(text: str, cause: str, tmp_path: Path) -> None:
    output, left = play(tmp_path, [ABSENT, *[text] * 9], seconds=6)
    reason = f", as {cause}" if cause else ""
    assert f"one: prometheus cannot be installed{reason}: {text}" in output
    # A slow machine repeats it less often in these 6 s; once a second is the most.
    assert left == 8 if not cause else left >= 2


@pytest.mark.parametrize(
    ("text", "cause"), [(ABSENT, ""), (FETCH, NETWORK), (LISTS, LOCK), (DNF, NETWORK), ("Unable to find a match", "")]
)
def test_causes_are_those_of_the_first_stage(text: str, cause: str) -> None:
    variables: dict[str, Any] = {"__cluster_env_repeated": {"msg": text}}
    assert value("cluster_env", "__cluster_env_cause", "Debian", **variables) == cause
    assert value("cluster_env", "__cluster_env_passing", "Debian") == system.PASSING
    assert value("cluster_env", "__cluster_env_network_seconds", "Debian") == NETWORK_SECONDS
