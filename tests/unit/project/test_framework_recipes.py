"""The recipes of the local cloud's images create environments by the code of the module framework_env."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import framework_recipes, imports


def test_what_runs_in_an_image_is_complete() -> None:
    """It imports no other file of the collection: a chroot has none."""
    known = imports.modules(framework_recipes.MODULE_UTILS, "ansible_collections.deeplearning.aws.plugins.module_utils")
    files = {module: str(path.relative_to(framework_recipes.MODULE_UTILS)) for module, path in known.items()}
    shared = [module for module, file in files.items() if file in framework_recipes.SHARED]
    needed = {files[other] for module in shared for other in imports.imports_of(module, known[module], known)}
    assert {"contract/paths.py", "contract/errors.py"} <= needed <= set(framework_recipes.SHARED)


def test_wheels_of_this_code_are_kept_by_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that was killed, and wheels that other code made, are not among them."""
    monkeypatch.setattr(framework_recipes, "code_hash", lambda: "aaaaaaaaaaaa")
    for folder in ("horovod-1_cp311-aaaaaaaaaaaa", "horovod-1_cp311-bbbbbbbbbbbb", ".building-horovod-1-aaaaaaaaaaaa"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "horovod.whl").touch()
    expected = {"horovod-1_cp311": tmp_path / "horovod-1_cp311-aaaaaaaaaaaa/horovod.whl"}
    assert framework_recipes.kept_wheels(tmp_path) == expected
