"""Staged data sets: archives of small files, and the manifest that stage.yml writes."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

V1, V2 = "1" * 16, "2" * 16
LONG = "train/" + "n" * 140
"""Names like this have a header of their own in a tar archive."""


def contents(count: int = 80) -> dict[str, bytes]:
    """Small files, one that is as large as all others, and long names."""
    made = random.Random(0)
    files = {f"train/{n:04d}.jpg": made.randbytes(made.randrange(3000)) for n in range(count)}
    files |= {f"{LONG}{n}.jpg": made.randbytes(900) for n in range(count // 4)}
    return {**files, "train/large.bin": made.randbytes(300_000)}


def tar(path: Path, files: dict[str, bytes], format_: int = tarfile.PAX_FORMAT, top: str = "") -> None:
    with tarfile.open(path, "w", format=format_) as archive:
        folder = tarfile.TarInfo("train")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(f"{top}{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def manifest(folder: Path, *parts: str, strip: str = "", to: str = "", **more: Any) -> dict[str, Any]:
    record = {
        "schema": 1,
        "name": "coco",
        "version": V1,
        "parts": [
            {
                "name": name,
                "kind": name.partition(".")[2] if name.endswith(("tar", "zip", "tar.gz")) else "file",
                "size": (folder / name).stat().st_size,
                "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
                "to": to,
                "strip": strip,
            }
            for name in parts
        ],
        "links": {},
        **more,
    }
    (folder / "manifest.json").write_text(json.dumps(record))
    return record
