# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""How actions run the program on the nodes, `deeplearning …`: for one answer, or for lines while it works."""

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.hosts import MASTER_ALIAS
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.paths import PROGRAM
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import InvalidValue, from_json, one_line

COMMAND_NOT_FOUND = 127
CONNECTION_LOST = 255
"""ssh's own exit code."""
LONGEST_LINE = 1 << 24
"""In bytes. The program on the nodes prints far shorter lines."""
LONGEST_ANSWER = 1 << 24


class ConnectionLost(UserError):
    """The connection ended; what runs on the node continues."""


def command(words: Sequence[str]) -> str:
    """Return a command line for the node's shell."""
    return shlex.join([PROGRAM, *words])


def execute(action: ActionBase, shell_command: str, become: bool = False, stdin: bytes | None = None) -> dict[str, Any]:
    """Run a command over Ansible's own connection, which is open already. Return its rc, stdout and stderr.

    A node may end any command as if the connection were lost, and Ansible prints the reason as it is.
    """
    try:
        ran: dict[str, Any] = action._low_level_execute_command(shell_command, sudoable=become, in_data=stdin)
    except AnsibleConnectionFailure as failed:
        raise AnsibleConnectionFailure(one_line(str(failed))) from None
    return ran


def call(
    action: ActionBase, words: Sequence[str], host: str, stdin: bytes = b"", forward_agent: bool = False
) -> dict[str, Any]:
    """Return the answer to `deeplearning WORDS`. Forward the agent over a connection of its own."""
    if forward_agent:
        content = read_bytes(action._connection, command(words), host, LONGEST_ANSWER, stdin, forward_agent)
        return parse_answer(host, words, content.decode(errors="replace"))
    ran = execute(action, command(words), stdin=stdin or None)
    if ran["rc"]:
        raise failure(host, ran["rc"], ran["stderr"])
    return parse_answer(host, words, ran["stdout"])


def parse_answer(host: str, words: Sequence[str], text: str) -> dict[str, Any]:
    """Return the answer to `deeplearning WORDS` in the form that `answers` defines for it."""
    try:
        return answers.parse(words, text)
    except InvalidValue as malformed:
        raise UserError(answers.unexpected(host, words, malformed)) from None


def failure(host: str, code: int, stderr: str) -> UserError:
    """Return the error for a command that ended with this code. What the program refused is a sentence already."""
    reason = last_line(stderr) or f"it ended with {code} and printed no reason"
    if code == COMMAND_NOT_FOUND:
        return UserError(
            f"{host} has no command deeplearning: run ansible-playbook deeplearning.aws.configure, which makes it a "
            "member."
        )
    if code == CONNECTION_LOST:
        return ConnectionLost(f"The connection to {host} was lost: {reason}")
    refused = reason.startswith("deeplearning: ")
    return UserError(reason.removeprefix("deeplearning: ") if refused else f"{host}: {reason}")


def last_line(text: str) -> str:
    """Return the last line that is not empty, safe to print."""
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1].strip()) if lines else ""


def ssh_command(connection: Any, forward_agent: bool = False) -> list[str]:
    """Return the ssh command that reaches the host of Ansible's own connection; no words for another transport.

    Ansible's ssh returns a command's output only at its end, so streams need an ssh of their own. With `forward_agent`
    the operator's agent can be used on the node while the command runs, over this connection only.
    """
    if connection.transport != "ssh":
        return []
    option = connection.get_option
    # ssh uses the first of several equal options.
    agent = ["ForwardAgent=yes", "-o", "ControlPath=none"] if forward_agent else ["ForwardAgent=no"]
    words = ["ssh", "-o", *agent, *shlex.split(option("ssh_common_args") or ""), "-o", "BatchMode=yes"]
    # Notice a connection that breaks silently.
    words += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4"]
    if option("private_key_file"):
        words += ["-o", "IdentitiesOnly=yes", "-i", os.path.expanduser(option("private_key_file"))]
    user = option("remote_user")
    return [*words, *(["-l", user] if user else []), option("host")]


@contextlib.contextmanager
def stream(
    connection: Any, words: Sequence[str], host: str, stdin: IO[bytes] | int = subprocess.DEVNULL
) -> Iterator[Iterator[str]]:
    """Yield the lines of `deeplearning WORDS` on a connection's host as they come."""
    ssh = ssh_command(connection)
    with _output([*ssh, command(words)] if ssh else [PROGRAM, *words], host, stdin) as chunks:
        yield _lines(chunks, host)


def event(line: str) -> Mapping[str, Any]:
    """Return the JSON object of a line, or an empty one if the line is something else."""
    try:
        value = from_json(line)
    except InvalidValue:
        return {}
    return value if isinstance(value, dict) else {}


def read_bytes(
    connection: Any, shell_command: str, host: str, limit: int, stdin: bytes = b"", forward_agent: bool = False
) -> bytes:
    """Return what a shell command on a connection's host prints. Raise UserError for more than `limit` bytes."""
    ssh = ssh_command(connection, forward_agent)
    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        with _output([*ssh, shell_command] if ssh else ["/bin/sh", "-c", shell_command], host, file) as chunks:
            return _collect(chunks, host, limit)


def ask_master(ssh_config: str, words: Sequence[str], seconds: float) -> dict[str, Any]:
    """Return the master's answer to `deeplearning WORDS`. Raise UserError if there is none in time.

    It is reached by the configuration that discover_members has written, with nothing of Ansible's.
    """
    ssh = _configured_ssh(ssh_config, MASTER_ALIAS, command(words))
    try:
        with _output(ssh, MASTER_ALIAS, subprocess.DEVNULL, time.monotonic() + seconds) as chunks:
            content = _collect(chunks, MASTER_ALIAS, LONGEST_ANSWER)
    except FileNotFoundError:
        raise UserError("There is no ssh on this machine: install OpenSSH's client.") from None
    return parse_answer(MASTER_ALIAS, words, content.decode(errors="replace"))


def _configured_ssh(config: str, host: str, shell_command: str) -> list[str]:
    """Return the command line of ssh for a host of a configuration that discover_members has written."""
    options = (
        "BatchMode=yes",
        "ForwardAgent=no",
        "ConnectTimeout=10",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=4",
    )
    return ["ssh", "-F", config, *(word for option in options for word in ("-o", option)), host, shell_command]


def _collect(chunks: Iterable[bytes], host: str, limit: int) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > limit:
            raise _limit_exceeded(host, limit)
    return bytes(content)


def read_available(config: Path, host: str, shell_command: str, limit: int, seconds: float) -> tuple[bytes, str]:
    """Return what a command prints on a host of ssh's configuration, and why that is not all, if it is not.

    It ends within the seconds, however the host behaves.
    """
    words, content = _configured_ssh(str(config), host, shell_command), bytearray()
    try:
        with _output(words, host, subprocess.DEVNULL, time.monotonic() + seconds) as chunks:
            for chunk in chunks:
                content += chunk
                if len(content) > limit:
                    raise UserError(f"{host} sends more than {limit >> 20} MiB: the rest is left out.")
    except UserError as error:
        return bytes(content), str(error)
    return bytes(content), ""


@contextlib.contextmanager
def _output(
    words: Sequence[str], host: str, stdin: IO[bytes] | int, deadline: float = math.inf
) -> Iterator[Iterator[bytes]]:
    """Yield what a process prints, and terminate it at the end. What ssh runs on the node ends when it next writes."""
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            yield _chunks(process, stderr, host, deadline)
        finally:
            process.terminate()


def _chunks(process: subprocess.Popen[bytes], stderr: IO[bytes], host: str, deadline: float) -> Iterator[bytes]:
    """Yield the output until the process ends. Raise UserError if it failed, or did not end in time."""
    if process.stdout is None:
        raise ValueError("the process was started without a pipe for its output")
    parent = os.getppid()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while process.poll() is None or selector.get_map():
            if os.fstat(stderr.fileno()).st_size > LONGEST_ANSWER:
                raise _limit_exceeded(host, LONGEST_ANSWER)
            end_with_parent(parent)
            if time.monotonic() > deadline:
                raise UserError(f"{host} did not answer completely in time.")
            # A process may close its output long before it ends.
            if not selector.get_map():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
            elif selector.select(1.0):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if chunk:
                    yield chunk
                else:
                    selector.unregister(process.stdout)
    if process.returncode:
        stderr.seek(0)
        raise failure(host, process.returncode, stderr.read().decode(errors="replace"))


def _lines(chunks: Iterable[bytes], host: str) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in complete)
        if len(rest) > LONGEST_LINE:
            raise _limit_exceeded(host, LONGEST_LINE)


def _limit_exceeded(host: str, limit: int) -> UserError:
    return UserError(
        f"{host} sends more than {limit >> 20} MiB where far less is expected, so all of it is discarded. Check what "
        f"runs on {host}, or replace it."
    )


def end_with_parent(parent: int) -> None:
    """End this process if Ansible has ended: its workers have a session of their own and survive a closed terminal."""
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
