"""Imports within localcloud go one way: from higher layers to lower ones, and never in a circle."""

from __future__ import annotations

import ast
import functools
import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2]

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("iam", "state"),
    ("api", "models"),
    ("endpoint",),
    ("gpu",),
    ("machines",),
    ("image",),
    ("service",),
    ("control",),
    ("serve", "daemon"),
    ("cli",),
    ("__main__",),
)
"""The modules and packages of localcloud, the lowest layer first. A layer may import itself and lower ones."""


def modules() -> dict[str, Path]:
    """The files of localcloud by module name, without tests and what goes into images."""
    result = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] != "tests" and parts[:2] != ("image", "files"):
            result[".".join(("localcloud", *(part for part in parts if part != "__init__")))] = path
    return result


def imported(module: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of localcloud that a module imports, also within functions and for types alone."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                name = f"{source}.{alias.name}"
                if name in known:
                    yield name
                elif source in known:
                    yield source


@functools.cache
def graph() -> dict[str, set[str]]:
    known = modules()
    return {module: set(imported(module, path, known)) for module, path in known.items()}


def layer_of(module: str) -> int:
    top = module.split(".")[1] if "." in module else ""
    return next((number for number, names in enumerate(LAYERS) if top in names), -1)


def test_every_module_has_a_layer() -> None:
    assert [module for module in graph() if module != "localcloud" and layer_of(module) < 0] == []


def test_no_module_imports_a_higher_layer() -> None:
    upward = [(module, other) for module, others in graph().items() for other in others]
    assert [(a, b) for a, b in upward if layer_of(b) > layer_of(a)] == []


def test_no_imports_go_in_a_circle() -> None:
    circle: list[str] = []
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_lazy_type_only_and_relative_imports_count(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from localcloud.b import B\n"
        "def f():\n    from localcloud import c\n    import localcloud.d\n"
        "from .e import E\n"
    )
    known = {f"localcloud.{name}": path for name in "abcde"}
    assert set(imported("localcloud.a", path, known)) == {f"localcloud.{name}" for name in "bcde"}


def test_the_command_does_not_load_what_only_the_service_needs() -> None:
    program = "import sys, localcloud.cli; print({'moto', 'boto3', 'botocore'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
