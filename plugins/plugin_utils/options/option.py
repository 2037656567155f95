# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Options: variables that a playbook takes. A table of them is validated at once, with a sentence for each problem."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .readers import Form, InvalidOption, is_empty, shown


@dataclass(frozen=True)
class Option:
    name: str
    form: Form[Any]
    help: str
    playbooks: Sequence[str] = ()
    """Empty for a setting of the cluster, which every playbook takes."""
    required: str = ""
    """What to do where there is no value; empty if the default applies."""

    @property
    def default(self) -> Any:
        return self.form.default

    @property
    def example(self) -> Any:
        return next((example for example in self.form.examples if example != self.default), self.default)

    @property
    def may_be_empty(self) -> bool:
        """Return whether the option may be set to nothing."""
        return self.default in (None, "", [], {})

    def argument(self, value: Any = None) -> str:
        """Return the command line's argument that sets the option, by default to its example."""
        value = self.example if value is None else value
        if isinstance(value, list | dict):
            return f"-e '{json.dumps({self.name: value})}'"
        return f"-e {self.name}={str(value).lower() if isinstance(value, bool) else value}"

    def problem(self, value: Any, cure: str) -> str:
        return f"{self.name} is {shown(value)}: {cure}. Example: {self.argument()}"


@dataclass(frozen=True)
class Validated:
    values: dict[str, Any]
    """By the options' names. Invalid values are absent, so rules between options look only at valid ones."""
    problems: list[str]
    specified: frozenset[str] = frozenset()
    """The names of the options that have a value."""


def validate(table: Iterable[Option], variables: Mapping[str, Any]) -> Validated:
    """Return the options' values: each has its type, missing ones have their defaults."""
    values: dict[str, Any] = {}
    problems = []
    for option in table:
        value = variables.get(option.name)
        if option.name not in variables or (option.may_be_empty and is_empty(value)):
            values[option.name] = option.default
            if option.required:
                problems.append(f"{option.name} is not given: {option.required}. Example: {option.argument()}")
            continue
        try:
            values[option.name] = option.form(value)
        except InvalidOption as invalid:
            problems.append(option.problem(value, str(invalid)))
    return Validated(values, problems)
