"""Where data sets come from: the web, S3, another folder. What has been transferred before is not transferred again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

from deeplearning.aws import ATTEMPTS, AccessDenied, AwsClient, NotFound, Unavailable
from deeplearning.contract.download import CHUNK, DownloadError, download_first
from deeplearning.contract.errors import UserError

PARALLEL_OBJECTS = 8
RETRY_SECONDS = 2.0


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

    def check_space(needed: int) -> None:
        require_space(file.parent, needed)

    try:
        download_first(urls, file, check, report, _open_url, check_space, note)
    except DownloadError as error:
        raise UserError(f"{error}: {advice}") from None


def fetch_s3(aws: AwsClient, bucket: str, prefix: str, folder: Path, progress: Progress) -> None:
    """Download all objects below a prefix, or the one of that name."""
    for _unused in range(ATTEMPTS - 1):
        # An object may be removed or replaced after it was listed.
        with contextlib.suppress(NotFound):
            return _fetch_listed(aws, bucket, prefix, folder, progress)
    return _fetch_listed(aws, bucket, prefix, folder, progress)


def _fetch_listed(aws: AwsClient, bucket: str, prefix: str, folder: Path, progress: Progress) -> None:
    objects = _listed(aws, bucket, prefix, folder)
    missing = {file: item for file, item in objects.items() if not (file.exists() and _matches(file, item))}
    progress.total = progress.done + sum(item["Size"] for item in missing.values())
    require_space(folder, progress.total - progress.done)

    def fetch(file: Path) -> None:
        _fetch_object(aws, bucket, missing[file], file, progress)

    aws.client("s3")
    with ThreadPoolExecutor(PARALLEL_OBJECTS) as pool:
        list(pool.map(fetch, missing))


def _listed(aws: AwsClient, bucket: str, prefix: str, folder: Path) -> dict[Path, dict[str, Any]]:
    """Return the files to have in a folder, with the objects that they are copies of."""

    def objects_below(start: str) -> list[dict[str, Any]]:
        return aws.pages("s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=start)

    base = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
    # With the slash first: members may list `imagenet/`, and not all that begins with `imagenet`.
    objects = objects_below(base)
    # They may not list the second: then nothing is there for them.
    with contextlib.suppress(AccessDenied):
        objects = objects or [item for item in objects_below(prefix) if item["Key"] == prefix]
    names = {item["Key"][len(base) :] or item["Key"].rsplit("/", 1)[-1]: item for item in objects}
    files = {_inside(folder, name): item for name, item in names.items() if not name.endswith("/")}
    if not files:
        raise UserError(
            f"s3://{bucket}/{prefix} holds nothing: check its name, and whether cluster_s3_read contains it."
        )
    return files


def _fetch_object(aws: AwsClient, bucket: str, item: dict[str, Any], file: Path, progress: Progress) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.coming")
    for attempt in range(ATTEMPTS):
        try:
            _fetch_rest(aws, bucket, item, partial, progress)
            break
        except NotFound:
            partial.unlink(missing_ok=True)
            raise
        except Unavailable:
            if attempt + 1 == ATTEMPTS:
                raise
            time.sleep(RETRY_SECONDS * (attempt + 1))
    if not _matches(partial, item):
        partial.unlink()
        raise UserError(f"s3://{bucket}/{item['Key']} differs from what S3 lists: run the same command again.")
    os.replace(partial, file)


def _fetch_rest(aws: AwsClient, bucket: str, item: dict[str, Any], partial: Path, progress: Progress) -> None:
    """Download what the file lacks of an object."""
    size = partial.stat().st_size if partial.exists() else 0
    if size > item["Size"]:
        partial.unlink()
        size = 0
    if size and size == item["Size"]:
        return
    rest: dict[str, Any] = {"Range": f"bytes={size}-"} if size else {}
    with open(partial, "ab") as output:
        for chunk in aws.stream_object(bucket, item["Key"], IfMatch=item["ETag"], **rest):
            output.write(chunk)
            progress.add(len(chunk))


def _matches(file: Path, item: dict[str, Any]) -> bool:
    if file.stat().st_size != item["Size"]:
        return False
    tag = item["ETag"].strip('"')
    # The tag of an object that was uploaded in parts, or is encrypted with a key of KMS, is no checksum.
    return "-" in tag or len(tag) != 32 or md5_of(file) == tag


def copy_folder(source: Path, folder: Path, progress: Progress) -> None:
    """Copy the files that a folder lacks, several at once, and compare each copy with what was read."""
    missing = []
    for file in _files(source):
        target, size = folder / file.relative_to(source), file.stat().st_size
        if not (target.exists() and target.stat().st_size == size):
            missing.append((file, target))
            progress.total += size
    require_space(folder, progress.total)
    with ThreadPoolExecutor(PARALLEL_OBJECTS) as pool:
        list(pool.map(lambda pair: _copy_file(pair[0], pair[1], progress), missing))


def _copy_file(file: Path, target: Path, progress: Progress) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial, digest = target.with_name(f".{target.name}.coming"), hashlib.md5(usedforsecurity=False)
    with open(file, "rb") as source, open(partial, "wb") as copy:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            copy.write(chunk)
            digest.update(chunk)
            progress.add(len(chunk))
    if md5_of(partial) != digest.hexdigest():
        partial.unlink()
        raise UserError(f"{target} differs from {file} after it was copied: check this node's disk.")
    os.replace(partial, target)


def _files(folder: Path) -> Iterator[Path]:
    for parent, _folders, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _inside(folder: Path, name: str) -> Path:
    """Return the path of an object below a folder. Anybody who may write to the bucket chooses the name."""
    if name.startswith("/") or ".." in Path(name).parts:
        raise UserError(f"an object is called {name!r}, which is no path below a folder: leave it out of the data.")
    return folder / name


def require_space(folder: Path, needed: int) -> None:
    """Raise UserError if a transfer does not fit, before it begins. AWS's shared file system has no limit."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder.parent} has {free / 2**30:.1f} GiB left, and {needed / 2**30:.1f} GiB are needed: make room, or "
            "stage it elsewhere with data_on."
        )
