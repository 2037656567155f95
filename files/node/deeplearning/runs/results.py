"""`deeplearning run files` and `run send`: what a run has written, for the operator's machine.

Training code writes these files, so no link is followed. Special files, and names that would make a program on the
operator's machine run commands, are left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from deeplearning import safe_files
from deeplearning.contract import run_files
from deeplearning.contract.errors import UserError
from deeplearning.contract.forbidden_names import NameFilter
from deeplearning.runs import checkpoints
from deeplearning.runs.folder import Folder
from deeplearning.runs.views import state_of

MOST_LEFT_OUT = 20
"""Files that are named because they are left out. All of them are counted."""
NO_FILE = "it is a link or a special file"
NO_NAME = "its name is too long or has special characters"


@dataclass(frozen=True)
class _Entry:
    """A file of a run, or a file or folder that is left out."""

    name: str
    reason: str = ""
    """Why it is left out; empty if it is sent."""


def listing(folder: Folder, what: str) -> dict[str, Any]:
    """Return the files of one kind with their sizes, and the names and the number of what is left out."""
    root, state = os.path.realpath(folder.path), state_of(folder)
    files: list[dict[str, Any]] = []
    left_out: list[str] = []
    left_out_count = 0
    for entry in _entries(root, what):
        if entry.reason:
            left_out_count += 1
            if len(left_out) < MOST_LEFT_OUT:
                left_out.append(f"{entry.name} ({entry.reason})")
            continue
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(f"{root}/{entry.name}")
            files.append({"name": entry.name, "size": status.st_size, "modified": status.st_mtime_ns})
        if len(files) > run_files.MOST_FILES:
            raise UserError(
                f"Run {folder.id} has more than {run_files.MOST_FILES} files in its {what}: pack them on the master, "
                f"into a file of its model/. Example: tar -cf {folder.path}/model/{what}.tar -C {folder.path} {what}"
            )
    return {"state": state, "files": files, "left_out": left_out, "left_out_count": left_out_count}


def present(folder: Folder) -> dict[str, str]:
    """Return the folders of the model and of the checkpoints, if the run has any that can be read."""
    root, folders = os.path.realpath(folder.path), {}
    for what in ("model", "checkpoints"):
        with contextlib.suppress(OSError):
            if any(not entry.reason for entry in _entries(root, what)):
                folders[what] = folder.file(what)
    return folders


def _entries(root: str, what: str) -> Iterator[_Entry]:
    """Yield what a run has of one kind."""
    names = NameFilter()
    is_listed = _checkpoint_rule(root) if what == "checkpoints" else None
    for place in run_files.KINDS[what].places:
        for entry in _walk(root, place, names):
            if is_listed is None or entry.name == place or is_listed(entry.name):
                yield entry


def _walk(root: str, name: str, names: NameFilter) -> Iterator[_Entry]:
    """Yield the files at a place in a run's folder. A folder that is left out is not opened."""
    path = f"{root}/{name}"
    # A trainer may remove its oldest checkpoints at any time.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        mode = os.lstat(path).st_mode
        reason = _refusal(name, mode, names)
        if reason or stat.S_ISREG(mode):
            yield _Entry(name, reason)
            return
        for child in sorted(os.listdir(path)):
            yield from _walk(root, f"{name}/{child}", names)


def _refusal(name: str, mode: int, names: NameFilter) -> str:
    """Return why a file or folder is left out; empty if it is not."""
    is_folder = stat.S_ISDIR(mode)
    if not is_folder and not stat.S_ISREG(mode):
        return NO_FILE
    if not run_files.is_safe(name):
        return NO_NAME
    return names.accept(name, is_folder)


def _checkpoint_rule(root: str) -> Callable[[str], bool]:
    """Return whether a name belongs to a complete checkpoint, or is that of a file that says which is the newest."""
    stems = tuple(f"checkpoints/{name}" for name in checkpoints.complete(f"{root}/checkpoints"))
    # TensorFlow's and TensorPack's checkpoints are files whose names begin alike.
    beginnings = tuple(f"{stem}{sign}" for stem in stems for sign in "/.")

    def is_listed(name: str) -> bool:
        return name in stems or name.startswith(beginnings) or os.path.basename(name) in checkpoints.SIGNPOSTS

    return is_listed


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
    status = os.fstat(opened.fileno())
    is_changed = (status.st_size, status.st_mtime_ns) != (file["size"], file["modified"])
    return run_files.end(sha256.hexdigest(), is_changed)
