"""Bringing files here: from the web, from S3, from another folder. What came of a file already is not fetched again."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

from deeplearning import Refusal
from deeplearning.aws import Denied

CHUNK = 1 << 20
AT_ONCE = 8
ATTEMPTS = 5
PAUSE = 2.0


class Progress:
    """Counts what has come, and tells of it now and then."""

    def __init__(self, tell: Callable[[dict[str, Any]], None], every: float = 1.0) -> None:
        self._tell, self._every, self._told = tell, every, 0.0
        self.done, self.total = 0, 0

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._told >= self._every:
            self._told = now
            self._tell({"event": "progress", "done": self.done, "total": max(self.total, self.done)})


def md5_of(file: Path) -> str:
    found = hashlib.md5(usedforsecurity=False)
    with open(file, "rb") as opened:
        for chunk in iter(lambda: opened.read(CHUNK), b""):
            found.update(chunk)
    return found.hexdigest()


def fetch_url(address: str, file: Path, progress: Progress) -> None:
    """Into a file; from where it ends, if it is there already."""
    for attempt in range(ATTEMPTS):
        try:
            _fetch_rest(address, file, progress)
            return
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing is left of it
                return
            if error.code < 500 and error.code != 429:
                raise Refusal(
                    f"{address} cannot be fetched ({error.code} {error.reason}): name another data_source."
                ) from None
            problem: Exception = error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = error
        time.sleep(PAUSE * attempt)
    reason = getattr(problem, "reason", problem)
    raise Refusal(f"{address} cannot be fetched ({reason}): name another data_source, such as a file of your machine.")


def _fetch_rest(address: str, file: Path, progress: Progress) -> None:
    have = file.stat().st_size if file.exists() else 0
    asked = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        goes_on = answer.status == 206
        left = int(answer.headers.get("Content-Length") or 0)
        progress.total = progress.done + left
        with open(file, "ab" if goes_on else "wb") as out:
            for chunk in iter(lambda: answer.read(CHUNK), b""):
                out.write(chunk)
                progress.add(len(chunk))
                left -= len(chunk)
    if left > 0:
        raise ConnectionError("the connection ended too early")


def fetch_s3(aws: Any, bucket: str, prefix: str, folder: Path, progress: Progress) -> None:
    """All objects below a prefix, or the one of that name."""

    def listed(start: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = aws.pages("s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=start)
        return found

    base = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
    # With the slash first: members may list `imagenet/`, and not all that begins with `imagenet`.
    below = listed(base)
    # They may not list the second: then nothing is there for them.
    with contextlib.suppress(Denied):
        below = below or [one for one in listed(prefix) if one["Key"] == prefix]
    wanted = {}
    for one in below:
        name = one["Key"][len(base) :] or one["Key"].rsplit("/", 1)[-1]
        if not name.endswith("/"):
            wanted[_inside(folder, name)] = one
    if not wanted:
        raise Refusal(f"s3://{bucket}/{prefix} holds nothing: look at its name, and whether cluster_s3_read has it.")
    left = {file: one for file, one in wanted.items() if not (file.exists() and _is_as_listed(file, one))}
    progress.total = sum(one["Size"] for one in left.values())
    room(folder, progress.total)

    def fetch(file: Path) -> None:
        _fetch_object(aws, bucket, left[file], file, progress)

    aws.client("s3")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _unused in pool.map(fetch, left):
            pass


def _fetch_object(aws: Any, bucket: str, listed: dict[str, Any], file: Path, progress: Progress) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    coming = file.with_name(f".{file.name}.coming")
    have = coming.stat().st_size if coming.exists() else 0
    if have > listed["Size"]:
        coming.unlink()
        have = 0
    if have < listed["Size"] or not have:
        asked = {"Range": f"bytes={have}-"} if have else {}
        body = aws.call("s3", "get_object", Bucket=bucket, Key=listed["Key"], IfMatch=listed["ETag"], **asked)["Body"]
        with open(coming, "ab") as out:
            for chunk in iter(lambda: body.read(CHUNK), b""):
                out.write(chunk)
                progress.add(len(chunk))
    if not _is_as_listed(coming, listed):
        coming.unlink()
        raise Refusal(f"s3://{bucket}/{listed['Key']} came otherwise than S3 lists it: run the same command again.")
    os.replace(coming, file)


def _is_as_listed(file: Path, listed: dict[str, Any]) -> bool:
    if file.stat().st_size != listed["Size"]:
        return False
    tag = listed["ETag"].strip('"')
    # Of what was uploaded in parts or is encrypted with a key of KMS the tag is no checksum.
    return "-" in tag or len(tag) != 32 or md5_of(file) == tag


def copy_folder(source: Path, folder: Path, progress: Progress) -> None:
    files = list(_files(source))
    left = []
    for file in files:
        there, size = folder / file.relative_to(source), file.stat().st_size
        if not (there.exists() and there.stat().st_size == size):
            left.append((file, there))
            progress.total += size
    room(folder, progress.total)
    for file, there in left:
        there.parent.mkdir(parents=True, exist_ok=True)
        coming = there.with_name(f".{there.name}.coming")
        shutil.copyfile(file, coming)
        os.replace(coming, there)
        progress.add(there.stat().st_size)


def _files(folder: Path) -> Iterator[Path]:
    for place, _unused, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def _inside(folder: Path, name: str) -> Path:
    """Names come from whoever may write to the bucket."""
    if name.startswith("/") or ".." in Path(name).parts:
        raise Refusal(f"an object is called {name!r}, which is no path below a folder: leave it out of the data.")
    return folder / name


def room(folder: Path, needed: int) -> None:
    """Said before it begins and not after hours; a shared file system of AWS has no end."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise Refusal(
            f"{folder.parent} has {free / 2**30:.1f} GiB left, and {needed / 2**30:.1f} GiB are needed: make room, or "
            "stage it elsewhere with data_on."
        )
