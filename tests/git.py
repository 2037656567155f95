"""The commit that is tested."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commit() -> str:
    """Return the short name of the commit, and whether files differ from it.

    Results of measurements do not count as changes, as the run itself may have written them.
    """
    changed = _git("status", "--porcelain", "--", ".", ":!bench/results")
    return (_git("rev-parse", "--short", "HEAD") or "no commit") + (" with changes" if changed else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()
