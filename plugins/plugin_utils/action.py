# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The base class of the collection's actions."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.aws.module import argument_spec_of
from ..module_utils.contract.errors import UserError


class Action(ActionBase):  # type: ignore[misc]
    """Validate the task's options against the documentation, then return what `handle` returns.

    The documentation is in the module of the same name. The task fails with the sentence of a UserError. Actions
    support check mode: they read `check_mode`.
    """

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        options = self.validate_argument_spec(argument_spec=self.argument_spec())[1]
        try:
            return result | self.handle(options, task_vars or {})
        except UserError as error:
            return result | {"failed": True, "msg": str(error)}

    def argument_spec(self) -> dict[str, Any]:
        name = self.handle.__module__.rpartition(".")[2]
        module = importlib.import_module(f"ansible_collections.deeplearning.aws.plugins.modules.{name}")
        return argument_spec_of(module.DOCUMENTATION)

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the task's result. Raise UserError to fail with a sentence."""
        raise NotImplementedError

    def show(self, lines: Iterable[str]) -> None:
        """Print lines, between two that are empty."""
        self._display.display("\n" + "\n".join(lines) + "\n")

    @property
    def check_mode(self) -> bool:
        return bool(self._task.check_mode)
