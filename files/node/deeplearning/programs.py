"""Run other programs, and read what they print."""

from __future__ import annotations

import subprocess
from typing import Any

from deeplearning.contract.errors import UserError


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with no input unless the options have one, and return its code and its output.

    The output of another node may have any bytes.
    """
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **options)


def check(*command: str, failing: str) -> None:
    """Run a program to its end. Raise UserError with the last line of its errors if it fails."""
    done = run(*command)
    if done.returncode:
        raise UserError(f"{failing}: {last_line(done.stderr)}")


def last_line(text: str, otherwise: str = "it printed nothing") -> str:
    """Return the last line that is not blank, where programs usually state the reason of a failure."""
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1].strip()) if lines else otherwise


def printable(text: str) -> str:
    """Replace what would control a terminal, such as the beginning of an escape sequence."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
