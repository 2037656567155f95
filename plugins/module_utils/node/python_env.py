# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Inspect, create and remove a framework's virtual environment on this machine.

It imports only the standard library and the contract, so that the local cloud can run it in an image without Ansible.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..contract import atomic_file, framework_probe, paths
from ..contract.boot import NETWORK_SECONDS
from ..contract.errors import UserError
from ..contract.frameworks import RECORDS

# It also runs without Ansible, so it cannot use run_command of a module.
# pylint: disable=ansible-bad-function

ENVIRONMENTS = Path(paths.ENVIRONMENTS)
UNFINISHED = ".deeplearning-unfinished.json"
"""An environment that has only this is incomplete, and ours as well: its folder is created with the file in it."""
DRIVER = Path(paths.NVIDIA_DRIVER)
"""The GPU packages need it."""
GIB = {"cpu": 3, "gpu": 10}
"""What the largest environment takes while it is installed, its archives included (measured with tensorflow 2.21)."""
SYSTEM_FOLDERS = (Path("/usr/bin"), Path("/usr/local/bin"))
VERIFIED = ("--require-hashes", "--only-binary", ":all:")
"""pip's options for pins: compare each file with the pinned checksums, and run no code of a package to install it."""


PASSING = {
    "no name of a package index can be resolved": r"name resolution|NameResolutionError|Name or service not known",
    "the network is unreachable": r"Network is unreachable|No route to host",
    "a package index does not answer": r"Connection (refused|reset|aborted)|ConnectionResetError|timed? ?out|"
    r"RemoteDisconnected|IncompleteRead",
    "a package index is out of order": r"HTTP error 5\d\d|\b5\d\d (Server Error|error responses)",
}
"""What ends by itself, such as a NAT gateway that is not there yet, and how pip prints it."""
PAUSE_SECONDS = 10


class NotInIndex(UserError):
    """The package indexes in use have no file for a pinned version."""


class NoNetwork(UserError):
    """pip failed because of something that ends by itself."""


@dataclass(frozen=True)
class Environment:
    """A framework's environment as it should be."""

    framework: str
    requirements: Mapping[str, str]
    """the pins, for the variants `cpu` and `gpu`"""
    pythons: Sequence[str]
    """versions of Python that the framework has packages for, such as 3.11"""
    imports: Sequence[str]
    """modules that must be importable"""
    index: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """by variant and package: the package's own index, used if pip's settings do not lead to it"""
    wheels: str = ""
    """a folder to install from instead of an index"""
    processor: bool = False
    """True for the packages that train on the processor, on a machine with GPUs as well."""
    folder: Path = ENVIRONMENTS

    @property
    def path(self) -> Path:
        return self.folder / self.framework

    @property
    def python(self) -> Path:
        return self.path / "bin/python"

    @property
    def variant(self) -> str:
        """Which pins this machine needs."""
        return "cpu" if self.processor or not DRIVER.exists() else "gpu"

    @property
    def pins(self) -> str:
        return self.requirements[self.variant]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.pins.encode()).hexdigest()

    @property
    def pip_options(self) -> Sequence[str]:
        """pip's options that say where packages come from."""
        return ["--no-index", "--find-links", self.wheels] if self.wheels else []


def environment_of(framework: str, requirements: Mapping[str, str], **options: Any) -> Environment:
    """Return the environment of a framework with these pins."""
    record = RECORDS[framework]
    return Environment(framework, requirements, record.pythons, record.imports, record.index, **options)


def read_complete_marker(environment: Environment) -> dict[str, Any]:
    """Return the marker of an environment that is complete and has the current pins, or an empty dictionary."""
    return _read(environment, paths.MARKER)


def read_marker(environment: Environment) -> dict[str, Any]:
    """Return the marker, also of an environment that lacks only the extra package (see `install`)."""
    return read_complete_marker(environment) or _read(environment, UNFINISHED)


def read_usable_marker(environment: Environment) -> dict[str, Any]:
    """Return the marker of an environment that a run can use, whatever its pins, or an empty dictionary."""
    markers = [_load(environment, name) for name in (paths.MARKER, UNFINISHED)]
    return next((marker for marker in markers if marker.get("requirements_sha256")), {})


def _read(environment: Environment, name: str) -> dict[str, Any]:
    marker = _load(environment, name)
    return marker if marker.get("requirements_sha256") == environment.digest else {}


def _load(environment: Environment, name: str) -> dict[str, Any]:
    try:
        marker = json.loads((environment.path / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) and environment.python.exists() else {}


def is_ours(environment: Environment) -> bool:
    return any((environment.path / name).exists() for name in (paths.MARKER, UNFINISHED))


def exclusive_lock(environment: Environment) -> AbstractContextManager[None]:
    """Let one process change the environment at a time."""
    return atomic_file.locked(str(_hidden(environment, "lock")))


def install(environment: Environment, extra: str = "", extra_wheel: str = "") -> dict[str, Any]:
    """Create or complete the environment, and return its marker. Call it with the exclusive lock.

    `extra`, such as `horovod==0.28.1`, is a package that it is incomplete without and that has no pins, because it is
    installed from `extra_wheel`. Without that wheel the environment stays incomplete.
    """
    if environment.path.exists() and not is_ours(environment):
        raise UserError(
            f"{environment.path} was not created by deeplearning.aws, and stays as it is: remove it, or name its "
            f"python for a run. Example: -e python={environment.python}"
        )
    marker = read_marker(environment) or _create(environment)
    if extra_wheel and not is_installed(marker, extra):
        pip_install(environment, "--no-index", "--force-reinstall", extra_wheel)
        marker = {**marker, "versions": _versions(environment)}
    if not is_installed(marker, extra):
        return marker
    if read_complete_marker(environment) != marker:
        write_marker(environment, marker)
        (environment.path / UNFINISHED).unlink(missing_ok=True)
    return marker


def is_installed(marker: Mapping[str, Any], extra: str) -> bool:
    """Return whether an environment has the extra package. An empty one needs no installation."""
    name, _unused, version = extra.partition("==")
    return not extra or marker.get("versions", {}).get(name) == version


def remove(environment: Environment) -> None:
    """Remove the environment if it is ours, and what interrupted attempts left.

    It is renamed first: without a marker, the rest of an environment would not be recognized as ours.
    """
    old, new = _hidden(environment, "old"), _hidden(environment, "new")
    shutil.rmtree(old, ignore_errors=True)
    if is_ours(environment):
        try:
            environment.path.rename(old)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # A folder of an image cannot be renamed in a container: its marker goes last.
            _empty(environment)
    for left in (old, new):
        shutil.rmtree(left, ignore_errors=True)


def _empty(environment: Environment) -> None:
    """Remove an environment in its place. If this is interrupted, an incomplete one is left."""
    _write(environment.path / UNFINISHED, {})
    (environment.path / paths.MARKER).unlink(missing_ok=True)
    for path in environment.path.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != UNFINISHED:
            path.unlink()
    shutil.rmtree(environment.path)


def has_leftovers(environment: Environment) -> bool:
    """Return whether an interrupted attempt has left anything."""
    return any(_hidden(environment, suffix).exists() for suffix in ("old", "new"))


def _hidden(environment: Environment, suffix: str) -> Path:
    return environment.folder / f".{environment.framework}.{suffix}"


def find_python(environment: Environment) -> str:
    """Return the path of the system's first Python that the framework has packages for; empty if it has none."""
    for folder in SYSTEM_FOLDERS:
        for name in ("python3", *(f"python{version}" for version in reversed(environment.pythons))):
            if python_version(folder / name) in environment.pythons:
                return str(folder / name)
    return ""


def python_version(python: Path) -> str:
    """Return the version of a Python, such as 3.11; empty if it does not exist."""
    return _output(python, "import sys; print('%d.%d' % sys.version_info[:2])")


def can_create_environments(python: str) -> bool:
    """Return whether a Python has the modules that create environments. Debian has them in a separate package."""
    return _output(Path(python), "import venv, ensurepip; print('yes')") == "yes"


def _output(python: Path, code: str) -> str:
    try:
        return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def system(release: Path = Path("/etc/os-release")) -> tuple[str, str]:
    """Return the operating system's short name (debian, ubuntu, amzn) and its full name."""
    fields = dict(re.findall(r'^(\w+)="?(.*?)"?$', release.read_text(encoding="utf-8"), re.MULTILINE))
    return fields.get("ID", "linux"), fields.get("PRETTY_NAME", "this system").partition(" (")[0]


def _create(environment: Environment) -> dict[str, Any]:
    python = find_python(environment)
    if not python:
        raise UserError(no_python_message(environment))
    if environment.variant == "gpu":
        _require_driver_library(python)
    remove(environment)
    _require_room(environment)
    marker = {"schema": 1, "framework": environment.framework, "requirements_sha256": ""}
    new = _hidden(environment, "new")
    new.mkdir(parents=True)
    _write(new / UNFINISHED, marker)
    new.rename(environment.path)
    run([python, "-m", "venv", str(environment.path)])
    install_pins(environment, split_pins(environment.pins))
    link_cuda_libraries(environment)
    # Users who train cannot write there, so Python would compile everything again at each start.
    run([str(environment.python), "-m", "compileall", "-q", "-j", "0", str(environment.path / "lib")], may_fail=True)
    run([str(environment.python), "-c", f"import {', '.join(environment.imports)}"])
    version = "import platform; print(platform.python_version())"
    marker = {
        **marker,
        "python": run([str(environment.python), "-c", version]).strip(),
        "requirements_sha256": environment.digest,
        "versions": _versions(environment),
    }
    _write(environment.path / UNFINISHED, marker)
    return marker


def no_python_message(environment: Environment) -> str:
    _unused, name = system()
    first, last = environment.pythons[0], environment.pythons[-1]
    versions = f"{first} to {last}" if last != first else first
    return (
        f"{environment.framework} needs Python {versions}, and {name} here has none of these: use an image that has "
        "one, such as Debian 12 or Ubuntu 22.04, or another framework."
    )


def _require_room(environment: Environment) -> None:
    """Raise UserError if the disk would be full before the environment is complete."""
    environment.folder.mkdir(parents=True, exist_ok=True)
    needed, free = GIB[environment.variant], shutil.disk_usage(environment.folder).free / 2**30
    if free < needed:
        raise UserError(
            f"{environment.folder} has {free:.1f} GiB free, and {environment.framework} needs {needed} GiB there while "
            "it is installed: remove what is not needed, or take a larger root volume. Example: -e "
            "cluster_root_volume_gib=200"
        )


def _require_driver_library(python: str) -> None:
    """Raise UserError if frameworks cannot open the library that talks to NVIDIA's driver."""
    if _output(Path(python), f"import ctypes; ctypes.CDLL('{framework_probe.LIBRARY}'); print('yes')") != "yes":
        raise UserError(
            f"NVIDIA's driver is loaded, and its library {framework_probe.LIBRARY} cannot be opened: install the "
            "library of the same version (Debian: libcuda1; NVIDIA's repository: libnvidia-compute), or take one of "
            "AWS's images."
        )


def split_pins(text: str) -> list[str]:
    """Return the pins of a requirements file, each with its checksums in one line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def package_of(pin: str) -> str:
    return pin.partition("==")[0]


def install_pins(environment: Environment, pins: Sequence[str]) -> None:
    """Install pins from wheels that have one of the pinned checksums.

    A package with its own index comes only from that index if pip's settings do not lead to the package.
    """
    if environment.wheels and not os.path.isdir(environment.wheels):
        raise UserError(
            f"{environment.wheels} is no folder: name one with wheels of all that {environment.framework} needs."
        )
    indexes = {} if environment.wheels else environment.index.get(environment.variant, {})
    common = [pin for pin in pins if package_of(pin) not in indexes]
    if common:
        install_verified(environment, common, environment.pip_options)
    for pin in pins:
        if package_of(pin) in indexes:
            _install_from_own_index(environment, pin, indexes[package_of(pin)])


def link_cuda_libraries(environment: Environment) -> None:
    record = RECORDS[environment.framework]
    for packages in environment.path.glob("lib/python3*/site-packages") if record.links_cuda else ():
        package = packages / record.package
        for library in packages.glob("nvidia/*/lib/*.so*"):
            (package / library.name).symlink_to(os.path.relpath(library, package))


def _install_from_own_index(environment: Environment, pin: str, index: str) -> None:
    for options in ([], ["--index-url", index]):
        with suppress(NotInIndex):
            install_verified(environment, [pin], options)
            return
    raise UserError(
        f"{pin.split()[0]} is neither where pip on this machine looks nor in {index}: make that index reachable, or "
        "name a folder with its wheel. Example: -e framework_wheels=/efs/data/wheels"
    )


def install_verified(environment: Environment, pins: Sequence[str], options: Sequence[str] = ()) -> None:
    """Install pins from wheels that have one of the pinned checksums."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(pins) + "\n")
        file.flush()
        pip_install(environment, *options, *VERIFIED, "-r", file.name)


def pip_install(environment: Environment, *arguments: str) -> None:
    """Install without resolving: pins are complete. `_create` compiles everything at once, on all processors.

    What fails because of the network is repeated, as a machine may be up before the NAT gateway of its subnet.
    """
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--no-compile"]
    deadline = time.monotonic() + NETWORK_SECONDS
    while True:
        try:
            run([str(environment.python), "-m", "pip", "install", *options, *arguments])
            return
        except NoNetwork as error:
            if time.monotonic() + PAUSE_SECONDS > deadline:
                why = f"{environment.framework} cannot be installed within {NETWORK_SECONDS} s: {error}"
                raise UserError(why) from None
            time.sleep(PAUSE_SECONDS)  # between two attempts


def pip_error(output: str) -> UserError | None:
    """Return why pip refused a pin, or what of the network was missing."""
    other = re.search(r"^ +(\S+?)(?: from [^\n]*)?:\n +Expected sha256.*?^ +Got +([0-9a-f]{64})", output, re.M | re.S)
    if other:
        return UserError(
            f"{other[1]} is not what was published, and was not installed: its SHA-256 is {other[2]}, which is none of "
            f"the pinned checksums. Check the package index, or the folder of wheels, that pip uses on this machine."
        )
    for cause, pattern in PASSING.items():
        lines = [line for line in output.splitlines() if re.search(pattern, line)]
        if lines:
            return NoNetwork(f"{cause}. pip's own words: {lines[-1].strip()}")
    absent = re.search(r"No matching distribution found for (\S+)", output)
    return NotInIndex(f"{absent[1]} cannot be found as a wheel for this machine: {_absence()}") if absent else None


def _absence() -> str:
    if platform.machine() != "x86_64":
        return (
            f"its processor is {platform.machine()}, and some packages exist for x86_64 alone. Choose an instance type "
            "with a processor of Intel or AMD, or name a folder with wheels (docs/staging.md)."
        )
    return (
        "pip reaches no package index that has it. Make one reachable, or name a folder with wheels (docs/staging.md)."
    )


def _versions(environment: Environment) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}))"
    )
    versions: dict[str, str] = json.loads(run([str(environment.python), "-c", code]))
    return dict(sorted(versions.items()))


def write_marker(environment: Environment, marker: Mapping[str, Any]) -> None:
    """Mark the environment as complete."""
    _write(environment.path / paths.MARKER, marker)


def _write(path: Path, marker: Mapping[str, Any]) -> None:
    atomic_file.replace(str(path), f"{json.dumps(marker, indent=1)}\n".encode())


def run(command: Sequence[str], may_fail: bool = False, **variables: str) -> str:
    """Return what a command prints. Raise UserError if it fails and may not."""
    # In a folder from which Python cannot import anything by accident, and without another environment's variables.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = {**inherited, **variables}
    process = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    if process.returncode and not may_fail:
        error = pip_error(process.stderr) if "pip" in command else None
        reason = last_errors(process.stderr.strip() or process.stdout)
        raise error or UserError(f"{' '.join(command)} failed with {process.returncode}: {reason}")
    return process.stdout


def last_errors(output: str) -> str:
    """Return the last lines that name an error, or the last lines if none does."""
    lines = output.strip().splitlines()
    errors = [line for line in lines if "error" in line.lower()]
    return "\n".join((errors or lines)[-8:])
