# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Reading one argument of train.yml and its like: each function returns the value as it is used from then on, or raises
Wrong with what to do about it.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils import _values as v
from ansible_collections.deeplearning.aws.plugins.plugin_utils._values import Wrong

DATA_SETS = ("cifar10", "mnist", "generated")
"""Staged by whoever asks for them; others are put on the file system beforehand."""
ALL = "all"
TRAINERS = "/opt/deeplearning/trainers"
"""Ours, on every node."""

RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,47}")
_MEMBER = re.compile(r"deeplearning-(master|worker[1-9][0-9]{0,4})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GIT = "git+"
GIT_FORM = "git+URL@ref:path"


def script(value: Any) -> str:
    """A file here, a path on the nodes, or a place in a git repository: which of them it is, `Script` says."""
    given = v.text(value)
    if given.startswith(_GIT) and not git_of(given):
        raise Wrong(f"a script in a repository is given as {GIT_FORM}")
    return given


def words(value: Any) -> list[str]:
    """Arguments of a script: a list, or a string that is split as a shell does."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            raise Wrong("a quotation mark in it has no other, give a list") from None
    if not isinstance(value, list | tuple):
        raise Wrong("give a list")
    if any(isinstance(item, list | dict) or item is None for item in value):
        raise Wrong("give a list of words")
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in value]


def nodes(value: Any) -> int | list[str]:
    """How many, or which."""
    try:
        return int(v.integer(1, 1024)(value))
    except Wrong:
        if re.fullmatch(r"[+-]?\d+(\.\d+)?", str(value).strip()):
            raise
    listed = [str(item).strip() for item in (value if isinstance(value, list) else str(value).split(","))]
    wrong = [name for name in listed if not _MEMBER.fullmatch(name)]
    if wrong or not listed:
        raise Wrong("give a number, or a list of members as the inventory names them")
    return list(dict.fromkeys("deeplearning-master" if name == "deeplearning-worker1" else name for name in listed))


def processes(value: Any) -> int | str:
    return "auto" if str(value).strip().lower() == "auto" else int(v.integer(1, 256)(value))


def data(value: Any) -> str:
    given = v.text(value)
    if given.startswith("s3://"):
        return f"s3://{v.bucket(given)}"
    if given.startswith("/"):
        return str(PurePosixPath(given))
    if not _NAME.fullmatch(given):
        raise Wrong(
            f"give {', '.join(DATA_SETS)}, a folder's name in $EFS_MOUNT/data, a path on the nodes that begins with "
            "/, or s3://bucket/prefix"
        )
    return given


def is_staged(given: str) -> bool:
    """Whether it is brought to the nodes, and not just looked for there."""
    return given in DATA_SETS or given.startswith("s3://")


def data_source(value: Any) -> str:
    """Where a data set is taken from: a file of this machine, or an address."""
    given = v.text(value)
    if given.startswith(("https://", "http://")):
        return given
    if given.startswith("s3://"):
        return f"s3://{v.bucket(given)}"
    file = Path(given).expanduser()
    if not file.is_file():
        raise Wrong("there is no such file on this machine, give one, or an address (https:// or s3://)")
    return str(file.absolute())


def folder(value: Any) -> str:
    given = Path(v.text(value)).expanduser()
    if not given.is_dir():
        raise Wrong("there is no such folder on this machine")
    return str(given.absolute())


def node_folder(value: Any) -> str:
    given = v.text(value)
    if not given.startswith("/") or ".." in PurePosixPath(given).parts:
        raise Wrong("give a path on the nodes, one that begins with /")
    return str(PurePosixPath(given))


def run_id(value: Any) -> str:
    given = v.text(value)
    if not RUN_ID.fullmatch(given) or given == ALL:
        raise Wrong(
            "give at most 48 lower-case letters, digits, points, hyphens and underscores, a letter or digit first"
        )
    return given


def run_or_all(value: Any) -> str:
    given = v.text(value)
    return ALL if given == ALL else run_id(given)


def run_ids(value: Any) -> list[str]:
    return [] if value == ALL else list(v.list_of(run_id)(value))


def settings(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Wrong("give a map")
    return {str(key): content for key, content in value.items()}


def environment(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise Wrong("give a map")
    found = {}
    for name, content in value.items():
        if not _VARIABLE.fullmatch(str(name)):
            raise Wrong(f"{v.shown(str(name))} cannot be the name of a variable, give letters, digits and underscores")
        if isinstance(content, bool | list | dict) or content is None:
            raise Wrong(f"of {name}, give a text, within quotes")
        found[str(name)] = str(content)
    return found


def sweep(value: Any) -> list[int]:
    found = list(v.list_of(v.integer(1, 1024))(value))
    if not found:
        raise Wrong("give numbers of nodes")
    return found


@dataclass(frozen=True)
class Script:
    """Where a script is. kind: file (of this machine), node, git."""

    kind: str
    path: str
    url: str = ""
    ref: str = ""
    over_ssh: bool = False
    """cloning it logs in with ssh, by the operator's agent perhaps"""


def git_of(given: str) -> Script | None:
    """Of git+URL@ref:path; an @ before the host is part of the URL."""
    place, colon, path = given.removeprefix(_GIT).rpartition(":")
    if (
        not given.startswith(_GIT)
        or not colon
        or not path
        or path.startswith("/")
        or ".." in path.split("/")
        or " " in given
    ):
        return None
    host = place.find("://") + 3 if "://" in place else 0
    begin = max(place.find("/", host), place.find(":", host))
    if begin < 0:
        return None
    url, ref = place[begin:].rsplit("@", 1) if "@" in place[begin:] else (place[begin:], "HEAD")
    if not url or not ref:
        return None
    # user@host:path is ssh's as well, and /path is a folder of the master.
    over_ssh = place.startswith("ssh://") or ("://" not in place and not place.startswith("/"))
    return Script("git", path, place[:begin] + url, ref, over_ssh)


def script_of(given: str, efs_mount: str) -> Script:
    git = git_of(given)
    if git:
        return git
    inside = any(PurePosixPath(given).is_relative_to(place) for place in (efs_mount, TRAINERS))
    file = Path(given).expanduser()
    if inside and not file.is_file():
        return Script("node", str(PurePosixPath(given)))
    return Script("file", str(file.absolute()))
