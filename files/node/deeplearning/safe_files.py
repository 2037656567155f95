"""Read files where other users, or training code, may have prepared links, pipes, devices and endless files.

Each tick of a timer imports this, so it imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Generator, Iterator

from deeplearning.contract.errors import UserError

OWNER = 0
"""Whose the folders of members on the shared file system are, and what the master publishes there."""
RECORD_BYTES = 8 * 1024 * 1024
"""More than any of our records has, or a line of one: that of a run lists each process of thousands of nodes."""


def open_file(path: str, folder: int | None = None) -> io.BufferedReader:
    """Open a regular file, as `open_handle` does."""
    return os.fdopen(open_handle(path, folder), "rb")


def open_handle(path: str, folder: int | None = None) -> int:
    """Open a regular file. Raise UserError for anything else: no link is followed, and no pipe is waited for.

    `folder`: the open folder that a relative path begins at.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        # A socket cannot be opened (ENXIO).
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _refusal(path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _refusal(path)
    return handle


def _refusal(path: str) -> UserError:
    return UserError(f"{path} is a link, a pipe or a folder, and has to be a file: remove it.")


def read(path: str, limit: int = RECORD_BYTES, folder: int | None = None) -> bytes:
    """Return a regular file's content. Raise UserError if it has more bytes than the limit."""
    with open_file(path, folder) as file:
        return read_opened(file, path, limit)


def read_opened(file: io.BufferedReader, path: str, limit: int = RECORD_BYTES) -> bytes:
    content = file.read(limit + 1)
    if len(content) > limit:
        raise UserError(f"{path} has more than the {limit} bytes that it can need: remove it.")
    return content


def lines(path: str, limit: int) -> Iterator[bytes]:
    """Yield the complete lines of the first `limit` bytes of a file. Lines that are longer than any record are left
    out."""
    with open_file(path) as file:
        end, is_start = min(limit, os.fstat(file.fileno()).st_size), True
        while file.tell() < end and (part := file.readline(RECORD_BYTES)):
            is_end = part.endswith(b"\n")
            if is_start and is_end:
                yield part
            is_start = is_end


@contextlib.contextmanager
def open_folder(root: str, path: str, create: bool = False, is_roots: bool = True) -> Generator[int, None, None]:
    """Open a folder below `root`, where every user may write, and create it on request. Return its handle.

    Raise OSError if a folder on the way to it is a link, or not of the user root, so that another one may have prepared
    it. `is_roots`: False if it may be any user's.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    handle, names = os.open(root, flags), os.path.relpath(path, root).split("/")
    try:
        for depth, name in enumerate(names, start=1):
            if create and depth == len(names):
                with contextlib.suppress(FileExistsError, PermissionError):
                    os.mkdir(name, 0o755, dir_fd=handle)
            above, handle = handle, os.open(name, flags | os.O_NOFOLLOW, dir_fd=handle)
            os.close(above)
            if is_roots and os.fstat(handle).st_uid != OWNER:
                raise PermissionError(errno.EACCES, "Not a folder of root", path)
        yield handle
    finally:
        os.close(handle)
