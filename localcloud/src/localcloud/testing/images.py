"""The machines' image: its folder, recipes for more of its kind, and what a build in a root folder needs.

A file of recipes, for `localcloud image build --recipes FILE --with editor`:

    from localcloud.testing.images import Feature, Recipes, connected, run_in

    def install(root):
        with connected(root.path):
            run_in(root.path, "apt-get", "install", "-y", "vim")

    RECIPES = Recipes({"editor": Feature("vim", install)}, version="1")
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from localcloud.image.build import base_image as _base_image
from localcloud.image.build import print_progress
from localcloud.image.features import feature_hash as feature_hash
from localcloud.image.features import use as use_recipes
from localcloud.image.mounting import bind_mounts as bind_mounts
from localcloud.image.mounting import overlay as overlay
from localcloud.image.mounting import remove as remove
from localcloud.image.mounting import run
from localcloud.image.recipe import base_hash
from localcloud.image.recipes import Feature as Feature
from localcloud.image.recipes import Recipes as Recipes
from localcloud.image.recipes import Root as Root
from localcloud.machines.host import pip_folders, write_host_settings
from localcloud.state import IMAGES as IMAGES

__all__ = [
    "CACHE",
    "IMAGES",
    "Feature",
    "Recipes",
    "Root",
    "base_folder",
    "base_image",
    "bind_mounts",
    "connected",
    "feature_hash",
    "overlay",
    "remove",
    "run_in",
    "scratch_folder",
    "use_recipes",
]

CACHE = IMAGES / "wheels"
"""The folder that recipes get as `root.cache`."""
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def base_folder(images: Path = IMAGES) -> Path:
    """Return the folder of the base image, which need not exist."""
    return images / f"base-{base_hash()}"


def base_image(images: Path = IMAGES, quiet: bool = False) -> Path:
    """Return the folder of the base image, and build it if it is missing."""
    return _base_image(images, (lambda _line: None) if quiet else print_progress)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder to mount root folders in. Whatever is mounted below it is unmounted at the end."""
    folder = Path(tempfile.mkdtemp(prefix=".building-"))
    try:
        yield folder
    finally:
        remove(folder)


@contextmanager
def connected(root: Path, folders: Sequence[str] = ("/dev", "/proc")) -> Iterator[None]:
    """Give a root folder what installations need: folders of this machine, its resolver, its certificates, and its
    settings and local folders of Python packages."""
    write_host_settings(root)
    resolver = root / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    shutil.copyfile("/etc/resolv.conf", resolver)
    with bind_mounts({root / folder.lstrip("/"): Path(folder) for folder in (*folders, *pip_folders())}):
        yield


def run_in(root: Path, *argv: str, variables: Mapping[str, str] | None = None) -> str:
    """Run a program in a root folder, and return what it prints. It must succeed."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "PATH": _PATH, "DEBIAN_FRONTEND": "noninteractive"}
    return run(["chroot", str(root), *argv], env={**environment, **(variables or {})})
