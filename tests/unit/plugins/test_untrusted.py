"""What nodes send, turned into values of known types; and what they may not send."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.filter.core import answer
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import run_request
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils import untrusted as u
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers, node_program

from tests.unit.plugins.hostile_kit import EVIL_IDS

INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2064\u206f\ufeff\ufff9\ufffb\U000e0001\U000e0041\U000e007f"
CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"a{CLIPBOARD}b", "a\N{REPLACEMENT CHARACTER}]52;c;ZXZpbA==\N{REPLACEMENT CHARACTER}b"),
        ("a\rb\x9b31mc\x7f", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}31mc\N{REPLACEMENT CHARACTER}"),
        # Invisible text, which only programs read.
        *((f"a{invisible}b", "a\N{REPLACEMENT CHARACTER}b") for invisible in INVISIBLE),
        ("a\u202eb\u2028c\ud800", "a" + "\N{REPLACEMENT CHARACTER}".join(["", "b", "c", ""])),
        ("tab\there\nnext, größer 🙂", "tab\there\nnext, größer 🙂"),
    ],
)
def test_nothing_is_printed_that_a_terminal_obeys(text: str, shown: str) -> None:
    assert u.printable(text) == shown


def test_a_sentence_is_one_line_of_bounded_length() -> None:
    assert u.words("fails\nCluster red is healthy") == "fails Cluster red is healthy"
    assert len(u.words("x" * 10**6)) == u.LONGEST_TEXT


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, -(10**400), 1e300, "1", True, None, [1], {}])
def test_a_number_that_no_figure_of_ours_reaches_is_none(value: Any) -> None:
    with pytest.raises(u.InvalidValue, match="a number"):
        u.number(value)


def test_a_number_that_is_as_good_as_none_is_none() -> None:
    assert [u.number(value) for value in (5e-324, -1e-300, 0.25, 7)] == [0, 0, 0.25, 7]


@pytest.mark.parametrize("value", [10**12, -1, 1.5, "3", True, None, [3]])
def test_counts_have_bounds(value: Any) -> None:
    with pytest.raises(u.InvalidValue, match="from 0 to 1024"):
        u.between(0, 1024)(value)


def test_a_long_list_is_refused_before_its_items_are_parsed() -> None:
    with pytest.raises(u.InvalidValue, match="a list of up to 3"):
        u.list_of(u.boolean, 3)([True] * 4)


@pytest.mark.parametrize("text", ["", "[", "x", "[" * 200_000, f"[{'9' * 5000}]", b"\xff\xfe{"])
def test_text_that_is_no_json_is_refused(text: str | bytes) -> None:
    assert sys.getrecursionlimit() < 200_000
    with pytest.raises(u.InvalidValue, match="^JSON$"):
        u.from_json(text)


def test_a_record_has_its_fields_and_no_others_and_names_the_wrong_one() -> None:
    parse = u.record(a=u.boolean, b=u.optional(u.count))
    assert parse({"a": True, "c": "../x"}) == {"a": True, "b": None}
    with pytest.raises(u.InvalidValue, match="^b: a whole number"):
        parse({"a": True, "b": "x"})


@pytest.mark.parametrize("evil", EVIL_IDS)
def test_what_a_node_calls_a_run_is_a_runs_id_or_refused(evil: Any) -> None:
    with pytest.raises(u.InvalidValue, match="a run's id"):
        run_request.run_id(evil)


RUN = {
    "run_id": "mine",
    "framework": "pytorch",
    "distribution": "ddp",
    "python": "/opt/deeplearning/env/pytorch/bin/python",
    "script": "/opt/deeplearning/trainers/cifar10_pytorch.py",
    "script_args": [],
    "data": "",
    "generated": False,
    "nodes": None,
}


@pytest.mark.parametrize(
    "changed",
    [
        {"framework": "/../../.deeplearning/reports/red/runs/x/metrics"},
        {"framework": ["pytorch"]},
        {"distribution": "../ddp"},
        {"python": "relative"},
        {"python": "/a\x1b[2J"},
        {"nodes": 10**12},
        {"nodes": ["-oProxyCommand=id"]},
        {"script_args": [["x"]]},
        {"generated": "no"},
    ],
)
def test_a_run_that_names_what_we_have_not_is_refused(changed: dict[str, Any]) -> None:
    form = answers.ANSWERS["run show"]
    assert form({"run": {**RUN, "more": 1}, "checkpoints": []})["run"]["framework"] == "pytorch"
    with pytest.raises(u.InvalidValue, match=f"run: {next(iter(changed))}"):
        form({"run": {**RUN, **changed}, "checkpoints": []})


def test_a_node_that_answers_otherwise_is_named_in_one_sentence() -> None:
    with pytest.raises(UserError) as error:
        answers.parse("deeplearning-master", ["run", "create"], '{"run_id": "../../.ssh"}')
    sentence = str(error.value)
    assert "deeplearning-master answered `deeplearning run create` with something unexpected" in sentence
    assert ".ssh" not in sentence and "\n" not in sentence


def test_what_a_node_refuses_with_is_cleaned() -> None:
    assert str(node_program.failure("n", 2, f"deeplearning: no{CLIPBOARD}\n")) == "no\ufffd]52;c;ZXZpbA==\ufffd"


def test_in_playbooks_a_filter_parses_what_commands_printed() -> None:
    printed = '{"generation": 3, "changed": true, "left_out": ["i-1\\u001b[2J is ill"]}'
    assert answer(printed, "members publish") == {
        "generation": 3,
        "changed": True,
        "left_out": ["i-1\ufffd[2J is ill"],
    }
    with pytest.raises(AnsibleFilterError, match="something unexpected"):
        answer('{"generation": "3"}', "members publish")
