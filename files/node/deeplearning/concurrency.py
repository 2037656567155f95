"""Wait for many nodes, or for many files of the shared file system, at the same time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

CONNECTIONS_AT_ONCE = 128
"""Nodes that the master contacts at the same time, each by an ssh of its own."""
FILES_AT_ONCE = 64
"""Linux sends so many requests at the same time to a server of NFS 4.1 (max_session_slots, by default)."""


def ask_nodes(ask: Callable[[Item, float], Answer], nodes: Sequence[Item], seconds: float) -> list[Answer]:
    """Call `ask` for each node, with the seconds that it may take: so many, and never past the one deadline of all."""
    deadline = time.monotonic() + longest(len(nodes), seconds)

    def ask_in_time(node: Item) -> Answer:
        return ask(node, min(seconds, deadline - time.monotonic()))

    with ThreadPoolExecutor(CONNECTIONS_AT_ONCE) as pool:
        return list(pool.map(ask_in_time, nodes))


def longest(nodes: int, seconds: float) -> float:
    """Return the longest time in which so many nodes are asked, each for so many seconds."""
    return seconds * math.ceil(nodes / CONNECTIONS_AT_ONCE)


def with_files(call: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Call a function that waits for the shared file system with each item."""
    # One task for each thread: thousands of tasks would cost more than the function.
    size = math.ceil(len(items) / FILES_AT_ONCE) or 1
    parts = [items[at : at + size] for at in range(0, len(items), size)]
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return [answer for answers in pool.map(lambda part: [call(item) for item in part], parts) for answer in answers]
