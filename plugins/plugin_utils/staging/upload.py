# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Staging a data set in a bucket: fetch its files, check them, send what is missing, and then write its manifest."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ansible.module_utils.urls import open_url
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.datasets import Dataset, DatasetFile
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.download import CHUNK, DownloadError, download
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.manifest import FILE as MANIFEST
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.manifest import build
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging import archives
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging.bucket import Bucket, MissingBucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging.datasets import set_of

SHA256 = re.compile(r"[0-9a-f]{64}")


class ShowProgress(Protocol):
    """Called with what is being done, and how many of how many bytes."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class LocalFile:
    """A part of a data set on this machine."""

    part: DatasetFile
    path: Path
    sha256: str

    @property
    def size(self) -> int:
        return self.path.stat().st_size


def stage(
    bucket: Bucket, name: str, source: Path | None, folder: Path, progress: ShowProgress, check: bool
) -> dict[str, Any]:
    """Send a data set to a bucket, as far as it is not there.

    Return whether anything was sent, and the files without a published checksum whose own is recorded now.
    """
    dataset = set_of(name, source)
    try:
        bucket.check()
        manifest = bucket.manifest()
    except MissingBucket:
        if not check or not bucket.owner:
            raise
        manifest = {}  # check mode has not created it
    recorded = _recorded(manifest)
    # Others may write to the bucket too. Only sizes and digests are taken from there.
    complete = _names(dataset) == recorded.keys() and manifest == _manifest(name, dataset, recorded)
    if complete and source and check:
        complete = all(recorded[part.name][0] == (source / part.name).stat().st_size for part in dataset.parts)
    if check or (complete and source is None):
        version = manifest["version"] if complete else ""
        return {"changed": not complete, "source": bucket.url, "version": version, "unpublished": []}
    files = [_local_file(bucket, part, source, folder, recorded, progress) for part in dataset.parts]
    sent = _send_missing(bucket, files, progress)
    new = _manifest(name, dataset, {file.part.name: (file.size, file.sha256) for file in files})
    if new != manifest:
        bucket.put_manifest(new)
    unpublished = [part.name for part in dataset.parts if not part.digest and part.name not in recorded]
    return {
        "changed": sent or new != manifest,
        "source": bucket.url,
        "version": new["version"],
        "unpublished": unpublished,
    }


def _names(dataset: Dataset) -> set[str]:
    return {part.name for part in dataset.parts}


def _local_file(
    bucket: Bucket,
    part: DatasetFile,
    source: Path | None,
    folder: Path,
    recorded: Mapping[str, tuple[int, str]],
    progress: ShowProgress,
) -> LocalFile:
    """Return a part's file with its checksum. Fetch it unless the user has it in `source`."""
    path = source / part.name if source else fetch(part, folder, progress)
    sha256 = check_digest(part, path, progress)
    if source is None and part.name in recorded and recorded[part.name][1] != sha256:
        raise UserError(
            f"{part.name} from {part.url} is not the one that was staged before: its SHA-256 is {sha256}, and "
            f"{recorded[part.name][1]} was recorded. Remove {bucket.url}/{MANIFEST} to use the new one."
        )
    return LocalFile(part, path, sha256)


def _send_missing(bucket: Bucket, files: list[LocalFile], progress: ShowProgress) -> bool:
    """Send the files that the bucket does not have. Return whether there were any."""
    missing = [file for file in files if not bucket.has(file.part.name, file.size, file.sha256)]
    for file in missing:
        if not file.part.digest:
            archives.check(file.part, file.path, partial(progress, f"reading {file.part.name}", total=file.size))
    for file in missing:
        _send(bucket, file, progress)
    return bool(missing)


def _send(bucket: Bucket, file: LocalFile, progress: ShowProgress) -> None:
    size, done = file.size, 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        progress(f"sending {file.part.name}", done, size)

    bucket.send(file.path, file.part.name, file.sha256, add)


def _recorded(manifest: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return the size and the SHA-256 of each part in a manifest; nothing if the manifest is malformed."""
    try:
        return {
            part["name"]: (part["size"], part["sha256"])
            for part in manifest["parts"]
            if SHA256.fullmatch(part["sha256"]) and part["size"] >= 0
        }
    except (KeyError, TypeError):
        return {}


def _manifest(name: str, dataset: Dataset, recorded: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    return build(name, dataset.parts, recorded, dataset.links)


def check_digest(part: DatasetFile, file: Path, progress: ShowProgress) -> str:
    """Return the file's SHA-256. Raise UserError if it does not have the checksum that is published."""
    sha256 = hashlib.sha256()
    published = hashlib.new(part.algorithm, usedforsecurity=False) if part.algorithm else None
    size, done = file.stat().st_size, 0
    with file.open("rb") as opened:
        for chunk in iter(lambda: opened.read(CHUNK), b""):
            sha256.update(chunk)
            if published:
                published.update(chunk)
            done += len(chunk)
            progress(f"checking {part.name}", done, size)
    if published and published.hexdigest() != part.digest:
        raise UserError(
            f"{file} has the {part.algorithm} {published.hexdigest()}, and {part.digest} is published: remove it, and "
            "run the same command again."
        )
    return sha256.hexdigest()


def fetch(part: DatasetFile, folder: Path, progress: ShowProgress) -> Path:
    """Return the part's file in a folder. Download it if it is not there, after what an earlier attempt has left."""
    file = folder / part.name
    if file.is_file():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{part.name}.part"

    def check_space(needed: int) -> None:
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise UserError(
                f"{part.name} needs {needed / 2**30:.1f} GiB more, and {folder} has {free / 2**30:.1f} GiB left: make "
                "room, or name another folder. Example: -e stage_folder=/mnt/stage"
            )

    def show(done: int, total: int) -> None:
        progress(f"fetching {part.name}", done, total)

    try:
        download(part.url, unfinished, show, _open, check_space)
    except DownloadError as error:
        raise UserError(
            f"{part.url} cannot be fetched ({error}): run the same command again, it resumes there; or fetch it "
            "yourself and name its folder. Example: -e source_dir=~/Downloads"
        ) from None
    unfinished.replace(file)
    return file


def _open(url: str, headers: dict[str, str]) -> Any:
    return open_url(url, headers=headers, timeout=60)
