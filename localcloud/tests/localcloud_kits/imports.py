"""Who imports whom within a package: for the tests that find no circle."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Graph = Mapping[str, set[str]]


def modules(folder: Path, name: str) -> dict[str, Path]:
    """Return the files of a package by module name."""
    return {
        ".".join((name, *(part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"))): path
        for path in folder.rglob("*.py")
    }


def imports_of(module: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the known modules that a module imports, also within functions and for types alone."""
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


def graph(known: Mapping[str, Path]) -> dict[str, set[str]]:
    return {module: set(imports_of(module, path, known)) for module, path in known.items()}


def circle(files: Graph) -> list[str]:
    """Return the modules of a circle of imports, or nothing if there is no circle."""
    try:
        TopologicalSorter(files).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
