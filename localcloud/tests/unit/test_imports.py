"""Imports within localcloud go one way: from higher layers to lower ones, and never in a circle. Nothing is needed of
the repository that the folder is in."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import localcloud
from localcloud_kits import imports

PACKAGE = Path(localcloud.__file__).parent
PROJECT = Path(__file__).resolve().parents[2]
IMPORTED = {"boto3", "botocore", "cryptography", "moto", "werkzeug", "pytest", "policy_sentry", "yaml"}
"""What pyproject.toml declares; the last three for tests."""
OWN = {"localcloud", "localcloud_kits"}
IN_MACHINES = {"cloudinit"}

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
    ("testing",),
)
"""The modules and packages of localcloud, the lowest layer first. A layer may import itself and lower ones."""


@functools.cache
def graph() -> dict[str, set[str]]:
    """Without what goes into images."""
    known = imports.modules(PACKAGE, "localcloud")
    own = {module: path for module, path in known.items() if not module.startswith("localcloud.image.files")}
    return imports.graph(own)


def layer_of(module: str) -> int:
    top = module.split(".")[1] if "." in module else ""
    return next((number for number, names in enumerate(LAYERS) if top in names), -1)


def test_every_module_has_a_layer() -> None:
    assert [module for module in graph() if module != "localcloud" and layer_of(module) < 0] == []


def test_no_module_imports_a_higher_layer() -> None:
    upward = [(module, other) for module, others in graph().items() for other in others]
    assert [(a, b) for a, b in upward if layer_of(b) > layer_of(a)] == []


def test_no_imports_go_in_a_circle() -> None:
    assert imports.circle(graph()) == []


def test_lazy_type_only_and_relative_imports_count(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from localcloud.b import B\n"
        "def f():\n    from localcloud import c\n    import localcloud.d\n"
        "from .e import E\n"
    )
    known = {f"localcloud.{name}": path for name in "abcde"}
    assert set(imports.imports_of("localcloud.a", path, known)) == {f"localcloud.{name}" for name in "bcde"}


def python_files() -> list[Path]:
    return sorted({*PACKAGE.rglob("*.py"), *(PROJECT / "tests").rglob("*.py")})


def imported(path: Path) -> Iterator[str]:
    """Yield the packages that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def test_only_declared_dependencies_are_imported() -> None:
    allowed = sys.stdlib_module_names | IMPORTED | OWN
    foreign = {
        (str(path), name)
        for path in python_files()
        for name in imported(path)
        if name not in allowed and not (name in IN_MACHINES and "files" in path.parts)
    }
    assert foreign == set()


def test_no_link_or_path_leads_out_of_the_folder() -> None:
    for page in PROJECT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).resolve().is_relative_to(PROJECT), f"{page.name} links to {target}"
    levels = re.compile(r"__file__\)[^\n]*\.parents\[(\d)\]")
    for path in python_files():
        root = PACKAGE if path.is_relative_to(PACKAGE) else PROJECT
        for level in levels.findall(path.read_text(encoding="utf-8")):
            assert path.parents[int(level)].is_relative_to(root), f"{path} names a folder above {root}"


def test_the_command_does_not_load_what_only_the_service_needs() -> None:
    program = "import sys, localcloud.cli; print({'moto', 'boto3', 'botocore'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
