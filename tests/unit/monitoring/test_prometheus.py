"""The role's configuration, alerts and Grafana's dashboards, by Debian's Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import paths, problems

from tests.debian import unpacked_program
from tests.unit.monitoring.prometheus_kit import FILES, ROOT, Prometheus, running, wait_for
from tests.unit.node.monitoring_kit import run_with
from tests.unit.roles.roles_kit import monitored
from tools import alert_rules

HERE = Path(__file__).parent
DASHBOARDS = sorted((ROOT / "files/grafana").glob("*.json"))


def active() -> dict[str, Any]:
    """Return a run whose last progress is of now: an older one has stalled."""
    run = run_with("lenet-1", 100, "running")
    run["points"][-1]["val_accuracy"] = 0.75
    return run


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    arguments = monitored("__monitoring_arguments", True)["prometheus"]
    with running(tmp_path_factory.mktemp("prometheus"), arguments, [active()]) as server:
        wait_for(lambda: len(server.query("up == 1")) == 4, "all targets are up")
        # A rate needs two samples.
        wait_for(lambda: server.query("rate(node_cpu_seconds_total[10s])"), "two samples")
        yield server


def test_alerts_fire_when_they_should_and_no_earlier(tmp_path: Path) -> None:
    for file in (FILES / "alerts.yml", HERE / "alerts_test.yml"):
        (tmp_path / file.name).write_text(file.read_text())
    words = [unpacked_program("promtool", "prometheus"), "test", "rules", "alerts_test.yml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_are_made_of_the_list_of_problems() -> None:
    assert alert_rules.FILE.read_text() == alert_rules.rules(), "run tools/alert_rules.py"
    limit = f"node_filesystem_size_bytes) >= {problems.DISK_ALMOST_FULL.threshold:g} and"
    assert limit in alert_rules.rules()


def test_each_alert_has_a_test() -> None:
    rules, tests = ((folder / name).read_text() for folder, name in ((FILES, "alerts.yml"), (HERE, "alerts_test.yml")))
    alerts = set(re.findall(r"- alert: (\w+)", rules))
    assert len(alerts) >= 8
    for alert in alerts:
        assert f"alertname: {alert}, exp_alerts: []" in tests and f"alertname: {alert}\n        exp_alerts:\n" in tests


def test_promtool_accepts_the_configuration_as_it_is_installed(tmp_path: Path) -> None:
    text = (FILES / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(text.replace(paths.MONITORING, str(tmp_path)))
    (tmp_path / "alerts.yml").write_text((FILES / "alerts.yml").read_text())
    words = [unpacked_program("promtool", "prometheus"), "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(rf"{paths.MONITORING}/[\w.]+", text)) == {paths.ALERTS, paths.NODE_TARGETS, paths.GPU_TARGETS}


def test_members_have_their_names_and_runs_their_figures(prometheus: Prometheus) -> None:
    def names() -> set[str]:
        return {result["metric"]["instance"] for result in prometheus.query('up{job="node"} == 1')}

    wait_for(lambda: names() == {"deeplearning-worker1", "deeplearning-worker2"}, "both are up")
    # Each of the two targets is the same exporter here.
    (loss, _same) = prometheus.query('deeplearning_run_loss{run="lenet-1"}')
    assert float(loss["value"][1]) == pytest.approx(active()["points"][-1]["loss"])


def test_prometheus_evaluates_each_alert(prometheus: Prometheus) -> None:
    def unknown() -> list[str]:
        groups = prometheus.get("rules")["groups"]
        return [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "unknown"]

    wait_for(lambda: not unknown(), "each rule has been evaluated")
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) >= 8 and {rule["health"] for rule in rules} == {"ok"}
    firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
    assert firing == []


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_prometheus_has_a_value_for_each_expression_of_a_dashboard(file: Path, prometheus: Prometheus) -> None:
    dashboard = json.loads(file.read_text())
    assert expressions(dashboard)
    for expression in expressions(dashboard):
        text = re.sub(r"\$(node|run)\b", ".*", expression).replace("$__rate_interval", "10s")
        assert "$" not in text
        wait_for(partial(prometheus.query, text), expression)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
            assert prometheus.get(f"label/{label}/values", **{"match[]": metric}), variable["name"]


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_asks_for_its_data_source_and_has_panels_of_different_places(file: Path) -> None:
    dashboard = json.loads(file.read_text())
    assert (
        dashboard["templating"]["list"][0] | {"name": "source", "type": "datasource"}
        == (dashboard["templating"]["list"][0])
    )
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {"${source}"}
    for value in ("id", "title"):
        assert len({panel[value] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    corners = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert len(corners) == len(dashboard["panels"])
