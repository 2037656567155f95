# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Staging a data set in a bucket: fetch its files, check them, send what is missing, and then write its manifest."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol, cast

from ansible.module_utils.urls import open_url

from ...module_utils.aws.client import AwsError
from ...module_utils.contract.archives import files_sha256
from ...module_utils.contract.datasets import ON_DEMAND, Dataset, DatasetFile
from ...module_utils.contract.download import Download, DownloadError
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.manifest import FILE as MANIFEST
from ...module_utils.contract.manifest import build, digest
from . import archives
from .bucket import Bucket, MissingBucket, ObjectReader, file_sha256
from .datasets import set_of
from .first_fetches import FirstFetches

SHA256 = re.compile(r"[0-9a-f]{64}")


class Display(Protocol):
    """Where progress and messages are shown."""

    def transfer(self, what: str, done: int, total: int) -> None: ...

    def message(self, line: str) -> None: ...


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
    display: Display,
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
    verified = _verified(bucket, name, dataset, recorded)
    recorded.update(verified)
    # Others may write to the bucket too. Only sizes and digests are taken from there.
    names = {part.name for part in dataset.parts}
    complete = names == recorded.keys() and manifest == build(name, dataset.parts, recorded, dataset.links)
    _refuse_others(bucket, name, {part.name: fetches.expected(part) for part in dataset.parts}, recorded)
    # What the bucket's list says of a file proves nothing, so a file without a known checksum is fetched to compare.
    unverified = [part for part in dataset.parts if part.name not in verified]
    if complete and source and check:
        complete = all(recorded[part.name][0] == (source / part.name).stat().st_size for part in unverified)
    if check or (complete and source is None and all(fetches.expected(part) for part in unverified)):
        return _result(bucket, not complete, manifest if complete else {}, [])
    needed = [part for part in unverified if source or not complete or not fetches.expected(part)]
    unpublished = [
        part.name
        for part in needed
        if not part.is_published and not (fetches.expected(part) if part.url else part.name in recorded)
    ]
    files = [_local_file(name, part, source, folder, fetches, display) for part in needed]
    to_compare = {
        file.part.name: file.sha256 for file in files if not file.part.files_sha256 and (not source or file.part.url)
    }
    _refuse_others(bucket, name, to_compare, recorded)
    contents = {**recorded, **{file.part.name: (file.size, file.sha256) for file in files}}
    new = build(name, dataset.parts, contents, dataset.links)
    sent = _send_missing(bucket, files, display, replace)
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


def _verified(
    bucket: Bucket, name: str, dataset: Dataset, recorded: Mapping[str, tuple[int, str]]
) -> dict[str, tuple[int, str]]:
    """Return the size and SHA-256 of each archive in the bucket that has the published files, however it is packed.

    Raise UserError if one has other files.
    """
    verified = {}
    for part in dataset.parts:
        reader = bucket.open(part.name) if part.files_sha256 and part.name in recorded else None
        if not reader:
            continue
        if not _has_published_files(part, reader):
            _refuse(bucket, name, f"{bucket.url}/{part.name} does not have the published files")
        verified[part.name] = reader.complete()
    return verified


def _has_published_files(part: DatasetFile, reader: ObjectReader) -> bool:
    # tarfile only reads it, from its beginning to its end.
    opened: IO[bytes] = cast(Any, reader)
    try:
        with archives.damage(part, Path(part.name)):
            return files_sha256(opened, part.strip) == part.files_sha256
    except AwsError:
        raise
    except UserError:
        return False


def _refuse_others(
    bucket: Bucket, name: str, expected: Mapping[str, str], recorded: Mapping[str, tuple[int, str]]
) -> None:
    """Raise UserError if the bucket's list has other checksums than are expected, where any are."""
    for part, sha256 in expected.items():
        if sha256 and part in recorded and recorded[part][1] != sha256:
            listed = f"{bucket.url}/{MANIFEST} has the SHA-256 {recorded[part][1]} for {part}"
            _refuse(bucket, name, f"{listed}, and {sha256} is right")


def _refuse(bucket: Bucket, name: str, problem: str) -> NoReturn:
    writers = f"all operators of the account {bucket.owner} write" if bucket.owner else "others may write"
    raise UserError(
        f"{problem}, so nothing of it is used: {writers} there. Ask who staged it, or replace it. Example: "
        f"ansible-playbook deeplearning.aws.stage -e dataset={name} -e stage_replace=true"
    )


def _local_file(
    name: str, part: DatasetFile, source: Path | None, folder: Path, fetches: FirstFetches, display: Display
) -> LocalFile:
    """Return a part's file with its checksum. Fetch it unless the user has it in `source`."""
    if source:
        file = source / part.name
        return LocalFile(part, file, check_digest(part, file, fetches, display))
    file = folder / part.name
    if file.is_file():
        try:
            return LocalFile(part, file, check_digest(part, file, fetches, display))
        except UserError as problem:
            file.unlink()
            display.message(f"{problem} The file was removed.")
    return LocalFile(part, file, _fetch(name, part, file, fetches, display))


def _send_missing(bucket: Bucket, files: list[LocalFile], display: Display, replace: bool) -> bool:
    """Send the files that the bucket does not have, or all. Return whether there were any."""
    missing = [file for file in files if replace or bucket.recorded(file.part.name) != (file.size, file.sha256)]
    for file in missing:
        if not file.part.is_published:
            archives.check(
                file.part, file.path, partial(display.transfer, f"reading {file.part.name}", total=file.size)
            )
    for file in missing:
        bucket.send(file.path, file.part.name, file.sha256, display.transfer)
    return bool(missing)


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


def check_digest(part: DatasetFile, file: Path, fetches: FirstFetches, display: Display) -> str:
    """Return the file's SHA-256. Raise UserError if it is neither the published one nor that of the first fetch."""
    size = file.stat().st_size
    sha256 = file_sha256(file, lambda done: display.transfer(f"checking {part.name}", done, size))
    of_files = ""
    if part.files_sha256:
        with file.open("rb") as opened, archives.damage(part, file):
            of_files = files_sha256(opened, part.strip)
    for actual, published in ((sha256, part.sha256), (of_files, part.files_sha256)):
        if published and actual != published:
            whose = "its files have" if published is part.files_sha256 else "it has"
            raise UserError(
                f"{file} is not the published one: {whose} the SHA-256 {actual} instead of {published}. Fetch it again."
            )
    if part.url and not part.is_published:
        fetches.compare(part.url, file, sha256)
    return sha256


def _fetch(name: str, part: DatasetFile, file: Path, fetches: FirstFetches, display: Display) -> str:
    """Download a part's file, after what an earlier attempt has left, and return its SHA-256."""
    file.parent.mkdir(parents=True, exist_ok=True)

    def check_space(needed: int) -> None:
        free = shutil.disk_usage(file.parent).free
        if needed > free:
            raise UserError(
                f"{part.name} needs {needed / 2**30:.1f} GiB more, and {file.parent} has {free / 2**30:.1f} GiB left: "
                "make room, or name another folder. Example: -e stage_folder=/mnt/stage"
            )

    def check(unfinished: Path) -> str:
        unfinished.replace(file)
        try:
            return check_digest(part, file, fetches, display)
        except UserError:
            file.unlink()
            raise

    try:
        urls = (*part.mirrors, part.url)
        unfinished = file.with_name(f"{part.name}.part")
        show = partial(display.transfer, f"fetching {part.name}")
        return Download(unfinished, show, _open, check_space).fetch_first(urls, check, display.message)
    except DownloadError as error:
        generated = "; or train on generated data (ansible-playbook deeplearning.aws.train -e dataset=generated)"
        raise UserError(
            f"{error}: run the same command again, it resumes there; or fetch it yourself and name its folder "
            f"(-e source_dir=~/Downloads){generated if name in ON_DEMAND else ''}."
        ) from None


def _open(url: str, headers: dict[str, str]) -> Any:
    return open_url(url, headers=headers, timeout=60)
