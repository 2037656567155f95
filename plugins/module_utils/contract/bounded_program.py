# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Run a program that may hang for ever or print without end: ssh to a node, or one that uses a GPU."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

# The node uses it without Ansible, so there is no run_command of a module.
# pylint: disable=ansible-bad-function

MOST_BYTES = 1 << 20
"""Of a program's output. The longest answer of a node, with all faults that it may list, has less than a tenth."""
END_SECONDS = 0.5
"""How long a killed program has to end."""


class TooMuchOutput(Exception):
    """A program has printed more than an answer may have; the text follows its name."""

    def __init__(self) -> None:
        super().__init__(f"printed more than {MOST_BYTES >> 20} MiB, and was read no further")


def run(
    command: Sequence[str], seconds: float, cwd: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Return the code, the output and the end of the errors of a program that gets no input.

    Raise subprocess.TimeoutExpired, or TooMuchOutput. It is killed then, with the processes of its session, and not
    waited for: one that waits for a device, or that sudo has made another user's, cannot be killed.
    """
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + seconds
        output, errors = _read(child, seconds, deadline)
        child.wait(max(0.0, deadline - time.monotonic()))
    except BaseException:
        _abandon(child)
        raise
    finally:
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()
    # Training code may be root on a node, so these are any bytes.
    return subprocess.CompletedProcess(
        command, child.returncode, output.decode(errors="replace"), errors.decode(errors="replace")
    )


def _read(child: subprocess.Popen[bytes], seconds: float, deadline: float) -> tuple[bytes, bytes]:
    """Return all that it prints, and the last of its errors."""
    texts: dict[Any, bytearray] = {child.stdout: bytearray(), child.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe in texts:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            # Errors without end leave no time in which nothing is ready.
            if not ready or time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(child.args, seconds)
            for key, _events in ready:
                part = os.read(key.fd, 65536)
                if not part:
                    selector.unregister(key.fileobj)
                texts[key.fileobj] += part
            if len(texts[child.stdout]) > MOST_BYTES:
                raise TooMuchOutput
            del texts[child.stderr][:-MOST_BYTES]
    return bytes(texts[child.stdout]), bytes(texts[child.stderr])


def _abandon(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(END_SECONDS)
