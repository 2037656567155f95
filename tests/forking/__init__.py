"""A forking Python for modules on localhost: playbooks in tests take half the time.

Ansible starts a new Python for each module, which imports boto3 and reads the models of AWS's services again (0.4 s of
processor), and modules of amazon.aws sleep for fixed times (19 s in a first provision.yml). `ForkingPython` starts a
server that has loaded them (server.py), and writes an interpreter that passes each module on to it. The code of Ansible
and the collections still comes from the archive that Ansible builds for the module. Its playbooks build each archive
once (0.3 s), so all of them are of one checkout, and the server compiles what archives have inside once (0.2 s).
"""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from types import TracebackType

FOLDER = Path(__file__).parent
SOCKET = "socket"
"""The server listens here, in the folder of its interpreter."""


class ForkingPython:
    """A server and its interpreter, in a folder of their own. The server ends with this process at the latest."""

    def __init__(self, folder: Path) -> None:
        self.interpreter = folder / "python"
        self._socket = folder / SOCKET

    def __enter__(self) -> ForkingPython:
        shebang = f"#!{sys.executable} -IS\n"
        self.interpreter.write_text(shebang + (FOLDER / "client.py").read_text(encoding="utf-8"), encoding="utf-8")
        self.interpreter.chmod(self.interpreter.stat().st_mode | stat.S_IXUSR)
        words: list[str | Path] = [sys.executable, FOLDER / "server.py", self._socket]
        self._server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def ansible_playbook(self) -> list[str | Path]:
        """Return the words that start an ansible-playbook whose own Python, by its variables, is this one."""
        return [sys.executable, "-P", FOLDER / "playbook.py", self.interpreter]
