"""Shares are written beside the place, and their sum is put there at once, by a rename.

Other users of the file system can make folders beside the place too. So nothing is written into, continued from or
taken for the set that is not in a folder of our own which nobody else can write in. What an interrupted attempt has
left there is compared with the archive, byte by byte, and not believed because of its size.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import itertools
import json
import os
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
from deeplearning.unpacking.shares import Extent, File, Member, bounds, content, fit_together, tar_share, zip_share

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

    @property
    def partial(self) -> Path:
        return self.root / f".{self.name}.unpacking"

    @property
    def shares(self) -> Path:
        return self.root / f".{self.name}.shares"

    def record(self, version: str, share: int, shares: int) -> Path:
        return self.shares / version / f"{share + 1}-of-{shares}.json"


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
    record = place.record(manifest["version"], share, shares)
    if show(place, manifest)["there"]:
        return {"changed": False, "files": 0}
    files.shared_folder(str(place.root))
    for folder in (place.shares, record.parent):
        files.own_folder(str(folder))
    with contextlib.suppress(OSError, ValueError):
        said: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        return {"changed": False, "files": said["files"]}
    _room(place, manifest)
    files.own_folder(str(place.partial))
    progress = Progress(tell, SECONDS_OF_EACH * shares)
    progress.total = sum(_share_of(part, share, shares) for part in manifest["parts"])
    done: dict[str, Any] = {"files": 0, "bytes": 0, "extents": {}, "some": {}}
    for part in manifest["parts"]:
        extent, checksum = Extent(), Checksum()
        with _whole(place, part), _Writers(place.partial) as writers:
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
    new = record.with_suffix(".new")
    new.write_text(json.dumps(done), encoding="utf-8")
    os.replace(new, record)
    return {"changed": True, "files": done["files"]}


def finish(place: Place, manifest: Mapping[str, Any], shares: int) -> dict[str, Any]:
    """Only if all shares are there, and none lies apart from the next."""
    if show(place, manifest)["there"]:
        return {"changed": _link(place, manifest), "path": str(place.path)}
    for folder in filter(os.path.lexists, (place.shares, place.partial)):
        files.check_folder(str(folder), os.geteuid())
    done = []
    for share in range(shares):
        record = place.record(manifest["version"], share, shares)
        try:
            done.append(json.loads(record.read_text(encoding="utf-8")))
        except OSError:
            raise Refusal(f"share {share + 1} of {shares} of {place.name} is missing: run stage.yml again.") from None
    if not place.partial.exists():
        shutil.rmtree(place.shares, ignore_errors=True)
        raise Refusal(f"{place.partial} is missing: run stage.yml again, which unpacks all of it.")
    for part in manifest["parts"]:
        extents = [Extent(**one["extents"][part["name"]]) for one in done]
        if part["kind"] == "tar" and not fit_together(extents, part["size"]):
            shutil.rmtree(place.shares, ignore_errors=True)
            raise Refusal(
                f"the shares of {part['name']} do not fit together, as with an archive in an archive: let one node "
                "unpack it. Example: -e stage_nodes=1"
            )
    listed = dict(itertools.islice(itertools.chain.from_iterable(one["some"].items() for one in done), LISTED))
    marker = {"schema": 1, "data": place.name, "version": manifest["version"], "files": listed}
    marker["count"] = sum(one["files"] for one in done)
    (place.partial / MARKER).write_text(json.dumps(marker), encoding="utf-8")
    os.rename(place.partial, place.path)
    shutil.rmtree(place.shares, ignore_errors=True)
    _link(place, manifest)
    return {"changed": True, "path": str(place.path), "files": marker["count"]}


def _compare(source: Source, part: Mapping[str, Any], checksum: Checksum, told: Callable[[int], None]) -> None:
    found = checksum.complete(source.open(part["name"], part["size"], told, checksum))
    if found != part["sha256"]:
        raise Refusal(
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
        raise Refusal(f"{part['name']} is no whole archive ({error}): stage it again.") from None
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

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: set[Path] = set()

    def __enter__(self) -> _Writers:
        self._pool = ThreadPoolExecutor(WRITERS)
        self._waiting: deque[Future[None]] = deque()
        return self

    def write(self, name: Path, file: File) -> None:
        if name.parent not in self._own:
            for folder in reversed(name.parents):
                files.own_folder(str(self._folder / folder))
            self._own.add(name.parent)
        target = self._folder / name
        if file.size > SMALL:
            with file.open() as packed:
                _put(target, packed)
            return
        # An archive is read by one alone.
        self._waiting.append(self._pool.submit(_put, target, io.BytesIO(file.open().read())))
        while len(self._waiting) > 2 * WRITERS:
            self._waiting.popleft().result()

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
    if path.is_absolute() or ".." in path.parts:
        raise Refusal(f"{part['name']} has a file {name!r}, which is no path below a folder: it is not unpacked.")
    if path.parts[:1] == (part["strip"],):
        path = path.relative_to(part["strip"])
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
