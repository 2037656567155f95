"""Stage one data set: fetch and unpack it next to its final folder, check it, and rename it.

Other users of the file system can create folders and files there too. What an interrupted attempt has left is
continued only in a folder of our own that no other user can write to.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

from deeplearning import programs, safe_paths
from deeplearning.aws import AwsClient
from deeplearning.contract import datasets, paths
from deeplearning.contract.datasets import GENERATED, GENERATED_MARKER, DatasetFile
from deeplearning.contract.errors import UserError
from deeplearning.contract.identifiers import is_dataset_name
from deeplearning.data import local_disk
from deeplearning.data.extract import LISTED, Unpacking, create_links, marker_of, write_marker
from deeplearning.data.objects import fetch_s3
from deeplearning.data.packed import files_of
from deeplearning.data.ranged_reader import Source
from deeplearning.data.sources import Progress, copy_folder, fetch_urls, has_size, sha256_of
from deeplearning.identity import as_root

DATASETS = {name: datasets.DATASETS[name] for name in datasets.ON_DEMAND}
ON_NODE = Path(paths.NODE_DATA)

Report = Callable[[dict[str, Any]], None]


class StagingRequest:
    """What is to be staged, and where it goes."""

    def __init__(
        self, data: str, efs_mount: Path, source: str = "", on_node: bool = False, bucket: str = "", region: str = ""
    ) -> None:
        """`data`: a name of the catalogue, "generated", a folder's name or path, or s3://bucket/prefix.

        `bucket`: where stage.yml has staged data sets, each in a folder of its own. `region`: that of the buckets.
        """
        self.data, self.efs_mount, self.source, self.on_node = data, efs_mount, source, on_node
        self.bucket, self.region = bucket, region
        self.is_folder = not (data in DATASETS or data == GENERATED or data.startswith("s3://"))
        self.is_in_place = self.is_folder and not on_node
        """Whether the data is used where it lies, in a folder that all nodes see."""
        self.shared = Path(paths.dataset(str(efs_mount), data))
        """The folder of that name or path on the shared file system."""
        self.root = ON_NODE if on_node else efs_mount / "data"
        self.path = self.root / name_of(data)
        """The folder that the data is staged to."""
        self.partial = self.root / f".{self.path.name}.partial"
        self.incoming = self.root / ".incoming"

    def archives(self) -> Source:
        """Return what stage.yml has staged of the data, if it has."""
        return Source(f"{self.bucket}/{self.data}", self.region, self.data)


def name_of(data: str) -> str:
    """Return the name of a folder, a different one for each source."""
    if data in DATASETS or data == GENERATED:
        return data
    words = re.sub(r"[^a-z0-9]+", "-", data.lower().removeprefix("s3://"))
    return f"{words.strip('-')[:48]}-{hashlib.sha256(data.encode()).hexdigest()[:8]}"


def show(request: StagingRequest, key: str = "") -> dict[str, Any]:
    """Return whether the data is there, and how much of the file with checksum `key` the operator has sent."""
    path = _existing_folder(request) if request.is_in_place else request.path
    received = request.incoming / key
    is_complete = request.is_in_place or _is_complete(path)
    if is_complete:
        _check_version(request)
    elif request.is_folder:
        _staged_source(request)
    return {
        "exists": is_complete,
        "path": str(path),
        "generated": (path / GENERATED_MARKER).exists(),
        "received": received.stat().st_size if key and received.is_file() else 0,
    }


def _existing_folder(request: StagingRequest) -> Path:
    data, path = request.data, request.shared
    if not path.is_dir():
        raise UserError(f"data is {data}, and this node has no folder {path}: stage it first, or choose other data.")
    if not any(path.iterdir()):
        raise UserError(f"data is {data}, and {path} has no files: put them there, or choose other data.")
    return path


def _staged_source(request: StagingRequest) -> Path | Source | None:
    """Return where a copy of the data set exists: on the shared file system, or as archives in the bucket.

    Raise UserError if there is none of a data set that has no publisher.
    """
    if request.source:
        return None
    if request.on_node and request.shared.is_dir() and (request.is_folder or _is_complete(request.shared)):
        return _existing_folder(request)
    if request.bucket and is_dataset_name(request.data):
        archives = request.archives()
        if archives.exists():
            return archives
    if request.is_folder:
        staged = f", and {request.bucket}/{request.data} is no staged data set" if request.bucket else ""
        raise UserError(
            f"data is {request.data}, and this node has no folder {request.shared}{staged}: stage it first "
            "(stage.yml), or choose other data."
        )
    return None


def _check_version(request: StagingRequest) -> None:
    """Raise UserError if the node's own copy is another version than what is staged now. Not all data has versions."""
    own = marker_of(request.path).get("version") if request.on_node and request.is_folder else None
    if not own:
        return
    archives = request.archives()
    if request.shared.is_dir():
        staged = marker_of(request.shared).get("version")
    else:
        staged = archives.manifest()["version"] if archives.exists() else None
    if staged and staged != own:
        raise UserError(
            f"{request.path} is another version of {request.data} than what is staged: remove it on each node. "
            f"Example: ansible cluster -b -m file -a 'path={request.path} state=absent'"
        )


def has_local_copy(data: str) -> bool:
    return _is_complete(StagingRequest(data, Path(), on_node=True).path)


def stage(request: StagingRequest, report: Report) -> dict[str, Any]:
    if request.is_in_place:
        return {**show(request), "changed": False}
    try:
        _create_root(request)
        with _exclusive_lock(request, report):
            if changed := not _is_complete(request.path):
                _stage(request, report)
            if not request.on_node and request.data in DATASETS:
                create_links(request.path, request.efs_mount, DATASETS[request.data].links)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"{request.root} is full: make room, or stage it elsewhere with data_on.") from None
        raise
    return {**show(request), "changed": changed}


def receive(
    request: StagingRequest, key: str, position: int, chunks: Iterator[bytes], report: Report
) -> dict[str, Any]:
    """Write a file of the operator's machine, known by its checksum, from a position on.

    A process of an attempt that was killed may still be writing. It writes the same bytes at the same positions.
    """
    _create_root(request)
    safe_paths.own_folder(str(request.incoming))
    file = request.incoming / key
    progress = Progress(report)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644), "wb") as output:
        output.seek(position)
        for chunk in chunks:
            output.write(chunk)
            progress.add(len(chunk))
    return {"path": str(file)}


def _is_complete(path: Path) -> bool:
    if os.path.lexists(path):
        safe_paths.check_folder(str(path), os.geteuid(), 0)
    files = marker_of(path).get("files")
    if files is None and path.name in DATASETS:
        # A user may have put the data set here by hand.
        files = DATASETS[path.name].files
    if not files:
        return False
    return all(has_size(path / name, size) for name, size in list(files.items())[:LISTED])


def _create_root(request: StagingRequest) -> None:
    """Create the folder of all data sets, like /tmp: every user may stage, and none can remove files of another."""
    root = request.root
    if request.on_node:
        local_disk.prepare(str(root))
    try:
        safe_paths.shared_folder(str(root))
    except PermissionError:
        programs.check(*as_root("install", "-d", "-m", "1777", str(root)), failing=f"{root} cannot be created")
        safe_paths.shared_folder(str(root))


@contextmanager
def _exclusive_lock(request: StagingRequest, report: Report) -> Iterator[None]:
    """Let one process stage a data set, and others wait. The lock ends with its process."""
    name = request.path.name
    with open(safe_paths.own_file(str(request.root / f".{name}.lock"), 0o600), "r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report({"event": "note", "text": f"Another process is staging {name}: waiting for it."})
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stage(request: StagingRequest, report: Report) -> None:
    if request.path.exists():
        raise UserError(
            f"{request.path} is there and is not the whole of {request.data}: move it away, or give its path as data."
        )
    partial, progress = request.partial, Progress(report)
    source = _staged_source(request)
    if isinstance(source, Source):
        # All of them, on this node alone.
        unpacking = Unpacking(request.root, request.path.name, source)
        unpacking.unpack(0, 1, report)
        unpacking.finish(has_links=False)
        return
    safe_paths.own_folder(str(partial))
    if source:
        copy_folder(source, partial, progress)
    elif request.data == GENERATED:
        programs.check("python3", f"{paths.TRAINERS}/generate.py", str(partial), failing="generate.py failed")
    elif request.data in DATASETS:
        _fetch_dataset(request, progress, report)
    else:
        bucket, _slash, prefix = request.data[5:].partition("/")
        fetch_s3(AwsClient(request.region), bucket, prefix, partial, progress)
    # A copy has the marker of what it was copied from.
    files = [file for file in sorted(partial.rglob("*")) if file.is_file() and file != partial / paths.MARKER]
    sizes = {str(file.relative_to(partial)): file.stat().st_size for file in files}
    if not sizes:
        raise UserError(f"data is {request.data}, which has no files: put them there, or choose other data.")
    version = {"version": marker_of(source).get("version")} if source else {}
    write_marker(partial, request.data, sizes, source=request.source or request.data, **version)
    os.rename(partial, request.path)


def _fetch_dataset(request: StagingRequest, progress: Progress, report: Report) -> None:
    dataset = DATASETS[request.data]
    for part in dataset.parts:
        file = request.partial / f".{part.name}"
        received = Path(request.source) if Path(request.source).parent == request.incoming else None
        try:
            _fetch_part(request, part, file, progress, report)
        except UserError:
            if received:
                received.unlink()
            raise
        _unpack(file, request.partial, dataset.files)
        file.unlink()
        if received:
            received.unlink()
    missing = [name for name, size in dataset.files.items() if not has_size(request.partial / name, size)]
    if missing:
        raise UserError(f"what came as {request.data} has no {', '.join(missing)}: give another data_source.")


def _fetch_part(request: StagingRequest, part: DatasetFile, file: Path, progress: Progress, report: Report) -> None:
    """Fetch a part and compare its checksum. If a mirror fails, the next address continues its download."""

    def check(fetched: Path) -> str:
        sha256 = sha256_of(fetched)
        if sha256 != part.sha256:
            raise UserError(
                f"{part.name} has the SHA-256 {sha256}, and {part.sha256} is published: give another data_source."
            )
        return sha256

    # A source that ends with / is a folder with the publisher's files.
    address = f"{request.source}{part.name}" if request.source.endswith("/") else request.source or part.url
    if "://" in address and not address.startswith("s3://"):
        urls = (address,) if request.source else (*part.mirrors, address)
        note = {"event": "note"}
        fetch_urls(urls, file, check, progress, _advice(request), lambda text: report({**note, "text": text}))
        return
    _copy(address, file, progress, request.region)
    try:
        check(file)
    except UserError:
        file.unlink()
        raise


def _advice(request: StagingRequest) -> str:
    advice = "name another data_source, such as a file of your machine"
    if not request.source:
        staged = f"stage it from your machine (ansible-playbook deeplearning.aws.stage -e dataset={request.data}), "
        advice = f"{staged if request.data in datasets.STAGED else ''}{advice}, or train on dataset=generated"
    return f"{advice}."


def _copy(address: str, file: Path, progress: Progress, region: str) -> None:
    """Copy an object of S3, or a file of this node."""
    if not address.startswith("s3://"):
        shutil.copyfile(address, file)
        return
    bucket, _slash, key = address[5:].partition("/")
    folder = file.with_name(f"{file.name}.object")
    folder.mkdir(exist_ok=True)
    fetch_s3(AwsClient(region), bucket, key, folder, progress)
    os.replace(folder / key.rsplit("/", 1)[-1], file)
    folder.rmdir()


def _unpack(file: Path, folder: Path, names: Mapping[str, int]) -> None:
    """Unpack the files that the catalogue names, wherever they are in the archive."""
    if not file.name.endswith(".tar.gz"):
        with gzip.open(file) as content, open(folder / file.name.lstrip(".")[: -len(".gz")], "wb") as output:
            shutil.copyfileobj(content, output)
        return
    with open(file, "rb") as opened:
        for packed in files_of(opened, {"kind": "tar.gz"}):
            if (name := Path(packed.name).name) in names:
                with packed.open() as content, open(folder / name, "wb") as output:
                    shutil.copyfileobj(content, output)
