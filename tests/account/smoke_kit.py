"""`make aws-smoke`, as a process of a person."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("smoke_command.py")


class Command:
    def __init__(
        self,
        folder: Path,
        program: Sequence[str | Path],
        cwd: Path,
        environment: Mapping[str, str],
        settings: Mapping[str, Any],
        ahead: float = 0,
    ) -> None:
        """`folder` is the command's own, `program` plays its playbooks, `settings` are those of all clusters."""
        self.folder = folder
        options = {"program": [str(word) for word in program], "ahead": ahead, "settings": settings}
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, folder, json.dumps(options)],
            cwd=cwd,
            env={"SMOKE_ACCOUNT": "123456789012", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate()
        return self.process.returncode, output

    def wait(self, condition: Callable[[], Any]) -> None:
        """Wait for what it brings about. It must not end before."""
        while not condition():
            assert self.process.poll() is None, self.end()[1]
            time.sleep(0.1)
