"""What a stalled run costs: the prices that its request may have, and the words."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import run_cost, run_request
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError


@pytest.mark.parametrize(
    "prices",
    [
        [],
        "0.2",
        {"m5.large": "0.2"},
        {"m5.large": -1},
        {"m5.large": float("nan")},
        {"m5.large": True},
        {"../x": 1},
        {f"m{number}.large": 1 for number in range(17)},
    ],
)
def test_prices_of_another_form_are_refused(prices: Any) -> None:
    request = {"framework": "pytorch", "script": "/x.py", "requested_by": "me"}
    assert run_request.validate({**request, "prices": {"m5.large": 0.1}})["prices"] == {"m5.large": 0.1}
    with pytest.raises(UserError, match="prices"):
        run_request.validate({**request, "prices": prices})


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (None, "an amount that is not known"),
        (27.161, "27.16 USD an hour"),
        (0.192, "0.192 USD an hour"),
        (0.00001, "less than 0.0001 USD an hour"),
        (0, "0.00 USD an hour"),
    ],
)
def test_a_cost_is_a_phrase(amount: float | None, words: str) -> None:
    assert run_cost.phrase(amount) == words


@pytest.mark.parametrize(
    ("so_far", "at_end", "text"),
    [
        (41.2, 96.1, "41.20 USD so far, about 96.10 at its end"),
        (41.2, None, "41.20 USD"),
        (0.0008, 0.0011, "less than 0.01 USD"),
        (0.0008, 2.0, "0.0008 USD so far, about 2.00 at its end"),
        (0.0, None, "0.00 USD"),
    ],
)
def test_the_cost_of_a_run_is_said_so_far_and_at_its_end(so_far: float, at_end: float | None, text: str) -> None:
    assert run_cost.in_all({"so_far": so_far, "at_end": at_end}) == text
