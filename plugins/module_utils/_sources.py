# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A framework's own sources in a folder, used as they are there, in place of the release that is pinned.

It is what an editable installation comes to, without writing to the folder, which all nodes share.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils import _environment
from ansible_collections.deeplearning.aws.plugins.module_utils._environment import Unfit, Wanted

FILE = "deeplearning-sources.pth"
"""Python reads it at its start, and looks where it says after it has looked at what is installed."""

SWITCHING = "switching"
"""In the marker while one is exchanged for the other."""


def used(wanted: Wanted) -> str:
    """The folder that the environment takes its framework from. Empty: it has the release."""
    for file in wanted.place.glob(f"lib/python3.*/site-packages/{FILE}"):
        return file.read_text(encoding="utf-8").strip()
    return ""


def in_use(wanted: Wanted, folder: str, said: Mapping[str, Any]) -> bool:
    """Return whether the environment uses this folder, or the release if it is empty."""
    return used(wanted) == folder and not said.get(SWITCHING)


def use(wanted: Wanted, folder: str, said: Mapping[str, Any]) -> None:
    """Switch between sources and the pinned release, and update the marker."""
    name = wanted.framework
    if folder and not Path(folder, name, "__init__.py").is_file():
        raise Unfit(
            f"{folder} has no {name}/__init__.py: give the folder with the sources of {name}, as stage.yml brings "
            f"it to the shared file system. Example: -e data={name} -e to=efs"
        )
    # A run that is killed leaves this mark, and either of the two.
    _environment._write(wanted.place, _environment.MARKER, {**said, SWITCHING: True})
    (site,) = wanted.place.glob("lib/python3.*/site-packages")
    if folder:
        _environment._run([str(wanted.python), "-m", "pip", "uninstall", "--quiet", "--yes", name])
        (site / FILE).write_text(f"{folder}\n", encoding="utf-8")
    else:
        (site / FILE).unlink(missing_ok=True)
        pins = _environment.split_pins(wanted.pins)
        _environment.install_pins(wanted, [pin for pin in pins if _environment.package_of(pin) == name])
    # The sources are on the shared file system: no node writes what it has compiled there.
    asking = [str(wanted.python), "-B", "-c", f"import {name}; print({name}.__version__)"]
    version = _environment._run(asking).split()[-1]
    versions = {**said["versions"], name: f"{version} from {folder}" if folder else version}
    done = {key: value for key, value in said.items() if key != SWITCHING}
    _environment._write(wanted.place, _environment.MARKER, {**done, "versions": versions})
