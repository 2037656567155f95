# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.frameworks import FRAMEWORKS

FILES = Path(__file__).resolve().parents[2] / "roles/framework/files"


def gpu_tables(frameworks: Iterable[str]) -> dict[str, Any]:
    names = list(frameworks) or FRAMEWORKS
    return {name: json.loads((FILES / name / "gpu.json").read_text(encoding="utf-8")) for name in names}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_tables": gpu_tables}
