"""Whether everything is as the last `members apply` left it. Most ticks find that, so it must be cheap."""

from __future__ import annotations

import os

from deeplearning import safe_files
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError


def is_unchanged() -> bool:
    try:
        with open(paths.UNCHANGED, encoding="utf-8") as file:
            source, *stamps = file.read().splitlines()
        # Only opening it shows a change in NFS at once: attributes of files that are not opened are cached.
        with safe_files.open_file(source) as published, open(paths.APPLIED, "rb") as applied:
            expected = applied.read()
            if published.read(len(expected) + 1) != expected:
                return False
        return all(stamp == stamp_of(stamp.partition(" ")[0]) for stamp in stamps)
    except (OSError, UserError):
        return False


def stamp_of(path: str) -> str:
    status = os.stat(path)
    return f"{path} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
