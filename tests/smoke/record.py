"""The file that a run leaves: calls, facts, stages and items, one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.smoke import items, recording

_SECRETS = (re.compile(r"\b\d{12}\b"), re.compile(r"\b(AKIA|ASIA|AROA|AIDA)[A-Z0-9]{8,}"), re.compile(r"-----BEGIN"))
COMMON = frozenset(("", "root", "user", "admin", "ubuntu", "administrator", "operator", "localhost", "default"))
"""Names of persons and machines that tell nothing about them."""


def entries_of(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a record. The last one of a process that was killed may be a part."""
    entries = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):
            entries.append(json.loads(line))
    return entries


def finish(file: Path, facts: Mapping[str, Any], private: Collection[str]) -> int:
    """Add the items and the facts of the run, and remove lines with secrets or private words. Return how many."""
    entries: list[dict[str, Any]] = entries_of(file)
    ended = [dict(facts), *entries, *items.lines(entries)]
    lines = [json.dumps(entry) for entry in ended]
    names = {word.lower() for word in private} - COMMON
    patterns = [*_SECRETS, *(re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE) for name in names)]
    clean = [line for line in lines if not any(pattern.search(line) for pattern in patterns)]
    part = file.with_suffix(".part")
    part.write_text("".join(f"{line}\n" for line in clean), encoding="utf-8")
    part.replace(file)
    Path(f"{file}{recording.IDS}").unlink(missing_ok=True)
    return len(lines) - len(clean)
