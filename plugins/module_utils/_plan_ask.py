# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Asking AWS while making a plan: what goes wrong is collected, so that all of it is told at once.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws, AwsProblem


class Ask:
    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self.problems: list[str] = []
        self.notes: list[str] = []
        """what a person should know and what stops nothing"""
        self.refused = False
        """AWS has left a question unanswered: what follows from its answer is unknown"""

    @property
    def region(self) -> str:
        return self._aws.region

    def pages(self, service: str, operation: str, key: str, **params: Any) -> list[Any] | None:
        """All that there is; None where AWS does not tell, which is then a problem of its own."""
        try:
            return self._aws.pages(service, operation, key, **params)
        except AwsProblem as problem:
            self._keep(problem)
            return None

    def one(self, service: str, operation: str, missing: Sequence[str] = (), **params: Any) -> dict[str, Any] | None:
        """One answer: empty where what was asked for does not exist (by AWS's word for that), None as above."""
        try:
            return self._aws.call(service, operation, **params)
        except AwsProblem as problem:
            if problem.code in missing:
                return {}
            self._keep(problem)
            return None

    def wrong(self, setting: str, value: Any, what: str, example: Any = None) -> None:
        """In the form of all messages: what is wrong, what was given, what to do."""
        shown = value if isinstance(value, str) else json.dumps(value)
        self.problems.append(f"cluster_{setting} is {shown}: {what}.{_option(setting, example)}")

    def _keep(self, problem: AwsProblem) -> None:
        if problem.of_login:
            raise problem
        self.refused = True
        self.problems.append(str(problem))


def _option(setting: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return f" Example: -e '{json.dumps({f'cluster_{setting}': value})}'"
    return f" Example: -e cluster_{setting}={value if isinstance(value, str) else json.dumps(value)}"
