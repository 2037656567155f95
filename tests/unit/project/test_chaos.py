"""Where bench/chaos kills a playbook, also if some calls are made by each run."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CALLS = ["vpc", "subnet", "+times", "+times", "+end", "group", "+times", "+end"]
"""The writing calls of a playbook. Those with a plus are made by each run, the others create something."""


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    loader = SourceFileLoader("chaos", str(ROOT / "bench/chaos"))
    spec = spec_from_loader("chaos", loader)
    assert spec
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "chaos", module)
    loader.exec_module(module)
    return module


class Account:
    """An account in which a playbook makes the calls."""

    def __init__(self, killed: int) -> None:
        self.killed, self.created = killed, list[str]()

    def play(self, _playbook: str, kill_at_write: int) -> SimpleNamespace:
        number = 0
        for call in CALLS:
            if call in self.created:
                continue
            if not call.startswith("+"):
                self.created.append(call)
            number += 1
            if number == kill_at_write:
                return SimpleNamespace(code=self.killed, tasks=[call], output="")
        return SimpleNamespace(code=0, tasks=[], output="")


def test_calls_that_each_run_makes_do_not_stop_it(chaos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(chaos.KILLED)
    monkeypatch.setattr(chaos, "census", lambda account: list(account.created))
    killed = [place.split("(")[1].rstrip(")") for place in chaos.places(account, "x.yml", "write")]
    assert killed[:2] == ["vpc", "subnet"] and {"+times", "+end", "group"} <= set(killed)
    assert account.created == ["vpc", "subnet", "group"] and len(killed) < 30
