"""With this folder in PYTHONPATH, a Python that imports botocore records its calls of AWS. Others do not notice."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

CLIENT = "botocore.client"


def record_calls(client: ModuleType) -> None:
    root = str(Path(__file__).resolve().parents[3])
    sys.path.insert(0, root)
    try:
        from tests.smoke import recording
    finally:
        sys.path.remove(root)
    recording.record_calls(client)


class Finder(MetaPathFinder):
    """Finds botocore's clients once, and changes them when they have been loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != CLIENT:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_and_change(module: ModuleType) -> None:
                load(module)
                record_calls(module)

            vars(spec.loader)["exec_module"] = load_and_change
        return spec


if CLIENT in sys.modules:
    record_calls(sys.modules[CLIENT])
else:
    sys.meta_path.insert(0, Finder())
