# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Receive the files of a run, in the form of `contract/run_files.py`. The master may send anything.

A file is written where the caller says. What has arrived of it stays there, and is not sent again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from ansible_collections.deeplearning.aws.plugins.module_utils.contract import run_files
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers, node_program
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import InvalidValue

LINES = 3
"""Lines of a file in addition to those of whole chunks: what is left of it, where its new bytes begin, and its end."""

Show = Callable[[str, int], None]
"""Called with a file's name, and up to where it has been read."""


@dataclass(frozen=True)
class RunFile:
    """A file in the master's list."""

    name: str
    size: int
    modified: int


@dataclass(frozen=True)
class FileRequest:
    file: RunFile
    part: Path | None = None
    """The file to write, which may hold a beginning already. None: all of it is here, and is only compared."""

    @property
    def start(self) -> int:
        if self.part is None:
            return self.file.size
        return self.part.stat().st_size if self.part.exists() else 0


@dataclass(frozen=True)
class Sent:
    """What the master says of a file at its end."""

    sha256: str
    """Of what it has read; empty if it could not read it to the end."""
    changed: bool
    """Whether the file is not as it was listed any more."""
    problem: str = ""


def receive(
    way: node_program.Way, run_id: str, requests: Sequence[FileRequest], show: Show
) -> Iterator[tuple[FileRequest, Sent]]:
    """Request files. Yield each with its end, in their order."""
    asked = [{**asdict(request.file), "start": request.start} for request in requests]
    lines = sum(file["size"] // run_files.CHUNK + LINES for file in asked)
    most = sum(file["size"] - file["start"] for file in asked) + lines * run_files.LONGEST_LINE
    command = ["run", "send", run_id]
    with tempfile.TemporaryFile() as stdin:
        stdin.write(json.dumps(asked).encode())
        stdin.seek(0)
        with node_program.output(way, way.program(command), stdin, most) as chunks:
            reader = _Reader(chunks)
            for request, file in zip(requests, asked, strict=True):
                try:
                    sent = _receive_one(reader, request, file["start"], show)
                except InvalidValue as malformed:
                    raise answers.unexpected(way.host, command, malformed) from None
                yield request, sent


def _receive_one(reader: _Reader, request: FileRequest, start: int, show: Show) -> Sent:
    if request.part is None:
        return _read_end(reader, request, start, None, show)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with open(os.open(request.part, flags, 0o644), "ab") as opened:
        return _read_end(reader, request, start, opened, show)


def _read_end(reader: _Reader, request: FileRequest, start: int, part: IO[bytes] | None, show: Show) -> Sent:
    """Read the chunks of a file and write them to its part. Return its end."""
    position = start
    while "bytes" in (record := run_files.parse_line(reader.line())):
        if record["bytes"]:
            if part is None or record["at"] != position or position + record["bytes"] > request.file.size:
                raise InvalidValue(f"the next bytes of {request.file.name}")
            part.write(reader.exactly(record["bytes"]))
            position += record["bytes"]
        show(request.file.name, record["at"] + record["bytes"])
    if "problem" in record:
        return Sent("", True, record["problem"])
    if position != request.file.size:
        raise InvalidValue(f"all of {request.file.name}")
    return Sent(record["sha256"], record["changed"])


class _Reader:
    """Lines and bytes from the chunks that a program prints."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._buffer = chunks, bytearray()

    def line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > run_files.LONGEST_LINE:
                raise InvalidValue("a line")
            self._read()
        line, _newline, self._buffer = self._buffer.partition(b"\n")
        return bytes(line)

    def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._read()
        content = bytes(self._buffer[:count])
        del self._buffer[:count]
        return content

    def _read(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            raise InvalidValue("all files")
        self._buffer += chunk


def digest(path: Path, show: Callable[[int], None] = lambda position: None) -> str:
    """Return the SHA-256 of a file. `show` is called with the position."""
    sha256, position = hashlib.sha256(), 0
    with path.open("rb") as opened:
        while data := opened.read(run_files.CHUNK):
            sha256.update(data)
            position += len(data)
            show(position)
    return sha256.hexdigest()
