# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_tables
short_description: Read for which GPUs the frameworks have kernels
version_added: 1.0.0
description:
  - Returns for each framework the compute capabilities for which its pinned packages have kernels, as
    C(tools/framework_kernels.py) has read them.
options:
  _input:
    description: The frameworks. Empty for all.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Print the least version of NVIDIA's driver for PyTorch
  ansible.builtin.debug:
    msg: "{{ ([] | deeplearning.aws.gpu_tables)['pytorch']['driver'] }}"
"""

RETURN = r"""
_value:
  description: By framework, the version of C(cuda), the least version of the C(driver), and the C(libraries).
  type: dict
"""

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
