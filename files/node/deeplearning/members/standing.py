"""Whether all stands as the last `members apply` left it: what most ticks find, so it costs them next to nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable

from deeplearning import paths


def stands() -> bool:
    try:
        with open(paths.STANDING, encoding="utf-8") as file:
            source, *stamps = file.read().splitlines()
        # Reading it anew is the only way to see a change in NFS at once: attributes of what is not opened are kept.
        with open(source, "rb", opener=_file_alone) as published, open(paths.APPLIED, "rb") as applied:
            if os.fstat(published.fileno()).st_size != os.fstat(applied.fileno()).st_size:
                return False
            if published.read() != applied.read():
                return False
        return all(stamp == stamp_of(stamp.partition(" ")[0]) for stamp in stamps)
    except OSError:
        return False


def _file_alone(path: str, flags: int) -> int:
    """Anybody's root may put a link or a pipe there, at which this would wait for ever."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def stamp_of(path: str) -> str:
    seen = os.stat(path)
    return f"{path} {seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"


def remember(source: str, watched: Iterable[str]) -> None:
    os.makedirs(paths.RUNTIME, exist_ok=True)
    with open(f"{paths.STANDING}.new", "w", encoding="utf-8") as file:
        file.write("\n".join([source, *map(stamp_of, watched)]))
    os.rename(f"{paths.STANDING}.new", paths.STANDING)
