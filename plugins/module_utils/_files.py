# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Files as they are and as they shall be.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FOLDER_MODE = 0o755
LOCK = "/run/deeplearning/files.lock"
COMPILED = "__pycache__"
"""Python makes these itself: they are nobody's wish and in nobody's way."""


class Unfit(Exception):
    """What is at a path cannot become what is wanted: one sentence."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait for another process that writes, such as one that has outlived the playbook that started it."""
    os.makedirs(os.path.dirname(LOCK), exist_ok=True)
    with open(LOCK, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class State:
    """What is at a path. The content None: whatever it holds."""

    content: bytes | None
    mode: int


@dataclass(frozen=True)
class Change:
    path: str
    before: State | None
    """None: there was nothing"""
    after: State | None
    """None: there shall be nothing"""
    top: str = ""
    """Folders below and with this one go when nothing is left in them."""

    def apply(self) -> None:
        _make(self.path, self.after)
        folder = os.path.dirname(self.path)
        while self.top and self.after is None and folder.startswith(self.top) and not os.listdir(folder):
            os.rmdir(folder)
            folder = os.path.dirname(folder)

    def undo(self) -> None:
        _make(self.path, self.before)

    def as_diff(self) -> dict[str, str]:
        """As Ansible shows it."""
        shown = {}
        for side, state in (("before", self.before), ("after", self.after)):
            shown[f"{side}_header"] = f"{self.path} ({state.mode:04o})" if state else f"{self.path} (absent)"
            content = state.content if state else None
            # A change of mode alone is seen in the headers.
            content = self.before.content if content is None and state and self.before else content
            shown[side] = (content or b"").decode("utf-8", "replace")
        return shown


def changes(wanted: Iterable[Mapping[str, Any]]) -> list[Change]:
    """What has to be done so that everything is as it is wanted."""
    return [change for item in wanted for change in _changes_of(item)]


def _changes_of(item: Mapping[str, Any]) -> Iterator[Change]:
    path, mode = item["path"], int(item["mode"], 8)
    contents = item["contents"]
    if item["state"] == "absent":
        if item["content"] is None or _holds(path, item["content"]):
            yield from _removal(path, ())
        return
    if contents is None:
        content = item["content"]
        yield from _change(path, State(None if content is None else content.encode(), mode))
        return
    for name, text in sorted(contents.items()):
        runs = 0o111 if text.startswith("#!") else 0
        yield from _change(os.path.join(path, name), State(text.encode(), mode | runs))
    yield from _removal(path, {os.path.join(path, name) for name in contents})


def _holds(path: str, text: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == text.encode()
    except OSError:
        return False


def _change(path: str, wanted: State) -> Iterator[Change]:
    before = _look(path)
    if wanted.content is None and before is None:
        raise Unfit(f"{path} does not exist, so that its mode cannot be set: give a content or source, or install it.")
    same_content = before is not None and wanted.content in (None, before.content)
    if not same_content or before is None or before.mode != wanted.mode:
        yield Change(path, before, wanted)


def _removal(path: str, kept: Collection[str]) -> Iterator[Change]:
    """Of a file, or of all in a folder but what is kept."""
    if not os.path.isdir(path) or os.path.islink(path):
        before = _look(path)
        if before is not None:
            yield Change(path, before, None)
        return
    for folder, folders, names in os.walk(path):
        if kept and COMPILED in folders:
            folders.remove(COMPILED)
        for name in sorted(names):
            found = os.path.join(folder, name)
            if found not in kept:
                yield Change(found, _look(found), None, path)


def _look(path: str) -> State | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise Unfit(f"{path} is no ordinary file, and somebody else's: remove it, or see what needs it.")
    with open(path, "rb") as file:
        return State(file.read(), stat.S_IMODE(found.st_mode))


def _make(path: str, state: State | None) -> None:
    if state is None:
        os.unlink(path)
    elif state.content is None:
        os.chmod(path, state.mode)
    else:
        _write(path, state.content, state.mode)


def _write(path: str, content: bytes, mode: int) -> None:
    """By another name first: whoever reads it sees the old file or the new one."""
    folder, name = os.path.split(path)
    os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
    new = os.path.join(folder, f".{name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(new, mode)
    os.rename(new, path)
