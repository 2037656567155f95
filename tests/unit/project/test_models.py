"""At the end of a layer the recorded forms are counted, and what AWS's models do not have fails it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import models
from tests.layers import catalogue
from tests.layers.results import Result

ENTRY = {"calls": ["s3:PutObject"], "side": "answer", "problems": ["A: no such member"], "reason": "r"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of records, with its own accepted problems."""
    (tmp_path / "deviations.yml").write_text(json.dumps([ENTRY]))
    (tmp_path / "oldest.json").write_text(
        json.dumps({"botocore": "1.23.34", "operations": {"s3 get_object": {"input": ["Bucket", "Key"]}}})
    )
    for name, value in (
        ("ROOT", tmp_path),
        ("DEVIATIONS", tmp_path / "deviations.yml"),
        ("OLDEST", tmp_path / "oldest.json"),
    ):
        monkeypatch.setattr(models, name, value)
    return tmp_path


def form(call: str, *problems: str, side: str = "request", origin: str = models.COLLECTION, members: Any = ()) -> str:
    line = {"call": call, "side": side, "origin": origin, "members": list(members), "problems": problems}
    return json.dumps(line) + "\n"


ACCEPTED = form("s3:PutObject", "A: no such member", side="answer", origin="")


def deviations(folder: Path, *forms: str, layer: str = "account") -> list[str]:
    file = folder / f"{layer}{models.SUFFIX}"
    file.write_text("".join(forms))
    return models.problems(models.read(file))


def test_operations_requests_and_answers_are_counted_once(folder: Path) -> None:
    file = folder / "a.forms"
    file.write_text(form("ec2:DescribeVpcs") * 2 + form("ec2:DescribeVpcs", members=["VpcIds"]) + ACCEPTED)
    seen = models.read(file, folder / "missing.forms")
    assert str(seen) == "2 operations, 2 forms of requests and 1 of answers compared with AWS's models"


def test_what_the_models_do_not_have_is_a_problem(folder: Path) -> None:
    assert deviations(folder, form("ec2:DescribeVpcs", "Invented: no such member"), ACCEPTED) == [
        "ec2:DescribeVpcs, request: Invented: no such member"
    ]


def test_what_nodes_send_is_known_to_the_oldest_botocore(folder: Path) -> None:
    read = form("s3:GetObject", origin=models.NODE, members=["Bucket", "IfMatch", "ChecksumMode"])
    assert deviations(folder, read, form("s3:GetObject", members=["IfMatch"])) == [
        "s3:GetObject, request: IfMatch: botocore 1.23.34 of nodes does not know it"
    ]
    assert deviations(folder, form("ec2:DescribeVpcs", origin=models.NODE)) == [
        "ec2:DescribeVpcs: nodes call it, and oldest.json does not have it. Renew it with tools/node_calls.py"
    ]


@pytest.mark.parametrize("entry", [{**ENTRY, "reason": ""}, {**ENTRY, "call": "a"}, {"calls": []}])
def test_an_entry_that_is_not_whole_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a deviation has calls, side, problems and reason"):
        models.deviations(json.dumps([entry]))


def test_a_layer_with_a_problem_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogue, "REPORTS", folder)
    passed = Result(True, "5 passed")
    deviations(folder, form("ec2:DescribeVpcs"))
    assert catalogue.with_models(passed, "account") == passed
    assert "models: 1 operations, 1 forms of requests and 0 of answers" in capsys.readouterr().out
    deviations(folder, form("ec2:DescribeVpcs", "Invented: no such member"))
    failed = catalogue.with_models(passed, "account")
    assert (failed.ok, failed.detail) == (False, "5 passed, 1 problems with AWS's models")
    assert "models: ec2:DescribeVpcs, request: Invented: no such member" in capsys.readouterr().out


def test_accepted_problems_are_read_with_their_side() -> None:
    accepted = models.deviations((Path(__file__).parents[2] / "deviations.yml").read_text(encoding="utf-8"))
    assert accepted and {problem.side for problem in accepted} <= {"request", "answer"}
