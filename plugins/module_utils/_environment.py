# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A framework's virtual environment on this machine: is it as it shall be, and how it is made.

PRIVATE to the collection: it may change at any time. It imports nothing but the standard library, so that whoever
makes images can run it as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# It also runs without Ansible, so it has no module whose run_command it could call.
# pylint: disable=ansible-bad-function

ENVIRONMENTS = Path("/opt/deeplearning/env")
MARKER = ".deeplearning.json"
"""Written last: an environment with it is whole."""
UNFINISHED = ".deeplearning-unfinished.json"
"""What has only this is ours too, and not whole. The folder appears with it, by a rename."""
DRIVER = Path("/proc/driver/nvidia/version")
"""There with NVIDIA's driver, which is what builds for GPUs need."""
SYSTEM_FOLDERS = (Path("/usr/bin"), Path("/usr/local/bin"))
VERIFIED = ("--require-hashes", "--only-binary", ":all:")
"""pip's options for pins: a file is compared with the pinned checksums first, and nothing runs to install it."""


class Unfit(Exception):
    """Why an environment cannot be had: one sentence."""


class NotInIndex(Unfit):
    """The package indexes in use have no file for a pinned version."""


@dataclass(frozen=True)
class Wanted:
    framework: str
    requirements: Mapping[str, str]
    """the pins, for the builds `cpu` and `gpu`"""
    pythons: Sequence[str]
    """versions that the framework has builds for, such as 3.11"""
    imports: Sequence[str]
    index: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """by build and package: the package's own index, asked when pip's own settings do not lead to it"""
    wheels: str = ""
    """a folder to install from instead of an index"""
    folder: Path = ENVIRONMENTS

    @property
    def place(self) -> Path:
        return self.folder / self.framework

    @property
    def python(self) -> Path:
        return self.place / "bin/python"

    @property
    def pins(self) -> str:
        return self.requirements[build()]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.pins.encode()).hexdigest()


def build() -> str:
    return "gpu" if DRIVER.exists() else "cpu"


def marker(wanted: Wanted) -> dict[str, Any]:
    """What the environment says of itself, if it is the one that is wanted; else nothing."""
    return _read(wanted, MARKER)


def finished_or_not(wanted: Wanted) -> dict[str, Any]:
    """The same, if only what comes as a wheel of its own is missing."""
    return marker(wanted) or _read(wanted, UNFINISHED)


def _read(wanted: Wanted, name: str) -> dict[str, Any]:
    try:
        said = json.loads((wanted.place / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    fits = isinstance(said, dict) and said.get("requirements_sha256") == wanted.digest and wanted.python.exists()
    return said if fits else {}


def is_ours(wanted: Wanted) -> bool:
    return any((wanted.place / name).exists() for name in (MARKER, UNFINISHED))


@contextmanager
def alone(wanted: Wanted) -> Iterator[None]:
    """Wait for another process that makes it, such as one that has outlived the playbook that started it."""
    wanted.folder.mkdir(parents=True, exist_ok=True)
    with open(_hidden(wanted, "lock"), "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(wanted: Wanted, extra: str = "", extra_wheel: str = "") -> dict[str, Any]:
    """Make the environment, or finish it: what it says of itself then. `extra`, such as `horovod==0.28.1`, is what it
    is not whole without and what comes as a wheel of its own, later if it is not given yet. Call it `alone`."""
    if wanted.place.exists() and not is_ours(wanted):
        raise Unfit(
            f"{wanted.place} was made by somebody else, and stays as it is: remove it, or name its python for a run. "
            f"Example: -e python={wanted.python}"
        )
    said = finished_or_not(wanted) or _fresh(wanted)
    if extra_wheel and not has(said, extra):
        _pip(wanted, ["--no-index", "--force-reinstall", extra_wheel])
        said = {**said, "versions": _versions(wanted)}
    if not has(said, extra):
        return said
    if marker(wanted) != said:
        _write(wanted.place, MARKER, said)
        (wanted.place / UNFINISHED).unlink(missing_ok=True)
    return said


def has(said: Mapping[str, Any], extra: str) -> bool:
    """Whether an environment has this, or nothing was asked for."""
    name, _unused, version = extra.partition("==")
    return not extra or said.get("versions", {}).get(name) == version


def remove(wanted: Wanted) -> None:
    """Remove the environment if it is ours, and what interrupted attempts have left.

    It is renamed first: half of one has no marker, and would be taken for somebody else's.
    """
    old, new = _hidden(wanted, "old"), _hidden(wanted, "new")
    shutil.rmtree(old, ignore_errors=True)
    if is_ours(wanted):
        wanted.place.rename(old)
    for left in (old, new):
        shutil.rmtree(left, ignore_errors=True)


def has_leftovers(wanted: Wanted) -> bool:
    """Return whether an interrupted attempt has left anything."""
    return any(_hidden(wanted, what).exists() for what in ("old", "new"))


def _hidden(wanted: Wanted, what: str) -> Path:
    return wanted.folder / f".{wanted.framework}.{what}"


def find_python(wanted: Wanted) -> str:
    """The system's Python to make it with: the first that the framework has builds for."""
    for folder in SYSTEM_FOLDERS:
        for name in ("python3", *(f"python{version}" for version in reversed(wanted.pythons))):
            if version_of(folder / name) in wanted.pythons:
                return str(folder / name)
    return ""


def version_of(python: Path) -> str:
    """Such as 3.11. Empty if it is not there."""
    return _said(python, "import sys; print('%d.%d' % sys.version_info[:2])")


def makes_environments(python: str) -> bool:
    """Debian keeps what makes them in a package of its own."""
    return _said(Path(python), "import venv, ensurepip; print('yes')") == "yes"


def _said(python: Path, code: str) -> str:
    try:
        return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def system(release: Path = Path("/etc/os-release")) -> tuple[str, str]:
    """What the operating system is called, in short (debian, ubuntu, amzn) and in full."""
    found = dict(re.findall(r'^(\w+)="?(.*?)"?$', release.read_text(encoding="utf-8"), re.MULTILINE))
    return found.get("ID", "linux"), found.get("PRETTY_NAME", "this system").partition(" (")[0]


def _fresh(wanted: Wanted) -> dict[str, Any]:
    python = find_python(wanted)
    if not python:
        raise Unfit(no_python(wanted))
    remove(wanted)
    said = {"schema": 1, "framework": wanted.framework, "requirements_sha256": ""}
    new = _hidden(wanted, "new")
    new.mkdir(parents=True)
    _write(new, UNFINISHED, said)
    new.rename(wanted.place)
    _run([python, "-m", "venv", str(wanted.place)])
    install_pins(wanted, split_pins(wanted.pins))
    # Whoever trains may not write there, and would compile everything at each start.
    _run([str(wanted.python), "-m", "compileall", "-q", "-j", "0", str(wanted.place / "lib")], may_fail=True)
    _run([str(wanted.python), "-c", f"import {', '.join(wanted.imports)}"])
    version = "import platform; print(platform.python_version())"
    said = {
        **said,
        "python": _run([str(wanted.python), "-c", version]).strip(),
        "requirements_sha256": wanted.digest,
        "versions": _versions(wanted),
    }
    _write(wanted.place, UNFINISHED, said)
    return said


def no_python(wanted: Wanted) -> str:
    _unused, name = system()
    first, last = wanted.pythons[0], wanted.pythons[-1]
    return (
        f"{wanted.framework} needs Python {first}{f' to {last}' if last != first else ''}, and {name} here has none of "
        f"these: take an image that has, such as Debian 12 or Ubuntu 22.04, or another framework."
    )


def split_pins(text: str) -> list[str]:
    """Return the pins of a requirements file, each with its checksums in one line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def package_of(pin: str) -> str:
    return pin.partition("==")[0]


def install_pins(wanted: Wanted, pins: Sequence[str]) -> None:
    """Install pins as wheels that have one of their checksums. A package with its own index comes from there alone if
    pip's own settings do not lead to it."""
    if wanted.wheels and not os.path.isdir(wanted.wheels):
        raise Unfit(f"{wanted.wheels} is no folder: give one with wheels of all that {wanted.framework} needs.")
    where = ["--no-index", "--find-links", wanted.wheels] if wanted.wheels else []
    indexes = {} if wanted.wheels else wanted.index.get(build(), {})
    common = [pin for pin in pins if package_of(pin) not in indexes]
    if common:
        _install_verified(wanted, common, where)
    for pin in pins:
        if package_of(pin) in indexes:
            _install_from_own_index(wanted, pin, indexes[package_of(pin)])


def _install_from_own_index(wanted: Wanted, pin: str, index: str) -> None:
    try:
        _install_verified(wanted, [pin], [])
    except NotInIndex:
        try:
            _install_verified(wanted, [pin], ["--index-url", index])
        except NotInIndex:
            raise Unfit(
                f"{pin.split()[0]} is neither where pip on this machine looks nor in {index}: make that index "
                f"reachable, or name a folder with its wheel. Example: -e {wanted.framework}_wheels=/efs/data/wheels"
            ) from None


def _install_verified(wanted: Wanted, pins: Sequence[str], options: Sequence[str]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(pins) + "\n")
        file.flush()
        _pip(wanted, [*options, *VERIFIED, "-r", file.name])


def _pip(wanted: Wanted, what: Sequence[str]) -> None:
    """Pins are complete, so nothing is resolved. Compiling is done at once afterwards, on all processors."""
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--no-compile"]
    _run([str(wanted.python), "-m", "pip", "install", *options, *what])


def pip_problem(output: str) -> Unfit | None:
    """Return why pip refused a pin, as a sentence, if it did so."""
    wrong = re.search(r"^ +(\S+?)(?: from [^\n]*)?:\n +Expected sha256.*?^ +Got +([0-9a-f]{64})", output, re.M | re.S)
    if wrong:
        return Unfit(
            f"{wrong[1]} is not what was published, and was not installed: its SHA-256 is {wrong[2]}, which is none of "
            f"the pinned checksums. Check the package index, or the folder of wheels, that pip uses on this machine."
        )
    absent = re.search(r"No matching distribution found for (\S+)", output)
    if absent:
        return NotInIndex(
            f"{absent[1]} cannot be found as a wheel for this machine: pip reaches no package index that has it. Make "
            f"one reachable, or name a folder with wheels (docs/staging.md)."
        )
    return None


def _versions(wanted: Wanted) -> dict[str, str]:
    ask = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}))"
    )
    found: dict[str, str] = json.loads(_run([str(wanted.python), "-c", ask]))
    return dict(sorted(found.items()))


def _write(place: Path, name: str, said: Mapping[str, Any]) -> None:
    path = place / name
    new = path.with_suffix(".new")
    new.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def _run(command: Sequence[str], may_fail: bool = False) -> str:
    # From a folder where nothing can be imported by accident, and in no other environment than its own.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    ran = subprocess.run(command, cwd="/", env=kept, capture_output=True, text=True, check=False)
    if ran.returncode and not may_fail:
        problem = pip_problem(ran.stderr) if "pip" in command else None
        if problem:
            raise problem
        tail = (ran.stderr.strip() or ran.stdout.strip()).splitlines()[-12:]
        raise Unfit(f"{' '.join(command)} failed with {ran.returncode}: " + "\n".join(tail))
    return ran.stdout
