"""The contents of the base image: packages, the local cloud's files, and masked units."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

from localcloud.core import settings

FILES = Path(__file__).parent / "files"

_RECIPE = tomllib.loads(Path(__file__).with_name("recipe.toml").read_text(encoding="utf-8"))
SUITE = settings.SUITE
PACKAGES: list[str] = [*_RECIPE["packages"], *_RECIPE["packages_of"].get(SUITE, [])]
MASKED: list[str] = _RECIPE["masked"]


def base_hash() -> str:
    """Return a hash of all contents of the base image."""
    digest = hashlib.sha256()
    for part in (SUITE, *PACKAGES, *MASKED):
        digest.update(part.encode() + b"\0")
    for path in sorted(FILES.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(FILES)).encode() + b"\0" + path.read_bytes() + b"\0")
    builder = Path(__file__).with_name("build.py")
    digest.update(builder.read_bytes())
    return digest.hexdigest()[:12]
