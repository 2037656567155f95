"""The base class of the actions."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action


class Double(Action):
    """Double a number; refuse a negative one."""

    def argument_spec(self) -> dict[str, Any]:
        return {"number": {"type": "int", "required": True}, "host": {"type": "bool", "default": False}}

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        if options["number"] < 0:
            raise UserError(f"number is {options['number']}; it must be 0 or more.")
        double = {"changed": not self.check_mode, "double": 2 * options["number"]}
        return {**double, "host": task_vars.get("inventory_hostname")} if options["host"] else double


def run(check: bool = False, task_vars: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    task = SimpleNamespace(args=arguments, async_val=0, check_mode=check, action="double")
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp"))
    return Double(task, connection, SimpleNamespace(), None, None, None).run(None, task_vars)


def test_options_are_coerced_and_have_their_defaults() -> None:
    assert run(number="4") == {"changed": True, "double": 8}


def test_check_mode_and_variables_reach_the_action() -> None:
    result = run(check=True, task_vars={"inventory_hostname": "node1"}, number=1, host=True)
    assert result == {"changed": False, "double": 2, "host": "node1"}
    assert run(number=1, host=True)["host"] is None


def test_a_user_error_fails_the_task_with_its_sentence() -> None:
    assert run(number=-1) == {"failed": True, "msg": "number is -1; it must be 0 or more."}


def test_what_ansible_itself_returns_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"deprecations": ["old"], "changed": False}
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda self, tmp=None, task_vars=None: dict(base))
    assert run(number=1) == {"deprecations": ["old"], "changed": True, "double": 2}
    assert run(number=-1)["deprecations"] == ["old"]


@pytest.mark.parametrize("arguments", [{}, {"number": "four"}, {"number": 1, "nmber": 1}])
def test_options_that_do_not_fit_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(AnsibleActionFail):
        run(**arguments)
