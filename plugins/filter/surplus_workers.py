# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.hosts import host_name
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import RANK_TAG, RUN_TAG

_RANK = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_UNRANKED = 100_000
"""Above all ranks."""


def surplus_workers(
    group: Mapping[str, Any], machines: Sequence[Mapping[str, Any]], desired_capacity: int
) -> list[dict[str, Any]]:
    ranks = {machine["instance_id"]: _rank(machine) for machine in machines}
    runs = {machine["instance_id"]: str(machine["tags"].get(RUN_TAG, "")) for machine in machines}
    present = [
        (ranks.get(item["instance_id"], _UNRANKED), item)
        for item in group["instances"]
        if not item["lifecycle_state"].startswith("Terminat")
    ]
    present.sort(key=lambda ranked: ranked[0], reverse=True)
    return [
        {
            "instance_id": item["instance_id"],
            "name": item["instance_id"] if rank == _UNRANKED else host_name(rank),
            "run": runs.get(item["instance_id"], ""),
        }
        for rank, item in present[: max(0, len(present) - int(desired_capacity))]
    ]


def _rank(machine: Mapping[str, Any]) -> int:
    tag = str(machine["tags"].get(RANK_TAG, ""))
    return int(tag) if _RANK.fullmatch(tag) else _UNRANKED


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"surplus_workers": surplus_workers}
