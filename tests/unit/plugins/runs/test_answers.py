"""The forms of the answers of nodes: what is taken from them, and what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils import untrusted as u
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import InvalidValue

RUN = {
    "run_id": "mine",
    "framework": "pytorch",
    "distribution": "ddp",
    "python": "/usr/bin/python3",
    "script": "/efs/train.py",
    "requirements": "0a",
    "script_args": ["--lr", "0.1"],
    "data": "cifar10",
    "local_copy": {"data": "cifar10", "source": "s3://a", "bucket": "b"},
    "generated": False,
    "nodes": 2,
    "processes_per_node": 1024,
    "servers": None,
    "processor": True,
    "as_module": False,
}
PROGRESS = {"epoch": 1, "step": 2, "loss": 0.5, "accuracy": 0.5, "samples_per_second": 8, "seconds_left": 60}
LISTED = {
    "run_id": "mine",
    "state": "running",
    "framework": "pytorch",
    "distribution": "ddp",
    "nodes": ["deeplearning-master"],
    "progress": PROGRESS,
    "requested_by": "me@here",
    "requested_at": "now",
    "sentence": "",
    "reason": "",
    "stalled_seconds": 0,
    "cost": {"so_far": 41.2, "at_end": None},
}
LOAD = {"instance_id": "i-00000002", "at": 1, "load": 1.0, "processors": 8, "memory_percent": 10, "disk_percent": 20}
LOAD |= {"gpus": [], "logins": 0, "jobs": 0, "errors": []}
STAGED = {"changed": True, "path": "/efs/data/cifar10", "generated": False}
MEMBER = {"instance_id": "i-00000002", "rank": 2, "state": "ready"}
EVALUATION = {"epoch": 3, "samples": 9, "right": 5, "val_accuracy": 0.5, "average_precision": None}
EVALUATION |= {"text": "after epoch 3: 5 of 9 right, accuracy 0.5000"}
VALID: dict[str, dict[str, Any]] = {
    "run list": {"runs": [{"run_id": "mine", "state": "finished"}]},
    "run show": {"run": RUN, "checkpoints": ["checkpoint-1"]},
    "run frameworks": {"frameworks": [{"framework": "mxnet", "runs": ["mine", "x"], "processor": True}]},
    "run evaluation": {"evaluation": EVALUATION},
    "run files": {
        "state": "running",
        "files": [{"name": "model/a", "size": 3, "modified": -1}],
        "left_out": ["model/link"],
        "left_out_count": 1,
    },
    "run create": {"run_id": "mine", "warnings": []},
    "tensorboard check": {"installed": True},
    "tensorboard start": {"changed": True, "port": 6006},
    "tensorboard stop": {"changed": True},
    "page start": {"changed": True, "port": 6205},
    "page stop": {"changed": True},
    "unpack show": {"exists": True},
    "unpack share": {"changed": True, "files": 0},
    "unpack finish": {"changed": False},
    "data show": {"exists": True, "path": "/efs", "generated": True, "received": 7},
    "data stage": STAGED,
    "data receive": {"path": "/efs/data"},
    "status": {"members": [MEMBER], "loads": [LOAD], "runs": [LISTED], "problems": ["The disk is full."]},
    "members publish": {"generation": 3, "changed": True, "left_out": ["i-1"]},
    "members apply": {"generation": 3, "changed": True, "listed": False},
    "members report": {"changed": True},
    "members forget": {"changed": True},
}
OPTIONAL = {
    *("requirements", "data", "local_copy", "nodes", "processes_per_node", "servers", "processor", "progress"),
    *("as_module", "runs"),
    *("evaluation", "right", "val_accuracy", "average_precision", "reason", "stalled_seconds"),
    *("requested_by", "requested_at", "left_out_count"),
    *("cost", "so_far", "at_end"),
    # Made here, of the others.
    "text",
    *PROGRESS,
}


def command(name: str) -> list[str]:
    return [*name.split(), *(["--json"] if name in answers.FOR_PEOPLE else [])]


def parsed(name: str, answer: Any) -> dict[str, Any]:
    return answers.parse("n", command(name), json.dumps(answer))


def test_every_answer_has_a_form_that_is_tested() -> None:
    assert set(answers.ANSWERS) == set(VALID)


@pytest.mark.parametrize("name", VALID)
def test_a_right_answer_is_taken_without_what_is_not_in_its_form(name: str) -> None:
    assert parsed(name, {**VALID[name], "evil": "\x1b[2J"}) == VALID[name]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value in an answer."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from places(inner, (*path, key))


WAYS = [(name, way) for name, answer in VALID.items() for way in places(answer)]


@pytest.mark.parametrize(("name", "way"), WAYS, ids=lambda part: str(part))
def test_a_value_of_another_type_is_refused_or_left_out_and_a_missing_one_refused(
    name: str, way: tuple[Any, ...]
) -> None:
    """A node may send anything instead of anything."""
    answer = copy.deepcopy(VALID[name])
    *outer, last = way
    place: Any = answer
    for key in outer:
        place = place[key]
    place[last] = {"a": ["b"]}
    try:
        actual = parsed(name, answer)
    except UserError:
        pass
    else:
        # The figures of users' scripts are left out.
        assert last in OPTIONAL and '"a"' not in json.dumps(actual)
    if isinstance(place, list) or last in OPTIONAL:
        return
    del place[last]
    with pytest.raises(UserError):
        parsed(name, answer)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("tensorboard start", {"port": 6005}),
        ("tensorboard start", {"port": 6106}),
        ("page start", {"port": 6105}),
        ("page start", {"port": 6206}),
        ("run show", {"run": {**RUN, "processes_per_node": 1025}}),
        ("run show", {"run": {**RUN, "processes_per_node": 0}}),
        ("run show", {"run": {**RUN, "nodes": 0}}),
        ("run show", {"run": {**RUN, "nodes": ["a b"]}}),
        ("run show", {"run": {**RUN, "framework": "caffe"}}),
        ("run show", {"run": {**RUN, "distribution": "magic"}}),
        ("run show", {"run": {**RUN, "python": "python3"}}),
        ("run list", {"runs": [{"run_id": "../etc", "state": "finished"}]}),
        ("run list", {"runs": [{"run_id": "mine", "state": "flying"}]}),
        ("status", {"members": [{**MEMBER, "state": "failed"}]}),
        ("status", {"loads": [{**LOAD, "load": "high"}]}),
        ("status", {"loads": ["high"]}),
    ],
)
def test_what_no_node_of_ours_answers_is_refused(name: str, changed: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        parsed(name, {**VALID[name], **changed})


def test_some_values_may_have_another_form() -> None:
    assert parsed("run show", {**VALID["run show"], "run": {**RUN, "nodes": ["a", "b"]}})["run"]["nodes"] == ["a", "b"]
    running = {**LISTED, "progress": "fast"}
    assert parsed("status", {**VALID["status"], "runs": [running]})["runs"][0]["progress"] is None
    half = {**LISTED, "progress": {"epoch": "x", "loss": 1}}
    assert parsed("status", {**VALID["status"], "runs": [half]})["runs"][0]["progress"] == {
        **dict.fromkeys(PROGRESS),
        "loss": 1,
    }


def test_text_for_people_is_returned_as_it_is_but_for_what_a_terminal_obeys() -> None:
    expected = {"text": "mine runs\N{REPLACEMENT CHARACTER}[2J"}
    for words in (["run", "list"], ["run", "show", "mine"], ["version"], []):
        assert answers.parse("n", words, "  mine runs\x1b[2J\n") == expected
    with pytest.raises(UserError):
        answers.parse("n", ["run", "list", "--json"], "mine runs")
    with pytest.raises(UserError):
        answers.parse("n", ["run", "create"], "mine runs")


def test_a_line_of_an_evaluation_is_a_sentence() -> None:
    line = {"epoch": 2, "samples": 100, "right": 90, "val_accuracy": 0.9}
    assert answers.evaluation(line)["text"] == "after epoch 2: 90 of 100 right, accuracy 0.9000"
    assert answers.evaluation(line)["right"] == 90
    assert answers.evaluation({**line, "val_accuracy": None})["text"].endswith("accuracy 0.0000")
    detector = answers.evaluation({"epoch": 1, "samples": 5, "average_precision": 0.0})
    assert detector["text"] == "after epoch 1: average precision 0.0000 on 5 images"
    for wrong in ({"epoch": -1, "samples": 1}, {"epoch": 1}, [], {**line, "right": "x"}):
        with pytest.raises(InvalidValue):
            answers.evaluation(wrong)


def test_a_map_has_a_most_size() -> None:
    names = ["a", "b", "c"]
    parse = u.map_of(u.words, u.words, 2)
    assert parse(dict.fromkeys(names[:2], "a")) == dict.fromkeys(names[:2], "a")
    for wrong in (dict.fromkeys(names, "a"), names, None):
        with pytest.raises(InvalidValue, match="a map of up to 2"):
            parse(wrong)
