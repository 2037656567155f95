# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Files that others read at any moment: each is replaced whole, by a rename. And locks between those that write."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
BEING_REPLACED = (errno.ENOENT, errno.ESTALE)
"""What NFS may answer for a moment while a file is replaced, because its client moves an open one aside."""
RETRIES = 3
RETRY_SECONDS = 0.05


def read_or_none(path: str) -> str | None:
    """Return a file's text, or None if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None


def retry_while_replaced(read: Callable[[], T]) -> T:
    """Return what `read` returns. Retry while the file seems to be missing, as it may just be replaced."""
    for _unused in range(RETRIES):
        try:
            return read()
        except OSError as error:
            if error.errno not in BEING_REPLACED:
                raise
        time.sleep(RETRY_SECONDS)
    return read()


def write_if_changed(path: str, text: str, mode: int = 0o644) -> bool:
    """Replace a file, or the file that a link points to. Return False if it has this text already."""
    path = os.path.realpath(path)
    if read_or_none(path) == text:
        return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    replace(path, text.encode("utf-8", "surrogateescape"), mode)
    return True


def replace(path: str, content: bytes, mode: int = 0o644, owner: tuple[int, int] | None = None) -> None:
    """Write a file under a temporary name next to `path`, and rename it when it is on the disk.

    `owner`: a uid and a gid, if they are to be others than those of this process.
    """
    folder, name = os.path.split(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        if owner:
            os.fchown(handle, *owner)
        _write(handle, content, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def create(path: str, content: bytes, mode: int = 0o644) -> None:
    """Write a new file that is on the disk when this returns. An existing one is removed first."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    _write(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), content, mode)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Wait until no other process holds this lock, such as one that outlived the playbook that started it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove(path: str) -> bool:
    """Remove a file. Return False if there was none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _write(handle: int, content: bytes, mode: int) -> None:
    with open(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(content)
        file.flush()
        os.fsync(handle)
