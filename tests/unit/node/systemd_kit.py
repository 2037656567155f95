"""A systemd that knows units by their names, as far as the node program asks it."""

from __future__ import annotations

import fnmatch
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from deeplearning import programs


@dataclass
class Systemd:
    units: dict[str, str] = field(default_factory=dict)
    """Their descriptions, by name. All are active."""
    calls: list[tuple[str, ...]] = field(default_factory=list)
    """What was started, and what was stopped."""
    started: Callable[[str, tuple[str, ...]], None] = lambda unit, command: None
    """What a started command does, with its unit's name."""
    refusal: str = ""
    recovered: bool = True
    """Whether interrupted runs were resumed since the boot."""

    def run(self, *words: str, **_options: Any) -> subprocess.CompletedProcess[str]:
        if words[:2] == ("sudo", "-n"):
            words = words[2:]
        name, *rest = words
        code, output, errors = {"systemctl": self._systemctl, "systemd-run": self._systemd_run}[name](rest)
        return subprocess.CompletedProcess(words, code, output, errors)

    def _systemctl(self, words: list[str]) -> tuple[int, str, str]:
        verb, *names = words
        options = [word for word in names if word.startswith("-")]
        names = [word for word in names if not word.startswith("-")]
        if verb == "list-units":
            listed = fnmatch.filter(self.units, names[0])
            return 0, "".join(f"{unit} loaded active running {self.units[unit]}\n" for unit in listed), ""
        if options == ["--value", "--property=ExecMainExitTimestampMonotonic"]:
            assert (verb, names) == ("show", ["deeplearning-recover.service"])
            return 0, f"{8_123_456 if self.recovered else 0}\n", ""
        if verb == "show":
            assert options == ["--property=ActiveState,Description"]
            state = "active" if names[0] in self.units else "inactive"
            return 0, f"ActiveState={state}\nDescription={self.units.get(names[0], names[0])}\n", ""
        assert verb in ("start", "stop")
        self.calls.append((verb, *names))
        if self.refusal:
            return 1, "", f"{self.refusal}\n"
        for unit in names:
            if verb == "stop":
                del self.units[unit]
            else:
                self.units[unit] = unit
        return 0, "", ""

    def _systemd_run(self, words: list[str]) -> tuple[int, str, str]:
        options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--") and "=" in word)
        command = words[next(place for place, word in enumerate(words) if not word.startswith("--")) :]
        self.calls.append((options["unit"], options["uid"], *command))
        if self.refusal:
            return 1, "", f"Failed to start\n{self.refusal}\n"
        assert options["unit"] not in self.units, "such a unit is refused"
        self.units[options["unit"]] = options["description"]
        self.started(options["unit"], tuple(command))
        return 0, "", ""


@contextmanager
def systemd_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    systemd = Systemd()
    with monkeypatch.context() as patch:
        patch.setattr(programs, "run", systemd.run)
        yield systemd
