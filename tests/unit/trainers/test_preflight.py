"""What the short run before a long one takes for a right sum."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import preflight
import pytest


def played(world: int, act: Callable[[int, preflight.Exchange], dict], lose: int | None = None) -> list[dict]:
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
        results[rank] = act(rank, exchange_of(rank))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [results[rank] for rank in range(world)]


def ranks(world: int, lose: int | None = None) -> list[dict]:
    return played(world, lambda rank, exchange: preflight.measure(rank, world, exchange), lose)


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


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 255, 256])
def test_each_node_is_in_one_pair_of_a_round_and_has_both_its_neighbours(count: int) -> None:
    rounds = preflight.rounds_of_pairs(count)
    assert len(rounds) <= 3
    for pairs in rounds:
        nodes = [node for pair in pairs for node in pair]
        assert pairs and len(nodes) == len(set(nodes))
    pairs = [pair for each in rounds for pair in each]
    assert len(pairs) == len(set(map(frozenset, pairs))) == (1 if count == 2 else count)
    assert all((after - before) % count == 1 for before, after in pairs)


class Groups:
    """All-reduces among some ranks, each as slow as the slowest node in it."""

    def __init__(self, numbers: Sequence[int], slow: int | None = None) -> None:
        self.numbers, self.slow = numbers, slow
        self.made: dict[int, int] = defaultdict(int)
        """How many groups each rank has made: where these differ, PyTorch waits for ever."""

    def among(self, rank: int) -> Callable[[Sequence[int]], preflight.Reduce]:
        def reduce_among(members: Sequence[int]) -> preflight.Reduce:
            assert rank in members and list(members) == sorted(members)
            self.made[rank] += 1
            seconds = 0.2 if self.slow in [self.numbers[member] for member in members] else 0.1
            return lambda: seconds

        return reduce_among


def compared(numbers: Sequence[int], monkeypatch: pytest.MonkeyPatch, slow: int | None = None) -> list[dict]:
    """Compare nodes by ranks that run as threads. `numbers`: the node of each rank."""
    groups = Groups(numbers, slow)
    monkeypatch.setattr(preflight, "median_seconds", lambda reduce: reduce())
    monkeypatch.setattr(preflight, "GROUP_LENGTH", 10**9)
    own = threading.local()
    environ = SimpleNamespace(get=lambda name, default: str(own.number) if name == "GROUP_RANK" else default)
    monkeypatch.setattr(preflight, "os", SimpleNamespace(environ=environ))

    def act(rank: int, exchange: preflight.Exchange) -> dict:
        own.number = numbers[rank]
        return preflight.compare_nodes(preflight.Ranks(rank, len(numbers), exchange, lambda: None, groups.among(rank)))

    results = played(len(numbers), act)
    assert len({groups.made[rank] for rank in range(len(numbers))}) == 1
    return results


@pytest.mark.parametrize(
    ("numbers", "slow", "inside", "pairs"),
    [
        ([0, 0], None, None, None),
        ([0, 1], None, [], [[0, 1, 320]]),
        ([0, 0, 1, 1], None, [[0, 320], [2, 320]], [[0, 2, 480]]),
        ([0, 1, 1], 1, [[1, 160]], [[0, 1, 213]]),
        ([0, 1, 2], 2, [], [[0, 1, 320], [1, 2, 160], [2, 0, 160]]),
        ([0, 1, 2, 3], 1, [], [[0, 1, 160], [2, 3, 320], [1, 2, 160], [3, 0, 320]]),
        # Ranks need not follow each other on a node.
        ([1, 0, 1, 0], None, [[1, 320], [0, 320]], [[1, 0, 480]]),
    ],
)
def test_nodes_are_compared_with_their_neighbours_and_their_gpus_inside_them(
    numbers: list[int],
    slow: int | None,
    inside: list[list[int]] | None,
    pairs: list[list[int]] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = compared(numbers, monkeypatch, slow)
    assert all(result == results[0] for result in results)
    rounded = {name: [[*ranks, int(speed)] for *ranks, speed in figures] for name, figures in results[0].items()}
    assert rounded == ({} if pairs is None else {"inside": inside, "pairs": pairs})


@pytest.mark.parametrize("among", [True, False])
def test_the_result_has_the_comparison_where_the_framework_makes_one(
    among: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[bool] = []

    def exchange(values: np.ndarray) -> np.ndarray:
        started.append((tmp_path / "preflight-connected").exists())
        return values

    one = preflight.Ranks(0, 1, exchange, None, (lambda ranks: lambda: None) if among else None)
    monkeypatch.setattr(preflight, "exchange_of", lambda distribution: one)
    monkeypatch.setattr(preflight, "nodes_of", lambda ranks: [[0], [1]])
    for name, value in {"FRAMEWORK": "pytorch", "DISTRIBUTION": "", "WORLD": "1", "RUN_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"DEEPLEARNING_{name}", value)
    preflight.main()
    written = json.loads((tmp_path / "preflight.json").read_text())
    assert json.loads(capsys.readouterr().out) == written and all(started)
    assert written["right"] and ("pairs" in written) is among
