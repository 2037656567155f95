"""What git knows about a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def output(repository: Path, *words: str) -> str:
    """Return what git prints, or nothing if it fails or is not installed."""
    command: list[str | Path] = ["git", "-C", repository, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit() -> str:
    """Return the short name of the commit that is tested, and whether files differ from it.

    Results of measurements do not count as changes, as the run itself may have written them.
    """
    changed = output(ROOT, "status", "--porcelain", "--", ".", ":!bench/results")
    name = output(ROOT, "rev-parse", "--short", "HEAD") or "no commit"
    return f"{name} with changes" if changed else name
