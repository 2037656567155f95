"""Nothing imports a test file, and nothing but the public interface of the local cloud is used outside of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IMPORT = re.compile(r"^\s*(?:from|import) (?:[\w.]+\.)?test_\w+.*", re.MULTILINE)
FOLDERS = ("tests", "bench", "molecule", "tools", "plugins", "files", "roles")
INTERNAL = re.compile(r"localcloud(_kits\b|\.(?!testing\b|toml\b)\w+|/src\b)")
"""A module of the local cloud that is not public, or a path into its source code, in a string."""


def sources() -> Iterator[tuple[str, str]]:
    """Yield path and text of each Python file outside of the local cloud."""
    yield "conftest.py", (ROOT / "conftest.py").read_text(encoding="utf-8")
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix == ".py" or _is_script(path):
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def _is_script(path: Path) -> bool:
    """Return whether a file without a suffix is a Python program, such as bench/chaos."""
    return not path.suffix and path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python")


def test_nothing_imports_a_test_file() -> None:
    """What test files share is in kits: importing a test file would also bring its fixtures and hooks."""
    imports = {name: IMPORT.findall(text) for name, text in sources()}
    assert "bench/chaos" in imports and "tests/unit/project/test_test_imports.py" in imports
    assert {path: lines for path, lines in imports.items() if lines} == {}


def internal_names(text: str) -> Iterator[str]:
    """Yield the modules and paths of the local cloud that a program names, but for its public ones."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (match[0] for match in INTERNAL.finditer(node.value))
            continue
        else:
            continue
        for name in names:
            if name.split(".")[0] in ("localcloud", "localcloud_kits") and not f"{name}.".startswith(
                "localcloud.testing."
            ):
                yield name


def test_only_the_public_interface_of_the_local_cloud_is_used() -> None:
    used = {name: sorted({*internal_names(text)}) for name, text in sources() if not name.endswith(Path(__file__).name)}
    assert {name: names for name, names in used.items() if names} == {}


def test_internal_names_are_found() -> None:
    program = (
        "import localcloud.core\nfrom localcloud import state\nfrom localcloud.testing import errors\n"
        "from localcloud.testing.account import Account\nimport localcloud.testing.tls\n"
        "patch('localcloud.api.sts.DEFAULT')\nopen('localcloud/src/localcloud/data')\nrun('python -m localcloud')\n"
    )
    assert [*internal_names(program)] == [
        "localcloud.core", "localcloud.state", "localcloud.api", "localcloud/src"
    ]  # fmt: skip
