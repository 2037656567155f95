"""Imports within localcloud go one way: from higher layers to lower ones, and never in a circle."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import localcloud
from localcloud_kits import imports

PACKAGE = Path(localcloud.__file__).parent

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


@functools.cache
def graph() -> dict[str, set[str]]:
    """Without tests and what goes into images."""
    known = imports.modules(PACKAGE, "localcloud")
    own = {
        module: path
        for module, path in known.items()
        if not module.startswith(("localcloud.testing", "localcloud.image.files"))
    }
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


def test_the_command_does_not_load_what_only_the_service_needs() -> None:
    program = "import sys, localcloud.cli; print({'moto', 'boto3', 'botocore'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
