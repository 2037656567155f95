"""Recipes of features: what users add to the machines' image, by a Python file of theirs that defines RECIPES."""

from __future__ import annotations

import os
import re
import runpy
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localcloud.core.errors import Refusal

VARIABLE = "LOCALCLOUD_RECIPES"
SETTINGS = Path("localcloud.toml")
"""In the working directory: `recipes = "PATH"`, for `localcloud image build` alone."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Root:
    """The root folder of an image that is being built."""

    path: Path
    base: Path
    """the base image below it, which is not to be changed"""
    cache: Path
    """a folder that is kept from one build to the next"""
    progress: Callable[[str], None]
    """prints a line"""


@dataclass(frozen=True)
class Feature:
    """Something that an image may contain."""

    contents: str
    """describes all that its files depend on, such as pinned packages: with another text, another image is built"""
    install: Callable[[Root], None]
    """installs it in an image"""


@dataclass(frozen=True)
class Recipes:
    """What a file of recipes defines as RECIPES."""

    features: Mapping[str, Feature]
    """by name: lower case letters, digits and underscores"""
    version: str
    """changes whenever the code that installs them does: images of another version are built again"""


def recipes_file(option: str) -> Path | None:
    """Return the file that the option, the environment or the working directory names."""
    if option or os.environ.get(VARIABLE):
        return Path(option or os.environ[VARIABLE])
    if not SETTINGS.is_file():
        return None
    try:
        named = tomllib.loads(SETTINGS.read_text(encoding="utf-8")).get("recipes")
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Refusal(f"{SETTINGS.resolve()} cannot be read: {error}.") from error
    return Path(named) if named else None


def read_recipes(file: Path) -> Recipes:
    """Run a file of recipes."""
    if not file.is_file():
        raise Refusal(f"recipes file {file} does not exist.")
    recipes = runpy.run_path(str(file)).get("RECIPES")
    if not isinstance(recipes, Recipes):
        raise Refusal(f"recipes file {file} defines no RECIPES of the type localcloud.testing.images.Recipes.")
    for name in recipes.features:
        if not _NAME.fullmatch(name):
            raise Refusal(f"recipes file {file} has a feature {name}: use lower case letters, digits and underscores.")
    return recipes
