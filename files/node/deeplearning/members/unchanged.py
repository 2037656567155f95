"""Whether everything is as the last `members apply` left it. Most ticks find that, so it must be cheap."""

from __future__ import annotations

import os

from deeplearning.contract import paths


def is_unchanged() -> bool:
    try:
        with open(paths.UNCHANGED, encoding="utf-8") as file:
            source, *stamps = file.read().splitlines()
        # Only opening it shows a change in NFS at once: attributes of files that are not opened are cached.
        with open(source, "rb", opener=_open_file) as published, open(paths.APPLIED, "rb") as applied:
            if os.fstat(published.fileno()).st_size != os.fstat(applied.fileno()).st_size:
                return False
            if published.read() != applied.read():
                return False
        return all(stamp == stamp_of(stamp.partition(" ")[0]) for stamp in stamps)
    except OSError:
        return False


def _open_file(path: str, flags: int) -> int:
    """Do not follow a link or wait for a pipe, which root on any machine may put there."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def stamp_of(path: str) -> str:
    status = os.stat(path)
    return f"{path} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
