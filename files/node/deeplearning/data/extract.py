"""Unpack a data set's parts into a folder next to its own, and rename that when all of them are there.

The parts are dealt to the nodes, which unpack at the same time. Each part is read by one node, from its beginning to
its end, and so compared.

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
import json
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, Callable

from deeplearning import safe_paths
from deeplearning.concurrency import in_order
from deeplearning.contract import atomic_file, paths, schema
from deeplearning.contract.archives import files_sha256
from deeplearning.contract.datasets import DATASETS
from deeplearning.contract.errors import UserError
from deeplearning.data.packed import BadArchive, File, files_of
from deeplearning.data.ranged_reader import Source
from deeplearning.data.sources import Progress

MARKER_BYTES = 64 * 1024 * 1024
"""Earlier versions listed all files of a data set in it."""
RECORDS = ".deeplearning.parts"
"""The folder for the records of the parts that are unpacked, next to their files. It is removed before the rename."""
LISTED = 100
"""How many files the marker lists with their sizes. The rename that put them there put all of them there."""

WRITERS = 16
"""Several small files are written at once, because each takes a shared file system some milliseconds."""
SMALL = 4 << 20
"""Files up to this size are held in memory meanwhile."""
CHUNK = 1 << 20
REPORT_SECONDS = 1.25
"""All nodes report their progress. The more there are, the less often each one does."""


class Unpacking:
    """A staged data set that becomes a folder below the root of all data sets."""

    def __init__(self, root: Path, name: str, source: Source) -> None:
        self._root, self._name, self._source = root, name, source
        self._path, self._manifest = root / name, source.manifest()

    @cached_property
    def _partial(self) -> Path:
        """The folder that this attempt unpacks into."""
        return self._root / f".{self._name}.{self._source.attempt(self._manifest)}.unpacking"

    @property
    def _records(self) -> Path:
        """The folder of the records, which are called by the places of their parts in the manifest.

        It is inside the one of the files, so that no record outlives these.
        """
        return self._partial / RECORDS

    def _read_records(self) -> dict[int, dict[str, Any]]:
        """Return the records of all parts that any node has unpacked. It lists the folder, as `is_unpacked` does."""
        records = {}
        for name in _list(self._records):
            with contextlib.suppress(OSError, ValueError):
                records[int(name.removesuffix(".json"))] = json.loads((self._records / name).read_bytes())
        return records

    def _remove_others(self) -> None:
        """Remove what other attempts have left, with or without a name."""
        # Earlier versions left shares.
        left = re.compile(rf"\.{re.escape(self._name)}(\.[0-9a-f]{{16}})?\.(unpacking|shares)")
        for name in os.listdir(self._root):
            folder = self._root / name
            # Several nodes do this at once.
            with contextlib.suppress(FileNotFoundError):
                if left.fullmatch(name) and folder != self._partial and folder.lstat().st_uid == os.geteuid():
                    _remove(folder)

    def is_unpacked(self) -> bool:
        """Return whether the data set is there. Raise UserError if anything else has its place.

        Look it up in the list of its parent. An NFS client caches a missing name, so that a run on this node could miss
        the data that another node has unpacked meanwhile.
        """
        if self._name not in _list(self._root):
            return False
        safe_paths.check_folder(str(self._path), os.geteuid(), 0)
        version = str(marker_of(self._path).get("version", ""))
        if version != self._manifest["version"]:
            raise UserError(
                f"{self._path} is there and is not what was staged ({version or 'it has no version'}): move it away, "
                "or stage under another name."
            )
        return True

    def unpack(self, share: int, shares: int, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Unpack this node's parts."""
        if self.is_unpacked():
            return {"changed": False, "files": 0}
        parts = self._manifest["parts"]
        safe_paths.shared_folder(str(self._root))
        self._remove_others()
        if self._partial.name not in _list(self._root):
            free, needed = shutil.disk_usage(self._root).free, sum(part["size"] for part in parts)
            if needed > free:
                raise UserError(
                    f"{self._root} has {free / 2**30:.1f} GiB left, and {self._name} needs {needed / 2**30:.1f}: "
                    "make room."
                )
        for path in (self._partial, self._records):
            safe_paths.own_folder(str(path))
        records, numbers = self._read_records(), parts_of_node(parts, share, shares)
        remaining = [number for number in numbers if number not in records]
        progress = Progress(report, REPORT_SECONDS * shares)
        progress.total = sum(parts[number]["size"] for number in remaining)
        for number in remaining:
            try:
                with self._error_messages(parts[number]):
                    records[number] = self._unpacked(parts[number], progress.add)
                    record = self._records / f"{number}.json"
                    atomic_file.replace(str(record), json.dumps(records[number]).encode())
            except BadArchive:
                _remove(self._partial)
                raise
        return {"changed": bool(remaining), "files": sum(records[number]["files"] for number in numbers)}

    def _unpacked(self, part: Mapping[str, Any], progress: Callable[[int], None]) -> dict[str, Any]:
        """Unpack a part, compare it with its checksum, and return its record."""
        done: dict[str, Any] = {"files": 0, "some": {}}
        _compare_files(self._source, part)
        with self._source.open(part["name"], part["size"], progress) as opened:
            for _written in in_order(_writes(self._partial, part, opened, done), WRITERS):
                pass
            sha256 = opened.raw.sha256()
        if sha256 != part["sha256"]:
            raise BadArchive(
                f"{self._source.location}/{part['name']} has the SHA-256 {sha256}, and {part['sha256']} when it was "
                "staged: it was replaced since. Stage it again with -e stage_replace=true."
            )
        return done

    def finish(self, has_links: bool = True) -> dict[str, Any]:
        """Rename the folder to the data set's, if all parts of the attempt are there, and create its links."""
        links = self._manifest["links"] if has_links else {}
        if self.is_unpacked():
            return {"changed": create_links(self._path, self._root.parent, links)}
        for path in filter(os.path.lexists, (self._partial, self._records)):
            safe_paths.check_folder(str(path), os.geteuid())
        records = self._read_records()
        for number, part in enumerate(self._manifest["parts"]):
            if number not in records:
                raise UserError(f"{part['name']} of {self._name} is not unpacked: run deeplearning.aws.stage again.")
        files = {name: size for number in sorted(records) for name, size in records[number]["some"].items()}
        count = sum(part["files"] for part in records.values())
        write_marker(self._partial, self._name, files, version=self._manifest["version"], count=count)
        shutil.rmtree(self._records)
        os.rename(self._partial, self._path)
        create_links(self._path, self._root.parent, links)
        return {"changed": True, "files": count}

    @contextlib.contextmanager
    def _error_messages(self, part: Mapping[str, Any]) -> Iterator[None]:
        """Turn the errors of a damaged archive, of a full disk and of a folder that was removed into messages."""
        try:
            yield
        except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise BadArchive(f"{part['name']} is no whole archive ({error}): stage it again.") from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UserError(
                    f"{self._root} is full: make room, and run deeplearning.aws.stage again. It resumes there."
                ) from None
            if self._partial.name not in _list(self._root):
                raise UserError(
                    f"the folder in which {part['name']} is unpacked has been removed meanwhile, as by a node that has "
                    "refused another archive: see its message, and run deeplearning.aws.stage again."
                ) from None
            raise


def _remove(folder: Path) -> None:
    """Remove a folder of files, the records first: no interruption leaves a record without its files.

    Several nodes may do this at once, so a missing file is no error.
    """
    shutil.rmtree(folder / RECORDS, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _list(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(folder)
    return []


def parts_of_node(parts: Sequence[Mapping[str, Any]], share: int, shares: int) -> list[int]:
    """Return which parts a node unpacks, by their places in the manifest, and in that order.

    The largest part is dealt first. Each goes to the node that has the fewest bytes.
    """
    bytes_of, numbers = [0] * shares, []
    for number in sorted(range(len(parts)), key=lambda number: -int(parts[number]["size"])):
        node = bytes_of.index(min(bytes_of))
        bytes_of[node] += parts[number]["size"]
        if node == share:
            numbers.append(number)
    return sorted(numbers)


def create_links(folder: Path, efs_mount: Path, links: Mapping[str, str]) -> bool:
    """Create the links below the mount point under which old scripts look for a data set, unless they exist.

    Return whether one was missing. A data set of root's gets none inside.
    """
    missing = [
        (efs_mount / name, folder / target)
        for name, target in links.items()
        if not os.path.lexists(efs_mount / name) and os.access((efs_mount / name).parent, os.W_OK)
    ]
    for link, target in missing:
        link.symlink_to(os.path.relpath(target, link.parent))
    return bool(missing)


def _compare_files(source: Source, part: Mapping[str, Any]) -> None:
    """Raise BadArchive if the files in a published archive are others, where its own bytes vary."""
    known = DATASETS[source.name].parts if source.name in DATASETS else ()
    for published in (named.files_sha256 for named in known if named.name == part["name"] and named.files_sha256):
        with source.open(part["name"], part["size"], lambda _count: None) as opened:
            sha256 = files_sha256(opened, part["strip"])
        if sha256 != published:
            raise BadArchive(
                f"The files in {source.location}/{part['name']} have the SHA-256 {sha256} instead of {published}: "
                "others may write there. Replace it. Example: ansible-playbook deeplearning.aws.stage -e "
                f"dataset={source.name} "
                "-e stage_replace=true"
            )


def _writes(
    folder: Path, part: Mapping[str, Any], opened: IO[bytes], done: dict[str, Any]
) -> Iterator[Callable[[], None]]:
    """Yield the calls that write a part's small files, and write large ones as they are read. Record all in `done`."""
    # If another node removes the folder, it is not created again.
    created = {Path(".")}
    for file in files_of(opened, part):
        name = _inside(part, file.name)
        done["files"] += 1
        if len(done["some"]) < LISTED:
            done["some"][str(name)] = file.size
        with _naming(part, file):
            for above in reversed(name.parents):
                if above not in created:
                    safe_paths.own_folder(str(folder / above))
                    created.add(above)
        if file.size > SMALL:
            _write(folder / name, part, file, file.open())
        else:
            # Only this thread reads the archive.
            yield partial(_write, folder / name, part, file, io.BytesIO(file.open().read()))


def _write(target: Path, part: Mapping[str, Any], file: File, content: IO[bytes]) -> None:
    """Write what differs from the file that an earlier attempt has left."""
    with _naming(part, file), open(safe_paths.own_file(str(target)), "r+b") as output:
        for chunk in iter(lambda: content.read(CHUNK), b""):
            position = output.tell()
            if output.read(len(chunk)) != chunk:
                output.seek(position)
                output.write(chunk)
        if os.fstat(output.fileno()).st_size > output.tell():
            output.truncate()


@contextlib.contextmanager
def _naming(part: Mapping[str, Any], file: File) -> Iterator[None]:
    """Blame the archive for what is in a file's way, because no other user can write here."""
    try:
        yield
    except safe_paths.WrongKind:
        raise BadArchive(
            f"{part['name']} has a file {file.name!r}, whose path collides with another file of the set: pack it "
            "without one of them, and stage it again."
        ) from None


def _inside(part: Mapping[str, Any], name: str) -> Path:
    """Return a file's path in the data set. The name was chosen by the person who packed the archive."""
    path = Path(name)
    if path.parts[:1] == (part["strip"],):
        path = path.relative_to(part["strip"])
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise BadArchive(f"{part['name']} has a file {name!r}, which is no path below a folder: it is not unpacked.")
    path = Path(part["to"]) / path
    if path.parts[0] == RECORDS:
        raise BadArchive(f"{part['name']} has a file {name!r}, and {RECORDS} is a name of ours: pack it without.")
    return path


def marker_of(folder: Path) -> dict[str, Any]:
    """Return what describes a data set, or an empty record. Another user may have prepared the folder."""
    return safe_paths.json_object(folder / paths.MARKER, MARKER_BYTES)


def write_marker(folder: Path, data: str, files: Mapping[str, int], **facts: Any) -> None:
    marker = {"schema": schema.VERSION, "data": data, **facts, "files": dict(list(files.items())[:LISTED])}
    (folder / paths.MARKER).write_text(json.dumps(marker), encoding="utf-8")
