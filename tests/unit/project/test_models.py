"""At the end of a layer the recorded forms are counted, and what AWS's models do not have fails it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from localcloud.models import COLLECTION, NODE
from tests import models
from tests.layers.records import Result
from tools import operations_docs

ENTRY = {"calls": ["s3:PutObject"], "side": "answer", "problems": ["A: no such member"], "layer": "unit", "reason": "r"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of records, with its own accepted problems and known operations."""
    (tmp_path / "deviations.yml").write_text(json.dumps([ENTRY]))
    (tmp_path / "operations.json").write_text('{"ec2:DescribeVpcs": ["unit"], "s3:GetObject": ["unit"]}')
    (tmp_path / "oldest.json").write_text(
        json.dumps({"botocore": "1.23.34", "operations": {"s3 get_object": {"input": ["Bucket", "Key"]}}})
    )
    for name, value in (
        ("ROOT", tmp_path),
        ("RECORDS", tmp_path),
        ("DEVIATIONS", tmp_path / "deviations.yml"),
        ("OPERATIONS", tmp_path / "operations.json"),
        ("OLDEST", tmp_path / "oldest.json"),
    ):
        monkeypatch.setattr(models, name, value)
    return tmp_path


def form(call: str, *problems: str, side: str = "request", origin: str = COLLECTION, members: Any = ()) -> str:
    line = {"call": call, "side": side, "origin": origin, "members": list(members), "problems": problems}
    return json.dumps(line) + "\n"


ACCEPTED = form("s3:PutObject", "A: no such member", side="answer", origin="")


def deviations(folder: Path, *forms: str, layer: str = "account") -> list[str]:
    file = folder / f"{layer}{models.SUFFIX}"
    file.write_text("".join(forms))
    return models.problems(models.read(file), layer)


def test_operations_requests_and_answers_are_counted_once(folder: Path) -> None:
    file = folder / "a.forms"
    file.write_text(form("ec2:DescribeVpcs") * 2 + form("ec2:DescribeVpcs", members=["VpcIds"]) + ACCEPTED)
    seen = models.read(file, folder / "missing.forms")
    assert str(seen) == "2 operations, 2 forms of requests and 1 of answers compared with AWS's models"


def test_what_the_models_do_not_have_is_a_problem(folder: Path) -> None:
    assert deviations(folder, form("ec2:DescribeVpcs", "Invented: no such member"), ACCEPTED) == [
        "ec2:DescribeVpcs, request: Invented: no such member"
    ]


def test_an_accepted_problem_that_is_gone_is_to_be_removed(folder: Path) -> None:
    assert deviations(folder, ACCEPTED, layer="unit") == []
    assert deviations(folder, layer="unit") == [
        "s3:PutObject, answer: A: no such member: not seen any more. Remove it from deviations.yml"
    ]
    assert deviations(folder, layer="account") == []


def test_what_nodes_send_is_known_to_the_oldest_botocore(folder: Path) -> None:
    read = form("s3:GetObject", origin=NODE, members=["Bucket", "IfMatch", "ChecksumMode"])
    assert deviations(folder, read, form("s3:GetObject", members=["IfMatch"])) == [
        "s3:GetObject, request: IfMatch: botocore 1.23.34 of nodes does not know it"
    ]
    assert deviations(folder, form("ec2:DescribeVpcs", origin=NODE)) == [
        "ec2:DescribeVpcs: nodes call it, and oldest.json does not have it. Renew it with tools/node_calls.py"
    ]


def test_a_new_operation_is_to_be_listed_and_one_that_is_gone_is_dropped(folder: Path) -> None:
    new = form("ec2:DescribeSubnets")
    deviations(folder, new, layer="unit")
    seen = models.read(*folder.rglob("*.forms"))
    assert models.unlisted(seen) == [f"ec2:DescribeSubnets: not in operations.json. Update it: {models.UPDATE}"]
    deviations(folder, form("s3:GetObject"), ACCEPTED)
    models.merge()
    assert models.operations() == {"ec2:DescribeSubnets": ["unit"], "s3:GetObject": ["account"]}
    assert deviations(folder, new, ACCEPTED, layer="unit") == []


@pytest.mark.parametrize("entry", [{**ENTRY, "reason": ""}, {**ENTRY, "call": "a"}, {"calls": []}])
def test_an_entry_that_is_not_whole_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a deviation has calls, side, problems, layer and reason"):
        models.deviations(json.dumps([entry]))


@pytest.fixture
def runner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("layers_runner", models.Path(__file__).parents[2] / "run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "REPORTS", folder)
    return module


def test_a_layer_with_a_problem_fails(runner: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passed = Result(True, "5 passed")
    deviations(folder, form("ec2:DescribeVpcs"))
    assert runner.with_models(passed, "account") == passed
    assert "models: 1 operations, 1 forms of requests and 0 of answers" in capsys.readouterr().out
    deviations(folder, form("ec2:DescribeVpcs", "Invented: no such member"))
    failed = runner.with_models(passed, "account")
    assert (failed.ok, failed.detail) == (False, "5 passed, 1 problems with AWS's models")
    assert "models: ec2:DescribeVpcs, request: Invented: no such member" in capsys.readouterr().out


def test_a_layer_that_failed_need_not_have_seen_all(runner: ModuleType, folder: Path) -> None:
    deviations(folder, form("ec2:DescribeVpcs"), layer="unit")
    failed = Result(False, "1 failed")
    assert runner.with_models(failed, "unit") == failed
    assert not runner.with_models(Result(True, "5 passed"), "unit").ok


def test_a_layer_starts_with_an_empty_record(
    runner: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deviations(folder, form("ec2:DescribeVpcs", "Invented: no such member"), layer="lint")
    run = runner.Run([runner.Layer("lint", lambda _venv: Result(True, "fine"))], "")
    run.in_sequence(run.layers)
    assert run.outcomes["lint"].result == Result(True, "fine")
    assert "models: " not in capsys.readouterr().out


def test_an_answer_in_a_record_confirms_an_operation(tmp_path: Path) -> None:
    lines = [{"run": 1}, {"call": "ec2:DescribeVpcs", "answer": {}}, {"call": "s3:GetObject", "code": "NoSuchKey"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = operations_docs.confirmed(tmp_path)
    assert known == {"ec2:DescribeVpcs"}
    rows = operations_docs.table(["s3:GetObject", "ec2:DescribeVpcs", "s3:PutObject"], known).splitlines()
    assert rows[0].startswith("2 of the 3 operations")
    assert rows[4:] == ["| s3 | GetObject, PutObject |"]


def test_the_page_of_limits_lists_the_operations_without_an_answer() -> None:
    assert operations_docs.PART.read() == operations_docs.renewed()


def test_accepted_problems_name_a_layer_of_make_test(runner: ModuleType) -> None:
    path = Path(__file__).parents[2] / "deviations.yml"
    accepted = models.deviations(path.read_text(encoding="utf-8"))
    assert {deviation.layer for deviation in accepted} <= set(runner.LAYERS)
    assert len({deviation.problem for deviation in accepted}) == len(accepted)
    assert {deviation.problem.side for deviation in accepted} <= {"request", "answer"}
