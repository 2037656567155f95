"""Features of images: layers over the base image, which recipes of the user fill."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from localcloud.image.recipe import base_hash
from localcloud.image.recipes import Feature, Recipes, Root, read_recipes
from localcloud.state import only_builder

FEATURES: dict[str, Feature] = {}
"""The features of the recipes that `load` has read."""
_version = ""


def load(file: Path) -> None:
    """Read the recipes of a file."""
    use(read_recipes(file))


def use(recipes: Recipes) -> None:
    """Let images be built by these recipes alone."""
    global _version
    FEATURES.clear()
    FEATURES.update(recipes.features)
    _version = recipes.version


def feature_hash(names: Sequence[str]) -> str:
    """Return a hash of all contents of an image with these features."""
    digest = hashlib.sha256(base_hash().encode())
    for name in names:
        digest.update(FEATURES[name].contents.encode() + b"\0")
    digest.update(_version.encode())
    return digest.hexdigest()[:12]


def build(root: Path, base: Path, cache: Path, names: Sequence[str], progress: Callable[[str], None]) -> None:
    """Install features into a mounted root."""
    for name in names:
        progress(f"installing {name}")
        FEATURES[name].install(Root(root, base, cache, progress))


def record(images: Path, names: Sequence[str], layer: Path) -> None:
    """Let clouds that come up know the newest image with these features."""
    with only_builder("features"):
        layers = {**_recorded(images), ",".join(names): layer.name}
        incomplete = images / f".features-{os.getpid()}"
        incomplete.write_text(json.dumps(layers, indent=1), encoding="utf-8")
        incomplete.rename(_record_of(images))


def built(images: Path) -> dict[tuple[str, ...], Path]:
    """Return the recorded layers over the current base image. They count as used."""
    layers = {tuple(names.split(",")): images / layer for names, layer in _recorded(images).items()}
    found = {names: layer for names, layer in layers.items() if layer.is_dir()}
    for layer in found.values():
        os.utime(layer)
    return found


def _recorded(images: Path) -> Mapping[str, str]:
    try:
        layers: Mapping[str, str] = json.loads(_record_of(images).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return layers


def _record_of(images: Path) -> Path:
    """Return the file with the layers over the current base image, by their features."""
    return images / f"features-{base_hash()}.json"
