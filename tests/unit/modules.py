"""Running one of our modules in this process, as Ansible does in another one."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args


def defaults_of(module: str) -> dict[str, Any]:
    """The options of a module that have a default."""
    plugins = "ansible_collections.deeplearning.aws.plugins"
    documentation = importlib.import_module(f"{plugins}.modules.{module}").DOCUMENTATION
    spec = importlib.import_module(f"{plugins}.module_utils.aws.module").argument_spec_of(documentation)
    return {name: option["default"] for name, option in spec.items() if "default" in option}


def run_module(
    capsys: pytest.CaptureFixture[str], module: str, check: bool = False, **arguments: Any
) -> dict[str, Any]:
    """What it returns in a region; a failure too, with `failed`."""
    return run_node_module(capsys, module, check, **{"region": "us-east-1", **arguments})


def run_node_module(
    capsys: pytest.CaptureFixture[str], module: str, check: bool = False, **arguments: Any
) -> dict[str, Any]:
    """What a module that calls no AWS returns; a failure too, with `failed`. Its options are no part of that."""
    main = importlib.import_module(f"ansible_collections.deeplearning.aws.plugins.modules.{module}").main
    capsys.readouterr()
    module_args = {**arguments, "_ansible_check_mode": check, "_ansible_diff": True}
    with patch_module_args(module_args), pytest.raises(SystemExit):
        main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    # With ansible-core 2.19 they are returned, with 2.21 not.
    answer.pop("invocation", None)
    return answer
