"""A folder on which several users work, as on a shared file system, and another user.

Tests that act as another user, or give files to one, have the marker `root`.
"""

from __future__ import annotations

import os
import resource
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract.errors import UserError
from deeplearning.deadline import within

NOBODY = 65534
NEEDS_ROOT = "this test needs another user, so it needs the marker root: @pytest.mark.root"


@contextmanager
def open_folder() -> Iterator[Path]:
    """Everybody may make folders in it, as in /tmp. pytest's own temporary folders are closed to other users."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        folder = Path(made, "efs")
        folder.mkdir()
        folder.chmod(0o1777)
        yield folder


def as_nobody(work: Callable[[], Any]) -> None:
    """Do something as another user, in a process of its own."""
    if os.geteuid():
        pytest.fail(NEEDS_ROOT)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def bounded(work: Callable[[], Any], seconds: float = 10, mebibytes: int = 256) -> Any:
    """Return the result of something, or its message, in a process that may neither wait nor take much memory."""

    def limited() -> Any:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + mebibytes * 2**20,) * 2)
        try:
            return work()
        except UserError as error:
            return str(error)

    return within(seconds, limited)


HOSTILE = ("link", "link to a device", "pipe", "folder", "socket", "endless")


def prepare(path: Path, kind: str) -> None:
    """Put something of another user in a file's place."""
    if os.geteuid():
        pytest.fail(NEEDS_ROOT)
    if kind.startswith("link"):
        path.symlink_to("/dev/zero" if kind.endswith("device") else "/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o644)
    else:
        path.touch()
        os.truncate(path, 100 * 2**30)
    os.chown(path, NOBODY, -1, follow_symlinks=False)
