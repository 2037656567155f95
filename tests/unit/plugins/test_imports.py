"""Every plugin and module can be imported: most actions have no test that runs them without a cluster."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
FILES = sorted(path.relative_to(PLUGINS) for path in PLUGINS.rglob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("file", FILES, ids=str)
def test_it_can_be_imported(file: Path) -> None:
    import_module(".".join(("ansible_collections.deeplearning.aws.plugins", *file.with_suffix("").parts)))
