# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.cluster_config import build
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError


def node_config(cluster: Mapping[str, Any], role: str, gpus: int | str | None = None) -> str:
    try:
        content = build(json.loads(json.dumps(dict(cluster))), role, None if gpus is None else int(gpus))
    except UserError as error:
        raise AnsibleFilterError(str(error)) from None
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"node_config": node_config}
