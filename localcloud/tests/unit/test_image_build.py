"""Images are built once, however many need them, and are complete or missing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud import state
from localcloud.core.errors import Refusal
from localcloud.image import build, features
from localcloud.image.recipes import Recipes, recipes_file


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


RECIPE = """
from localcloud.testing.images import Feature, Recipes

RECIPES = Recipes(features={"editor": Feature("vim 9", lambda root: None), "shell": Feature("zsh", print)}, version="1")
"""


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of recipes in a working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCALCLOUD_RECIPES", raising=False)
    file = tmp_path / "recipes.py"
    file.write_text(RECIPE, encoding="utf-8")
    yield file
    features.use(Recipes({}, ""))


def test_recipes_are_named_by_option_environment_or_folder(recipes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recipes_file("") is None
    Path("localcloud.toml").write_text('recipes = "recipes.py"', encoding="utf-8")
    assert recipes_file("") == Path("recipes.py")
    monkeypatch.setenv("LOCALCLOUD_RECIPES", "/environment.py")
    assert recipes_file("") == Path("/environment.py")
    assert recipes_file("option.py") == Path("option.py")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "defines no RECIPES of the type localcloud.testing.images.Recipes."),
        (RECIPE.replace('"shell"', '"My shell"'), "has a feature My shell: use lower case letters"),
    ],
)
def test_a_file_without_usable_recipes_is_refused(recipes: Path, content: str, message: str) -> None:
    recipes.write_text(content, encoding="utf-8")
    with pytest.raises(Refusal, match=message):
        features.load(recipes)
    with pytest.raises(Refusal, match="recipes file missing.py does not exist"):
        features.load(Path("missing.py"))


def test_another_content_or_version_is_another_image(recipes: Path) -> None:
    features.load(recipes)
    both, editor = features.feature_hash(["editor", "shell"]), features.feature_hash(["editor"])
    recipes.write_text(RECIPE.replace("zsh", "fish"), encoding="utf-8")
    features.load(recipes)
    assert features.feature_hash(["editor"]) == editor and features.feature_hash(["editor", "shell"]) != both
    recipes.write_text(RECIPE.replace('version="1"', 'version="2"'), encoding="utf-8")
    features.load(recipes)
    assert features.feature_hash(["editor"]) != editor


def test_a_cloud_that_comes_up_knows_the_newest_image_with_each_set_of_features(tmp_path: Path) -> None:
    """It does not run recipes."""
    images = tmp_path / "images"
    for layer in ("editor-000000000001", "editor-000000000002", "editor-shell-000000000003", "gone-000000000004"):
        (images / layer).mkdir(parents=True)
        features.record(images, layer.split("-")[:-1], images / layer)
    (images / "gone-000000000004").rmdir()
    assert features.built(images) == {
        ("editor",): images / "editor-000000000002",
        ("editor", "shell"): images / "editor-shell-000000000003",
    }
    assert features.built(tmp_path / "empty") == {}


def test_features_are_installed_in_turn(recipes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features.load(recipes)
    lines: list[str] = []
    features.build(tmp_path / "root", tmp_path / "base", tmp_path / "cache", ["editor", "shell"], lines.append)
    assert lines == ["installing editor", "installing shell"]
    assert str(tmp_path / "cache") in capsys.readouterr().out
