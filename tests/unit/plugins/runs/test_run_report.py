"""report.yml against a master that lies: what is written on this machine, and what is sent back."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.action import run_report
from ansible_collections.deeplearning.aws.plugins.action.run_report import ActionModule
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program, report_files
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import InvalidValue

from localcloud.testing.catalog import PRICES_DATE
from tests.unit.conftest import Account
from tests.unit.plugins.hostile_kit import EVIL_IDS
from tests.unit.plugins.runs.connection_kit import lines_of
from tests.unit.plugins.runs.report_kit import a_run


class Connection:
    transport = "local"


class Task:
    check_mode = False


class Report(ActionModule):
    """With a master that is a folder of this machine. What is sent to it is kept."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments, self._connection, self._task, self._display = arguments, Connection(), Task(), Display()

    def validate_argument_spec(self, argument_spec: Any = None) -> Any:
        return None, self._arguments


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of its runs; the master's program lists what is in `listed.json`."""
    program = tmp_path / "deeplearning"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/listed.json\n")
    program.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(program))
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    runs = tmp_path / "efs/runs/red"
    a_run(runs, "mine", 2, 100)
    return runs


@pytest.fixture
def report(tmp_path: Path, master: Path) -> Callable[..., tuple[dict[str, Any], Report]]:
    def make(*runs: Any, listed: Any = None) -> tuple[dict[str, Any], Report]:
        (tmp_path / "listed.json").write_text(json.dumps({"runs": listed}))
        login = {"region": "us-east-1", "profile": "", "role_arn": ""}
        action = Report({"runs": list(runs), "root": str(master), "folder": str(tmp_path / "here/reports"), **login})
        return action.run(None, {"inventory_hostname": "deeplearning-master"}), action

    return make


def here(tmp_path: Path) -> set[str]:
    return {str(path.relative_to(tmp_path / "here")) for path in tmp_path.glob("here/**/*") if not path.is_dir()}


def test_a_report_is_made_and_only_its_own_files_are_sent(report: Any, master: Path, tmp_path: Path) -> None:
    secret = tmp_path / "here/reports/mine/id_ed25519"
    secret.parent.mkdir(parents=True)
    secret.write_text("TOP SECRET")
    (secret.parent / "report.html").write_text("an older report")
    result, _action = report(listed=[{"run_id": "mine", "state": "finished"}, {"run_id": "other", "state": "running"}])
    assert result["runs"] == ["mine"], result
    page = (secret.parent / "report.html").read_bytes()
    assert b"<svg" in page
    assert [path.name for path in (master / "reports/mine").iterdir()] == ["report.html"]
    assert (master / "reports/mine/report.html").read_bytes() == page
    assert "reports/.runs/mine/metrics/rank1.jsonl" in here(tmp_path)


@pytest.mark.parametrize("evil", EVIL_IDS)
def test_a_run_that_the_master_calls_by_a_path_is_refused(report: Any, tmp_path: Path, evil: Any) -> None:
    refused(tmp_path, *report(listed=[{"run_id": evil, "state": "finished"}]))


@pytest.mark.parametrize("evil", [name for name in EVIL_IDS if isinstance(name, str)])
def test_so_is_one_of_a_sweep_whose_ids_the_master_has_answered(report: Any, tmp_path: Path, evil: str) -> None:
    refused(tmp_path, *report("mine", evil))


def refused(tmp_path: Path, result: dict[str, Any], _action: Report) -> None:
    """In one sentence, with nothing written and nothing sent."""
    assert result["failed"] and result["msg"] and "\n" not in result["msg"]
    assert here(tmp_path) == set() and not list(tmp_path.rglob("report.html"))


@pytest.mark.parametrize("listed", [None, "x", {"run_id": "mine"}, [["mine"]], [{"run_id": "mine", "state": "/etc"}]])
def test_a_list_that_is_none_is_refused(report: Any, tmp_path: Path, listed: Any) -> None:
    result, action = report(listed=listed)
    assert "run list" in result["msg"]
    refused(tmp_path, result, action)


def test_of_a_run_the_files_that_a_report_needs_are_packed_whatever_lies_next_to_them(
    report: Any, master: Path, tmp_path: Path
) -> None:
    metrics = master / "mine/metrics"
    (metrics / "rank0.eval.jsonl").write_text("{}")
    (metrics / "rank7.jsonl").mkdir()
    (metrics / "rank8.jsonl").hardlink_to(metrics / "rank0.jsonl")
    (master / "mine/events.jsonl").write_text("{}")
    elsewhere = master.parent / "elsewhere"
    (master / "mine").rename(elsewhere)
    (master / "mine").symlink_to(elsewhere)
    result, _made = report("mine")
    assert result["runs"] == ["mine"], result
    fetched = tmp_path / "here/reports/.runs/mine"
    names = {str(path.relative_to(fetched)) for path in fetched.rglob("*") if path.is_file()}
    assert names == {"run.json", "result.json", "state.json", *(f"metrics/rank{n}.jsonl" for n in (0, 1, 8))}


def test_a_run_under_anothers_name_is_refused(report: Any, master: Path) -> None:
    (master / "mine").rename(master / "other")
    result, _action = report("other")
    assert result["failed"] and "holds another run" in result["msg"] and not (master / "reports").exists()


def test_a_run_that_is_not_there_is_a_sentence(report: Any) -> None:
    result, _made = report("none")
    assert result["failed"] and "is no folder of a run" in result["msg"]


def packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content)).decode()


def test_an_answer_brings_nothing_but_the_files_that_were_asked_for(tmp_path: Path) -> None:
    evil = packed(b"evil")
    names = ("../../evil", "/tmp/evil", "mine/../evil", "mine/metrics/../../evil", "mine/metrics/rank../../../x.jsonl")
    names += ("mine/metrics/tasks/main.yml", "mine/metrics/rank123456.jsonl", "mine/metrics", "other/run.json")
    names += ("mine/run.json\x1b", "run.json", "mine/metrics/rank0xjsonl", "")
    lines = [*(f"{name} {evil}" for name in names), "mine/run.json nonsense", f"mine/state.json {evil}"]
    lines += [f"mine/metrics/rank99999.jsonl {packed(b'{}')}", f"mine/state.json {packed(b'again')}"]
    (tmp_path / "got/an-older-run").mkdir(parents=True)
    report_files.write(lines, ["mine"], tmp_path / "got")
    files = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"got/mine/state.json": "evil", "got/mine/metrics/rank99999.jsonl": "{}"}
    assert not (tmp_path / "got/an-older-run").exists()


def test_all_runs_of_a_report_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_files, "LARGEST_FILE", 1 << 20)
    monkeypatch.setattr(report_files, "MOST_UNPACKED", 3 << 20)
    runs, bomb = ["a", "b"], packed(bytes(100 << 20))
    lines = [f"{run}/metrics/rank{rank}.jsonl {bomb}" for run in runs for rank in range(2)]
    tracemalloc.start()
    with pytest.raises(InvalidValue, match="more than 3 MiB"):
        report_files.write(lines, runs, tmp_path / "got")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.jsonl")) == 3 << 20
    report_files.write(lines[:3], runs, tmp_path / "got")


def test_a_master_that_sends_too_much_is_a_sentence(
    report: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(report_files, "MOST_UNPACKED", 10)
    result, _action = report("mine")
    assert result["msg"] == "What deeplearning-master sends of mine is more than 0 MiB."
    assert not list(tmp_path.rglob("report.html"))


def test_a_node_that_never_ends_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way = node_program.Way("n")
    # With its output closed, too. What it starts is one process, so that it ends with this.
    flood = "head -c 17M /dev/zero >&2; exec sleep 600"
    for command in ("exec cat /dev/zero", flood, f"exec 1>&-; {flood}"):
        with pytest.raises(UserError, match="sends far more than is expected"):
            node_program.run(way, command)
    with pytest.raises(UserError, match="did not answer completely in time"):
        node_program.run(way, "exec sleep 600", seconds=0.1)
    program = tmp_path / "deeplearning"
    program.write_text("#!/bin/sh\nexec cat /dev/zero\n")
    program.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(program))
    with (
        pytest.raises(UserError, match="sends far more than is expected"),
        lines_of(way, way.program(["run", "follow", "mine"])) as lines,
    ):
        assert not list(lines)


def test_the_costs_are_at_the_prices_of_today(report: Any, master: Path, tmp_path: Path, aws: Account) -> None:
    times = {"started": "2026-11-23T10:00:00Z", "ended": "2026-11-23T12:00:00Z"}
    result = {"state": "finished", "attempts": [{**times, "machines": {"c5.large": 3}}]}
    (master / "mine/result.json").write_text(json.dumps(result))
    answer, _action = report("mine")
    assert not answer.get("failed"), answer
    page = (tmp_path / "here/reports/mine/report.html").read_text()
    assert "<td>0.51</td>" in page and f"Prices: AWS&#x27;s Price List API, {PRICES_DATE}" in page
    assert "pricing:GetProducts" in aws.calls()


def test_prices_are_asked_of_few_types_in_one_order(report: Any, master: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [f"m5.{letter}large" for letter in "zyxwvutsrqponmlkjihgfedcba"]
    times = {"started": "2026-11-20T10:00:00Z", "ended": "2026-11-20T11:00:00Z"}
    attempts = [{**times, "machines": dict.fromkeys(kinds[first : first + 13], 1)} for first in (0, 13)]
    (master / "mine/result.json").write_text(json.dumps({"state": "finished", "attempts": attempts}))
    asked: list[list[str]] = []
    monkeypatch.setattr(run_report, "current_prices", lambda _aws, types: asked.append(types) or {})
    result, _action = report("mine")
    assert result["runs"] == ["mine"], result
    assert asked == [sorted(kinds)[: run_report.MOST_TYPES]]
