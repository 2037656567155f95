# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Run the program on a node. Its documentation is in plugins/modules/node_command.py."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils import untrusted as u
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import code_archive, node_program
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.progress_bar import ProgressDisplay

_NOTE = u.record(text=u.words)
_PROGRESS = u.record(done=u.count, total=u.count)


class ActionModule(Action):
    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        # With display_args_to_stdout Ansible prints a task's arguments after it. The request may hold secrets.
        self._task.args = {**self._task.args, "request": "<hidden>"}
        host = str(self._task.delegate_to or task_vars.get("inventory_hostname", "the node"))
        with _open_stdin(options) as stdin:
            if options["writes"] and self.check_mode:
                return {"changed": True, "answer": {}}
            if options["stream"]:
                # Nodes that report at once cannot share a progress bar.
                is_alone = len(task_vars.get("ansible_play_batch") or ()) < 2
                answer = self._stream(options, host, stdin, ProgressDisplay.of_ansible(is_alone))
            else:
                answer = node_program.call(self, options["words"], host, stdin.read(), options["forward_agent"])
        return {"changed": options["writes"] and bool(answer.get("changed", True)), "answer": answer}

    def _stream(
        self, options: Mapping[str, Any], host: str, stdin: IO[bytes], display: ProgressDisplay
    ) -> dict[str, Any]:
        words, offset = options["words"], options["stdin_offset"]
        size = os.fstat(stdin.fileno()).st_size if options["stdin_file"] else 0
        try:
            with node_program.stream(self._connection, words, host, stdin) as lines:
                return show(lines, host, words, display, offset, size)
        finally:
            display.close()


def show(
    lines: Iterable[str],
    host: str,
    command: Sequence[str],
    display: ProgressDisplay,
    offset: int = 0,
    total: int = 0,
) -> dict[str, Any]:
    """Show progress and notes as they come. Return the answer to the command, which is the last line.

    Of a file that is sent, `total` is the size, and its first `offset` bytes were sent before.
    """
    last = ""
    for line in lines:
        last = line
        event = node_program.event(line)
        # A malformed event does not decide how the command ends.
        with contextlib.suppress(u.InvalidValue):
            if event.get("event") == "note":
                display.message(f"{host}: {_NOTE(event)['text']}")
            elif event.get("event") == "progress":
                progress = _PROGRESS(event)
                done, size = offset + progress["done"], total or progress["total"]
                display.update(f"{host}: {done / 2**20:.0f} of {size / 2**20:.0f} MiB", done / size if size else None)
    return node_program.parse_answer(host, command, last)


@contextlib.contextmanager
def _open_stdin(options: Mapping[str, Any]) -> Iterator[IO[bytes]]:
    """Yield a file, unbuffered: a process that gets it continues reading at its position."""
    with contextlib.ExitStack() as stack:
        if options["stdin_file"]:
            try:
                file: IO[bytes] = stack.enter_context(open(options["stdin_file"], "rb", buffering=0))
            except OSError as error:
                raise UserError(f"{error.filename} cannot be read: {error.strerror}.") from None
        else:
            file = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            file.write(_content(options))
        file.seek(options["stdin_offset"])
        yield file


def _content(options: Mapping[str, Any]) -> bytes:
    """Return the request as a line of JSON, with the code behind it.

    As input and not as words of the command: these can be read by all users of the node.
    """
    request = options["request"]
    if not options["code"]:
        return b"" if request is None else json.dumps(request).encode()
    script, folder = options["code"]["script"], options["code"]["folder"]
    packed = code_archive.pack(Path(script), Path(folder) if folder else None)
    return json.dumps({**(request or {}), "script": packed.script}).encode() + b"\n" + packed.archive
