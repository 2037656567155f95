"""Running one of our modules in this process, as Ansible does in another one."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args


def run_module(
    capsys: pytest.CaptureFixture[str], module: str, check: bool = False, **arguments: Any
) -> dict[str, Any]:
    """What it returns; a failure too, with `failed`. Modules of nodes know no region: give None."""
    main = importlib.import_module(f"ansible_collections.deeplearning.aws.plugins.modules.{module}").main
    capsys.readouterr()
    known = {name: value for name, value in {"region": "us-east-1", **arguments}.items() if value is not None}
    module_args = {**known, "_ansible_check_mode": check, "_ansible_diff": True}
    with patch_module_args(module_args), pytest.raises(SystemExit):
        main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer
