"""On the master: what EFA has lost on the nodes while they were tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deeplearning.health import probes
from deeplearning.health.checks import Check, some
from deeplearning.runs import efa

Losses = Mapping[str, Mapping[str, int]]
"""The counters of EFA by node."""


def read(ssh: Sequence[str], aliases: Sequence[str]) -> Losses:
    """Return the counters of the nodes that have EFA. A node that does not answer has none."""
    words = dict.fromkeys(aliases, ["losses"])
    answers = probes.ask_nodes(ssh, words, lambda _alias, text: efa.parse_losses(text))
    return {alias: counters for alias, counters in answers.items() if counters}


def check(before: Losses, after: Losses) -> Check:
    """Show which counters have grown. None is a fault by itself."""
    grown = {
        node: [
            f"{name} +{count - before[node][name]}"
            for name, count in counters.items()
            if count > before.get(node, {}).get(name, count)
        ]
        for node, counters in after.items()
    }
    words = [f"{node} {' '.join(names)}" for node, names in grown.items() if names]
    return Check("efa", True, f"during the test, EFA has counted on {some(words)}" if words else "EFA has lost nothing")
