# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Staging a data set in a bucket: fetch its files, check them, send what is missing, and then write its manifest."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ansible.module_utils.urls import open_url
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.archives import files_sha256
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.datasets import Dataset, DatasetFile
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.download import (
    ATTEMPTS,
    CHUNK,
    MIRROR_ATTEMPTS,
    DownloadError,
    download,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.manifest import FILE as MANIFEST
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.manifest import build, digest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging import archives
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging.bucket import Bucket, MissingBucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging.datasets import set_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging.first_fetches import FirstFetches

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
    bucket: Bucket,
    name: str,
    source: Path | None,
    folder: Path,
    fetches: FirstFetches,
    progress: ShowProgress,
    check: bool,
    replace: bool = False,
) -> dict[str, Any]:
    """Send a data set to a bucket, as far as it is not there, or all of it if it is to be replaced.

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
    recorded = {} if replace else _recorded(manifest)
    # Others may write to the bucket too. Only sizes and digests are taken from there.
    complete = _names(dataset) == recorded.keys() and manifest == _manifest(name, dataset, recorded)
    _refuse_others(bucket, name, {part.name: fetches.expected(part) for part in dataset.parts}, recorded)
    if complete and source and check:
        complete = all(recorded[part.name][0] == (source / part.name).stat().st_size for part in dataset.parts)
    if check or (complete and source is None and all(fetches.expected(part) for part in dataset.parts)):
        return _result(bucket, not complete, manifest if complete else {}, [])
    # What the bucket's list says of a file proves nothing, so a file without a known checksum is fetched to compare.
    needed = [part for part in dataset.parts if source or not complete or not fetches.expected(part)]
    unpublished = [
        part.name
        for part in needed
        if not part.is_published and not (fetches.expected(part) if part.url else part.name in recorded)
    ]
    files = [_local_file(part, source, folder, fetches, progress) for part in needed]
    _refuse_others(
        bucket, name, {file.part.name: file.sha256 for file in files if not source or file.part.url}, recorded
    )
    contents = {**recorded, **{file.part.name: (file.size, file.sha256) for file in files}}
    new = _manifest(name, dataset, contents)
    sent = _send_missing(bucket, files, progress, replace)
    if new != manifest:
        bucket.put_manifest(new)
    return _result(bucket, sent or new != manifest, new, unpublished)


def _result(bucket: Bucket, changed: bool, manifest: Mapping[str, Any], unpublished: list[str]) -> dict[str, Any]:
    return {
        "changed": changed,
        "source": bucket.url,
        "version": manifest.get("version", ""),
        "sha256": digest(manifest) if manifest else "",
        "unpublished": unpublished,
    }


def _refuse_others(
    bucket: Bucket, name: str, expected: Mapping[str, str], recorded: Mapping[str, tuple[int, str]]
) -> None:
    """Raise UserError if the bucket's list has other checksums than are expected, where any are."""
    for part, sha256 in expected.items():
        if sha256 and part in recorded and recorded[part][1] != sha256:
            writers = f"all operators of the account {bucket.owner} write" if bucket.owner else "others may write"
            raise UserError(
                f"{bucket.url}/{MANIFEST} has the SHA-256 {recorded[part][1]} for {part}, and {sha256} is right, so "
                f"nothing of it is used: {writers} there. Ask who staged it, or replace it. Example: ansible-playbook "
                f"stage.yml -e dataset={name} -e stage_replace=true"
            )


def _names(dataset: Dataset) -> set[str]:
    return {part.name for part in dataset.parts}


def _local_file(
    part: DatasetFile, source: Path | None, folder: Path, fetches: FirstFetches, progress: ShowProgress
) -> LocalFile:
    """Return a part's file with its checksum. Fetch it unless the user has it in `source`."""
    if source:
        path = source / part.name
        return LocalFile(part, path, check_digest(part, path, fetches, progress))
    for mirror in part.mirrors:
        # What is wrong with a mirror does not matter if the publisher's file is right.
        with contextlib.suppress(UserError):
            return _fetched(part, mirror, folder, fetches, progress)
    return _fetched(part, part.url, folder, fetches, progress)


def _fetched(part: DatasetFile, url: str, folder: Path, fetches: FirstFetches, progress: ShowProgress) -> LocalFile:
    path = fetch(part, url, folder, progress)
    try:
        return LocalFile(part, path, check_digest(part, path, fetches, progress))
    except UserError as problem:
        path.unlink()
        raise UserError(f"{problem} The file was removed.") from None


def _send_missing(bucket: Bucket, files: list[LocalFile], progress: ShowProgress, replace: bool) -> bool:
    """Send the files that the bucket does not have, or all. Return whether there were any."""
    missing = [file for file in files if replace or not bucket.has(file.part.name, file.size, file.sha256)]
    for file in missing:
        if not file.part.is_published:
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


def check_digest(part: DatasetFile, file: Path, fetches: FirstFetches, progress: ShowProgress) -> str:
    """Return the file's SHA-256. Raise UserError if it is neither the published one nor that of the first fetch."""
    sha256 = hashlib.sha256()
    size, done = file.stat().st_size, 0
    with file.open("rb") as opened:
        for chunk in iter(lambda: opened.read(CHUNK), b""):
            sha256.update(chunk)
            done += len(chunk)
            progress(f"checking {part.name}", done, size)
    of_files = ""
    if part.files_sha256:
        with file.open("rb") as opened, archives.damage(part, file):
            of_files = files_sha256(opened, part.strip)
    for actual, published in ((sha256.hexdigest(), part.sha256), (of_files, part.files_sha256)):
        if published and actual != published:
            whose = "its files have" if published is part.files_sha256 else "it has"
            raise UserError(
                f"{file} is not the published one: {whose} the SHA-256 {actual} instead of {published}. Fetch it again."
            )
    if part.url and not part.sha256:
        fetches.compare(part.url, file, sha256.hexdigest())
    return sha256.hexdigest()


def fetch(part: DatasetFile, url: str, folder: Path, progress: ShowProgress) -> Path:
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
        download(url, unfinished, show, _open, check_space, MIRROR_ATTEMPTS if url in part.mirrors else ATTEMPTS)
    except DownloadError as error:
        raise UserError(
            f"{url} cannot be fetched ({error}): run the same command again, it resumes there; or fetch it "
            "yourself and name its folder. Example: -e source_dir=~/Downloads"
        ) from None
    unfinished.replace(file)
    return file


def _open(url: str, headers: dict[str, str]) -> Any:
    return open_url(url, headers=headers, timeout=60)
