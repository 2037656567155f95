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


@pytest.mark.parametrize("world", [20, 21, 1000, 5800, 8184, 16384])
def test_float32_has_the_sum_of_many_ranks_exactly_in_any_order(world: int) -> None:
    shares = np.array([preflight.share(rank, world) for rank in range(world)], np.float32)
    expected = sum(preflight.share(rank, world) for rank in range(world))
    # A ring adds one rank after another, and begins somewhere.
    for first in (0, world // 3):
        assert np.roll(shares, first).cumsum(dtype=np.float32)[-1] == expected
    assert expected - shares.min() != expected


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_sum_that_lacks_any_rank_is_wrong(lost: int) -> None:
    assert not any(result["right"] for result in ranks(3, lost))
