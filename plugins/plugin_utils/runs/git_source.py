# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A script in a git repository: git+URL@ref:path."""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "git+"
FORM = "git+URL@ref:path"
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
"""Before an address, it names a program of git that fetches it, such as ext::"""


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
    if not url_path or not ref or ref[0] in "-+" or ":" in ref or url.startswith("-") or _HELPER.match(url):
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
