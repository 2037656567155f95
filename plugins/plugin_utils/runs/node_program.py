# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""How actions run commands on nodes, mostly the program `deeplearning`: for one answer, or for lines while it works.

A node may print anything, for ever: all that is read has a limit and, but for what a person watches, a deadline.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from ...module_utils.contract.errors import UserError
from ...module_utils.contract.paths import PROGRAM
from ...module_utils.contract.run_request import FIELDS, UNKNOWN_KEY
from ..untrusted import one_line
from . import answers

COMMAND_NOT_FOUND = 127
CONNECTION_LOST = 255
"""ssh's own exit code."""
LONGEST_LINE = 1 << 24
"""In bytes. The program on the nodes prints far shorter lines."""
LONGEST_ANSWER = 1 << 24
ANSWER_SECONDS = 900.0
"""A slow connection sends code for minutes."""
ALIVE = ("ServerAliveInterval=5", "ServerAliveCountMax=4")
"""ssh's options to notice a connection that breaks silently."""

Stdin = IO[bytes] | int


class CommandFailed(UserError):
    """The command ended with another code than 0."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ConnectionLost(CommandFailed):
    """The connection ended; what runs on the node continues."""


@dataclass(frozen=True)
class Way:
    """How a node's shell is reached."""

    host: str
    """its name in messages"""
    ssh: Sequence[str] = ()
    """ssh with its arguments, up to the command; none if the node is this machine"""
    as_root: bool = False
    """whether the program runs as root"""

    @classmethod
    def of_connection(cls, connection: Any, host: str, as_root: bool = False) -> Way:
        """Return the way of Ansible's own connection, which itself has no deadline and no limit, and no streams."""
        return cls(host, ssh_command(connection), as_root)

    @classmethod
    def of_config(cls, config: str, host: str) -> Way:
        """Return the way by the configuration that discover_members has written, with nothing of Ansible's."""
        options = ("BatchMode=yes", "ForwardAgent=no", "ConnectTimeout=10", *ALIVE)
        return cls(host, ["ssh", "-F", config, *(word for option in options for word in ("-o", option)), host])

    def program(self, arguments: Sequence[str]) -> str:
        """Return the shell command of `deeplearning ARGUMENTS`. It replaces the shell and ends with the connection."""
        return f"exec {shlex.join([*('sudo', '-n') * self.as_root, PROGRAM, *arguments])}"

    def argv(self, shell_command: str) -> list[str]:
        return [*self.ssh, shell_command] if self.ssh else ["/bin/sh", "-c", shell_command]


def ask(
    way: Way, arguments: Sequence[str], stdin: Stdin = subprocess.DEVNULL, seconds: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """Return the answer to `deeplearning ARGUMENTS`."""
    printed = run(way, way.program(arguments), stdin, seconds)
    return answers.parse(way.host, arguments, printed.decode(errors="replace"))


def raw(way: Way, arguments: Sequence[str], stdin: Stdin = subprocess.DEVNULL) -> dict[str, Any]:
    """Return what `deeplearning ARGUMENTS` prints as a task's result, however it ends."""
    printed: list[str] = []
    code, reason = 0, ""
    try:
        with output(way, way.program(arguments), stdin, LONGEST_ANSWER, ANSWER_SECONDS) as chunks:
            printed.extend(lines(chunks, way.host))
    except ConnectionLost as lost:
        return {"unreachable": True, "msg": str(lost)}
    except UserError as error:
        code, reason = error.code if isinstance(error, CommandFailed) else 1, str(error)
    # Without `failed` Ansible fails the task for any other code than 0.
    # With failed_when, the message is what people read.
    return {"failed": False, "rc": code, "stdout": "\n".join(printed), "stderr": reason, "msg": reason}


def run(way: Way, shell_command: str, stdin: Stdin = subprocess.DEVNULL, seconds: float = ANSWER_SECONDS) -> bytes:
    """Return what a shell command prints."""
    with output(way, shell_command, stdin, LONGEST_ANSWER, seconds) as chunks:
        return b"".join(chunks)


def failure(host: str, code: int, stderr: str) -> CommandFailed:
    """Return the error for a command that ended with this code. What the program refused is a sentence already."""
    reason = last_line(stderr) or f"it ended with {code} and printed no reason"
    if code == COMMAND_NOT_FOUND:
        return CommandFailed(
            f"{host} has no command deeplearning: run ansible-playbook deeplearning.aws.configure, which makes it a "
            "member.",
            code,
        )
    if code == CONNECTION_LOST:
        return ConnectionLost(f"The connection to {host} was lost: {reason}", code)
    if any(reason.startswith(f"deeplearning: {UNKNOWN_KEY} {key}:") for key in FIELDS):
        return CommandFailed(f"{host} does not know what this version requests. {answers.OTHER_VERSION}", code)
    refused = reason.startswith("deeplearning: ")
    return CommandFailed(reason.removeprefix("deeplearning: ") if refused else f"{host}: {reason}", code)


def last_line(text: str) -> str:
    """Return the last line that is not empty, safe to print."""
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1].strip()) if lines else ""


def ssh_command(connection: Any) -> list[str]:
    """Return the ssh command that reaches the host of Ansible's own connection; nothing for another transport."""
    if connection.transport != "ssh":
        return []
    option = connection.get_option
    argv = ["ssh", "-o", "ForwardAgent=no", *shlex.split(option("ssh_common_args") or "")]
    argv += [argument for setting in ("BatchMode=yes", *ALIVE) for argument in ("-o", setting)]
    if option("private_key_file"):
        argv += ["-o", "IdentitiesOnly=yes", "-i", os.path.expanduser(option("private_key_file"))]
    user = option("remote_user")
    return [*argv, *(["-l", user] if user else []), option("host")]


@contextlib.contextmanager
def output(
    way: Way, shell_command: str, stdin: Stdin = subprocess.DEVNULL, limit: float = math.inf, seconds: float = math.inf
) -> Iterator[Iterator[bytes]]:
    """Yield what a command prints as it comes, up to `limit` bytes, and terminate the command at the end.

    What ssh runs on the node ends when it next writes.
    """
    deadline, argv = time.monotonic() + seconds, way.argv(shell_command)
    with tempfile.TemporaryFile() as stderr:
        try:
            process = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr)
        except FileNotFoundError:
            raise UserError(f"There is no {argv[0]} on this machine: install OpenSSH's client.") from None
        with process:
            try:
                yield _chunks(process, stderr, way.host, limit, deadline)
            finally:
                process.terminate()


def _chunks(
    process: subprocess.Popen[bytes], stderr: IO[bytes], host: str, limit: float, deadline: float
) -> Iterator[bytes]:
    """Yield the output until the process ends. Raise UserError if it failed, or for too much, or too late."""
    if process.stdout is None:
        raise ValueError("the process was started without a pipe for its output")
    parent = os.getppid()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while process.poll() is None or selector.get_map():
            if os.fstat(stderr.fileno()).st_size > LONGEST_ANSWER:
                raise _limit_exceeded(host)
            end_with_parent(parent)
            if time.monotonic() > deadline:
                raise UserError(f"{host} did not answer completely in time.")
            # A process may close its output long before it ends.
            if not selector.get_map():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
            elif selector.select(1.0):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                limit -= len(chunk)
                if limit < 0:
                    raise _limit_exceeded(host)
                if chunk:
                    yield chunk
                else:
                    selector.unregister(process.stdout)
    if process.returncode:
        stderr.seek(0)
        raise failure(host, process.returncode, stderr.read().decode(errors="replace"))


def lines(chunks: Iterable[bytes], host: str) -> Iterator[str]:
    """Yield the lines. The last one may have no newline if the command itself has ended; otherwise it is cut."""
    line = bytearray()
    try:
        for chunk in chunks:
            first, *later = chunk.split(b"\n")
            line += first
            for begun in later:
                yield line.decode(errors="replace")
                line = bytearray(begun)
            if len(line) > LONGEST_LINE:
                raise _limit_exceeded(host)
    except ConnectionLost:
        raise
    except CommandFailed:
        if line:
            yield line.decode(errors="replace")
        raise
    if line:
        yield line.decode(errors="replace")


def _limit_exceeded(host: str) -> UserError:
    return UserError(
        f"{host} sends far more than is expected: the rest is discarded. Check what runs on {host}, or replace it."
    )


def end_with_parent(parent: int) -> None:
    """End this process if Ansible has ended: its workers have a session of their own and survive a closed terminal."""
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
