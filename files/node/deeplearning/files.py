"""Files that others read at any moment: each is replaced whole, and only if it differs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Generator
from typing import TypeVar

from deeplearning import Refusal

T = TypeVar("T")
BEING_REPLACED = (errno.ENOENT, errno.ESTALE)
"""What a shared file system may say for a moment while a file is replaced: who replaces it moves an open one aside."""
MORE_LOOKS = 3
BETWEEN_LOOKS = 0.05

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
