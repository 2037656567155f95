"""Modules take the options that they document, and answer in check mode."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.loader import fragment_loader
from ansible.utils.plugin_docs import get_docstring
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import module as aws_module

MODULES = Path(__file__).resolve().parents[4] / "plugins/modules"
WITH_CODE = sorted(path.stem for path in MODULES.glob("*.py") if "def main(" in path.read_text())


class Stop(Exception):
    pass


def declared(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what a module tells Ansible about its options."""
    module = importlib.import_module(f"ansible_collections.deeplearning.aws.plugins.modules.{name}")
    seen: dict[str, Any] = {}

    def record(**declaration: Any) -> None:
        seen.update(declaration)
        raise Stop

    owner = module if "AnsibleModule(" in inspect.getsource(module) else aws_module
    monkeypatch.setattr(owner, "AnsibleModule", record)
    with pytest.raises(Stop):
        module.main()
    return seen


def forms(options: dict[str, dict[str, Any]], nested: str) -> dict[str, Any]:
    """Return the form of each option; `nested` is the key of the options of its elements."""
    return {
        name: {
            "type": option.get("type", "str"),
            "elements": option.get("elements"),
            "required": option.get("required", False),
            "default": option.get("default"),
            "choices": option.get("choices"),
            "options": forms(option.get(nested) or {}, nested),
        }
        for name, option in options.items()
    }


@pytest.mark.parametrize("name", WITH_CODE)
def test_the_options_are_those_of_the_documentation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declaration = declared(name, monkeypatch)
    documentation, *_others = get_docstring(str(MODULES / f"{name}.py"), fragment_loader)
    assert forms(declaration["argument_spec"], "options") == forms(documentation["options"], "suboptions")
    assert declaration["supports_check_mode"] is True
    assert documentation["attributes"]["check_mode"]["support"] == "full"
    # Ansible takes what is called a key for a secret, and would remove it from all output.
    for option, spec in declaration["argument_spec"].items():
        assert spec.get("no_log", False) is False, option
        assert "no_log" in spec or not option.endswith(("key_name", "_token")), option


def test_all_modules_with_code_are_here() -> None:
    assert len(WITH_CODE) >= 9
