"""What the machines of a run have cost, at the prices in its request. Training code can write the files of its run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from deeplearning.contract import run_cost
from deeplearning.contract.errors import UserError
from deeplearning.contract.schema import parse_time
from deeplearning.runs.folder import MALFORMED, Folder

UNREADABLE = (UserError, OSError, *MALFORMED)
"""What files cause that cannot be read. The cost is not known then."""


def of_run(folder: Folder) -> dict[str, Any] | None:
    """Return the cost of a run so far and at its end; None if it is not known."""
    try:
        state = folder.state()
        attempts = (folder.result() or state).get("attempts", ())
        seconds_left = (state.get("progress") or {}).get("seconds_left")
        return of_attempts(folder.run(), earlier_attempts(folder), attempts, seconds_left)
    except UNREADABLE:
        return None


def earlier_attempts(folder: Folder) -> list[Any] | None:
    """Return the attempts before a run was resumed; None if they cannot be read."""
    try:
        results = (folder.read(f"attempts/{number}/result.json") for number in range(folder.attempts()))
        return [attempt for result in results if result is not None for attempt in result["attempts"]]
    except UNREADABLE:
        return None


def of_attempts(
    run: Mapping[str, Any], earlier: Sequence[Any] | None, attempts: Sequence[Any], seconds_left: float | None
) -> dict[str, Any] | None:
    """Return the cost of a run with these attempts. The last one has no end while it trains."""
    if earlier is None or not attempts:
        return None
    try:
        amounts = [_amount(run.get("prices") or {}, attempt) for attempt in (*earlier, *attempts)]
        at_end = None
        if attempts[-1]["ended"] is None and seconds_left is not None:
            at_end = sum(amounts) + _hourly(run["prices"], attempts[-1]) * seconds_left / 3600
        return {"so_far": sum(amounts), "at_end": at_end}
    except MALFORMED:
        return None


def _amount(prices: Mapping[str, float], attempt: Mapping[str, Any]) -> float:
    end = time.time() if attempt["ended"] is None else parse_time(attempt["ended"])
    return _hourly(prices, attempt) * max(0.0, end - parse_time(attempt["started"])) / 3600


def _hourly(prices: Mapping[str, float], attempt: Mapping[str, Any]) -> float:
    hourly = run_cost.hourly(prices, attempt["machines"])
    if hourly is None:
        raise ValueError("the price of a machine is not known")
    return hourly
