# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A run's requirements: what pip reads of a requirements file, a lock, or a pyproject.toml of this machine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ...module_utils.contract.errors import UserError
from ...module_utils.contract.run_request import MOST_REQUIREMENTS

MOST_INCLUDED = 20
"""Files that a file may include, one through the other."""
CURES = {
    "uv.lock": "uv export --frozen --no-emit-project --output-file requirements.txt",
    "poetry.lock": "poetry export --output requirements.txt",
    "Pipfile": "pipenv requirements > requirements.txt",
    "Pipfile.lock": "pipenv requirements > requirements.txt",
    "environment.yml": "pip freeze > requirements.txt",
}
"""Files of other tools, and what writes them as requirements."""
_INCLUDE = re.compile(r"(?:-r\s*|--requirement(?:\s+|=))(\S+)")
_COMMENT = re.compile(r"(^|\s)#.*")
_LOCAL = re.compile(
    r"(-e|--editable|-c|--constraint|--find-links|-f)\b(?![\s=]*(https?:|git\+))|\.{1,2}(/|$)|/|file:|.*@\s*file:",
    re.ASCII,
)
"""What names other files of this machine, which nodes do not have."""
_LOGIN = re.compile(r"://([^/\s@]*)@")
_NO_SECRET = re.compile(r"([^:{}]*:)?\$\{[A-Z0-9_]+\}(:(\$\{[A-Z0-9_]+\}|x-oauth-basic)?)?")
_SSH = re.compile(r"ssh://|git@")


def read(path: Path, root: Path | None = None) -> str:
    """Return the requirements in a file, together with those of the files that it includes.

    `root`: the folder that all of them have to be in, if they are not the operator's own.
    """
    if cure := CURES.get(path.name):
        raise UserError(f"requirements is {path}, which pip cannot install: write it as requirements. Example: {cure}")
    text = "".join(f"{line}\n" for line in _lines(path, root, [path]))
    if not text.strip():
        raise UserError(f"requirements is {path}, which names no package: leave it out, or name another file.")
    if len(text) > MOST_REQUIREMENTS:
        raise UserError(f"requirements is {path}, which has more than {MOST_REQUIREMENTS >> 10} KiB: shorten it.")
    return text


def _lines(path: Path, root: Path | None, files: list[Path]) -> Iterator[str]:
    text = _text(path, root)
    if path.suffix == ".toml":
        yield from _dependencies(path, text)
        return
    for line in (_COMMENT.sub("", line).strip() for line in text.splitlines()):
        if include := _INCLUDE.fullmatch(line):
            included = path.parent / include[1]
            if included in files or len(files) > MOST_INCLUDED:
                raise UserError(f"requirements is {files[0]}, and {included} is included again: remove that line.")
            yield from _lines(included, root, [*files, included])
        elif line:
            _check(path, line)
            yield line


def _text(path: Path, root: Path | None) -> str:
    # A link may lead out of a repository.
    if root and not path.resolve().is_relative_to(root.resolve()):
        raise UserError(f"requirements is {path}, which is not in the repository.")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UserError(f"requirements is {path}, which cannot be read: {error}.") from None


def _dependencies(path: Path, text: str) -> list[str]:
    try:
        project = tomllib.loads(text).get("project", {})
        dependencies = [str(each) for each in project["dependencies"]]
    except (tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError):
        raise UserError(
            f"requirements is {path}, which has no list project.dependencies: write a requirements.txt. Example: uv "
            "pip compile pyproject.toml --output-file requirements.txt"
        ) from None
    for each in dependencies:
        _check(path, each)
    return dependencies


def _check(path: Path, line: str) -> None:
    if _LOCAL.match(line):
        raise UserError(
            f"requirements is {path}, and its line {line} names a file, which nodes do not have: name a package, or an "
            "address. The run's own code needs no requirement: it is sent with the script (sync)."
        )
    if _SSH.search(line):
        raise UserError(
            f"requirements is {path}, and a line names a repository by ssh, for which nodes have no key: name it by "
            "https. Example: git+https://${TOKEN}@github.com/me/models.git@v2"
        )
    if not all(_NO_SECRET.fullmatch(login) for login in _LOGIN.findall(line)):
        raise UserError(
            f"requirements is {path}, and a line has a login, which would stand in the run's folder: write "
            '${TOKEN} in its place, and pass it. Example: -e \'{"env": {"TOKEN": "…"}}\''
        )


def locate(text: str, efs_mount: str, in_repository: bool) -> dict[str, str]:
    """Return the request's `requirements`, or the path in the repository whose script the run has."""
    path = PurePosixPath(text)
    if in_repository and not path.is_absolute() and not text.startswith("~"):
        return {"requirements_file": text}
    file = Path(text).expanduser()
    if path.is_relative_to(efs_mount) and not file.is_file():
        return {"requirements": text}
    return {"requirements": read(file)}
