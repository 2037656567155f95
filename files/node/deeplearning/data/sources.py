"""Data sets from the web and from another folder. What has been transferred before is not transferred again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Callable

from deeplearning.contract.download import CHUNK, Download, DownloadError
from deeplearning.contract.errors import UserError

PARALLEL_FILES = 8


class Progress:
    """Count the bytes of a transfer, and report them now and then."""

    def __init__(self, report: Callable[[dict[str, Any]], None], interval: float = 1.0) -> None:
        self._report, self._interval, self._reported_at = report, interval, 0.0
        self.done, self.total = 0, 0

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._reported_at >= self._interval:
            self._reported_at = now
            self._report({"event": "progress", "done": self.done, "total": max(self.total, self.done)})


def has_size(file: Path, size: int) -> bool:
    with contextlib.suppress(OSError):
        return file.stat().st_size == size
    return False


def md5_of(file: Path) -> str:
    return _digest(file, hashlib.md5(usedforsecurity=False))


def sha256_of(file: Path) -> str:
    return _digest(file, hashlib.sha256())


def _digest(file: Path, digest: Any) -> str:
    with open(file, "rb") as content:
        for chunk in iter(lambda: content.read(CHUNK), b""):
            digest.update(chunk)
    return str(digest.hexdigest())


def _open_url(url: str, headers: dict[str, str]) -> Any:
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)


def fetch_urls(
    urls: Sequence[str],
    file: Path,
    check: Callable[[Path], str],
    progress: Progress,
    advice: str,
    note: Callable[[str], None],
) -> None:
    """Download to a file, after what it already has, from the quickest address that has the right one.

    Raise UserError if none does, with advice if the last one cannot be fetched.
    """
    before = progress.done

    def report(done: int, total: int) -> None:
        progress.total = before + total
        progress.add(before + done - progress.done)

    try:
        Download(file, report, _open_url, partial(require_space, file.parent)).fetch_first(urls, check, note)
    except DownloadError as error:
        raise UserError(f"{error}: {advice}") from None


def copy_folder(source: Path, folder: Path, progress: Progress) -> None:
    """Copy the files that a folder lacks, several at once, and compare each copy with what was read."""
    missing = []
    for parent, _folders, names in os.walk(source):
        for file in (Path(parent, name) for name in names):
            target, size = folder / file.relative_to(source), file.stat().st_size
            if not has_size(target, size):
                missing.append((file, target))
                progress.total += size
    require_space(folder, progress.total)
    with ThreadPoolExecutor(PARALLEL_FILES) as pool:
        list(pool.map(lambda pair: _copy_file(pair[0], pair[1], progress), missing))


def _copy_file(file: Path, target: Path, progress: Progress) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    coming, digest = target.with_name(f".{target.name}.coming"), hashlib.md5(usedforsecurity=False)
    with open(file, "rb") as source, open(coming, "wb") as copy:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            copy.write(chunk)
            digest.update(chunk)
            progress.add(len(chunk))
    if md5_of(coming) != digest.hexdigest():
        coming.unlink()
        raise UserError(f"{target} differs from {file} after it was copied: check this node's disk.")
    os.replace(coming, target)


def require_space(folder: Path, needed: int) -> None:
    """Raise UserError if a transfer does not fit, before it begins. AWS's shared file system has no limit."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder.parent} has {free / 2**30:.1f} GiB left, and {needed / 2**30:.1f} GiB are needed: make room, or "
            "stage it elsewhere with data_on."
        )
