"""Two operators who run playbooks at the same time."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.account.kit import WHEELS, Account


@dataclass
class Operator:
    """A person with a machine and a project of their own, who runs one playbook."""

    account: Account
    code: int | None = None
    output: str = ""
    lines: list[str] = field(default_factory=list)

    def play(self, playbook: str, after: float = 0.0, **extra: Any) -> threading.Thread:
        def run() -> None:
            # The offset between the two starts is what the test varies: there is no condition to wait for.
            time.sleep(after)
            with ExitStack() as stack:
                playing = stack.enter_context(self.account.playing(playbook, forking=self.account.forking, **extra))
                for line in playing.lines():
                    self.lines.append(line)
                self.code = playing.process.wait()
            self.output = "".join(self.lines)

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def two_operators(account: Account, folder: Path) -> tuple[Operator, Operator]:
    """Return the operator of `account`, and one whose project is in `folder`."""
    project = folder / "another"
    (project / ".deeplearning").mkdir(parents=True)
    (project / ".deeplearning/wheels").symlink_to(WHEELS)
    return Operator(account), Operator(replace(account, folder=project))
