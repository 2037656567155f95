# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: framework_pins
short_description: Name the versions that a framework environment gets
version_added: 1.0.0
description:
  - Returns a checksum of the pinned packages of each framework, which changes when this collection installs other
    versions.
options:
  _input:
    description: The frameworks. Empty for all.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Print the checksum for PyTorch
  ansible.builtin.debug:
    msg: "{{ ['pytorch'] | deeplearning.aws.framework_pins }}"
"""

RETURN = r"""
_value:
  description: The checksums by framework.
  type: dict
"""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.frameworks import FRAMEWORKS

FILES = Path(__file__).resolve().parents[2] / "roles/framework/files"
LENGTH = 12


def framework_pins(frameworks: Iterable[str]) -> dict[str, str]:
    return {name: _checksum(name) for name in list(frameworks) or FRAMEWORKS}


def _checksum(framework: str) -> str:
    files = sorted((FILES / framework).glob("requirements-*.txt"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:LENGTH]


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"framework_pins": framework_pins}
