# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import health


def health_verdict(
    results: Mapping[str, Any],
    cluster: str,
    joining: Sequence[str] = (),
    training: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    run = training if training and not training.get("skipped") else None
    verdict = health.verdict(results, joining, run)
    return {**verdict, "lines": health.verdict_lines(cluster, verdict)}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"health_verdict": health_verdict}
