# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Switch an environment between the pinned release of its framework and a source checkout.

A checkout is used as an editable installation is, but nothing is written to its folder, which all nodes share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..contract.errors import UserError
from . import python_env
from .python_env import Environment

FILE = "deeplearning-sources.pth"
"""Python reads it at its start, and appends the folder in it to its search path."""

SWITCHING = "switching"
"""A key of the marker during a switch. A switch that was killed leaves it, with either of the two installed."""


def source_folder(environment: Environment) -> str:
    """Return the checkout that the environment uses; empty if it uses the release."""
    for file in environment.path.glob(f"lib/python3.*/site-packages/{FILE}"):
        return file.read_text(encoding="utf-8").strip()
    return ""


def is_in_use(environment: Environment, folder: str, marker: Mapping[str, Any]) -> bool:
    """Return whether the environment uses this checkout, or the release if the folder is empty."""
    return source_folder(environment) == folder and not marker.get(SWITCHING)


def switch_to_checkout(environment: Environment, folder: str, marker: Mapping[str, Any]) -> None:
    """Use the sources in a folder, and update the marker."""
    name = environment.framework
    if not Path(folder, name, "__init__.py").is_file():
        raise UserError(
            f"{folder} has no {name}/__init__.py: give the folder with the sources of {name}, as stage.yml brings "
            f"it to the shared file system. Example: -e dataset={name} -e stage_target=efs"
        )
    with _switching(environment, marker, origin=f" from {folder}"):
        python_env.run([str(environment.python), "-m", "pip", "uninstall", "--quiet", "--yes", name])
        (_site_packages(environment) / FILE).write_text(f"{folder}\n", encoding="utf-8")


def switch_to_release(environment: Environment, marker: Mapping[str, Any]) -> None:
    """Install the pinned release in place of a checkout, and update the marker."""
    with _switching(environment, marker):
        (_site_packages(environment) / FILE).unlink(missing_ok=True)
        pins = python_env.split_pins(environment.pins)
        release = [pin for pin in pins if python_env.package_of(pin) == environment.framework]
        python_env.install_pins(environment, release)


@contextmanager
def _switching(environment: Environment, marker: Mapping[str, Any], origin: str = "") -> Iterator[None]:
    """Record the switch in the marker before it begins, and the new version when it has succeeded."""
    python_env.write_marker(environment, {**marker, SWITCHING: True})
    yield
    versions = {**marker["versions"], environment.framework: _imported_version(environment) + origin}
    unmarked = {key: value for key, value in marker.items() if key != SWITCHING}
    python_env.write_marker(environment, {**unmarked, "versions": versions})


def _imported_version(environment: Environment) -> str:
    name = environment.framework
    # The checkout is on the shared file system, where nodes must not write compiled files (-B).
    command = [str(environment.python), "-B", "-c", f"import {name}; print({name}.__version__)"]
    return python_env.run(command).split()[-1]


def _site_packages(environment: Environment) -> Path:
    (folder,) = environment.path.glob("lib/python3.*/site-packages")
    return folder
