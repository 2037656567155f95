"""On the master: what EFA has lost on the nodes while they were tested."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from deeplearning import concurrency, programs
from deeplearning.contract.errors import UserError
from deeplearning.health.checks import Check, some
from deeplearning.runs import efa

SECONDS = 30.0

Losses = Mapping[str, Mapping[str, int]]
"""The counters of EFA by node."""


def read(ssh: Sequence[str], aliases: Sequence[str]) -> Losses:
    """Return the counters of the nodes that have EFA. A node that does not answer has none."""

    def ask(alias: str, seconds: float) -> dict[str, int]:
        try:
            return efa.parse_losses(
                programs.run(*ssh, alias, "deeplearning", "health", "losses", timeout=seconds).stdout
            )
        except (subprocess.TimeoutExpired, ValueError, RecursionError, UserError):
            return {}

    answers = zip(aliases, concurrency.ask_nodes(ask, aliases, SECONDS))
    return {alias: counters for alias, counters in answers if counters}


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
