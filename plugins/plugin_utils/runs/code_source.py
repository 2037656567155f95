# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Where the code of a run is: a script of this machine with its folder, or a repository that is cloned here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..untrusted import one_line
from . import code_archive, git_clone, requirements
from .code_archive import Content, Packed

MOST_NAMED = 20


@dataclass(frozen=True)
class CodeSource:
    script: str
    """A path of this machine, or git+URL@ref:path."""
    folder: str = ""
    """A folder that is sent with a script of this machine."""
    requirements: str = ""
    """The path of a file with requirements in the repository."""
    include: tuple[str, ...] = ()
    """Paths of files that are sent although they may hold secrets."""


@dataclass(frozen=True)
class _LocalCode:
    """Code on this machine."""

    script: Path
    folder: Path | None
    request: dict[str, Any]
    """What a repository adds to the request for a run."""


def pack(source: CodeSource) -> tuple[Packed, dict[str, Any]]:
    """Return the code, and what a repository adds to the request."""
    with _local(source) as code:
        return code_archive.pack(code.script, code.folder, source.include), code.request


def select(source: CodeSource) -> Content:
    """Return what would be sent, and what would be left out."""
    with _local(source) as code:
        return code_archive.select(code.script, code.folder, source.include)


def sentence(left_out: Sequence[str]) -> str:
    """Return a sentence about the files and folders that are left out."""
    shown = ", ".join(left_out[:MOST_NAMED])
    more = len(left_out) - MOST_NAMED
    if more > 0:
        shown += f", {more} more"
    example = f'-e \'{{"code_include": ["{left_out[0]}"]}}\''
    return one_line(
        f"Not sent with the code, as they may hold secrets: {shown}. Pass secrets with the option env. To send a file "
        f"nevertheless: {example}"
    )


@contextlib.contextmanager
def _local(source: CodeSource) -> Iterator[_LocalCode]:
    repository_source = git_clone.parse(source.script)
    if repository_source is None:
        folder = Path(source.folder) if source.folder else None
        yield _LocalCode(Path(source.script).expanduser(), folder, {})
        return
    with git_clone.cloned(repository_source) as (tree, repository):
        request: dict[str, Any] = {"repository": repository}
        if source.requirements:
            request["requirements"] = requirements.read_in_repository(tree, source.requirements)
        yield _LocalCode(tree / repository_source.path, tree, request)
