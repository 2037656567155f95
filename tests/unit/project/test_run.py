"""The runner of the layers: it hides no failure, plans what a change needs, and says what it left out."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.layers import catalogue, changes
from tests.layers.catalogue import Layer
from tests.layers.changes import Base, Selection
from tests.layers.commands import command
from tests.layers.results import Outcome, Result

ROOT = Path(__file__).resolve().parents[3]
VENV = Path(sys.prefix)
NOTHING = Selection({}, {})


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The runner, which writes into the test's own folder alone."""
    spec = importlib.util.spec_from_file_location("layers_runner", ROOT / "tests/run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    for place in (module, catalogue):
        monkeypatch.setattr(place, "REPORTS", tmp_path / "reports")
    (tmp_path / "reports").mkdir()
    return module


class Layers:
    """Layers that a test has made, and what it has seen of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.ran: list[str] = []

    def layer(self, name: str, ok: bool = True, gate: bool = True, cpu_seconds: float = 0, **more: object) -> Layer:
        def form(what: str) -> Callable[[Path], Result]:
            def run(_venv: Path) -> Result:
                self.ran.append(what)
                return Result(ok, "7 passed", cpu_seconds)

            return run

        return Layer(name, form(name), gate=form(f"{name} in the gate") if gate else None, **more)  # type: ignore[arg-type]

    def use(self, *layers: Layer, selection: Selection = NOTHING, **more: tuple[Layer, ...]) -> None:
        """Let a run have these layers, and let the change need those of the selection."""
        tiers = {"LAYERS": layers, "NIGHTLY": more.get("nightly", ()), "ON_DEMAND": more.get("on_demand", ())}
        every: dict[str, Layer] = {}
        for tier, its_layers in tiers.items():
            by_name = {layer.name: layer for layer in its_layers}
            self._monkeypatch.setattr(catalogue, tier, by_name)
            every |= by_name
        self._monkeypatch.setattr(catalogue, "ALL", every)
        self._monkeypatch.setattr(changes, "find_base", lambda *_: Base("1234567890", "BASE=main"))
        self._monkeypatch.setattr(changes, "changed_paths", lambda *_: ["a", "b"])
        self._monkeypatch.setattr(changes, "select", lambda _paths: selection)


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> Layers:
    return Layers(monkeypatch)


def table_rows(output: str) -> dict[str, list[str]]:
    """Return the rows of the table of layers by their names."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("layer "))
    end = next(number for number, line in enumerate(lines) if line.startswith("all "))
    return {line.split()[0]: line.split() for line in lines[start + 1 : end]}


def test_a_failing_layer_does_not_hide_the_next(
    runner: ModuleType, layers: Layers, capsys: pytest.CaptureFixture[str]
) -> None:
    layers.use(layers.layer("a"), layers.layer("b", ok=False), layers.layer("c"))
    assert runner.main([]) == 1
    assert layers.ran == ["a in the gate", "b in the gate", "c in the gate"]
    output = capsys.readouterr().out
    assert {name: row[1] for name, row in table_rows(output).items()} == {"a": "ok", "b": "FAILED", "c": "ok"}
    assert output.splitlines()[-1] == "2 passed, 1 failed"


def test_a_layer_that_is_named_runs_alone_and_in_full(runner: ModuleType, layers: Layers) -> None:
    layers.use(layers.layer("a", ok=False), layers.layer("b"), on_demand=(layers.layer("c", gate=False),))
    assert runner.main(["b", "c"]) == 0
    assert layers.ran == ["b", "c"]


def test_an_unknown_layer_is_refused(runner: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["units"]) == 2
    assert "unknown layer 'units'; choose from lint, unit, account" in capsys.readouterr().err


def test_an_unknown_base_is_refused(runner: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--base", "no-such-branch"]) == 2
    assert "BASE is no-such-branch, which is not a commit here" in capsys.readouterr().err


def test_the_gate_runs_with_what_the_change_needs_and_says_what_it_left_out(
    runner: ModuleType, layers: Layers, capsys: pytest.CaptureFixture[str]
) -> None:
    layers.use(
        *(layers.layer("lint"), layers.layer("account"), layers.layer("integration")),
        *(layers.layer("sanity", gate=False), layers.layer("localcloud", gate=False)),
        nightly=(layers.layer("clusters", gate=False), layers.layer("emr", gate=False)),
        selection=Selection({"account": "site.yml", "sanity": "plugins/a.py"}, {"clusters": "site.yml"}),
    )
    assert runner.main([]) == 0
    assert layers.ran == ["lint in the gate", "account", "integration in the gate", "sanity"]
    output = capsys.readouterr().out
    assert "base of the comparison: 12345678 (BASE=main), 2 changed files" in output
    assert "run in full: account, because of site.yml" in output
    assert "run in full: sanity, because of plugins/a.py" in output
    assert "left out, as no changed path needs them: localcloud\n" in output
    assert "only the gate's part, as no changed path needs the rest: lint, integration\n" in output
    assert 'nightly parts for this change, not run: make test-nightly PARTS="clusters"' in output


def test_without_a_base_all_layers_run_in_full(
    runner: ModuleType, layers: Layers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layers.use(layers.layer("account"), layers.layer("sanity", gate=False))
    monkeypatch.setattr(changes, "find_base", lambda *_: Base("", "no commit is a day old"))
    assert runner.main([]) == 0
    assert layers.ran == ["account", "sanity"]
    assert "base of the comparison: none (no commit is a day old)" in capsys.readouterr().out


def test_the_nightly_tier_runs_all_layers_in_full_and_then_its_parts(runner: ModuleType, layers: Layers) -> None:
    layers.use(
        *(layers.layer("account"), layers.layer("sanity", gate=False)),
        nightly=(layers.layer("clusters", gate=False),),
        on_demand=(layers.layer("chaos", gate=False),),
    )
    assert runner.main(["--nightly"]) == 0
    assert layers.ran == ["account", "sanity", "clusters"]
    layers.ran.clear()
    assert runner.main(["--nightly", "clusters"]) == 0
    assert layers.ran == ["clusters"]


def test_the_image_is_not_built_for_layers_without_machines(runner: ModuleType, layers: Layers) -> None:
    image = layers.layer("image", lane=catalogue.IMAGE)
    layers.use(layers.layer("unit"), image)
    assert runner.main([]) == 0
    assert layers.ran == ["unit in the gate"]
    layers.ran.clear()
    layers.use(layers.layer("unit"), image, layers.layer("molecule", lane=catalogue.MACHINES, after="image"))
    assert runner.main([]) == 0
    assert sorted(layers.ran) == ["image in the gate", "molecule in the gate", "unit in the gate"]


def test_a_layer_starts_with_an_empty_record_of_requests(runner: ModuleType, layers: Layers) -> None:
    """Otherwise the problems of an earlier run would fail it."""
    record = catalogue.forms_file("account")
    form = {"call": "ec2:DescribeVpcs", "side": "request", "origin": "", "members": [], "problems": ["Invented"]}
    record.write_text(json.dumps(form) + "\n")
    layers.use(layers.layer("account"))
    assert runner.main([]) == 0
    assert not record.exists()


@pytest.mark.parametrize(("minutes", "code", "verdict"), [(54.9, 0, "of at most 55"), (55.2, 1, "more than 55")])
def test_a_gate_that_needs_too_much_cpu_time_fails(
    runner: ModuleType,
    layers: Layers,
    capsys: pytest.CaptureFixture[str],
    minutes: float,
    code: int,
    verdict: str,
) -> None:
    """Layers that the change needs in full are not counted, and neither is the image, which is kept."""
    layers.use(
        *(layers.layer("lint", cpu_seconds=30), layers.layer("unit", cpu_seconds=60 * minutes - 30)),
        *(layers.layer("account", cpu_seconds=6000), layers.layer("image", cpu_seconds=6000)),
        layers.layer("molecule", after="image"),
        selection=Selection({"account": "site.yml"}, {}),
    )
    assert runner.main([]) == code
    assert f"gate: {minutes} CPU minutes, {verdict}" in capsys.readouterr().out


def test_the_table_charges_machines_to_their_layer(runner: ModuleType) -> None:
    layer = Layer("integration", lambda _venv: Result(True, ""))
    run = runner.Run([runner.Chosen(layer)], "")
    run.outcomes["integration"] = Outcome(Result(True, "67 passed", command_seconds=120), 600, cpu_seconds=300)
    heading, row = runner.table(run)
    assert heading.split() == ["layer", "result", "minutes", "CPU", "min", "machines", "details"]
    assert row.split() == ["integration", "ok", "10.0", "5.0", "3.0", "67", "passed"]


def test_without_root_a_layer_that_needs_it_fails(
    runner: ModuleType, layers: Layers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layers.use(layers.layer("boots", root=True))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert runner.main([]) == 1
    assert layers.ran == []
    assert capsys.readouterr().out.startswith("Not root: boots")


def test_lanes_run_side_by_side_and_the_second_is_printed_at_the_end(
    runner: ModuleType, layers: Layers, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each waits for the other to begin, and a layer for one of another lane to end."""
    begun = {name: threading.Event() for name in ("boots", "works")}
    ended: list[str] = []

    def meets(name: str, other: str) -> Callable[[Path], Result]:
        def run(_venv: Path) -> Result:
            begun[name].set()
            assert begun[other].wait(60)
            command("echo", f"{name} prints", venv=VENV)
            ended.append(name)
            return Result(True, "1 passed")

        return run

    def last(_venv: Path) -> Result:
        assert "works" in ended
        return Result(True, "1 passed")

    works, boots = meets("works", "boots"), meets("boots", "works")
    layers.use(
        Layer("works", works, gate=works),
        Layer("boots", boots, gate=boots, lane=catalogue.MACHINES),
        Layer("boots-later", last, gate=last, lane=catalogue.MACHINES, after="works"),
    )
    assert runner.main([]) == 0
    output = capsys.readouterr().out
    places = [output.index(text) for text in ("boots prints", "=== the lane processor", "works prints", "3 passed, 0")]
    assert places == sorted(places)


def test_the_slowest_tests_are_printed(
    runner: ModuleType, layers: Layers, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result(True, "2 passed", 90, ((31.5, "tests/unit/test_a.py::test_slow"),))
    layers.use(Layer("unit", lambda _venv: result, gate=lambda _venv: result))
    assert runner.main([]) == 0
    output = capsys.readouterr().out
    assert "slowest tests of unit\n    31.5 s  tests/unit/test_a.py::test_slow\n" in output
    assert table_rows(output)["unit"][3] == "1.5"


def test_a_missing_python_is_one_sentence(
    runner: ModuleType, layers: Layers, capsys: pytest.CaptureFixture[str]
) -> None:
    layers.use(layers.layer("unit"))
    assert runner.main(["--python", "2.7"]) == 2
    assert layers.ran == []
    assert capsys.readouterr().err == "Python 2.7 is not supported: choose 3.11, 3.12 or 3.13\n"


def test_without_a_newer_python_only_its_parts_fail(
    runner: ModuleType, layers: Layers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> str:
        raise runner.UserError("The parts newest-… need Python 3.13 or 3.12: none is installed")

    monkeypatch.setattr(runner, "newest_python", missing)
    layers.use(layers.layer("unit"), nightly=(layers.layer("newest-unit", gate=False, newest=True),))
    assert runner.main(["--nightly"]) == 1
    rows = table_rows(capsys.readouterr().out)
    assert rows["newest-unit"][1] == "FAILED" and rows["newest-unit"][-2:] == ["is", "installed"]
    assert rows["unit"][1] == "ok"


def test_a_part_without_what_it_needs_is_not_run(
    runner: ModuleType, layers: Layers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PUBLISHED_SOURCES", raising=False)
    layers.use(on_demand=(layers.layer("published", gate=False, needs="PUBLISHED_SOURCES"),))
    assert runner.main(["published"]) == 1
    assert layers.ran == []
    assert "not run: PUBLISHED_SOURCES names no folder; docs/testing.md says of what" in capsys.readouterr().out


def test_all_layers_are_listed_with_their_tier(runner: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(catalogue.ALL)
    assert "  lint             gate" in lines
    assert "  integration      gate: a part of it, root" in lines
    assert [line for line in lines if not line.startswith("  ")] == [
        "make test",
        "make test-nightly, after all of these",
        "only by name",
    ]
