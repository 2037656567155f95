"""AWS's errors in its own words, each with its source, and the places where the local cloud answers with them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localcloud.core.settings import DATA
from localcloud.core.words import ANY as ANY
from localcloud.core.words import DOCUMENTED as DOCUMENTED
from localcloud.core.words import READ as READ
from localcloud.core.words import RECORDED as RECORDED
from localcloud.core.words import Entry as Entry
from localcloud.core.words import entries as entries
from localcloud.core.words import matches as matches

_PACKAGE = Path(__file__).parents[1]


def refused_logins() -> Mapping[str, Any]:
    """Return the errors for refused credentials: code, HTTP status and message, by service and cause."""
    logins: Mapping[str, Any] = json.loads((DATA / "logins.json").read_text(encoding="utf-8"))
    return logins


def source_calls(folder: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Yield the file name and each call in the source code of the local cloud, or of a folder of it."""
    for path in sorted((_PACKAGE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield path.name, node
