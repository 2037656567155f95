"""What all roles keep to: argument specs that say what the defaults are, and a README made of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parent for path in ROOT.glob("roles/*/meta") if path.is_dir())


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def options(role: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return found


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_specs_and_defaults_are_the_same(role: Path) -> None:
    specified = {name: option["default"] for name, option in options(role).items() if "default" in option}
    defaults = load(role / "defaults/main.yml")
    assert defaults == specified
    assert list(defaults) == list(specified)
    assert all(name.startswith(f"{role.name}_") and option["type"] for name, option in options(role).items())


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_names_no_group_of_hosts_and_no_setting_of_the_collection(role: Path) -> None:
    for path in [*role.glob("tasks/*.yml"), *role.glob("vars/*.yml"), *role.glob("defaults/*.yml")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bgroups\[|\bgroup_names\b|\bhostvars\[|\bcluster_[a-z]+\b", text), path


def test_readmes_say_what_the_specs_say() -> None:
    ran = subprocess.run([sys.executable, ROOT / "docs/role_readmes.py", "--check"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
