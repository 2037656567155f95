"""One data set to its place: fetched and unpacked beside it, checked, and then there at once, by a rename.

Other users of the file system can make folders and files beside the place too. What an interrupted attempt has left is
continued only in a folder of our own that nobody else can write in.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from deeplearning import Refusal, files, paths
from deeplearning.data.catalog import GENERATED, SETS, Part
from deeplearning.data.fetching import Progress, copy_folder, fetch_s3, fetch_url, md5_of

SCHEMA = 1
MARKER = ".deeplearning.json"
MARKER_OF_GENERATED = "GENERATED"
ON_NODE = Path("/opt/deeplearning/data")
"""Each node's own disk."""
LOOKED_AT = 100
"""So many files of a staged set are looked at: the rename that put them there put all there."""


@dataclass(frozen=True)
class Wanted:
    data: str
    """a name of the catalog, "generated", a folder, or s3://bucket/prefix"""
    source: str = ""
    on_node: bool = False


@dataclass(frozen=True)
class Place:
    efs_mount: Path
    root: Path
    name: str

    @property
    def path(self) -> Path:
        return self.root / self.name

    @property
    def partial(self) -> Path:
        return self.root / f".{self.name}.partial"

    @property
    def incoming(self) -> Path:
        return self.root / ".incoming"


def place_of(wanted: Wanted, efs_mount: str) -> Place:
    root = ON_NODE if wanted.on_node else Path(efs_mount, "data")
    return Place(Path(efs_mount), root, name_of(wanted.data))


def name_of(data: str) -> str:
    """A folder's name, another for each source."""
    if data in SETS or data == GENERATED:
        return data
    words = re.sub(r"[^a-z0-9]+", "-", data.lower().removeprefix("s3://"))
    return f"{words.strip('-')[:48]}-{hashlib.sha256(data.encode()).hexdigest()[:8]}"


def show(wanted: Wanted, efs_mount: str, key: str = "") -> dict[str, Any]:
    """Whether it is there; with a key, how much of the file of that checksum came from the operator's machine."""
    place = place_of(wanted, efs_mount)
    if _stays(wanted):
        if not Path(wanted.data).is_dir():
            raise Refusal(f"data is {wanted.data}: there is no such folder on this node.")
        return {"there": True, "path": wanted.data, "generated": _generated(Path(wanted.data)), "received": 0}
    received = place.incoming / key
    return {
        "there": _is_whole(place),
        "path": str(place.path),
        "generated": _generated(place.path),
        "received": received.stat().st_size if key and received.is_file() else 0,
    }


def stage(wanted: Wanted, efs_mount: str, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    place = place_of(wanted, efs_mount)
    if _stays(wanted):
        return {**show(wanted, efs_mount), "changed": False}
    try:
        _make_root(place.root)
        with _alone(place, tell):
            if changed := not _is_whole(place):
                _stage(wanted, place, Progress(tell))
            _link(place)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refusal(f"{place.root} is full: make room, or stage it elsewhere with data_on.") from None
        raise
    return {**show(wanted, efs_mount), "changed": changed}


def receive(
    wanted: Wanted, efs_mount: str, key: str, at: int, chunks: Iterator[bytes], tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Write a file of the operator's machine, known by its checksum, from a position on.

    A process of an attempt that was killed may write still. It writes the same bytes at the same positions.
    """
    place = place_of(wanted, efs_mount)
    _make_root(place.root)
    files.own_folder(str(place.incoming))
    progress = Progress(tell)
    with open(os.open(place.incoming / key, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644), "wb") as out:
        out.seek(at)
        for chunk in chunks:
            out.write(chunk)
            progress.add(len(chunk))
    return {"path": str(place.incoming / key)}


def _stays(wanted: Wanted) -> bool:
    return wanted.data.startswith("/") and not wanted.on_node


def _generated(path: Path) -> bool:
    return (path / MARKER_OF_GENERATED).exists()


def _is_whole(place: Place) -> bool:
    if os.path.lexists(place.path):
        files.check_folder(str(place.path), os.geteuid(), 0)
    try:
        listed = json.loads((place.path / MARKER).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError):
        # Somebody may have put it there by hand.
        listed = SETS[place.name].files if place.name in SETS else None
    if not listed:
        return False
    return all(_has(place.path / name, size) for name, size in list(listed.items())[:LOOKED_AT])


def _has(file: Path, size: int) -> bool:
    try:
        return file.stat().st_size == size
    except OSError:
        return False


def _make_root(root: Path) -> None:
    """Like /tmp: whoever trains may stage, and nobody can take away what is another's."""
    try:
        files.shared_folder(str(root))
    except PermissionError:
        subprocess.run(["sudo", "-n", "install", "-d", "-m", "1777", str(root)], check=True)
        files.shared_folder(str(root))


@contextmanager
def _alone(place: Place, tell: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Two runs may want the same set at once. The lock is gone with whoever held it."""
    with open(files.own_file(str(place.root / f".{place.name}.lock"), 0o600), "r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell({"event": "note", "text": f"Somebody else is staging {place.name}: waiting for that."})
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stage(wanted: Wanted, place: Place, progress: Progress) -> None:
    if place.path.exists():
        raise Refusal(
            f"{place.path} is there and is not the whole of {wanted.data}: move it away, or give its path as data."
        )
    partial = place.partial
    files.own_folder(str(partial))
    if wanted.data == GENERATED:
        _generate(partial)
    elif wanted.data in SETS:
        _named(wanted, place, progress)
    elif wanted.data.startswith("s3://"):
        bucket, _unused, prefix = wanted.data[5:].partition("/")
        fetch_s3(_aws(), bucket, prefix, partial, progress)
    else:
        copy_folder(Path(wanted.data), partial, progress)
    sizes = {
        str(file.relative_to(partial)): file.stat().st_size for file in sorted(partial.rglob("*")) if file.is_file()
    }
    record = {"schema": SCHEMA, "data": wanted.data, "source": wanted.source or wanted.data, "files": sizes}
    (partial / MARKER).write_text(json.dumps(record), encoding="utf-8")
    os.rename(partial, place.path)


def _generate(folder: Path) -> None:
    made = subprocess.run(
        ["python3", f"{paths.TRAINERS}/generate.py", str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise Refusal(f"generate.py failed: {(made.stderr.strip().splitlines() or ['it said nothing'])[-1]}")


def _named(wanted: Wanted, place: Place, progress: Progress) -> None:
    known = SETS[wanted.data]
    for part in known.parts:
        address, file = _address(wanted, part), place.partial / f".{part.name}"
        sent = Path(address) if Path(address).parent == place.incoming else None
        _fetch(address, file, progress)
        found = md5_of(file)
        if found != part.md5:
            for wrong in filter(None, (file, sent)):
                wrong.unlink()
            raise Refusal(
                f"{part.name} has the checksum {found}, and its publisher says {part.md5}: it was taken away again, "
                "give another data_source."
            )
        _unpack(file, place.partial, known.files)
        file.unlink()
        if sent:
            sent.unlink()
    missing = [name for name, size in known.files.items() if not _has(place.partial / name, size)]
    if missing:
        raise Refusal(f"what came as {wanted.data} has no {', '.join(missing)}: give another data_source.")


def _address(wanted: Wanted, part: Part) -> str:
    """A source that ends with / is a folder with the publisher's files."""
    home = wanted.source or SETS[wanted.data].home
    return f"{home}{part.name}" if home.endswith("/") else home


def _fetch(address: str, file: Path, progress: Progress) -> None:
    if address.startswith("s3://"):
        bucket, _unused, key = address[5:].partition("/")
        folder = file.with_name(f"{file.name}.object")
        folder.mkdir(exist_ok=True)
        fetch_s3(_aws(), bucket, key, folder, progress)
        os.replace(folder / key.rsplit("/", 1)[-1], file)
        folder.rmdir()
    elif "://" in address:
        fetch_url(address, file, progress)
    else:
        shutil.copyfile(address, file)


def _unpack(file: Path, folder: Path, wanted: Any) -> None:
    """Only what the catalog names, wherever it lies in the archive."""
    if file.name.endswith(".tar.gz"):
        with tarfile.open(file) as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if name in wanted and member.isfile() else None
                if content:
                    with content, open(folder / name, "wb") as out:
                        shutil.copyfileobj(content, out)
    else:
        with gzip.open(file) as plain, open(folder / file.name.lstrip(".")[: -len(".gz")], "wb") as out:
            shutil.copyfileobj(plain, out)


def _link(place: Place) -> None:
    """Where old scripts look."""
    name = SETS[place.name].link if place.name in SETS else ""
    if name and place.root == place.efs_mount / "data":
        link = place.efs_mount / name
        if not link.exists() and not link.is_symlink():
            link.symlink_to(Path("data", place.name))


def _aws() -> Any:
    from deeplearning.aws import Aws
    from deeplearning.config import read_config

    return Aws(read_config().region)
