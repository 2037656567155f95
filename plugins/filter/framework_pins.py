# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

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
