"""The runner of the layers counts right, hides no failure and is what its documentation says."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("layers_runner", ROOT / "tests/run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def layers(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, *results: bool, root: bool = False) -> list[str]:
    """As many layers with these results; gives the list in which they note that they ran."""
    ran: list[str] = []

    def make(name: str, ok: bool) -> object:
        return runner.Layer(name, 1, lambda deadline: ran.append(name) or runner.Result(ok, "7 passed"), root)

    monkeypatch.setattr(runner, "LAYERS", {f"l{n}": make(f"l{n}", ok) for n, ok in enumerate(results)})
    return ran


REPORT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


@pytest.mark.parametrize(
    ("code", "numbers", "ok", "detail"),
    [
        (0, (5, 0, 0, 0), True, "5 passed"),
        (0, (5, 0, 0, 1), True, "4 passed, 1 expected to fail"),
        (1, (5, 2, 1, 0), False, "2 passed, 2 failed, 1 errors"),
        (5, (0, 0, 0, 0), False, "0 passed"),
        (0, (0, 0, 0, 0), False, "0 passed"),
        (2, (3, 0, 0, 0), False, "3 passed"),
    ],
)
def test_pytest_is_counted_by_its_report(
    runner: ModuleType, tmp_path: Path, code: int, numbers: tuple[int, ...], ok: bool, detail: str
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(*numbers))
    assert runner.counted(code, report) == runner.Result(ok, detail)


def test_a_run_without_a_report_has_failed(runner: ModuleType, tmp_path: Path) -> None:
    assert runner.counted(139, tmp_path / "none") == runner.Result(False, "ended with 139 before its end")


def test_a_failing_layer_does_not_hide_the_next(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = layers(runner, monkeypatch, True, False, True)
    assert runner.main([]) == 1
    assert ran == ["l0", "l1", "l2"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-4:-1]] == [["l0", "ok"], ["l1", "FAILED"], ["l2", "ok"]]
    assert lines[-1] == "2 passed, 1 failed"


def test_only_the_layers_that_are_named_run(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = layers(runner, monkeypatch, False, True)
    assert runner.main(["l1"]) == 0
    assert ran == ["l1"]


def test_an_unknown_layer_is_refused(runner: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["units"]) == 2
    assert (
        "units: no such layer. There are: lint, sanity, unit, account, integration, molecule" in capsys.readouterr().err
    )


def test_without_root_a_layer_that_needs_it_fails(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = layers(runner, monkeypatch, True, root=True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert runner.main([]) == 1
    assert ran == []
    assert capsys.readouterr().out.startswith("Not root: l0")


def test_a_command_that_hangs_is_ended_and_may_clean_up(runner: ModuleType, tmp_path: Path) -> None:
    mark = tmp_path / "cleaned"
    script = f"trap 'touch {mark}; exit 0' INT; while true; do sleep 0.1; done"
    assert runner.command("bash", "-c", script, deadline=time.monotonic() + 1) == 124
    assert mark.exists()


def test_layers_cannot_reach_the_account_of_whoever_runs_them(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    given = runner.environment()
    assert not {"AWS_PROFILE", "AWS_ACCESS_KEY_ID"} & given.keys()
    assert given["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull


def test_the_documented_minutes_are_the_runners_and_are_below_50_in_all(runner: ModuleType) -> None:
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \|", (ROOT / "docs/testing.md").read_text(), re.MULTILINE)
    minutes = {name: float(number) for name, number in rows}
    assert minutes.pop("setup") + sum(minutes.values()) == 43.5
    assert minutes == {name: layer.minutes for name, layer in runner.LAYERS.items()}
