"""Imports of the product go one way: no circle of files, and none of folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import imports

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = "ansible_collections.deeplearning.aws.plugins"
PACKAGES = {
    "deeplearning": "files/node/deeplearning",
    f"{PLUGINS}.module_utils": "plugins/module_utils",
    f"{PLUGINS}.plugin_utils": "plugins/plugin_utils",
}


def folder(package: str, module: str) -> str:
    """The folder of a module at the top of its package, or its own name there."""
    return module.removeprefix(package).split(".")[1] if module != package else ""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_imports_go_in_a_circle(package: str) -> None:
    files = imports.graph(imports.modules(ROOT / PACKAGES[package], package))
    assert len(files) > 50
    assert imports.circle(files) == []
    assert imports.circle(imports.group_imports(files, lambda module: folder(package, module))) == []


def test_a_circle_of_folders_is_found() -> None:
    files = {"p.a.x": {"p.b.y"}, "p.b.y": set(), "p.b.z": {"p.a.x"}, "p.c": {"p.a.x"}}
    assert imports.circle(files) == []
    assert set(imports.circle(imports.group_imports(files, lambda module: folder("p", module)))) == {"a", "b"}
