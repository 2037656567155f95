"""The complete checkpoints in a run's folder, each by the rule of its own format, as docs/your-script.md lists it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence

from deeplearning import safe_files
from deeplearning.contract.errors import UserError

LOG_FOLDER = ("checkpoint", "log.log")
"""TensorFlow's and TensorPack's folders have one of them next to their checkpoints, of several files and an index."""
SHARD, METADATA = ".distcp", ".metadata"
"""PyTorch's distributed checkpoint (DCP) gets its metadata when all ranks have written their shards."""
_STEP = re.compile(r"checkpoint-\d+")
STEP_ENDS = ("trainer_state.json", "random_states_0.pkl")
"""What Hugging Face's Trainer, and Accelerate in scripts that use the same name, write last to `checkpoint-N`."""
POINTER_BYTES = 255
POINTERS: dict[str, Callable[[str], str]] = {
    # DeepSpeed's has the name of a folder, Megatron's an iteration or "release".
    "latest": lambda text: text,
    "latest_checkpointed_iteration.txt": lambda text: f"iter_{int(text):07d}" if text.isdecimal() else text,
}
"""Files that name the newest checkpoint next to them, and are written when it is complete."""
SIGNPOSTS = (*LOG_FOLDER, *POINTERS)
"""Files next to checkpoints that those who read these need as well."""


def complete(folder: str) -> list[str]:
    """Return the names of complete checkpoints, oldest first."""
    names = [name for _modified, name in sorted(_checkpoints(folder))]
    newest = _pointed(folder)
    return sorted(names, key=lambda name: name in newest)


def _checkpoints(folder: str, prefix: str = "") -> Iterator[tuple[float, str]]:
    """Yield modification times and names. A name that begins with a dot belongs to one that is still written."""
    entries = [entry for entry in _entries(folder) if not entry.name.startswith(".")]
    is_log_folder = any(entry.name in LOG_FOLDER for entry in entries)
    for entry in entries:
        stem, ending = os.path.splitext(entry.name)
        content = [inner.name for inner in _entries(entry.path)] if entry.is_dir() else None
        # A trainer may remove its oldest ones at any time.
        with contextlib.suppress(FileNotFoundError):
            if is_log_folder:
                if ending == ".index":
                    yield entry.stat().st_mtime, prefix + stem
            elif content is not None and any(name in LOG_FOLDER for name in content):
                yield from _checkpoints(entry.path, f"{prefix}{entry.name}/")
            elif _is_complete(entry, content):
                yield entry.stat().st_mtime, prefix + entry.name


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_complete(entry: os.DirEntry[str], content: Sequence[str] | None) -> bool:
    """`content`: the names in a folder; None for what is no folder."""
    if content is None:
        return entry.name not in POINTERS or not entry.is_file(follow_symlinks=False)
    if any(name.endswith(SHARD) for name in content):
        return METADATA in content
    if _STEP.fullmatch(entry.name):
        return any(name in content for name in STEP_ENDS)
    # A folder of any format begins empty.
    return bool(content)


def _pointed(folder: str) -> set[str]:
    """Return what the pointers name. The caller compares it with names that exist, and makes no path of it."""
    names = set()
    for pointer, name_of in POINTERS.items():
        with contextlib.suppress(OSError, UserError, ValueError):
            names.add(name_of(safe_files.read(f"{folder}/{pointer}", POINTER_BYTES).decode("ascii").strip()))
    return names
