"""Programs of the operating system, as scripts of the test."""

from __future__ import annotations

from pathlib import Path

import pytest


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> Path:
    """Put shell scripts before all others in PATH; a `_` in a name is a dash. Return their folder."""
    folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder
