"""Unpack shares into a folder next to the data set's, and rename it when all of them are there.

Other users of the file system can create folders there too. So files are written, continued and believed only in a
folder of our own that no other user can write in. Each version of a data set has folders of its own, and so has each
replacement of an object in the bucket: these are the attempt's. Files of an interrupted attempt are compared with the
archive byte by byte, because their size proves nothing. What came from an archive that is refused is removed, and so
are other attempts.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import itertools
import json
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any, Callable

from deeplearning import safe_files, safe_paths
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.archives import StrictTarInfo, files_sha256
from deeplearning.contract.datasets import DATASETS
from deeplearning.contract.errors import UserError
from deeplearning.data.links import create_links
from deeplearning.data.ranged_reader import Checksum, Source
from deeplearning.data.shares import BadArchive, Extent, File, bounds, content, fit_together, tar_share, zip_share
from deeplearning.data.sources import Progress

MARKER_BYTES = 64 * 1024 * 1024
"""Earlier versions listed all files of a data set in it."""
LISTED = 100
"""How many files the marker lists with their sizes. The rename that put them there put all of them there."""

WRITERS = 16
"""Several small files are written at once, because each takes a shared file system some milliseconds."""
SMALL = 4 << 20
"""Files up to this size are held in memory meanwhile."""
CHUNK = 1 << 20
UNSHARED = ("tar.gz", "file")
"""Kinds that can only be read from their beginning, so that one node unpacks them."""
REPORT_SECONDS = 1.25
"""All nodes report their progress. The more there are, the less often each one does."""


class UnpackFolder:
    """A data set's folder below the root of all data sets."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name

    @property
    def path(self) -> Path:
        return self.root / self.name

    def exists(self) -> bool:
        """Return whether the data set exists.

        Look it up in the list of its parent. An NFS client caches a missing name, so that a run on this node could miss
        the data that another node has unpacked meanwhile.
        """
        return self.name in _list(self.root)

    def partial(self, attempt: str) -> Path:
        return self.root / f".{self.name}.{attempt}.unpacking"

    def shares(self, attempt: str) -> Path:
        return self.root / f".{self.name}.{attempt}.shares"

    def record(self, attempt: str, share: int, shares: int) -> Path:
        return self.shares(attempt) / f"{share + 1}-of-{shares}.json"

    def remove(self, attempt: str) -> None:
        """Remove what has been unpacked in an attempt. Records go last, so that none outlives its files.

        Several nodes may do this at once, so a missing file is no error.
        """
        for folder in (self.partial(attempt), self.shares(attempt)):
            shutil.rmtree(folder, ignore_errors=True)

    def remove_others(self, attempt: str) -> None:
        """Remove what other attempts have left, with or without a name."""
        ours = {self.partial(attempt).name, self.shares(attempt).name}
        left = re.compile(rf"\.{re.escape(self.name)}(\.[0-9a-f]{{16}})?\.(unpacking|shares)")
        for name in os.listdir(self.root):
            folder = self.root / name
            # Several nodes do this at once.
            with contextlib.suppress(FileNotFoundError):
                if left.fullmatch(name) and name not in ours and folder.lstat().st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)


def _list(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def show(folder: UnpackFolder, manifest: Mapping[str, Any]) -> dict[str, Any]:
    exists = folder.exists()
    if exists:
        safe_paths.check_folder(str(folder.path), os.geteuid(), 0)
    version = _version_at(folder) if exists else ""
    if exists and version != manifest["version"]:
        raise UserError(
            f"{folder.path} is there and is not what was staged ({version or 'it has no version'}): move it away, "
            "or stage under another name."
        )
    return {"there": bool(version), "path": str(folder.path), "version": manifest["version"], "bytes": _bytes(manifest)}


def unpack(
    folder: UnpackFolder, source: Source, share: int, shares: int, report: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    manifest = source.manifest()
    if show(folder, manifest)["there"]:
        return {"changed": False, "files": 0}
    attempt = source.attempt(manifest)
    record = folder.record(attempt, share, shares)
    safe_paths.shared_folder(str(folder.root))
    folder.remove_others(attempt)
    safe_paths.own_folder(str(record.parent))
    with contextlib.suppress(OSError, ValueError):
        earlier: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        return {"changed": False, "files": earlier["files"]}
    _require_space(folder, manifest)
    safe_paths.own_folder(str(folder.partial(attempt)))
    try:
        done = _unpacked(folder, source, manifest, attempt, share, shares, report)
    except BadArchive:
        folder.remove(attempt)
        raise
    atomic_file.replace(str(record), json.dumps(done).encode())
    return {"changed": True, "files": done["files"]}


def _unpacked(
    folder: UnpackFolder,
    source: Source,
    manifest: Mapping[str, Any],
    attempt: str,
    share: int,
    shares: int,
    report: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Unpack a share of each part, and return its record."""
    progress = Progress(report, REPORT_SECONDS * shares)
    progress.total = sum(_share_of(part, share, shares) for part in manifest["parts"])
    done: dict[str, Any] = {"files": 0, "bytes": 0, "extents": {}, "some": {}}
    for part in manifest["parts"]:
        extent, checksum = Extent(), Checksum()
        with _error_messages(folder, part), _Writers(folder.partial(attempt), part["name"]) as writers:
            if share == 0:
                _compare_files(source, part)
            for file in _files(source, part, share, shares, extent, progress.add, checksum):
                name = _inside(part, file.name)
                writers.write(name, file)
                done["files"] += 1
                done["bytes"] += file.size
                if len(done["some"]) < LISTED:
                    done["some"][str(name)] = file.size
        if share == 0:
            # One node reads each archive to its end, so that all of it is compared.
            _compare(source, part, checksum, progress.add)
        done["extents"][part["name"]] = asdict(extent)
    return done


def finish(folder: UnpackFolder, manifest: Mapping[str, Any], shares: int, attempt: str) -> dict[str, Any]:
    """Rename the folder to the data set's, if all shares of the attempt are there and fit together."""
    if show(folder, manifest)["there"]:
        return {"changed": create_links(folder.path, folder.root.parent, manifest["links"]), "path": str(folder.path)}
    unpacked = folder.partial(attempt)
    for path in filter(os.path.lexists, (folder.shares(attempt), unpacked)):
        safe_paths.check_folder(str(path), os.geteuid())
    done = []
    records = _list(folder.shares(attempt))
    for share in range(shares):
        file = folder.record(attempt, share, shares)
        if file.name not in records:
            raise UserError(f"share {share + 1} of {shares} of {folder.name} is missing: run stage.yml again.")
        done.append(json.loads(file.read_text(encoding="utf-8")))
    if not unpacked.exists():
        folder.remove(attempt)
        raise UserError(f"{unpacked} is missing: run stage.yml again, which unpacks all of it.")
    for part in manifest["parts"]:
        extents = [Extent(**record["extents"][part["name"]]) for record in done]
        if part["kind"] == "tar" and not fit_together(extents, part["size"]):
            folder.remove(attempt)
            raise BadArchive(
                f"the shares of {part['name']} do not fit together, as with an archive in an archive: let one node "
                "unpack it. Example: -e stage_nodes=1"
            )
    listed = dict(itertools.islice(itertools.chain.from_iterable(record["some"].items() for record in done), LISTED))
    marker = {"schema": 1, "data": folder.name, "version": manifest["version"], "files": listed}
    marker["count"] = sum(record["files"] for record in done)
    (unpacked / paths.MARKER).write_text(json.dumps(marker), encoding="utf-8")
    os.rename(unpacked, folder.path)
    folder.remove(attempt)
    create_links(folder.path, folder.root.parent, manifest["links"])
    return {"changed": True, "path": str(folder.path), "files": marker["count"]}


def _compare_files(source: Source, part: Mapping[str, Any]) -> None:
    """Raise BadArchive if the files in a published archive are others, where its own bytes vary."""
    known = DATASETS[source.name].parts if source.name in DATASETS else ()
    for published in (one.files_sha256 for one in known if one.name == part["name"] and one.files_sha256):
        with source.open(part["name"], part["size"], lambda _count: None) as opened:
            sha256 = files_sha256(opened, part["strip"])
        if sha256 != published:
            raise BadArchive(
                f"The files in {source.location}/{part['name']} have the SHA-256 {sha256} instead of {published}: "
                f"others may write there. Replace it. Example: ansible-playbook stage.yml -e dataset={source.name} "
                "-e stage_replace=true"
            )


def _compare(source: Source, part: Mapping[str, Any], checksum: Checksum, progress: Callable[[int], None]) -> None:
    with source.open(part["name"], part["size"], progress, checksum) as opened:
        sha256 = checksum.complete(opened)
    if sha256 != part["sha256"]:
        raise BadArchive(
            f"{source.location}/{part['name']} has the SHA-256 {sha256}, and {part['sha256']} when it was staged: it "
            "was replaced since. Stage it again with -e stage_replace=true."
        )


def _share_of(part: Mapping[str, Any], share: int, shares: int) -> int:
    """Return about how many bytes of a part are read for a share. All are read for the first one, to compare them."""
    if share > 0 and part["kind"] in UNSHARED:
        return 0
    begin, end = bounds(part["size"], share, shares)
    return int(part["size"]) if share == 0 else end - begin


@contextlib.contextmanager
def _error_messages(folder: UnpackFolder, part: Mapping[str, Any]) -> Iterator[None]:
    """Turn the errors of a damaged archive and of a full disk into messages."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadArchive(f"{part['name']} is no whole archive ({error}): stage it again.") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"{folder.root} is full: make room, and run stage.yml again. It resumes there.") from None
        raise


def _files(
    source: Source,
    part: Mapping[str, Any],
    share: int,
    shares: int,
    extent: Extent,
    progress: Callable[[int], None],
    checksum: Checksum,
) -> Iterator[File]:
    size, kind = part["size"], part["kind"]
    share_end = size if kind in UNSHARED else bounds(size, share, shares)[1]
    with source.open(part["name"], size, progress, checksum, share_end) as opened:
        if kind == "zip":
            with zipfile.ZipFile(opened) as archive:
                yield from zip_share(archive, size, share, shares)
        elif kind == "tar":
            yield from tar_share(opened, size, share, shares, extent)
        elif share == 0 and kind == "tar.gz":
            # A compressed stream can only be read from its beginning.
            with tarfile.open(fileobj=opened, mode="r|gz", tarinfo=StrictTarInfo) as packed:
                for member in packed:
                    if member.isfile():
                        yield File(member.name, member.size, partial(content, packed, member))
        elif share == 0 and kind == "file":
            yield File(part["name"], size, lambda: opened)


class _Writers:
    """Write small files several at a time, and large ones as they are read. Raise the first error."""

    def __init__(self, folder: Path, part: str) -> None:
        self._folder, self._part = folder, part
        self._created: set[Path] = set()

    def __enter__(self) -> _Writers:
        self._pool = ThreadPoolExecutor(WRITERS)
        self._pending: deque[Future[None]] = deque()
        return self

    def write(self, name: Path, file: File) -> None:
        if name.parent not in self._created:
            with self._naming(file):
                for folder in reversed(name.parents):
                    if folder not in self._created:
                        safe_paths.own_folder(str(self._folder / folder))
                        self._created.add(folder)
        if file.size > SMALL:
            with file.open() as packed:
                self._put(name, file, packed)
            return
        # Only this thread reads the archive.
        self._pending.append(self._pool.submit(self._put, name, file, io.BytesIO(file.open().read())))
        while len(self._pending) > 2 * WRITERS:
            self._pending.popleft().result()

    def _put(self, name: Path, file: File, content: IO[bytes]) -> None:
        with self._naming(file):
            _put(self._folder / name, content)

    @contextlib.contextmanager
    def _naming(self, file: File) -> Iterator[None]:
        """Blame the archive for what is in a file's way, because no other user can write here."""
        try:
            yield
        except safe_paths.WrongKind:
            raise BadArchive(
                f"{self._part} has a file {file.name!r}, whose path collides with another file of the set: pack it "
                "without one of them, and stage it again."
            ) from None

    def __exit__(self, kind: Any, *_: object) -> None:
        self._pool.shutdown(wait=True)
        if kind is None:
            for future in self._pending:
                future.result()


def _put(target: Path, content: IO[bytes]) -> None:
    """Write what differs from the file that an earlier attempt has left."""
    with open(safe_paths.own_file(str(target)), "r+b") as file:
        for chunk in iter(lambda: content.read(CHUNK), b""):
            position = file.tell()
            if file.read(len(chunk)) != chunk:
                file.seek(position)
                file.write(chunk)
        if os.fstat(file.fileno()).st_size > file.tell():
            file.truncate()


def _inside(part: Mapping[str, Any], name: str) -> Path:
    """Return a file's path in the data set. The name was chosen by the person who packed the archive."""
    path = Path(name)
    if path.parts[:1] == (part["strip"],):
        path = path.relative_to(part["strip"])
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise BadArchive(f"{part['name']} has a file {name!r}, which is no path below a folder: it is not unpacked.")
    return Path(part["to"]) / path


def _version_at(folder: UnpackFolder) -> str:
    return str(marker_of(folder.path).get("version", ""))


def marker_of(folder: Path) -> dict[str, Any]:
    """Return what describes a data set, or an empty record. Another user may have prepared the folder."""
    with contextlib.suppress(OSError, UserError, ValueError, RecursionError):
        record = json.loads(safe_files.read(str(folder / paths.MARKER), MARKER_BYTES))
        return record if isinstance(record, dict) else {}
    return {}


def _bytes(manifest: Mapping[str, Any]) -> int:
    return sum(part["size"] for part in manifest["parts"])


def _require_space(folder: UnpackFolder, manifest: Mapping[str, Any]) -> None:
    free, needed = shutil.disk_usage(folder.root).free, _bytes(manifest)
    if needed > free:
        raise UserError(
            f"{folder.root} has {free / 2**30:.1f} GiB left, and {folder.name} needs {needed / 2**30:.1f}: make room."
        )
