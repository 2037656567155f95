# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.cluster_config import shared


def cluster_record(cluster: Mapping[str, Any], facts: Mapping[str, Any], emr: bool | str) -> dict[str, Any]:
    return shared(cluster, facts, bool(emr))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"cluster_record": cluster_record}
