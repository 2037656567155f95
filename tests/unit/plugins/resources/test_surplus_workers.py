"""Which workers are removed from a group that shrinks."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.filter.core import surplus_workers


def group(*ids: str, **states: str) -> dict[str, Any]:
    return {"instances": [{"instance_id": id_, "lifecycle_state": states.get(id_, "InService")} for id_ in ids]}


def machines(**ranks: str) -> list[dict[str, Any]]:
    return [{"instance_id": id_, "tags": {"deeplearning:rank": rank} if rank else {}} for id_, rank in ranks.items()]


@pytest.mark.parametrize(
    ("instances", "ranks", "desired", "expected"),
    [
        (group("a", "b", "c"), machines(a="3", b="4", c="2"), 1, ["deeplearning-worker4", "deeplearning-worker3"]),
        (group("a", "b", "c"), machines(a="3", b="", c="2"), 2, ["b"]),
        (group("a", "b"), machines(a="3", b="4"), 2, []),
        (group("a", "b"), machines(a="3", b="4"), 5, []),
        (group("a", "b"), machines(a="{{ x }}", b="12"), 1, ["a"]),
        (group("a", "b", "new"), machines(a="2", b="3"), 2, ["new"]),
        (group("a", "b", "c", c="Terminating:Wait"), machines(a="2", b="3", c="4"), 2, []),
        (group("a", "b", "c", a="Pending"), machines(a="", b="2", c="3"), 1, ["a", "deeplearning-worker3"]),
    ],
    ids=[
        "highest ranks",
        "no rank",
        "enough",
        "too few",
        "no number",
        "not listed by EC2",
        "on its way out",
        "pending",
    ],
)
def test_the_workers_with_the_highest_ranks_go(
    instances: dict[str, Any], ranks: list[dict[str, Any]], desired: int, expected: list[str]
) -> None:
    assert [worker["name"] for worker in surplus_workers(instances, ranks, desired)] == expected


def test_the_run_that_uses_a_worker_is_named() -> None:
    used = machines(a="2", b="3")
    used[1]["tags"]["deeplearning:run"] = "lenet-1"
    used[0]["tags"]["deeplearning:run"] = ""
    chosen = surplus_workers(group("a", "b", "c"), used, 0)
    assert {worker["instance_id"]: worker["run"] for worker in chosen} == {"a": "", "b": "lenet-1", "c": ""}
