"""What the short run before a long one takes for a right sum."""

from __future__ import annotations

import threading

import numpy as np
import preflight
import pytest


def ranks(world: int, lose: int | None = None) -> list[dict]:
    """All ranks as threads, with a sum that lacks one of them if asked."""
    barrier, shared, results = threading.Barrier(world), {}, {}

    def exchange_of(rank: int) -> preflight.Exchange:
        def exchange(values: np.ndarray) -> np.ndarray:
            shared[rank] = values
            barrier.wait(30)
            total = sum(values for other, values in shared.items() if other != lose)
            barrier.wait(30)
            return total

        return exchange

    def run(rank: int) -> None:
        results[rank] = preflight.measure(rank, world, exchange_of(rank))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [results[rank] for rank in range(world)]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "LENGTH", 1024)
    monkeypatch.setattr(preflight, "SECONDS", 0.05)


@pytest.mark.parametrize("world", [1, 2, 8, 24])
def test_a_complete_sum_is_right_and_all_ranks_end_together(world: int) -> None:
    assert all(result["right"] and result["ranks"] == world for result in ranks(world))


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_sum_that_lacks_any_rank_is_wrong(lost: int) -> None:
    assert not any(result["right"] for result in ranks(3, lost))
