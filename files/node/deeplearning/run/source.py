"""Where a run's code comes from: what is there already, or git."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from deeplearning import Refusal

GIT = "git+"
_WEB_URL = re.compile(
    r"(?P<scheme>https?://)(?:(?P<login>[^/]*)@)?(?P<host>(?:[^/@:\[\]]+|\[[^/@\[\]]+\])(?::\d+)?)(?P<path>(?:/.*)?)",
    re.IGNORECASE,
)
_HELPER = '!f() { printf "username=%s\\npassword=%s\\n" "$DEEPLEARNING_GIT_USER" "$DEEPLEARNING_GIT_PASSWORD"; }; f'
"""A credential helper of git, see gitcredentials(7). The shell's own printf: no process has the values as arguments."""


@dataclass(frozen=True)
class Git:
    url: str
    ref: str
    path: str


def git_source(script: str) -> Git:
    """Of git+URL@ref:path."""
    place, _colon, path = script[len(GIT) :].rpartition(":")
    # An @ before the URL's path belongs to its user or password.
    begin = place.find("/", place.find("://") + 3 if "://" in place else 0)
    url_path, _at, ref = place[max(begin, 0) :].rpartition("@")
    if begin < 0 or not (url_path and ref and path) or path.startswith(("/", "..")):
        raise Refusal(
            f"script is {without_secret(script)}: give git+URL@REF:PATH. "
            "Example: git+https://github.com/me/models.git@v1.2:train.py"
        )
    return Git(place[:begin] + url_path, ref, path)


def cloned(source: Git, into: str) -> dict[str, Any]:
    """Clone a repository with its submodules, and return exactly what was taken.

    git gets the user and password of a URL through its environment, for that URL's host alone. So they are in no file
    and in no command line.
    """
    url, login = split_login(source.url)
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **login}
    environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            umask=0o077,
        )
        if done.returncode:
            said = done.stderr.strip().splitlines()
            reason = without_secret(said[-1] if said else "git failed")
            raise Refusal(f"{without_secret(url)} at {source.ref} could not be cloned: {reason}")
        return done.stdout.strip()

    git("clone", "--quiet", "--no-checkout", "--", url, into)
    git("-C", into, "checkout", "--quiet", source.ref, "--")
    git("-C", into, "submodule", "--quiet", "update", "--init", "--recursive")
    return {"url": without_login(url), "ref": source.ref, "commit": git("-C", into, "rev-parse", "HEAD")}


def split_login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the environment that gives them to git."""
    parts = _WEB_URL.fullmatch(url)
    if not parts:
        if url.lower().startswith(("http://", "https://")) or re.match(r"\w+://[^/]*:[^/]*@", url):
            raise Refusal(
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
    # The empty one removes the helpers of git's own files: one of them might keep the password.
    for number, helper in enumerate(("", _HELPER), first):
        environment.update({f"GIT_CONFIG_KEY_{number}": setting, f"GIT_CONFIG_VALUE_{number}": helper})
    return f"{parts['scheme']}{parts['host']}{parts['path']}", environment


def without_secret(text: str) -> str:
    """Remove user and password from the URLs in a text, and hide the rest of a URL that may contain more of them.

    A password may contain an `@`. One with a `/` cannot be told from a path, so a web URL with an `@` behind its first
    `/` is hidden.
    """
    return re.sub(r"(https?://)[^\s'\"]*@[^\s'\"]*", r"\1<hidden>", without_login(text), flags=re.IGNORECASE)


def without_login(text: str) -> str:
    return re.sub(r"://[^/\s]*@", "://", text)


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
