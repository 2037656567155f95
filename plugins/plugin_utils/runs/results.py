# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Get the files of a run: list them, compare them with what is here, receive what is missing, and check it.

They arrive in the form of `contract/run_files.py`. The master may send anything, so names that it should have left out
are left out here. What has arrived of a file stays here, and is not sent again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from ...module_utils.contract import run_files
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.forbidden_names import NameFilter, repository_folders
from ...module_utils.contract.run_request import ACTIVE_STATES
from ..data.bucket import file_sha256
from ..untrusted import InvalidValue
from . import answers, node_program
from .left_out import MOST_NAMED, LeftOut
from .result_targets import ResultTarget, RunFile, Transfer, conflict, create_folders

ROUNDS = 3
"""How often files are listed and received, as they may change meanwhile."""
LOCK = ".lock"
"""A file in the folder of what has not arrived completely. The files of a run have other names."""
LINES = 3
"""Lines of a file in addition to those of whole chunks: what is left of it, where its new bytes begin, and its end."""

Show = Callable[[str, int], None]
"""Called with a file's name, and up to where it has been read."""


@dataclass(frozen=True)
class Listing:
    """The files of a run, as the master lists them."""

    state: str
    files: Sequence[RunFile]
    left_out: LeftOut = LeftOut()

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_STATES


def list_files(way: node_program.Way, run_id: str, what: str) -> Listing:
    """Return the files of a run without those that must not be written to this machine."""
    command = ["run", "files", run_id, what]
    answer = node_program.ask(way, command)
    try:
        names = list(map(run_files.of_kind(what), (file["name"] for file in answer["files"])))
        if twice := run_files.collision(names):
            raise InvalidValue(f"one file of the name {twice}")
    except InvalidValue as malformed:
        raise answers.unexpected(way.host, command, malformed) from None
    files = [RunFile(**file) for file in answer["files"]]
    named = tuple(answer["left_out"])
    # The program may be an older one, which sends no number and leaves out no name that is forbidden.
    count = answer["left_out_count"]
    left_out = LeftOut(max(count or 0, len(named)), named)
    accepted, refused = choose(files, NameFilter())
    return Listing(answer["state"], accepted, left_out.with_refused(refused))


def choose(files: Iterable[RunFile], names: NameFilter) -> tuple[list[RunFile], dict[str, str]]:
    """Return the files that may be written to this machine, and why the others may not, by their names."""
    accepted = []
    refused = {}
    for file in files:
        reason = names.accept(file.name)
        if reason:
            refused[file.name] = reason
        else:
            accepted.append(file)
    return accepted, refused


def choose_for(target: ResultTarget, files: Sequence[RunFile]) -> tuple[list[RunFile], dict[str, str]]:
    """Do the same with regard to what the target has already."""
    names = NameFilter(target.ignores_case())
    folders = repository_folders(file.name for file in files)
    for existing in target.entries(folders):
        names.add_existing(existing.name, existing.is_folder)
    return choose(files, names)


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
    """Read the chunks of a file and write them to its part. Return its end."""
    flags, position = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, start
    with open(os.open(request.part, flags, 0o644), "ab") if request.part else contextlib.nullcontext() as part:
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


@dataclass
class Fetch:
    """Gets files of one kind of one run."""

    way: node_program.Way
    run_id: str
    what: str
    target: ResultTarget
    transfer: Transfer
    were_there: list[RunFile] = field(default_factory=list)
    received: list[RunFile] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Files that the run has removed meanwhile."""
    left_out: LeftOut = LeftOut()
    """By the master, and here."""
    _positions: dict[str, int] = field(default_factory=dict)
    """Up to where each file has been read."""
    _done: int = 0
    _total: int = 0

    def run(self, listing: Listing) -> None:
        """Get the files of a list. Raise UserError if any of them is not here at the end, and not gone."""
        with self._lock():
            self._run(listing)
            # All files are in their place: what cannot be removed is no reason to fail.
            shutil.rmtree(self.target.partial, ignore_errors=True)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep other processes from the folder of what has not arrived completely. Remove it if it is empty."""
        path = create_folders(self.target.partial, LOCK)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644), "wb") as lock:
            if not _is_locked(lock, path):
                raise UserError(
                    f"Another process is fetching the {self.what} to {self.target.place}: wait for it, or name another "
                    f"folder. Example: -e to={self.run_id}-new"
                )
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
                for folder in (path.parent, path.parent.parent):
                    with contextlib.suppress(OSError):
                        folder.rmdir()

    def _run(self, listing: Listing) -> None:
        files, refused = choose_for(self.target, listing.files)
        self.left_out = listing.left_out.with_refused(refused)
        self._total = sum(file.size for file in files)
        changing = self._round(files)
        for _unused in range(ROUNDS - 1):
            if not changing:
                break
            current = {file.name: file for file in list_files(self.way, self.run_id, self.what).files}
            self.gone += [name for name in changing if name not in current]
            changing = self._round([current[name] for name in changing if name in current])
        if changing:
            reasons = "; ".join(f"{name} ({reason})" for name, reason in list(changing.items())[:MOST_NAMED])
            raise UserError(
                f"{count(len(changing))} of {self.run_id} cannot be had as a whole: {reasons}. Run the same command "
                "again later: what is here already is not sent again."
            )

    def _round(self, files: Sequence[RunFile]) -> dict[str, str]:
        """Get files. Return the names of those that are not here as they are in the run, and why."""
        existing = {file: self.target.existing(file) for file in files}
        present = [file for file, sha256 in existing.items() if sha256]
        missing = [file for file, sha256 in existing.items() if not sha256]
        problems = {}
        for request, sent in self._receive([FileRequest(file) for file in present]):
            if sent.problem:
                problems[request.file.name] = sent.problem
            elif sent.sha256 != existing[request.file]:
                raise conflict(self.target.place, request.file.name)
            else:
                self.were_there.append(request.file)
        requests = [FileRequest(file, self._part(file)) for file in missing]
        if requests:
            self.target.require_room(request.file.size - request.start for request in requests)
        for request, sent in self._receive(requests):
            if problem := self._problem(request, sent):
                problems[request.file.name] = problem
        return problems

    def _part(self, file: RunFile) -> Path:
        """Return the path for a file until it has arrived. A beginning that cannot be its own is removed."""
        part = create_folders(self.target.partial, file.name)
        if part.is_symlink() or (part.exists() and (not part.is_file() or part.stat().st_size > file.size)):
            part.unlink()
        return part

    def _receive(self, requests: Sequence[FileRequest]) -> Iterator[tuple[FileRequest, Sent]]:
        if not requests:
            return
        try:
            yield from receive(self.way, self.run_id, requests, self._show)
        except node_program.ConnectionLost as lost:
            raise UserError(f"{str(lost).rstrip('.')}. Run the same command again: it resumes there.") from None

    def _problem(self, request: FileRequest, sent: Sent) -> str:
        """Store a file that has arrived. Return why it cannot be; empty if it was."""
        if request.part is None or sent.problem:
            return sent.problem
        if sent.changed and not run_files.KINDS[self.what].grows:
            request.part.unlink()
            return "the run changes it"
        # What was here before may be of another file.
        if file_sha256(request.part) != sent.sha256:
            request.part.unlink()
            return "its checksum differs"
        self.target.store(request.file, request.part, sent.sha256)
        self.received.append(request.file)
        return ""

    def _show(self, name: str, position: int) -> None:
        self._done += position - self._positions.get(name, 0)
        self._positions[name] = position
        self.transfer(self.run_id, self._done, self._total)


def _is_locked(lock: IO[bytes], path: Path) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have removed it at its end, just before.
        return os.path.samestat(os.fstat(lock.fileno()), path.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False


def write_error(error: OSError, folder: Path) -> UserError:
    """Return the error for a file that could not be written."""
    place = error.filename or folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(f"{folder} is full: make room, and run the same command again. It resumes there.")
    return UserError(f"{place}: {error.strerror}. Fix that and run the same command again: it resumes there.")


def count(number: int) -> str:
    return f"{number} file{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """Return a size as text, such as 3.4 GiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number} bytes"
