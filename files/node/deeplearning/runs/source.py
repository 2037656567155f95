"""The version of a run's code: a hash of its files."""

from __future__ import annotations

import hashlib
import os
from typing import Any


def hashed(path: str) -> dict[str, Any]:
    """Return the SHA-256 of a file, or of all files under a folder with their names."""
    total = hashlib.sha256()
    if os.path.isfile(path):
        _add(total, path)
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            file = os.path.join(folder, name)
            total.update(os.path.relpath(file, path).encode() + b"\0")
            if os.path.isfile(file):
                _add(total, file)
    return {"sha256": total.hexdigest()}


def _add(total: hashlib._Hash, path: str) -> None:
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
