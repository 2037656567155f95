"""A folder on which several users work, as on a shared file system, and another user. Tests with it run as root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534


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
        pytest.fail("this test needs another user: run it as root (sudo)")
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
