# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""How actions talk to the program on the nodes, `deeplearning …`: they ask it once, or listen to it for long.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

PROGRAM = "/usr/local/bin/deeplearning"
NOT_THERE = 127
LOST = 255
"""ssh's own exit code: it says nothing of what it ran."""


class Trouble(Exception):
    """What the program refused, or why it could not be asked, in a sentence."""


class Lost(Trouble):
    """The connection ended; what runs on the node goes on."""


def command(words: Sequence[str]) -> str:
    """A command line for the node's shell."""
    return shlex.join([PROGRAM, *words])


def answer(host: str, code: int, stdout: str, stderr: str) -> dict[str, Any]:
    """The one JSON object that it prints; of words for people, these as `said`."""
    if code:
        raise trouble(host, code, stderr)
    return dict(event(stdout)) or {"said": stdout.strip()}


def trouble(host: str, code: int, stderr: str) -> Trouble:
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    said = lines[-1] if lines else f"it ended with {code} and said nothing"
    if code == NOT_THERE:
        return Trouble(f"{host} has no command deeplearning: run configure.yml, which makes it a member.")
    if code == LOST:
        return Lost(f"The connection to {host} was lost: {said}")
    # A refusal is a sentence for people as it is.
    refused = said.startswith("deeplearning: ")
    return Trouble(said.removeprefix("deeplearning: ") if refused else f"{host}: {said}")


def ssh(connection: Any) -> list[str]:
    """The ssh command by which Ansible's own connection reaches its host; of another connection, no words.

    Ansible's ssh gives what a command has said when it has ended. Listening needs one of our own.
    """
    if connection.transport != "ssh":
        return []
    option = connection.get_option
    found = ["ssh", *shlex.split(option("ssh_common_args") or ""), "-o", "BatchMode=yes"]
    # A cut that nobody tells of is noticed.
    found += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4"]
    if option("private_key_file"):
        found += ["-o", "IdentitiesOnly=yes", "-i", os.path.expanduser(option("private_key_file"))]
    user = option("remote_user")
    return [*found, *(["-l", user] if user else []), option("host")]


@contextlib.contextmanager
def listening(
    connection: Any, words: Sequence[str], host: str, stdin: IO[bytes] | int = subprocess.DEVNULL
) -> Iterator[Iterator[str]]:
    """The lines of `deeplearning …` on a connection's host, as they come."""
    way = ssh(connection)
    with _process([*way, command(words)] if way else [PROGRAM, *words], host, stdin) as lines:
        yield lines


@contextlib.contextmanager
def _process(words: Sequence[str], host: str, stdin: IO[bytes] | int) -> Iterator[Iterator[str]]:
    """It is ended when nobody listens any more. What ssh runs on the node ends by itself when it next writes."""
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            yield _lines(process, stderr, host)
        finally:
            process.terminate()


def _lines(process: subprocess.Popen[bytes], stderr: IO[bytes], host: str) -> Iterator[str]:
    """Until it ends; raises Trouble if it did not end well."""
    if process.stdout is None:
        raise ValueError("the process was started without a pipe for its output")
    parent, rest = os.getppid(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(1.0):
                _stay_with(parent)
                continue
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                break
            *whole, rest = (rest + part).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
    code = process.wait()
    if code:
        stderr.seek(0)
        raise trouble(host, code, stderr.read().decode(errors="replace"))


def _stay_with(parent: int) -> None:
    """Ansible's workers have a session of their own: without this they outlive a closed terminal."""
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def event(line: str) -> Mapping[str, Any]:
    """A line that tells of something; nothing of what is no JSON object."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
