# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""How actions talk to the program on the nodes, `deeplearning …`: they ask it once, or listen to it for long.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _answers
from ansible_collections.deeplearning.aws.plugins.plugin_utils._untrusted import Malformed, from_json, one_line

PROGRAM = "/usr/local/bin/deeplearning"
NOT_THERE = 127
LOST = 255
"""ssh's own exit code: it says nothing of what it ran."""
LONGEST_LINE = 1 << 24
"""A node that sends more without a newline is not one of ours."""
LONGEST_ANSWER = 1 << 24


class Trouble(Exception):
    """What the program refused, or why it could not be asked, in a sentence."""


class Lost(Trouble):
    """The connection ended; what runs on the node goes on."""


def command(words: Sequence[str]) -> str:
    """A command line for the node's shell."""
    return shlex.join([PROGRAM, *words])


def execute(action: ActionBase, shell_command: str, become: bool = False, stdin: bytes | None = None) -> dict[str, Any]:
    """Run a command over Ansible's own connection, which is open already; as it returns it, with rc, stdout and stderr.

    A node may end any command as if the connection were lost, and Ansible prints why as it is.
    """
    try:
        ran: dict[str, Any] = action._low_level_execute_command(shell_command, sudoable=become, in_data=stdin)
    except AnsibleConnectionFailure as failure:
        raise AnsibleConnectionFailure(one_line(str(failure))) from None
    return ran


def answer(host: str, words: Sequence[str], code: int, stdout: str, stderr: str) -> dict[str, Any]:
    """What `deeplearning WORDS` answered, in the form that _answers has for it."""
    if code:
        raise trouble(host, code, stderr)
    return parsed(host, words, stdout)


def parsed(host: str, words: Sequence[str], text: str) -> dict[str, Any]:
    try:
        return _answers.parse(words, text)
    except Malformed as malformed:
        raise Trouble(_answers.unexpected(host, words, malformed)) from None


def trouble(host: str, code: int, stderr: str) -> Trouble:
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    said = one_line(lines[-1]) if lines else f"it ended with {code} and said nothing"
    if code == NOT_THERE:
        return Trouble(f"{host} has no command deeplearning: run configure.yml, which makes it a member.")
    if code == LOST:
        return Lost(f"The connection to {host} was lost: {said}")
    # A refusal is a sentence for people as it is.
    refused = said.startswith("deeplearning: ")
    return Trouble(said.removeprefix("deeplearning: ") if refused else f"{host}: {said}")


def ssh(connection: Any, forward_agent: bool = False) -> list[str]:
    """The ssh command by which Ansible's own connection reaches its host; of another connection, no words.

    Ansible's ssh gives what a command has said when it has ended. Listening needs one of our own. With
    `forward_agent` the operator's agent can be used on the node while the command runs, and over this connection alone.
    """
    if connection.transport != "ssh":
        return []
    option = connection.get_option
    # Of an option that is there twice, ssh takes the first.
    agent = ["ForwardAgent=yes", "-o", "ControlPath=none"] if forward_agent else ["ForwardAgent=no"]
    found = ["ssh", "-o", *agent, *shlex.split(option("ssh_common_args") or ""), "-o", "BatchMode=yes"]
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
    with _output([*way, command(words)] if way else [PROGRAM, *words], host, stdin) as parts:
        yield _lines(parts, host)


def read_bytes(
    connection: Any, shell_command: str, host: str, limit: int, stdin: bytes = b"", forward_agent: bool = False
) -> bytes:
    """What a shell command on a connection's host prints. Raises Trouble if that is more than `limit` bytes."""
    way = ssh(connection, forward_agent)
    content = bytearray()
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        with _output([*way, shell_command] if way else ["/bin/sh", "-c", shell_command], host, given) as parts:
            for part in parts:
                content += part
                if len(content) > limit:
                    raise _too_much(host, limit)
    return bytes(content)


def ask(
    action: ActionBase, words: Sequence[str], host: str, stdin: bytes = b"", forward_agent: bool = False
) -> dict[str, Any]:
    """The answer to `deeplearning WORDS` on an action's host; with the agent, over a connection of its own."""
    if forward_agent:
        content = read_bytes(action._connection, command(words), host, LONGEST_ANSWER, stdin, forward_agent)
        return parsed(host, words, content.decode(errors="replace"))
    ran = execute(action, command(words), stdin=stdin or None)
    return answer(host, words, ran["rc"], ran["stdout"], ran["stderr"])


@contextlib.contextmanager
def _output(words: Sequence[str], host: str, stdin: IO[bytes] | int) -> Iterator[Iterator[bytes]]:
    """What a process prints. It is ended when nobody listens any more; what ssh runs on the node ends by itself when it
    next writes."""
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            yield _parts(process, stderr, host)
        finally:
            process.terminate()


def _parts(process: subprocess.Popen[bytes], stderr: IO[bytes], host: str) -> Iterator[bytes]:
    """Until it ends; raises Trouble if it did not end well."""
    if process.stdout is None:
        raise ValueError("the process was started without a pipe for its output")
    parent = os.getppid()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while process.poll() is None or selector.get_map():
            if os.fstat(stderr.fileno()).st_size > LONGEST_ANSWER:
                raise _too_much(host, LONGEST_ANSWER)
            _stay_with(parent)
            # A process may close its output long before it ends.
            if not selector.get_map():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
            elif selector.select(1.0):
                part = os.read(process.stdout.fileno(), 1 << 16)
                if part:
                    yield part
                else:
                    selector.unregister(process.stdout)
    if process.returncode:
        stderr.seek(0)
        raise trouble(host, process.returncode, stderr.read().decode(errors="replace"))


def _lines(parts: Iterable[bytes], host: str) -> Iterator[str]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
        if len(rest) > LONGEST_LINE:
            raise _too_much(host, LONGEST_LINE)


def _too_much(host: str, limit: int) -> Trouble:
    return Trouble(f"{host} sends more than {limit >> 20} MiB where far less is expected: nothing of it is used.")


def _stay_with(parent: int) -> None:
    """Ansible's workers have a session of their own: without this they outlive a closed terminal."""
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def event(line: str) -> Mapping[str, Any]:
    """The JSON object of a line; an empty one of any other line."""
    try:
        value = from_json(line)
    except Malformed:
        return {}
    return value if isinstance(value, dict) else {}
