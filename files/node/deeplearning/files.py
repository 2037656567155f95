"""Files that others read at any moment: each is replaced whole, and only if it differs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import stat
import time
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from deeplearning import Refusal

T = TypeVar("T")
BEING_REPLACED = (errno.ENOENT, errno.ESTALE)
"""What a shared file system may say for a moment while a file is replaced: who replaces it moves an open one aside."""
MORE_LOOKS = 3
BETWEEN_LOOKS = 0.05

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

BEGIN = "# BEGIN deeplearning (written by `deeplearning members apply`)\n"
END = "# END deeplearning\n"


def text_of(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None


def settled(look: Callable[[], T]) -> T:
    """Of a file that is replaced now and then: it is looked for again before it counts as missing."""
    for _unused in range(MORE_LOOKS):
        try:
            return look()
        except OSError as error:
            if error.errno not in BEING_REPLACED:
                raise
        time.sleep(BETWEEN_LOOKS)
    return look()


def put(path: str, text: str, mode: int = 0o644) -> bool:
    """Whether it had to be written."""
    path = os.path.realpath(path)
    if text_of(path) == text:
        return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.deeplearning-new"
    write(new, text.encode("utf-8", "surrogateescape"), mode)
    os.rename(new, path)
    return True


def write(path: str, content: bytes, mode: int) -> None:
    """A new file that is on the disk when this returns."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(content)
        file.flush()
        os.fsync(handle)


def remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def own_folder(path: str, owner: int | None = None, mode: int = 0o755) -> None:
    """Create the folder, or check that an existing one belongs to `owner` and that nobody else can write in it.

    Every user of the shared file system can make folders there, and so prepare links and files for somebody else. The
    folder above has to be one that passes here or in `shared_folder`: then nobody can exchange this one afterwards.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        os.chmod(path, mode)
    check_folder(path, os.geteuid() if owner is None else owner)


def shared_folder(path: str, mode: int = 0o1777) -> None:
    """Create the folder, or check that in an existing one nobody can replace what belongs to us."""
    if not os.path.lexists(path):
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
    check_folder(path, 0, os.geteuid(), shared=True)


def check_folder(path: str, *owners: int, shared: bool = False) -> None:
    """Refuse a link, another owner, and a mode that lets others write. If `shared`, as in /tmp, they may add files."""
    seen = os.lstat(path.rstrip("/") or "/")
    if problem := _problem(seen, owners, stat.S_ISDIR):
        raise Refusal(
            f"{path} {problem} and has to be a folder of {' or '.join(map(_user, owners))}: somebody else may have "
            f"prepared it. Move it away, and run the same command again. Example: sudo mv {path} {path}.old"
        )
    if seen.st_mode & OTHERS_WRITE and not (shared and seen.st_mode & stat.S_ISVTX):
        raise Refusal(
            f"{path} has mode {stat.S_IMODE(seen.st_mode):04o}, so other users can put links and files into it: look "
            f"at what is in it, and close it. Example: sudo chmod {'+t' if shared else 'go-w'} {path}"
        )


def own_file(path: str, mode: int = 0o644) -> int:
    """Open a file for reading and writing, created if need be; never through a link, and never another user's."""
    handle = None
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        seen = os.fstat(handle)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.EACCES, errno.ENXIO):
            raise
        seen = os.lstat(path)
    problem = _problem(seen, [os.geteuid()], stat.S_ISREG) or ("has a second name" if seen.st_nlink > 1 else "")
    if handle is not None and not problem:
        return handle
    if handle is not None:
        os.close(handle)
    problem = problem or "cannot be opened"
    raise Refusal(
        f"{path} {problem} and has to be a file of {_user(os.geteuid())} alone: somebody else may have prepared it. "
        f"Remove it, and run the same command again. Example: sudo rm {path}"
    )


def _problem(seen: os.stat_result, owners: Sequence[int], is_kind: Callable[[int], bool]) -> str:
    if stat.S_ISLNK(seen.st_mode):
        return "is a link"
    if not is_kind(seen.st_mode):
        return f"is a {'folder' if stat.S_ISDIR(seen.st_mode) else 'file'}"
    return "" if seen.st_uid in owners else f"belongs to {_user(seen.st_uid)}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def with_block(text: str, lines: str) -> str:
    """The text with our lines in it, in their own place or at its end. Without lines, the text without ours."""
    block = f"{BEGIN}{lines}{END}" if lines else ""
    before, begin, rest = text.partition(BEGIN)
    if begin:
        # What follows a block that has lost its end is nobody's any more.
        return before + block + rest.partition(END)[2]
    gap = "\n" if block and text and not text.endswith("\n") else ""
    return text + gap + block


@contextlib.contextmanager
def only_one(path: str, what: str, seconds: float = 20) -> Generator[None, None, None]:
    """One process at a time. One that hangs in the shared file system keeps its place, so they do not pile up."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise Refusal(
                        f"another `{what}` has been at work for {seconds:g} s: does the shared file system answer?"
                    ) from None
                time.sleep(0.1)
        yield
