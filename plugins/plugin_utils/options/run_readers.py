# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Forms of the options of train.yml and the other playbooks for runs and data sets.

Each returns the value with its type, or raises InvalidOption with what to do about it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...module_utils.contract import paths, run_request, schema
from ...module_utils.contract.identifiers import ALL_RUNS
from ..runs import git_clone
from . import readers as r
from .readers import InvalidOption, form
from .settings import MOST_NODES

DATASETS = ("cifar10", "mnist", "generated")
"""train.yml stages these itself."""

_MEMBER = re.compile(r"deeplearning-(master|worker[1-9][0-9]{0,4})")
_INSTANCE = re.compile(r"i-[0-9a-f]{8,32}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@form("text", "train.py")
def script(value: Any) -> str:
    text = r.text(value)
    if text.startswith(git_clone.PREFIX) and not git_clone.parse(text):
        raise InvalidOption(f"a script in a repository is given as {git_clone.FORM}")
    return text


module = r.checked(
    schema.matching(r"[^\W\d]\w*(\.[^\W\d]\w*)*", "a module's name, with a point between package and module"),
    "text",
    "pkg.train",
)


@form("text", default=[])
def words(value: Any) -> list[str]:
    """Return a script's arguments from a list, or from a string that is split as a shell does."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            raise InvalidOption("a quotation mark in it is not closed, give a list") from None
    if not isinstance(value, list | tuple):
        raise InvalidOption("give a list")
    if any(isinstance(item, list | dict) or item is None for item in value):
        raise InvalidOption("give a list of words")
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in value]


@form("text", 2)
def nodes(value: Any) -> int | str | list[str]:
    """Return the number of nodes, a range of numbers, or their names."""
    numbers = run_request.node_range(str(value).replace(" ", ""))
    if numbers:
        if numbers[1] > MOST_NODES:
            raise InvalidOption(f"give {MOST_NODES} or less")
        return f"{numbers[0]}-{numbers[1]}"
    try:
        return int(r.integer(1, MOST_NODES)(value))
    except InvalidOption:
        if re.fullmatch(r"[+-]?\d+(\.\d+)?", str(value).strip()):
            raise
    names = [str(item).strip() for item in (value if isinstance(value, list) else str(value).split(","))]
    if not names or not all(_MEMBER.fullmatch(name) for name in names):
        raise InvalidOption("give a number, a range such as 6-8, or a list of members as the inventory names them")
    return list(dict.fromkeys("deeplearning-master" if name == "deeplearning-worker1" else name for name in names))


@form("text")
def one_node(value: Any) -> str:
    text = r.text(value)
    if not (_MEMBER.fullmatch(text) or _INSTANCE.fullmatch(text)):
        raise InvalidOption("give a member as the inventory names it, or an instance id")
    return "deeplearning-master" if text == "deeplearning-worker1" else text


@form("text", 2)
def processes(value: Any) -> int | str:
    return "auto" if str(value).strip().lower() == "auto" else int(r.integer(1, 256)(value))


@form("text", "generated")
def dataset(value: Any) -> str:
    text = r.text(value)
    if text.startswith("s3://"):
        return s3_uri(text)
    if text.startswith("hdfs://"):
        raise InvalidOption("HDFS is not supported, copy the data to S3 (s3-dist-cp does it on EMR), and give s3://…")
    if text.startswith("/"):
        return str(PurePosixPath(text))
    if not _NAME.fullmatch(text):
        raise InvalidOption(
            f"give {', '.join(DATASETS)}, a folder's name in $EFS_MOUNT/data, a path on the nodes that begins with "
            "/, or s3://bucket/prefix"
        )
    return text


@form("text", "~/cifar-10-binary.tar.gz")
def data_source(value: Any) -> str:
    """Return a file of this machine, or a URL."""
    text = r.text(value)
    if text.startswith(("https://", "http://")):
        return text
    if text.startswith("s3://"):
        # With a slash at its end it is a folder with the publisher's files.
        return s3_uri(text) + "/" * text.endswith("/")
    file = Path(text).expanduser()
    if not file.is_file():
        raise InvalidOption("there is no such file on this machine, give one, or an address (https:// or s3://)")
    return str(file.absolute())


@form("text", "s3://my-data/sets", default="")
def s3_uri(value: Any) -> str:
    """Return s3://bucket/prefix; the s3:// may be left out."""
    return f"s3://{r.bucket(value)}"


@form("text", "s3://my-bucket/lenet-1", default="")
def destination(value: Any) -> str:
    """Return a folder of this machine, or s3://bucket/prefix."""
    text = r.text(value)
    return s3_uri(text) if text.startswith("s3://") else r.path(text)


@form("text", "src")
def folder(value: Any) -> str:
    path = Path(r.text(value)).expanduser()
    if not path.is_dir():
        raise InvalidOption("there is no such folder on this machine")
    return str(path.absolute())


@form("text")
def node_folder(value: Any) -> str:
    text = r.text(value)
    if not text.startswith("/") or ".." in PurePosixPath(text).parts:
        raise InvalidOption("give a path on the nodes, one that begins with /")
    return str(PurePosixPath(text))


run_id: r.Form[str] = r.checked(run_request.run_id, "text", "lenet-1")


@form("text", "lenet-1")
def run_or_all(value: Any) -> str:
    text = r.text(value)
    return ALL_RUNS if text == ALL_RUNS else run_id(text)


@form("text", ["lenet-1", "lenet-2"], default=[])
def run_ids(value: Any) -> list[str]:
    return [] if value == ALL_RUNS else list(r.list_of(run_id)(value))


@form("text", {"BACKBONE.NORM": "GN"}, default={})
def config(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidOption("give a map")
    return {str(key): content for key, content in value.items()}


@form("text", {"SEED": "7"}, default={})
def environment(value: Any) -> dict[str, str]:
    for name, content in config(value).items():
        if not _VARIABLE.fullmatch(name):
            raise InvalidOption(
                f"{r.shown(name)} cannot be the name of a variable, give letters, digits and underscores"
            )
        if isinstance(content, bool | list | dict) or content is None:
            raise InvalidOption(f"of {name}, give a text, within quotes")
    return {name: str(content) for name, content in config(value).items()}


@form("text", [1, 2, 4])
def sweep(value: Any) -> list[int]:
    numbers = list(r.list_of(r.integer(1, MOST_NODES))(value))
    if not numbers:
        raise InvalidOption("give numbers of nodes")
    return numbers


def module_file(name: str, folder: str | None) -> Path | None:
    """Return the file of this machine that `python -m` would start in a folder, by default the current one."""
    path = Path(folder or ".").absolute().joinpath(*name.split("."))
    files = (path.with_suffix(".py"), path / "__main__.py")
    return next((file for file in files if file.is_file()), None)


def code_folder(options: Mapping[str, Any]) -> Path | None:
    """Return the folder of this machine that is sent with a script or a module; None if no folder is."""
    if options.get("sync"):
        return Path(options["sync"])
    if options.get("module") and not options.get("script"):
        return Path.cwd()
    return None


@dataclass(frozen=True)
class Script:
    kind: str
    """file (of this machine), node or git"""
    path: str
    """git+URL@ref:path, for git"""


def locate_script(text: str, efs_mount: str) -> Script:
    if git_clone.parse(text):
        return Script("git", text)
    on_nodes = any(PurePosixPath(text).is_relative_to(folder) for folder in (efs_mount, paths.TRAINERS))
    file = Path(text).expanduser()
    if on_nodes and not file.is_file():
        return Script("node", str(PurePosixPath(text)))
    return Script("file", str(file.absolute()))
