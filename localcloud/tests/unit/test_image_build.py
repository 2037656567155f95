"""Images are built once, however many need them, and are complete or missing."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from localcloud import state
from localcloud.image import build, features
from localcloud_kits import imports


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "HOME", tmp_path)


def quiet(_line: str) -> None:
    pass


def test_two_that_need_an_image_build_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[Path] = []
    begun, may_end = threading.Event(), threading.Event()

    def build_base(scratch: Path, _cache: Path, _progress: object) -> None:
        builds.append(scratch)
        begun.set()
        assert may_end.wait(30)
        scratch.mkdir()

    monkeypatch.setattr(build, "_build_base", build_base)
    images = tmp_path / "images"
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(build.base_image(images, quiet))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    may_end.set()
    for thread in threads:
        thread.join()
    assert len(builds) == 1 and folders[0] == folders[1] and folders[0].is_dir()


@pytest.mark.parametrize("suffix", ["", ".merged", ".work"])
def test_what_a_killed_build_has_left_is_removed_and_another_goes_on(tmp_path: Path, suffix: str) -> None:
    """Its name has the id of its process at the end, and that of its mounts a suffix."""
    images = tmp_path / "images"
    left, going_on = (
        f".building-base-1-4194305{suffix}",
        f"wheels/.building-horovod-0.28.1_cp311-{os.getpid()}{suffix}",
    )
    for folder in (left, going_on):
        (images / folder).mkdir(parents=True)
    build.tidy(images)
    assert not (images / left).exists() and (images / going_on).exists()


def test_what_runs_in_an_image_is_complete() -> None:
    """It imports no other file of the collection: a chroot has none."""
    known = imports.modules(features.MODULE_UTILS, "ansible_collections.deeplearning.aws.plugins.module_utils")
    files = {module: str(path.relative_to(features.MODULE_UTILS)) for module, path in known.items()}
    shared = [module for module, file in files.items() if file in features.SHARED]
    needed = {files[other] for module in shared for other in imports.imports_of(module, known[module], known)}
    assert {"contract/paths.py", "contract/errors.py"} <= needed <= set(features.SHARED)


def test_wheels_of_this_code_are_kept_by_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that was killed, and wheels that other code made, are not among them."""
    monkeypatch.setattr(features, "_code_hash", lambda: "aaaaaaaaaaaa")
    for folder in ("horovod-1_cp311-aaaaaaaaaaaa", "horovod-1_cp311-bbbbbbbbbbbb", ".building-horovod-1-aaaaaaaaaaaa"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "horovod.whl").touch()
    expected = {"horovod-1_cp311": tmp_path / "horovod-1_cp311-aaaaaaaaaaaa/horovod.whl"}
    assert features.kept_wheels(tmp_path) == expected
