"""Keep compiled code in a folder, for all processes of a layer, in place of compiling it anew in each fork.

Jinja's own files of compiled templates serve for modules as well.
"""

from __future__ import annotations

import zipimport
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache

NO_ENVIRONMENT = Environment(autoescape=True)
"""Buckets have one, and do not use it."""


class Kept:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._files = FileSystemBytecodeCache(str(folder))

    def code(self, source: str, compile_anew: Callable[[], CodeType]) -> CodeType:
        bucket = self._files.get_bucket(NO_ENVIRONMENT, source, None, source)
        if bucket.code is None:
            bucket.code = compile_anew()
            self._files.set_bucket(bucket)
        return bucket.code


def keep_modules(folder: Path) -> None:
    """Keep what Ansible's archives have inside. A module imports some 75 files, and compiles each twice (0.2 s)."""
    kept, compile_anew = Kept(folder), vars(zipimport)["_compile_source"]

    @cache
    def compiled(path: str, source: bytes) -> CodeType:
        return kept.code(source.decode(), lambda: compile_anew(path, source))

    vars(zipimport)["_compile_source"] = compiled


def keep_templates(folder: Path) -> None:
    """Keep templates of Jinja. Each task compiles those of the variables that it needs: a third of a worker's time."""
    from ansible._internal._templating._jinja_bits import AnsibleEnvironment, _TemplateCompileContext

    kept, compile_anew = Kept(folder), AnsibleEnvironment.compile

    def compiled(self: AnsibleEnvironment, source: Any, **options: Any) -> Any:
        context = _TemplateCompileContext.current(optional=True)
        # Conditions come as a tree, and an overlay has its own settings.
        if not isinstance(source, str) or options or self.overlayed or not context:
            return compile_anew(self, source, **options)
        return kept.code(f"{context.escape_backslashes} {source}", lambda: compile_anew(self, source))

    AnsibleEnvironment.compile = compiled
