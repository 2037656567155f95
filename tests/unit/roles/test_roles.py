"""All roles: argument specs have the defaults, Galaxy their titles, and no role reads groups, hosts or settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.network import halves

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path.parent for path in ROOT.glob("roles/*/meta") if path.is_dir())


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def options(role: Path) -> dict[str, dict[str, Any]]:
    specs = load(role / "meta/argument_specs.yml")
    return dict(specs["argument_specs"]["main"]["options"])


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_specs_and_defaults_are_the_same(role: Path) -> None:
    specified = {name: option["default"] for name, option in options(role).items() if "default" in option}
    defaults = load(role / "defaults/main.yml")
    assert defaults == specified
    assert list(defaults) == list(specified)
    assert all(name.startswith(f"{role.name}_") and option["type"] for name, option in options(role).items())


def test_the_default_subnets_are_those_of_the_plan() -> None:
    defaults = load(ROOT / "roles/network/defaults/main.yml")
    assert (defaults["network_public_cidr"], defaults["network_private_cidr"]) == halves(defaults["network_cidr"])


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_uses_no_host_group_and_no_setting_of_the_collection(role: Path) -> None:
    for path in [*role.glob("tasks/*.yml"), *role.glob("vars/*.yml"), *role.glob("defaults/*.yml")]:
        text = path.read_text(encoding="utf-8")
        # `deeplearning.aws.cluster_env` is another role.
        forbidden = r"\bgroups\[|\bgroup_names\b|\bhostvars\b|(?<!aws\.)\bcluster_[a-z]+\b"
        assert not re.search(forbidden, text), path


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_galaxy_has_the_description_of_the_specs(role: Path) -> None:
    description = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["short_description"]
    assert load(role / "meta/main.yml") == {"galaxy_info": {"description": description, "standalone": False}}
