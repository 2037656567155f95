"""What a run may be asked to be: each wrong request is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import schema
from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import DEFAULTS, FIELDS, validate
from deeplearning.runs import create

GOOD = {"framework": "pytorch", "requested_by": "me"}


def test_a_request_keeps_its_values_without_null() -> None:
    request = {**GOOD, "script_args": ["a b", "$x", "it's", ""], "nodes": ["deeplearning-worker2"], "data": None}
    assert validate(request) == {key: value for key, value in request.items() if value is not None}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"framework": None}, "framework is missing"),
        ({"framework": "caffe"}, "framework is 'caffe': give one of tensorflow, mxnet, pytorch, tensorpack"),
        (
            {"distribution": "dist_sync"},
            "dist_sync, which only mxnet has: give pytorch's ddp. Example: -e distribution=",
        ),
        ({"distribution": "ring"}, "distribution is ring, which no framework has: give pytorch's ddp. Example: "),
        ({"scripts": "x"}, "no scripts: is script meant?"),
        ({"zzz": 1}, "no zzz: it has run_id, framework"),
        ({"nodes": 0}, "nodes is 0: give a whole number from 1 to 99999"),
        ({"nodes": True}, "nodes is True"),
        ({"nodes": []}, "a number, a range of numbers like 6-8, or a list of members' names"),
        ({"nodes": "8-6"}, "a number, a range of numbers like 6-8"),
        ({"nodes": "0-6"}, "nodes is '0-6'"),
        ({"framework": "mxnet", "distribution": "device", "nodes": "1-2"}, "on one node, and nodes is 1-2"),
        ({"nodes": ["a", "a"]}, "names each member once"),
        ({"nodes": "2"}, "nodes is '2'"),
        ({"processes_per_node": -1}, "processes_per_node is -1"),
        ({"servers": 1025}, "servers is 1025: give a whole number from 1 to 1024"),
        ({"local_copy": {"data": "a", "source": "", "bucket": "\x1b"}}, "up to 4096 printable characters"),
        ({"max_restarts": 1.5}, "max_restarts is 1.5"),
        ({"stop_seconds": 601}, "stop_seconds is 601: give a whole number from 1 to 600."),
        ({"script_args": "--lr 0.1"}, "script_args is '--lr 0.1': give a list"),
        ({"script_args": [1]}, "script_args is [1]: give a list of strings"),
        ({"processor": "true"}, "processor is 'true': give true or false"),
        ({"environment": {"A": 1}}, "a map of strings"),
        ({"environment": {"A=B": "1"}}, "a map of strings"),
        ({"run_id": "../x"}, "run_id is '../x': give a run's id"),
        ({"run_id": "UPPER"}, "a run's id"),
        ({"run_id": "all"}, "a run's id"),
        ({"run_id": "a:b"}, "a run's id"),
        ({"busy": "maybe"}, "busy is 'maybe': give one of wait, refuse"),
        ({"python": "python3"}, "an absolute path"),
        ({"requested_by": None}, "requested_by is missing"),
        ({"code": "/efs/x"}, "code is given without script"),
        ({"repository": {"url": "https://h/x.git", "ref": "v1"}}, "give url, ref and commit"),
        ({"repository": {"url": "https://h/x.git", "ref": "v1", "commit": ""}}, "repository is {"),
        ({"framework": "mxnet", "distribution": "device", "nodes": 2}, "on one node, and nodes is 2: give nodes=1"),
        ({"framework": "mxnet", "script_args": ["--data=s3://b/k"]}, "this mxnet cannot read S3"),
        ({"resume": "r1"}, "framework cannot be changed when a run is resumed"),
    ],
)
def test_an_invalid_request_is_one_sentence(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as refused:
        validate({**GOOD, **changed})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_formats_describe_every_key_with_its_default() -> None:
    section = Path(create.__file__).with_name("README.md").read_text().split("## The request")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert sorted(row[0].strip("`") for row in rows) == sorted(FIELDS)
    for key, _form, *absent in rows:
        default = DEFAULTS[key.strip("`")]
        words = default if isinstance(default, str) else json.dumps(default)
        assert default is None or absent[0].partition(":")[0].strip("`") == words, key


@pytest.mark.parametrize("request_", [None, [], "x"])
def test_other_values_than_objects_are_refused(request_: Any) -> None:
    with pytest.raises(UserError, match="JSON object"):
        validate(request_)


def test_a_run_is_resumed_with_other_arguments() -> None:
    assert validate({"resume": "r1", "requested_by": "me", "script_args": ["--epochs", "9"]})["resume"] == "r1"


@pytest.mark.parametrize(
    "changed",
    [
        {"environment": {"A": "s3cret", "B": 1}},
        {"environment": "s3cret"},
    ],
)
def test_a_refusal_shows_no_secret(changed: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"^{next(iter(changed))} is ") as refused:
        validate({**GOOD, **changed})
    assert "s3cret" not in str(refused.value)


def test_a_wrong_record_shows_no_environment() -> None:
    with pytest.raises(UserError, match="^run.json: environment is <hidden>, not ") as refused:
        schema.validate_part({"environment": "s3cret"}, {"environment": schema.boolean}, "run.json")
    assert "s3cret" not in str(refused.value)
