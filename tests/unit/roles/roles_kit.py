"""Expressions of roles' variables, evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLES = Path(__file__).resolve().parents[3] / "roles"


def value(role: str, expression: str, family: str, **overrides: Any) -> Any:
    """Return an expression of a role's variables on a machine of the family."""
    loader = DataLoader()
    variables: dict[str, Any] = {"ansible_facts": {"os_family": family}, "role_path": str(ROLES / role)}
    for kind in ("defaults", "vars"):
        variables |= loader.load_from_file(str(ROLES / role / kind / "main.yml"), trusted_as_template=True)
    return Templar(loader, variables | overrides).template(trust_as_template("{{ " + expression + " }}"))


def monitored(expression: str, server: bool, **overrides: Any) -> Any:
    variables = {"monitoring_server": server, "monitoring_address": "10.0.0.5", **overrides}
    return value("monitoring", expression, "Debian", **variables)
