"""Molecule's scenarios share one configuration, and only `molecule test` gets a guard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = sorted(path.parent for path in ROOT.glob("molecule/*/molecule.yml"))
# Molecule sets variables for Ansible where it is imported.
JUDGE = """
import sys
from molecule.command.idempotence import Idempotence
print(Idempotence._is_idempotent(None, sys.stdin.read()))
"""
BASE = yaml.safe_load((ROOT / ".config/molecule/config.yml").read_text())


def configuration(scenario: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((scenario / "molecule.yml").read_text()))


def test_the_base_tests_this_checkout_and_starts_one_local_cloud() -> None:
    assert BASE["prerun"] is False
    assert BASE["shared_state"] is True
    assert not {"driver", "platforms", "provisioner"} & set(BASE)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_a_scenario_says_only_what_differs(scenario: Path) -> None:
    assert set(configuration(scenario)) <= {"ansible", "scenario"}
    assert scenario.name in ("default", "horovod_build", *(role.name for role in (ROOT / "roles").iterdir()))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_a_scenario_has_the_playbooks_of_its_sequence(scenario: Path) -> None:
    """Molecule passes over a step that has no playbook."""
    own = configuration(scenario)
    sequence = own.get("scenario", BASE["scenario"])["test_sequence"]
    assert (sequence[0], sequence[-1]) == ("create", "destroy")
    playbooks = own.get("ansible", {}).get("playbooks", {})
    same = {"check": "converge", "idempotence": "converge"}
    for step in sequence[1:-1]:
        action, _, argument = step.partition(" ")
        action = same.get(action, action)
        assert (scenario / (argument or playbooks.get(action, f"{action}.yml"))).is_file(), step
        assert (scenario / playbooks.get(action, f"{action}.yml")).is_file(), step


@pytest.mark.parametrize("changed", [False, True])
def test_a_scenario_that_changes_something_fails_its_idempotence(tmp_path: Path, changed: bool) -> None:
    """Molecule reads the recap, which the collection's own callback leaves out."""
    tasks = [{"name": "Do", "ansible.builtin.assert": {"that": True}, "changed_when": changed}]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    own = {
        name: str(value).replace("${MOLECULE_PROJECT_DIRECTORY}", str(ROOT))
        for name, value in BASE["ansible"]["env"].items()
        if name.startswith("ANSIBLE_")
    }
    output = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", "localhost,", tmp_path / "play.yml"],
        env=os.environ | own | {"ANSIBLE_INVENTORY_ENABLED": "host_list"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    judged = subprocess.run([sys.executable, "-c", JUDGE], input=output, capture_output=True, text=True, check=True)
    assert judged.stdout == f"{not changed}\n", output


@pytest.mark.parametrize(
    ("words", "guarded"),
    [
        (["test"], True),
        (["test", "-s", "efs_mount", "--destroy=always"], True),
        (["test", "--destroy=never"], False),
        (["test", "--destroy", "never"], False),
        (["converge"], False),
    ],
)
def test_only_a_test_that_destroys_gets_a_guard(tmp_path: Path, words: list[str], guarded: bool) -> None:
    program = tmp_path / "molecule"
    program.write_text(f'#!/bin/sh\n"{sys.executable}" -c "import cloud; print(cloud.test_run())"\n')
    program.chmod(0o755)
    variables = {"PYTHONPATH": str(ROOT / "molecule/shared"), "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path)}
    with subprocess.Popen([program, *words], stdout=subprocess.PIPE, text=True, env=os.environ | variables) as process:
        printed, _ = process.communicate(timeout=30)
    assert printed.strip() == (str(process.pid) if guarded else "None")
