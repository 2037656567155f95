"""Where a run's code comes from: what is there already, or git."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Any

from deeplearning import Refusal

GIT = "git+"


@dataclass(frozen=True)
class Git:
    url: str
    ref: str
    path: str


def git_source(script: str) -> Git:
    """Of git+URL@ref:path."""
    rest, _unused, path = script[len(GIT) :].rpartition(":")
    url, _unused, ref = rest.rpartition("@")
    if not (url and ref and path) or "/" not in url or path.startswith(("/", "..")):
        raise Refusal(
            f"script is {script}: give git+URL@REF:PATH. Example: git+https://github.com/me/models.git@v1.2:train.py"
        )
    return Git(url, ref, path)


def cloned(source: Git, into: str) -> dict[str, Any]:
    """Submodules too. The answer says exactly what was taken."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip().splitlines()
            reason = without_secret(said[-1] if said else "git failed")
            raise Refusal(f"{without_secret(source.url)} at {source.ref} could not be cloned: {reason}")
        return done.stdout.strip()

    git("clone", "--quiet", "--no-checkout", "--", source.url, into)
    git("-C", into, "checkout", "--quiet", source.ref, "--")
    git("-C", into, "submodule", "--quiet", "update", "--init", "--recursive")
    return {"url": without_secret(source.url), "ref": source.ref, "commit": git("-C", into, "rev-parse", "HEAD")}


def without_secret(text: str) -> str:
    return re.sub(r"://[^/@\s]*@", "://", text)


def hashed(path: str) -> dict[str, Any]:
    """Of a file, or of all files under a folder, names included."""
    total = hashlib.sha256()
    if os.path.isfile(path):
        _add(total, path)
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            file = os.path.join(folder, name)
            total.update(os.path.relpath(file, path).encode() + b"\0")
            if os.path.isfile(file):
                _add(total, file)
    return {"sha256": total.hexdigest()}


def _add(total: hashlib._Hash, path: str) -> None:
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
