"""On the master: find nodes that are slower than the others, by the bandwidth between pairs of nodes."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence

from deeplearning.health.checks import Check
from deeplearning.members.member_list import Member

SLOW = 0.5
"""Below this share of the median, a pair is slow. Healthy pairs differ less, with one TCP stream each."""
PEERS = 2
"""To so many nodes each node sends, so that a slow sender can be distinguished from a slow receiver."""
SECONDS = 30.0
"""Nodes that have not answered by then have 0 Gbit/s."""

Speeds = Mapping[tuple[str, str], float]
"""Gbit/s by sender and receiver."""


def check(ssh: Sequence[str], members: Sequence[Member]) -> Check:
    return judge(measure(ssh, [member.alias for member in members]))


def measure(ssh: Sequence[str], aliases: Sequence[str]) -> Speeds:
    """Let all nodes send at the same time, each to the next ones in a ring. A node that does not answer has 0."""
    ring = [*aliases, *aliases]
    peers = {alias: ring[i + 1 : i + 1 + min(PEERS, len(aliases) - 1)] for i, alias in enumerate(aliases)}
    senders = {
        alias: subprocess.Popen(
            [*ssh, alias, "deeplearning", "health", "send", *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for alias, names in peers.items()
    }
    deadline = time.monotonic() + SECONDS
    answers = {alias: _answer(process, deadline) for alias, process in senders.items()}
    return {(alias, peer): float(answers[alias].get(peer, 0)) for alias, names in peers.items() for peer in names}


def _answer(process: subprocess.Popen[str], deadline: float) -> dict[str, float]:
    try:
        answer: dict[str, float] = json.loads(process.communicate(timeout=max(0.0, deadline - time.monotonic()))[0])
    except (subprocess.TimeoutExpired, ValueError):
        process.kill()
        process.wait()
        return {}
    return answer


def judge(speeds: Speeds) -> Check:
    """Name each node that is slow with all its peers, as a sender or as a receiver."""
    median = statistics.median(speeds.values())
    nodes = dict.fromkeys(node for pair in speeds for node in pair)
    slow = {
        node: min(speed for pair, speed in speeds.items() if node in pair)
        for node in nodes
        if any(all(speed < SLOW * median for pair, speed in speeds.items() if pair[side] == node) for side in (0, 1))
    }
    if slow:
        names = " and ".join(f"{node} has {speed:.2f}" for node, speed in slow.items())
        return Check("pairs", False, f"{names} Gbit/s, and the median of all pairs of nodes is {median:.2f}")
    return Check("pairs", True, f"{min(speeds.values()):.2f} Gbit/s or more between nodes, median {median:.2f}")
