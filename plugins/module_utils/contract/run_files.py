# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The files of a run that an operator gets: what there is, how files may be named, and the form in which they are sent.

The master sends the files that it is asked for, in that order. Each is a number of chunks and an end. A chunk is a line
of JSON, followed by its bytes; an end is a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import schema
from .schema import Check

MOST_FILES = 10_000
LARGEST_FILE = 1 << 44
"""16 TiB, in bytes."""
CHUNK = 1 << 20
LONGEST_LINE = 1024
"""Bytes of a chunk's or an end's line."""
LONGEST_NAME, LONGEST_PART, MOST_PARTS = 1024, 255, 16
"""Bytes of a name, and of a folder's or a file's name in it; how many of these there are."""


@dataclass(frozen=True)
class Kind:
    """What an operator asks for."""

    places: Sequence[str]
    """Folders and files in the run's folder."""
    grows: bool = False
    """Whether the run appends to its files: what a file has when it is listed is sent, without what is added later."""


KINDS: Mapping[str, Kind] = {
    "model": Kind(("model",)),
    "checkpoints": Kind(("checkpoints",)),
    "logs": Kind(("logs", "metrics", "attempts", "events.jsonl", "run.json", "result.json"), grows=True),
    "tensorboard": Kind(("tensorboard",), grows=True),
}


def is_safe(value: Any) -> bool:
    """Return whether a value is the name of a file below a run's folder.

    `forbidden_names` decides which of these may be written to the operator's machine.
    """
    parts = value.split("/") if isinstance(value, str) else []
    return (
        bool(parts)
        and len(parts) <= MOST_PARTS
        and value.isprintable()
        and "\\" not in value
        and len(value.encode()) <= LONGEST_NAME
        and all(part not in ("", ".", "..") and len(part.encode()) <= LONGEST_PART for part in parts)
    )


file_name = schema.checked_by(is_safe, "the name of a file in the run's folder")


def of_kind(what: str) -> Check:
    """Return the check of names of one kind."""
    places = KINDS[what].places
    return schema.checked_by(
        lambda name: is_safe(name) and any(name == place or name.startswith(f"{place}/") for place in places),
        f"the name of a file of the run's {what}",
    )


def collision(names: Iterable[str]) -> str:
    """Return a name that is there twice, or that is also a folder of another; empty if there is none."""
    seen: set[str] = set()
    folders: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
        folders.update(name[:end] for end, letter in enumerate(name) if letter == "/")
    return next(iter(sorted(seen & folders)), "")


size = schema.between(0, LARGEST_FILE)
FILE = {"name": file_name, "size": size, "modified": schema.between(-(2**63), 2**63)}
"""A file in the master's list. `modified` is in nanoseconds since 1970."""
_REQUESTED = schema.list_of(schema.fields_of(**FILE, start=size), most=MOST_FILES)
"""`start`: how many bytes of it the operator has. They are not sent."""


def requested(text: str) -> list[dict[str, Any]]:
    """Return the files that are requested. Raise InvalidValue if the request is malformed."""
    return _REQUESTED(schema.from_json(text))


_CHUNK = schema.fields_of(at=size, bytes=schema.between(0, CHUNK))
_END = schema.fields_of(sha256=schema.sha256, changed=schema.boolean)
_PROBLEM = schema.fields_of(problem=schema.text(300, least=1), changed=schema.boolean)


def chunk(at: int, count: int) -> bytes:
    """Return the line before the bytes of a file that begin at a position, or about bytes there that are not sent."""
    return _line({"at": at, "bytes": count})


def end(sha256: str, changed: bool) -> bytes:
    """Return the line after a file. `changed`: it is not as it was listed any more."""
    return _line({"sha256": sha256, "changed": changed})


def failed(problem: str) -> bytes:
    """Return the line after a file that could not be read to its end."""
    return _line({"problem": problem, "changed": True})


def _line(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record)}\n".encode()


def parse_line(line: bytes) -> dict[str, Any]:
    """Return a chunk, an end or a problem. Raise InvalidValue for anything else."""
    record = schema.from_json(line)
    if not isinstance(record, dict):
        raise schema.InvalidValue("a map")
    return (_CHUNK if "bytes" in record else _END if "sha256" in record else _PROBLEM)(record)
