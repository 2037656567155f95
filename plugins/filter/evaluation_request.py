# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_request import evaluation_request


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"evaluation_request": evaluation_request}
