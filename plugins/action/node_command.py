# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Run the program on a node. Its documentation is in plugins/modules/node_command.py."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.schema import json_object
from ansible_collections.deeplearning.aws.plugins.plugin_utils import untrusted as u
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import (
    answers,
    code_source,
    node_program,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.progress_bar import ProgressDisplay

_NOTE = u.record(text=u.words)
_PROGRESS = u.record(done=u.count, total=u.count)


class ActionModule(Action):
    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        # With display_args_to_stdout Ansible prints a task's arguments after it. The request may hold secrets, and the
        # code a URL with a password.
        self._task.args = {**self._task.args, "request": "<hidden>", "code": "<hidden>"}
        host = str(self._task.delegate_to or task_vars.get("inventory_hostname", "the node"))
        way = node_program.Way.of_connection(self._connection, host, as_root=bool(self._play_context.become))
        left_out, content = _content(options)
        warnings = {"warnings": [code_source.sentence(left_out)]} if left_out else {}
        with _open_stdin(options, content) as stdin:
            if options["writes"] and self.check_mode:
                if options["raw"]:
                    return {"skipped": True}
                return {"changed": True, "answer": {}, **warnings}
            if options["raw"]:
                return node_program.raw(way, options["words"], stdin)
            if options["stream"]:
                # Nodes that report at once cannot share a progress bar.
                is_alone = len(task_vars.get("ansible_play_batch") or ()) < 2
                answer = self._stream(options, way, stdin, ProgressDisplay.of_ansible(is_alone))
            else:
                answer = node_program.ask(way, options["words"], stdin)
        return {"changed": options["writes"] and bool(answer.get("changed", True)), "answer": answer, **warnings}

    def _stream(
        self, options: Mapping[str, Any], way: node_program.Way, stdin: IO[bytes], display: ProgressDisplay
    ) -> dict[str, Any]:
        # Of a file that is sent, the first bytes were sent before.
        sent, size = options["stdin_offset"], os.fstat(stdin.fileno()).st_size if options["stdin_file"] else 0
        words = options["words"]
        with contextlib.closing(display), node_program.output(way, way.program(words), stdin) as chunks:
            return show(node_program.lines(chunks, way.host), way.host, words, display, sent, size)


def show(
    lines: Iterable[str], host: str, words: Sequence[str], display: ProgressDisplay, sent: int = 0, size: int = 0
) -> dict[str, Any]:
    """Show progress and notes as they come. Return the answer to the command, which is the last line."""
    last = ""
    for last in lines:
        event = json_object(last)
        # A malformed event does not decide how the command ends.
        with contextlib.suppress(u.InvalidValue):
            if event.get("event") == "note":
                display.message(f"{host}: {_NOTE(event)['text']}")
            elif event.get("event") == "progress":
                progress = _PROGRESS(event)
                display.transfer(host, sent + progress["done"], size or progress["total"])
    return answers.parse(host, words, last)


@contextlib.contextmanager
def _open_stdin(options: Mapping[str, Any], content: bytes) -> Iterator[IO[bytes]]:
    """Yield a file, unbuffered: a process that gets it continues reading at its position."""
    with contextlib.ExitStack() as stack:
        if options["stdin_file"]:
            try:
                file: IO[bytes] = stack.enter_context(open(options["stdin_file"], "rb", buffering=0))
            except OSError as error:
                raise UserError(f"{error.filename} cannot be read: {error.strerror}.") from None
        else:
            file = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            file.write(content)
        file.seek(options["stdin_offset"])
        yield file


def _content(options: Mapping[str, Any]) -> tuple[Sequence[str], bytes]:
    """Return what is left out of the code, and the request as a line of JSON with the code behind it.

    As input and not as words of the command: these can be read by all users of the node.
    """
    request = options["request"]
    code = options["code"]
    if not code:
        return (), b"" if request is None else json.dumps(request).encode()
    packed, added = code_source.pack(_source(code))
    sent = {**(request or {}), **added, "script": packed.script}
    announced = set(code["announced"])
    left_out = [name for name in packed.left_out if name not in announced]
    return left_out, json.dumps(sent).encode() + b"\n" + packed.archive


def _source(code: Mapping[str, Any]) -> code_source.CodeSource:
    return code_source.CodeSource(
        code["script"], code["folder"] or "", code["requirements"], tuple(code["include"])
    )
