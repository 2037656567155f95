"""Every plugin and module can be imported: most actions have no test that runs them without a cluster."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from ansible.plugins.loader import filter_loader

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
FILES = sorted(path.relative_to(PLUGINS) for path in PLUGINS.rglob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("file", FILES, ids=str)
def test_it_can_be_imported(file: Path) -> None:
    import_module(".".join(("ansible_collections.deeplearning.aws.plugins", *file.with_suffix("").parts)))


@pytest.mark.parametrize("name", [file.stem for file in FILES if file.parent.name == "filter"])
def test_a_filter_has_the_name_of_its_file(name: str) -> None:
    """Ansible looks for a filter of a collection in the file of its name, and finds no other one in it."""
    module = import_module(f"ansible_collections.deeplearning.aws.plugins.filter.{name}")
    assert list(module.FilterModule().filters()) == [name]
    assert callable(filter_loader.get(f"deeplearning.aws.{name}").j2_function)
