"""With processor=true, TensorPack's trackers of GPUs do nothing: GPUUtilizationTracker ends a program without a GPU."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE = "tensorpack.callbacks.prof"
TRACKERS = ("GPUMemoryTracker", "GPUUtilizationTracker")


def replace(module: Any) -> None:
    """Put callbacks that do nothing in place of the trackers."""
    # As theirs, they are in all ranks: of others TensorPack logs a warning.
    content = {"_chief_only": False, "__init__": lambda self, *words, **options: None}
    for name in TRACKERS:
        setattr(module, name, type(name, (module.Callback,), dict(content)))
    # TensorPack's other name of it.
    module.PeakMemoryTracker = module.GPUMemoryTracker
    print(f"deeplearning: {' and '.join(TRACKERS)} of TensorPack do nothing: processor=true", file=sys.stderr)


class Finder:
    """Finds that one module as Python does. The program decides whether it is imported."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != MODULE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        with contextlib.suppress(Exception):
            loader: Any = spec.loader if spec else None
            execute = loader.exec_module

            def execute_and_replace(module: ModuleType) -> None:
                execute(module)
                with contextlib.suppress(Exception):
                    replace(module)

            loader.exec_module = execute_and_replace
        return spec


def install() -> None:
    sys.meta_path.insert(0, Finder)
