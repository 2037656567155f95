"""Files of metrics: metrics/rank<n>.jsonl, with a JSON object on each line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from atomic_file import replacing


def truncate_after(epoch: int, path: Path) -> float:
    """Remove the lines of later epochs, which are repeated. Return the seconds of training until then."""
    if not path.exists():
        return 0.0
    lines, seconds = [], 0.0
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        with contextlib.suppress(ValueError):  # its writer was killed within a line
            metrics = json.loads(line)
            if metrics["epoch"] <= epoch:
                lines.append(line)
                seconds = metrics["seconds"]
    with replacing(path) as new:
        new.write_text("".join(lines), encoding="utf-8")
    return seconds


def append(path: Path, line: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
