"""On the master: find nodes that are slower than the others, by TCP's bandwidth between pairs of nodes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence

from deeplearning.contract import schema
from deeplearning.health import probes
from deeplearning.health.checks import Check

SLOW = 0.5
"""Below this share of the median, a pair is slow. Healthy pairs differ less, with one TCP stream each."""
PEERS = 2
"""To so many nodes each node sends, so that a slow sender can be distinguished from a slow receiver."""
GBITS = schema.number(0, 1e6)
"""Training code may be root on a node, so its answer is validated."""

Speeds = Mapping[tuple[str, str], float]
"""Gbit/s by sender and receiver."""


def measure(ssh: Sequence[str], aliases: Sequence[str]) -> Speeds:
    """Let the nodes send, each to the next ones in a ring. A node that does not answer has 0.

    All of them send at the same time, as far as they can be contacted at the same time.
    """
    ring = [*aliases, *aliases]
    peers = {alias: ring[i + 1 : i + 1 + min(PEERS, len(aliases) - 1)] for i, alias in enumerate(aliases)}

    def speeds(alias: str, text: str) -> dict[str, float]:
        return schema.validate_part(json.loads(text), dict.fromkeys(peers[alias], GBITS), f"the speeds of {alias}")

    answers = probes.ask_nodes(ssh, {alias: ["send", *names] for alias, names in peers.items()}, speeds)
    return {(alias, peer): answers.get(alias, {}).get(peer, 0.0) for alias, names in peers.items() for peer in names}


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
