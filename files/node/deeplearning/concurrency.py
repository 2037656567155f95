"""Wait for many nodes, for many files of the shared file system, or for many answers of S3, at the same time."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

CONNECTIONS_AT_ONCE = 128
"""Nodes that the master contacts at the same time, each by an ssh of its own."""
FILES_AT_ONCE = 64
"""Linux sends so many requests at the same time to a server of NFS 4.1 (max_session_slots, by default)."""
POLL_SECONDS = 0.2
"""Between two checks of whether to stop."""


class Stopped(Exception):
    """The caller was asked to stop before all nodes had answered."""


def ask_nodes(
    ask: Callable[[Item, float], Answer],
    nodes: Sequence[Item],
    seconds: float,
    stop_requested: Callable[[], bool] = lambda: False,
) -> list[Answer]:
    """Call `ask` for each node, with the seconds that it may take: so many, and never past the one deadline of all.

    Raise Stopped as soon as `stop_requested` returns True. What runs then is abandoned, and keeps no process from
    its end: an executor would wait for its threads there.
    """
    deadline = time.monotonic() + longest(len(nodes), seconds)
    answers: list[Future[Answer]] = [Future() for _node in nodes]
    pending: queue.SimpleQueue[tuple[Item, Future[Answer]]] = queue.SimpleQueue()
    for item in zip(nodes, answers):
        pending.put(item)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                node, answer = pending.get_nowait()
                if answer.set_running_or_notify_cancel():
                    try:
                        answer.set_result(ask(node, min(seconds, deadline - time.monotonic())))
                    except BaseException as error:
                        answer.set_exception(error)

    for _thread in range(min(CONNECTIONS_AT_ONCE, len(nodes))):
        threading.Thread(target=work, daemon=True).start()
    while futures.wait(answers, POLL_SECONDS).not_done:
        if stop_requested():
            for answer in answers:
                answer.cancel()
            raise Stopped
    return [answer.result() for answer in answers]


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


def in_order(calls: Iterable[Callable[[], Answer]], at_once: int) -> Generator[Answer, None, None]:
    """Make calls, so many at a time, and yield their answers in the order of the calls.

    No more answers than that are held. The first error ends it: what runs then is awaited, and nothing else is called.
    """
    pool, pending = ThreadPoolExecutor(at_once), deque[Future[Answer]]()
    try:
        for call in calls:
            if len(pending) == at_once:
                yield pending.popleft().result()
            pending.append(pool.submit(call))
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
