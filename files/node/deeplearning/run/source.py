"""The code of a run: cloned with git, and identified by its commit or its hash."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any
from urllib.parse import unquote

from deeplearning import programs
from deeplearning.contract.errors import UserError
from deeplearning.contract.git_source import FORM, GitSource, parse, without_login, without_secret

_WEB_URL = re.compile(
    r"(?P<scheme>https?://)(?:(?P<login>[^/]*)@)?(?P<host>(?:[^/@:\[\]]+|\[[^/@\[\]]+\])(?::\d+)?)(?P<path>(?:/.*)?)",
    re.IGNORECASE,
)
_HELPER = '!f() { printf "username=%s\\npassword=%s\\n" "$DEEPLEARNING_GIT_USER" "$DEEPLEARNING_GIT_PASSWORD"; }; f'
"""A credential helper of git, see gitcredentials(7). printf is built into the shell: no process has the values as
arguments."""


def git_source(script: str) -> GitSource:
    """Return the parts of git+URL@ref:path. Raise UserError if one is missing."""
    source = parse(script)
    if source is None or not source.ref:
        raise UserError(
            f"script is {without_secret(script)}: give {FORM}. "
            "Example: git+https://github.com/me/models.git@v1.2:train.py"
        )
    return source


def cloned(source: GitSource, into: str) -> dict[str, Any]:
    """Clone a repository with its submodules, and return its URL, ref and commit.

    git gets the user and password of a URL through its environment, for that URL's host alone. So they are in no file
    and in no command line.
    """
    url, login = split_login(source.url)
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **login}
    environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")

    def git(*words: str) -> str:
        done = programs.run("git", *words, env=environment, umask=0o077)
        if done.returncode:
            reason = without_secret(programs.last_line(done.stderr, "git failed"))
            raise UserError(f"{without_secret(url)} at {source.ref} could not be cloned: {reason}")
        return done.stdout.strip()

    git("clone", "--quiet", "--no-checkout", "--", url, into)
    git("-C", into, "checkout", "--quiet", source.ref, "--")
    git("-C", into, "submodule", "--quiet", "update", "--init", "--recursive")
    return {"url": without_login(url), "ref": source.ref, "commit": git("-C", into, "rev-parse", "HEAD")}


def split_login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the environment that passes them to git."""
    parts = _WEB_URL.fullmatch(url)
    if not parts:
        if url.lower().startswith(("http://", "https://")) or re.match(r"\w+://[^/]*:[^/]*@", url):
            raise UserError(
                "script is a URL whose user or password cannot be read: write special characters as %XX, and give "
                "passwords to http and https alone. Example: git+https://me:a%2Fb@example.com/models.git@v1.2:train.py"
            )
        return url, {}
    if parts["login"] is None:
        return url, {}
    user, _colon, password = parts["login"].partition(":")
    setting = f"credential.{parts['scheme']}{parts['host']}.helper"
    first = int(os.environ.get("GIT_CONFIG_COUNT", "0"))
    environment = {
        "DEEPLEARNING_GIT_USER": unquote(user),
        "DEEPLEARNING_GIT_PASSWORD": unquote(password),
        "GIT_CONFIG_COUNT": str(first + 2),
    }
    # The empty helper removes those of git's own files, which might store the password.
    for number, helper in enumerate(("", _HELPER), first):
        environment.update({f"GIT_CONFIG_KEY_{number}": setting, f"GIT_CONFIG_VALUE_{number}": helper})
    return f"{parts['scheme']}{parts['host']}{parts['path']}", environment


def hashed(path: str) -> dict[str, Any]:
    """Return the SHA-256 of a file, or of all files under a folder with their names."""
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
