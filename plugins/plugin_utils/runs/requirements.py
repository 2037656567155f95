# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A run's requirements: what pip reads of a requirements file, a lock, or a pyproject.toml of this machine.

They are sent to the cluster, and other people may have written the file. So only files inside the project are read,
whatever its lines name.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ...module_utils.contract.errors import UserError
from ...module_utils.contract.run_request import MOST_REQUIREMENTS
from .code_archive import is_secret_path

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
_SHORT_OPTIONS = ("-r", "-c")
_LONG_OPTIONS = ("--requirement", "--constraint")
"""Options that name a file to read. pip takes the beginning of a long option for the whole."""
_SHORTEST_OPTION = len("--c")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
"""What pip replaces by an environment variable."""
_ADDRESS = re.compile(r"https?:|git\+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_COMMENT = re.compile(r"(^|\s)#.*")
_LOCAL = re.compile(
    r"(-e|--editable|--find-links|-f)\b(?![\s=]*(https?:|git\+))|\.{1,2}(/|$)|/|file:|.*@\s*file:",
    re.ASCII,
)
"""What names other files of this machine, which nodes do not have."""
_LOGIN = re.compile(r"://([^/\s@]*)@")
_NO_SECRET = re.compile(r"([^:{}]*:)?\$\{[A-Z0-9_]+\}(:(\$\{[A-Z0-9_]+\}|x-oauth-basic)?)?")
_SSH = re.compile(r"ssh://|git@")


@dataclass(frozen=True)
class Root:
    """The folder that all files have to be in."""

    folder: Path
    name: str
    """For messages."""

    def has(self, path: Path) -> bool:
        """Return whether a file is inside. A link leads to where its target is."""
        try:
            return path.resolve().is_relative_to(self.folder.resolve())
        except (OSError, RuntimeError):
            # Links that lead to each other.
            return False


@dataclass(frozen=True)
class _Line:
    """A line as pip sees it, which may have several lines in the file."""

    number: int
    """Of its first line in the file."""
    text: str
    """Without comments and line breaks."""
    parts: tuple[str, ...]
    """As it is sent to the nodes."""


@dataclass(frozen=True)
class _Inclusion:
    """A line that names another file to read."""

    is_constraint: bool
    target: str


def read_local(path: Path, code_folder: Path | None) -> str:
    """Return the requirements in a file of this machine.

    `code_folder`: the folder that is sent with the run. All included files have to be there if it has the file itself,
    and in the file's own folder if it does not.
    """
    if code_folder and Root(code_folder, "").has(path):
        return read(path, Root(code_folder, str(code_folder)))
    return read(path, Root(path.parent, str(path.parent)))


def read_in_repository(tree: Path, name: str) -> str:
    """Return the requirements in a file of a repository."""
    return read(tree / name, Root(tree, "the repository"))


def read(path: Path, root: Root) -> str:
    """Return the requirements in a file, together with those of the files that it includes."""
    if cure := CURES.get(path.name):
        raise UserError(f"requirements is {path}, which pip cannot install: write it as requirements. Example: {cure}")
    if not root.has(path):
        raise UserError(f"requirements is {path}, which is not in {root.name}: its path or a link leads elsewhere.")
    text = "".join(f"{line}\n" for line in _lines(path, root, [path]))
    if not text.strip():
        raise UserError(f"requirements is {path}, which names no package: leave it out, or name another file.")
    if len(text) > MOST_REQUIREMENTS:
        raise UserError(f"requirements is {path}, which has more than {MOST_REQUIREMENTS >> 10} KiB: shorten it.")
    return text


def _lines(path: Path, root: Root, files: list[Path]) -> Iterator[str]:
    text = _text(path, files)
    if path.suffix == ".toml":
        yield from _dependencies(path, text)
        return
    for line in _joined(text):
        inclusion = _inclusion(path, line)
        if inclusion is None:
            _check(path, f"line {line.number}", line.text)
            yield from line.parts
            continue
        included = _included_file(path, line, inclusion, root)
        if included in files or len(files) > MOST_INCLUDED:
            raise UserError(f"requirements is {files[0]}, and {included} is included again: remove that line.")
        yield from _lines(included, root, [*files, included])


def _text(path: Path, files: Sequence[Path]) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        included_by = f" and is included by {files[-2]}" if len(files) > 1 else ""
        raise UserError(f"requirements is {path}, which cannot be read{included_by}: {error}.") from None


def _joined(text: str) -> Iterator[_Line]:
    """Yield the lines of a file that are not empty. As for pip, a backslash at the end joins a line with the next."""
    begun: list[str] = []
    first = 1
    for number, line in enumerate(text.splitlines(), 1):
        if not begun:
            first = number
        begun.append(line)
        if not _continues(line):
            yield from _as_line(first, begun)
            begun = []
    yield from _as_line(first, begun)


def _continues(line: str) -> bool:
    is_comment = line.lstrip().startswith("#")
    return line.endswith("\\") and not is_comment


def _as_line(number: int, lines: Sequence[str]) -> Iterator[_Line]:
    """Yield a line that has these lines in the file, unless it is empty."""
    joined = ""
    for line in lines:
        if _continues(line):
            joined += line.strip("\\")
        else:
            # pip takes a comment for one even in the middle of a line.
            joined += f" {line}" if line.startswith("#") else line
    text = _COMMENT.sub("", joined).strip()
    if not text:
        return
    # A lock stays as it is, with its checksums on lines of their own.
    stays = not any("#" in line or not line.strip() for line in lines) and not _continues(lines[-1])
    parts = tuple(line.strip() for line in lines) if stays else (text,)
    yield _Line(number, text, parts)


def _inclusion(path: Path, line: _Line) -> _Inclusion | None:
    """Return what a line includes; None if it includes nothing.

    Raise UserError for an option that pip might take for one of these, and that is not written as expected.
    """
    words = line.text.split(" ")
    options_begin = next((position for position, word in enumerate(words) if word.startswith("-")), None)
    if options_begin is None:
        return None
    try:
        options = shlex.split(" ".join(words[options_begin:]))
    except ValueError:
        raise UserError(
            f"requirements is {path}, and a quotation mark in its line {line.number} is not closed."
        ) from None
    if not any(_file_option(word) for word in options):
        return None
    option = _file_option(options[0])
    attached = options[0].removeprefix(option).removeprefix("=")
    values = [attached, *options[1:]] if attached else options[1:]
    if options_begin > 0 or not option or len(values) != 1:
        raise UserError(
            f"requirements is {path}, and its line {line.number} includes a file together with something else, or "
            "names none: write the option on a line of its own. Example: -r base.txt"
        )
    is_constraint = "--constraint".startswith(option) or option == "-c"
    if is_constraint and _ADDRESS.match(values[0]):
        return None
    return _Inclusion(is_constraint, values[0])


def _included_file(path: Path, line: _Line, inclusion: _Inclusion, root: Root) -> Path:
    """Return the file that a line includes. Raise UserError for one that is not part of the project."""
    place = f"requirements is {path}, and its line {line.number}"
    target = inclusion.target
    if _VARIABLE.search(target) or _SCHEME.match(target) or not target.isprintable():
        raise UserError(
            f"{place} includes a file by a variable or an address: name it by its path in {root.name}. Example: "
            "-r base.txt"
        )
    included = path.parent / target
    if not root.has(included):
        raise UserError(
            f"{place} includes {target}, which is not in {root.name}: only files of the project are sent. Move the "
            "file there, or name the folder that has both. Example: -e sync=."
        )
    if is_secret_path(included.resolve().relative_to(root.folder.resolve())):
        raise UserError(f"{place} includes {target}, whose name is that of a file with secrets: rename it.")
    if inclusion.is_constraint:
        raise UserError(
            f"{place} names the file {target}, which nodes do not have: write its versions into {path.name}, as "
            "requirements."
        )
    return included


def _file_option(word: str) -> str:
    """Return the option that names a file, as it is written; empty if the word is another one."""
    if word.startswith("--"):
        name = word.partition("=")[0]
        is_file_option = any(option.startswith(name) for option in _LONG_OPTIONS)
        return name if is_file_option and len(name) >= _SHORTEST_OPTION else ""
    return word[:2] if word.startswith(_SHORT_OPTIONS) else ""


def _dependencies(path: Path, text: str) -> list[str]:
    try:
        project = tomllib.loads(text).get("project", {})
        dependencies = [str(each) for each in project["dependencies"]]
    except (tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError):
        raise UserError(
            f"requirements is {path}, which has no list project.dependencies: write a requirements.txt. Example: uv "
            "pip compile pyproject.toml --output-file requirements.txt"
        ) from None
    for dependency in dependencies:
        _check(path, "a dependency", dependency)
    return dependencies


def _check(path: Path, place: str, line: str) -> None:
    """Raise UserError for a requirement or an option that nodes cannot use. `place`: where it is in the file."""
    if _LOCAL.match(line):
        raise UserError(
            f"requirements is {path}, and {place}, {line}, names a file, which nodes do not have: name a package, or "
            "an address. The run's own code needs no requirement: it is sent with the script (sync)."
        )
    if _SSH.search(line):
        raise UserError(
            f"requirements is {path}, and {place} names a repository by ssh, for which nodes have no key: name it by "
            "https. Example: git+https://${TOKEN}@github.com/me/models.git@v2"
        )
    if not all(_NO_SECRET.fullmatch(login) for login in _LOGIN.findall(line)):
        raise UserError(
            f"requirements is {path}, and {place} has a login, which would stand in the run's folder: write "
            '${TOKEN} in its place, and pass it. Example: -e \'{"env": {"TOKEN": "…"}}\''
        )


def locate(text: str, efs_mount: str, in_repository: bool, code_folder: Path | None = None) -> dict[str, str]:
    """Return the request's `requirements`, or the path in the repository whose script the run has.

    `code_folder`: the folder of this machine that is sent.
    """
    path = PurePosixPath(text)
    if in_repository and not path.is_absolute() and not text.startswith("~"):
        return {"requirements_file": text}
    file = Path(text).expanduser()
    if path.is_relative_to(efs_mount) and not file.is_file():
        return {"requirements": text}
    return {"requirements": read_local(file, code_folder)}
