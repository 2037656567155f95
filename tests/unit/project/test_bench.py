"""Figures of measurements: recorded with their conditions, and shown as they were recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import setting_rules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import MOST_NODES

from bench import report
from bench.report import Row
from tools import bench_docs

CONDITIONS = {
    "date": "2026-11-23",
    "commit": "abc1234",
    "processors": 2,
    "kernel": "6.18",
    "python": "3.11.2",
    "load": 0.4,
}


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "results.json"
    monkeypatch.setattr(report, "FIGURES", file)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    return file


def test_a_measurement_replaces_its_own_figures_and_keeps_the_others(figures: Path) -> None:
    report.record("members", "Members", CONDITIONS, [Row("one", 1, "s", None)])
    report.record("training", "Training", CONDITIONS, [Row("first", 6.01, "s", 10)])
    report.record("training", "Training", CONDITIONS | {"commit": "def5678"}, [Row("first", 5, "s", 10)])
    measurements = json.loads(figures.read_text())["measurements"]
    assert list(measurements) == ["members", "training"]
    assert measurements["training"]["conditions"]["commit"] == "def5678"
    assert measurements["training"]["figures"] == [{"what": "first", "value": 5, "unit": "s", "target": 10}]


def test_what_is_written_as_a_page_is_recorded_too(figures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.write("chaos", "Killed", [Row("kills", 12, "", None)], part="1. Tasks")
    printed = capsys.readouterr().out
    measurement = json.loads(figures.read_text())["measurements"]["chaos: 1. Tasks"]
    assert f"at {measurement['conditions']['commit']}: {measurement['conditions']['processors']} cores" in printed
    assert "| kills | 12 | none |" in printed and measurement["figures"][0]["value"] == 12


def test_a_figure_is_shown_with_its_commit_and_conditions() -> None:
    missed = {"what": "first run", "value": 61.25, "unit": "s", "target": 60}
    lines = bench_docs.section("provision", {"title": "Provision", "conditions": CONDITIONS, "figures": [missed]})
    assert lines[0] == "### Provision"
    assert "at commit `abc1234` on 2026-11-23: 2 cores, Linux 6.18, Python 3.11.2, load 0.4 at the end." in lines[2]
    assert lines[-2] == "| first run | 61.2 s | 60 s (missed) |"


def test_the_page_shows_what_was_recorded() -> None:
    page = bench_docs.PART.read()
    assert page == bench_docs.renewed(), "run tools/bench_docs.py"
    assert "| train.yml to the first rank, 4 nodes |" in page


def test_a_cluster_has_no_more_nodes_than_were_measured() -> None:
    figures = json.loads(report.FIGURES.read_text(encoding="utf-8"))["measurements"]["scale: now"]["figures"]
    assert len(figures) == 3 and all(f" {MOST_NODES} nodes" in figure["what"] for figure in figures)
    assert [figure["what"] for figure in figures if figure["value"] > figure["target"]] == []
    refused = setting_rules.check({"cluster_worker_count": MOST_NODES}, provisioning=False).problems
    assert f"runs were measured with up to {MOST_NODES} nodes" in " ".join(refused)
