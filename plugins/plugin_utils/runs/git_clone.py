# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A run's code in a git repository, git+URL@ref:path, and its clone on this machine.

It is cloned with this machine's own git and with the operator's own credentials. Nodes get the files alone: neither git
nor a login has to be there.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ...module_utils.contract.errors import UserError
from ..redaction import redact
from ..untrusted import one_line, without_sequences

PREFIX = "git+"
FORM = "git+URL@ref:path"
_REMOTE_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
"""Before an address, it names a program of git that fetches it, such as ext::"""
_WEB_URL = re.compile(
    r"(?P<scheme>https?://)(?:(?P<login>[^/]*)@)?(?P<host>(?:[^/@:\[\]]+|\[[^/@\[\]]+\])(?::\d+)?)(?P<path>(?:/.*)?)",
    re.IGNORECASE,
)
_HELPER = '!f() { printf "username=%s\\npassword=%s\\n" "$DEEPLEARNING_GIT_USER" "$DEEPLEARNING_GIT_PASSWORD"; }; f'
"""A credential helper of git, see gitcredentials(7). printf is built into the shell: no process has the values as
arguments."""
# No hook of the user's templates runs, and no program that a URL of a submodule names.
_GIT = ("git", "-c", f"core.hooksPath={os.devnull}", "-c", "protocol.ext.allow=never")
_OF_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")


@dataclass(frozen=True)
class GitSource:
    url: str
    ref: str
    path: str


def parse(script: str) -> GitSource | None:
    """Return the parts of a source, or None if the text is none.

    The path stays inside the repository. Neither the URL nor the ref can be taken for an option of git, or name a
    program.
    """
    place, _colon, path = script[len(PREFIX) :].rpartition(":")
    if not script.startswith(PREFIX) or not path or path.startswith("/") or ".." in path.split("/") or " " in script:
        return None
    # An @ before the path of the URL belongs to its user or password.
    host = place.find("://") + 3 if "://" in place else 0
    begin = max(place.find("/", host), place.find(":", host))
    if begin < 0:
        return None
    url_path, at, ref = place[begin:].rpartition("@")
    if not at:
        url_path, ref = ref, "HEAD"
    url = place[:begin] + url_path
    if not url_path or not ref or ref[0] in "-+" or ":" in ref or url.startswith("-") or _REMOTE_HELPER.match(url):
        return None
    return GitSource(url, ref, path)


def without_secret(text: str) -> str:
    """Remove user and password from the URLs in a text, and hide the rest of a URL that may contain more of them.

    A password may contain an `@`. One with a `/` cannot be distinguished from a path, so a web URL with an `@` behind
    its first `/` is hidden.
    """
    return re.sub(r"(https?://)[^\s'\"]*@[^\s'\"]*", r"\1<hidden>", without_login(text), flags=re.IGNORECASE)


def without_login(text: str) -> str:
    return re.sub(r"://[^/\s]*@", "://", text)


@contextlib.contextmanager
def cloned(source: GitSource) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a temporary folder with the files of a ref and its submodules, and their URL, ref and commit."""
    url, login = split_login(_absolute(source.url))
    shown = without_secret(url)
    with tempfile.TemporaryDirectory(prefix="deeplearning-code-") as folder:
        tree = Path(folder)
        commit = _clone(GitSource(url, source.ref, source.path), tree, login)
        script = tree / source.path
        # A link may lead out of the repository.
        if not script.is_file() or not script.resolve().is_relative_to(tree.resolve()):
            raise UserError(f"script is {source.path}, and {shown} at {source.ref} has no such file.")
        yield tree, {"url": without_login(url), "ref": source.ref, "commit": commit}


def _absolute(url: str) -> str:
    """Return a path of this machine as an absolute one, as git runs in another folder. Other URLs stay as they are."""
    is_path = "://" not in url and ":" not in url.partition("/")[0]
    return os.path.abspath(os.path.expanduser(url)) if is_path else url


def _clone(source: GitSource, tree: Path, login: Mapping[str, str]) -> str:
    """Clone a ref into an empty folder, and return its commit."""
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_REPOSITORY}
    # Neither git nor its ssh asks: not at a terminal, which this session does not have, and not in a window.
    variables = {**inherited, **login, "GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [*_GIT, "-C", str(tree), *arguments],
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                start_new_session=True,
                check=False,
            )
        except FileNotFoundError:
            raise UserError(
                "There is no git on this machine, which clones the script's repository: install git, or clone it "
                "elsewhere and name the folder. Example: -e sync=models -e script=models/train.py"
            ) from None

    def git(*arguments: str) -> str:
        done = run(*arguments)
        if done.returncode:
            raise UserError(f"{without_secret(source.url)} at {source.ref} could not be cloned: {_reason(done.stderr)}")
        return done.stdout.strip()

    git("init", "--quiet", "--template=")
    # Relative URLs of submodules begin at this one.
    git("remote", "add", "--", "origin", source.url)
    target = "FETCH_HEAD"
    if run("fetch", "--quiet", "--depth=1", "--no-tags", "--", "origin", source.ref).returncode:
        # The ref is an abbreviated commit, or the server cannot leave out the history.
        is_default = source.ref == "HEAD"
        git("fetch", "--quiet", "--tags", "--", "origin", *([source.ref] if is_default else []))
        target = target if is_default else source.ref
    git("checkout", "--quiet", target, "--")
    git("submodule", "--quiet", "update", "--init", "--recursive")
    return git("rev-parse", "HEAD")


def _reason(stderr: str) -> str:
    """Return what git and the server print, as one line without secrets."""
    lines = " ".join(line.strip() for line in stderr.splitlines() if line.strip())
    return redact(without_secret(one_line(without_sequences(lines)))) or "git gives no reason."


def split_login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the environment that passes them to git, for that host alone.

    So they are in no command line, and in no file that git writes.
    """
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
