"""`deeplearning run files` and `run send`: what a run has written, for the operator's machine.

Training code writes these files, so no link is followed, and what is no file is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from deeplearning import safe_files
from deeplearning.contract import run_files
from deeplearning.contract.errors import UserError
from deeplearning.runs import checkpoints
from deeplearning.runs.folder import Folder
from deeplearning.runs.views import state_of

MOST_LEFT_OUT = 20
"""Files that are named because they are left out."""


def listing(folder: Folder, what: str) -> dict[str, Any]:
    """Return the files of one kind with their sizes, and the names of what is left out."""
    root, state = os.path.realpath(folder.path), state_of(folder)
    files: list[dict[str, Any]] = []
    left_out: list[str] = []
    for name in _names(root, what, left_out):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            seen = os.lstat(f"{root}/{name}")
            files.append({"name": name, "size": seen.st_size, "modified": seen.st_mtime_ns})
        if len(files) > run_files.MOST_FILES:
            raise UserError(
                f"Run {folder.id} has more than {run_files.MOST_FILES} files in its {what}: pack them on the master, "
                f"into a file of its model/. Example: tar -cf {folder.path}/model/{what}.tar -C {folder.path} {what}"
            )
    return {"state": state, "files": files, "left_out": left_out}


def present(folder: Folder) -> dict[str, str]:
    """Return the folders of the model and of the checkpoints, if the run has any that can be read."""
    root, folders = os.path.realpath(folder.path), {}
    for what in ("model", "checkpoints"):
        with contextlib.suppress(OSError):
            if next(_names(root, what, []), None):
                folders[what] = folder.file(what)
    return folders


def _names(root: str, what: str, left_out: list[str]) -> Iterator[str]:
    names = (name for place in run_files.KINDS[what].places for name in _walk(root, place, left_out))
    return _complete(root, names) if what == "checkpoints" else names


def _walk(root: str, name: str, left_out: list[str]) -> Iterator[str]:
    """Yield the names of files at a place in a run's folder, and add those that are left out to the list."""
    path = f"{root}/{name}"
    # A trainer may remove its oldest checkpoints at any time.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or not run_files.is_safe(name):
            if len(left_out) < MOST_LEFT_OUT:
                left_out.append(name)
        elif stat.S_ISREG(mode):
            yield name
        else:
            for entry in sorted(os.listdir(path)):
                yield from _walk(root, f"{name}/{entry}", left_out)


def _complete(root: str, names: Iterator[str]) -> Iterator[str]:
    """Yield the names of files that belong to complete checkpoints, and of files that say which is the newest."""
    stems = tuple(f"checkpoints/{name}" for name in checkpoints.complete(f"{root}/checkpoints"))
    # TensorFlow's and TensorPack's checkpoints are files whose names begin alike.
    beginnings = tuple(f"{stem}{sign}" for stem in stems for sign in "/.")
    for name in names:
        if name in stems or name.startswith(beginnings) or os.path.basename(name) in checkpoints.SIGNPOSTS:
            yield name


def send(folder: Folder, files: Sequence[Mapping[str, Any]], out: IO[bytes]) -> None:
    """Send files in the form of `run_files`."""
    root = os.path.realpath(folder.path)
    for file in files:
        place, name = os.path.split(f"{root}/{file['name']}")
        try:
            with safe_files.open_folder(root, place, is_roots=False) as at, safe_files.open_file(name, at) as opened:
                out.write(_sent(opened, file, out))
        except UserError:
            out.write(run_files.failed("it is no file any more"))
        except OSError as error:
            out.write(run_files.failed(error.strerror or "it cannot be read"))
    out.flush()


def _sent(opened: IO[bytes], file: Mapping[str, Any], out: IO[bytes]) -> bytes:
    """Send the chunks of a file. Return its end."""
    sha256, at = hashlib.sha256(), 0
    while at < file["size"]:
        is_new = at >= file["start"]
        data = opened.read(min(run_files.CHUNK, (file["size"] if is_new else file["start"]) - at))
        if not data:
            return run_files.failed("it has become shorter")
        sha256.update(data)
        out.write(run_files.chunk(at, len(data) if is_new else 0))
        if is_new:
            out.write(data)
        at += len(data)
    seen = os.fstat(opened.fileno())
    return run_files.end(sha256.hexdigest(), (seen.st_size, seen.st_mtime_ns) != (file["size"], file["modified"]))
