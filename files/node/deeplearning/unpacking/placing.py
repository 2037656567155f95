"""Shares are written beside the place, and their sum is put there at once, by a rename.

Other users of the file system can make folders beside the place too. So nothing is written into, continued from or
taken for the set that is not in a folder of our own which nobody else can write in. Each version of a set has folders
of its own. What an interrupted attempt at the same version has left there is compared with the archive, byte by byte,
and not believed because of its size. What came of an archive that is refused is removed, and so are other versions.
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

from deeplearning import Refusal, files
from deeplearning.data.fetching import Progress
from deeplearning.unpacking.reading import Checksum, Source
from deeplearning.unpacking.shares import (
    BadArchive,
    Extent,
    File,
    Member,
    bounds,
    content,
    fit_together,
    tar_share,
    zip_share,
)

MARKER = ".deeplearning.json"
LISTED = 100
"""So many files the marker names with their sizes: the rename that put them there put all there."""

WRITERS = 16
"""A small file takes a shared file system some milliseconds, whoever waits for it: so several are written at once."""
SMALL = 4 << 20
"""Files up to this are held in memory meanwhile."""
CHUNK = 1 << 20
ONE_NODES = ("tar.gz", "file")
"""What can only be read from its beginning is unpacked by one node."""
SECONDS_OF_EACH = 1.25
"""Nodes tell how far they are side by side: the more of them, the rarer each."""


class Place:
    def __init__(self, efs_mount: str, name: str) -> None:
        self.root = Path(efs_mount, "data")
        self.name = name

    @property
    def path(self) -> Path:
        return self.root / self.name

    def partial(self, version: str) -> Path:
        return self.root / f".{self.name}.{version}.unpacking"

    def shares(self, version: str) -> Path:
        return self.root / f".{self.name}.{version}.shares"

    def record(self, version: str, share: int, shares: int) -> Path:
        return self.shares(version) / f"{share + 1}-of-{shares}.json"

    def remove(self, version: str) -> None:
        """Remove what has been unpacked of a version. Shares go last: none counts as done whose files are gone.

        Several nodes may do this at once, so a file that is gone already is no error.
        """
        for folder in (self.partial(version), self.shares(version)):
            shutil.rmtree(folder, ignore_errors=True)

    def remove_others(self, version: str) -> None:
        """Remove what earlier attempts at other versions have left, also those of older releases without a version."""
        ours = {self.partial(version).name, self.shares(version).name}
        left = re.compile(rf"\.{re.escape(self.name)}(\.[0-9a-f]{{16}})?\.(unpacking|shares)")
        for name in os.listdir(self.root):
            folder = self.root / name
            # Several nodes do this at once.
            with contextlib.suppress(FileNotFoundError):
                if left.fullmatch(name) and name not in ours and folder.lstat().st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)


def show(place: Place, manifest: Mapping[str, Any]) -> dict[str, Any]:
    if os.path.lexists(place.path):
        files.check_folder(str(place.path), os.geteuid(), 0)
    version = _version_at(place)
    if place.path.exists() and version != manifest["version"]:
        raise Refusal(
            f"{place.path} is there and is not what was staged ({version or 'nothing says what it is'}): move it away, "
            "or stage under another name."
        )
    return {"there": bool(version), "path": str(place.path), "version": manifest["version"], "bytes": _bytes(manifest)}


def unpack(
    place: Place, source: Source, share: int, shares: int, tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    manifest = source.manifest()
    version = manifest["version"]
    record = place.record(version, share, shares)
    if show(place, manifest)["there"]:
        return {"changed": False, "files": 0}
    files.shared_folder(str(place.root))
    place.remove_others(version)
    files.own_folder(str(record.parent))
    with contextlib.suppress(OSError, ValueError):
        said: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        return {"changed": False, "files": said["files"]}
    _room(place, manifest)
    files.own_folder(str(place.partial(version)))
    try:
        done = _unpacked(place, source, manifest, share, shares, tell)
    except BadArchive:
        place.remove(version)
        raise
    new = record.with_suffix(".new")
    new.write_text(json.dumps(done), encoding="utf-8")
    os.replace(new, record)
    return {"changed": True, "files": done["files"]}


def _unpacked(
    place: Place,
    source: Source,
    manifest: Mapping[str, Any],
    share: int,
    shares: int,
    tell: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Unpack a share of each part, and return its record."""
    progress = Progress(tell, SECONDS_OF_EACH * shares)
    progress.total = sum(_share_of(part, share, shares) for part in manifest["parts"])
    done: dict[str, Any] = {"files": 0, "bytes": 0, "extents": {}, "some": {}}
    for part in manifest["parts"]:
        extent, checksum = Extent(), Checksum()
        with _whole(place, part), _Writers(place.partial(manifest["version"]), part["name"]) as writers:
            for file in _files(source, part, share, shares, extent, progress.add, checksum):
                name = _inside(part, file.name)
                writers.write(name, file)
                done["files"] += 1
                done["bytes"] += file.size
                if len(done["some"]) < LISTED:
                    done["some"][str(name)] = file.size
        if shares == 1 or (share == 0 and part["kind"] in ONE_NODES):
            _compare(source, part, checksum, progress.add)
        done["extents"][part["name"]] = asdict(extent)
    return done


def finish(place: Place, manifest: Mapping[str, Any], shares: int) -> dict[str, Any]:
    """Only if all shares are there, and none lies apart from the next."""
    if show(place, manifest)["there"]:
        return {"changed": _link(place, manifest), "path": str(place.path)}
    version = manifest["version"]
    unpacked = place.partial(version)
    for folder in filter(os.path.lexists, (place.shares(version), unpacked)):
        files.check_folder(str(folder), os.geteuid())
    done = []
    for share in range(shares):
        record = place.record(version, share, shares)
        try:
            done.append(json.loads(record.read_text(encoding="utf-8")))
        except OSError:
            raise Refusal(f"share {share + 1} of {shares} of {place.name} is missing: run stage.yml again.") from None
    if not unpacked.exists():
        place.remove(version)
        raise Refusal(f"{unpacked} is missing: run stage.yml again, which unpacks all of it.")
    for part in manifest["parts"]:
        extents = [Extent(**one["extents"][part["name"]]) for one in done]
        if part["kind"] == "tar" and not fit_together(extents, part["size"]):
            place.remove(version)
            raise BadArchive(
                f"the shares of {part['name']} do not fit together, as with an archive in an archive: let one node "
                "unpack it. Example: -e stage_nodes=1"
            )
    listed = dict(itertools.islice(itertools.chain.from_iterable(one["some"].items() for one in done), LISTED))
    marker = {"schema": 1, "data": place.name, "version": version, "files": listed}
    marker["count"] = sum(one["files"] for one in done)
    (unpacked / MARKER).write_text(json.dumps(marker), encoding="utf-8")
    os.rename(unpacked, place.path)
    place.remove(version)
    _link(place, manifest)
    return {"changed": True, "path": str(place.path), "files": marker["count"]}


def _compare(source: Source, part: Mapping[str, Any], checksum: Checksum, told: Callable[[int], None]) -> None:
    found = checksum.complete(source.open(part["name"], part["size"], told, checksum))
    if found != part["sha256"]:
        raise BadArchive(
            f"{source.place}/{part['name']} has the SHA-256 {found}, and {part['sha256']} was written down when it was "
            "staged: somebody has exchanged it. Stage it again."
        )


def _share_of(part: Mapping[str, Any], share: int, shares: int) -> int:
    """About so many bytes of it are read for a share."""
    if part["kind"] in ("tar", "zip"):
        begin, end = bounds(part["size"], share, shares)
        return end - begin
    return int(part["size"]) if share == 0 else 0


@contextlib.contextmanager
def _whole(place: Place, part: Mapping[str, Any]) -> Iterator[None]:
    """Says in a sentence what an archive that is not whole and a full disk say otherwise."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadArchive(f"{part['name']} is no whole archive ({error}): stage it again.") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refusal(f"{place.root} is full: make room, and run stage.yml again. It goes on from there.") from None
        raise


def _files(
    source: Source,
    part: Mapping[str, Any],
    share: int,
    shares: int,
    extent: Extent,
    told: Callable[[int], None],
    checksum: Checksum,
) -> Iterator[File]:
    size, kind = part["size"], part["kind"]
    opened = source.open(part["name"], size, told, checksum)
    if kind == "zip":
        with zipfile.ZipFile(opened) as archive:
            yield from zip_share(archive, size, share, shares)
    elif kind == "tar":
        yield from tar_share(opened, size, share, shares, extent)
    elif share == 0 and kind == "tar.gz":
        # What is packed as one can only be read from its begin.
        with tarfile.open(fileobj=opened, mode="r|gz", tarinfo=Member) as packed:
            for member in packed:
                if member.isfile():
                    yield File(member.name, member.size, partial(content, packed, member))
    elif share == 0 and kind == "file":
        yield File(part["name"], size, lambda: opened)


class _Writers:
    """Small files are written by several at once, large ones as they are read. Whoever fails first is heard."""

    def __init__(self, folder: Path, part: str) -> None:
        self._folder, self._part = folder, part
        self._own: set[Path] = set()

    def __enter__(self) -> _Writers:
        self._pool = ThreadPoolExecutor(WRITERS)
        self._waiting: deque[Future[None]] = deque()
        return self

    def write(self, name: Path, file: File) -> None:
        if name.parent not in self._own:
            with self._naming(file):
                for folder in reversed(name.parents):
                    if folder not in self._own:
                        files.own_folder(str(self._folder / folder))
                        self._own.add(folder)
        if file.size > SMALL:
            with file.open() as packed:
                self._put(name, file, packed)
            return
        # An archive is read by one alone.
        self._waiting.append(self._pool.submit(self._put, name, file, io.BytesIO(file.open().read())))
        while len(self._waiting) > 2 * WRITERS:
            self._waiting.popleft().result()

    def _put(self, name: Path, file: File, content: IO[bytes]) -> None:
        with self._naming(file):
            _put(self._folder / name, content)

    @contextlib.contextmanager
    def _naming(self, file: File) -> Iterator[None]:
        """Nobody else can write here: what is in the way of a file comes from the set itself."""
        try:
            yield
        except files.OtherKind:
            raise BadArchive(
                f"{self._part} has a file {file.name!r}, whose path collides with another file of the set: pack it "
                "without one of them, and stage it again."
            ) from None

    def __exit__(self, kind: Any, *_: object) -> None:
        self._pool.shutdown(wait=True)
        if kind is None:
            for one in self._waiting:
                one.result()


def _put(target: Path, content: IO[bytes]) -> None:
    """Write what differs from what an earlier attempt has left there."""
    with open(files.own_file(str(target)), "r+b") as file:
        for chunk in iter(lambda: content.read(CHUNK), b""):
            place = file.tell()
            if file.read(len(chunk)) != chunk:
                file.seek(place)
                file.write(chunk)
        if os.fstat(file.fileno()).st_size > file.tell():
            file.truncate()


def _inside(part: Mapping[str, Any], name: str) -> Path:
    """Where it goes. Names come from whoever has packed the archive."""
    path = Path(name)
    if path.parts[:1] == (part["strip"],):
        path = path.relative_to(part["strip"])
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise BadArchive(f"{part['name']} has a file {name!r}, which is no path below a folder: it is not unpacked.")
    return Path(part["to"]) / path


def _version_at(place: Place) -> str:
    try:
        return str(json.loads((place.path / MARKER).read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError):
        return ""


def _bytes(manifest: Mapping[str, Any]) -> int:
    return sum(part["size"] for part in manifest["parts"])


def _room(place: Place, manifest: Mapping[str, Any]) -> None:
    free, needed = shutil.disk_usage(place.root).free, _bytes(manifest)
    if needed > free:
        raise Refusal(
            f"{place.root} has {free / 2**30:.1f} GiB left, and {place.name} needs {needed / 2**30:.1f}: make room."
        )


def _link(place: Place, manifest: Mapping[str, Any]) -> bool:
    """Where old scripts look, below the mount point."""
    changed = False
    for name, target in manifest["links"].items():
        link = place.root.parent / name
        if not link.exists() and not link.is_symlink():
            link.symlink_to(os.path.relpath(place.path / target, link.parent))
            changed = True
    return changed
