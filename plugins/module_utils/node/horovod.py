# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Build Horovod into a wheel for this machine's framework, Python, MPI, CUDA and NCCL, and find wheels that fit.

It imports only the standard library, the contract and `python_env`, so that the local cloud can run it in an image
without Ansible.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..contract import atomic_file, cuda_toolkits, open_mpi
from ..contract.cuda_toolkits import Toolkit
from ..contract.errors import UserError
from ..contract.frameworks import RECORDS
from . import python_env
from .python_env import Environment

# It also runs without Ansible, so it cannot use run_command of a module.
# pylint: disable=ansible-bad-function

VERSION = "0.28.1"
SPEC = f"horovod=={VERSION}"
# The archive horovod-0.28.1.tar.gz, as PyPI has it since 2023.
SOURCE = f"{SPEC} --hash=sha256:92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"

# Its last release is from 2023, and is built with tools of its time. CMake's wheels for x86_64 and aarch64.
TOOLS = """\
cmake==3.27.9 \\
    --hash=sha256:434714990d82e3c3936a726c1706c6a1d5a34964a7415d1433af0904a994e414 \\
    --hash=sha256:d8306b6e4442496dc1d87e3e64394ebbf02c04f1c6324a1a37cad3695f7d835a
packaging==24.0 --hash=sha256:2ddfb553fdf02fb784c234c7ba6ccc288296ceabec964ad2eae3777778130bc5
setuptools==69.5.1 --hash=sha256:c636ac361bc47580504644275c9ad802c50415c7522212252c033bd15f301f32
wheel==0.43.0 --hash=sha256:55c570405f142630c6b9f72fe09d9b67cf1477fcf543ae5b8dcb1f5b7377da81
"""

WHEEL = re.compile(r"horovod-[A-Za-z0-9.+_-]+/horovod-[A-Za-z0-9.+_-]+\.whl")
"""The path of a wheel below the folder of wheels. Its own folder is named by all that it fits."""
OWNER = 0
"""Only wheels of this user are installed that another play has built."""

SWITCHES = {"tensorflow": "TENSORFLOW", "torch": "PYTORCH", "mxnet": "MXNET"}
"""Horovod's names of the packages that it can be built for."""


def extra_package(framework: str) -> str:
    """Return the pin of Horovod if the framework trains with it, otherwise an empty text."""
    return SPEC if RECORDS[framework].has_horovod else ""


def wheel_key(environment: Environment, versions: Mapping[str, str]) -> str:
    """Return all that a wheel for this environment has to fit, as the name of its folder."""
    package = RECORDS[environment.framework].package
    framework = versions.get(package) or versions.get(f"{package}-cpu", "")
    python = python_env.python_version(environment.python).replace(".", "")
    parts = [f"horovod-{VERSION}", f"{package}-{framework}", f"cp{python}", f"openmpi-{mpi_version()}"]
    if environment.variant == "gpu":
        parts += [f"cuda-{find_toolkit(versions).version}", f"nccl-{_version_of('nvidia-nccl', versions)}"]
    return "_".join([*parts, platform.machine()])


class Wheel(NamedTuple):
    """A wheel that was built: its path below the folder of wheels, and its checksum."""

    name: str
    sha256: str


def find_wheel(folder: str, key: str, checksums: Mapping[str, str]) -> Wheel | None:
    """Return a wheel that fits: one with a known checksum, or else one that root has built before."""
    names = (name for name in checksums if WHEEL.fullmatch(name) and name.startswith(f"{key}/"))
    known = next((Wheel(name, checksums[name]) for name in names if Path(folder, name).is_file()), None)
    return known or _built_before(folder, key)


def _built_before(folder: str, key: str) -> Wheel | None:
    """Return a wheel that fits, with its checksum, if only root can have put it there."""
    place = Path(folder, key)
    if folder and all(_is_roots(path, stat.S_ISDIR) for path in (place.parent, place)):
        for wheel in sorted(place.iterdir()):
            if WHEEL.fullmatch(f"{key}/{wheel.name}") and _is_roots(wheel, stat.S_ISREG):
                return Wheel(f"{key}/{wheel.name}", hashlib.sha256(wheel.read_bytes()).hexdigest())
    return None


def _is_roots(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Return whether the path belongs to root, is no link, and cannot be written by others."""
    try:
        seen = path.lstat()
    except OSError:
        return False
    return is_kind(seen.st_mode) and seen.st_uid == OWNER and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@contextmanager
def verified_copy(wheel: Path, sha256: str) -> Iterator[str]:
    """Yield the path of a private copy of the wheel. Raise UserError if it has another checksum."""
    with tempfile.TemporaryDirectory(prefix="horovod-") as scratch:
        copy = Path(scratch, wheel.name)
        shutil.copyfile(wheel, copy)
        digest = hashlib.sha256(copy.read_bytes()).hexdigest()
        if digest != sha256:
            raise UserError(
                f"{wheel} is not the wheel that was built, and was not installed: its SHA-256 is {digest}, and should "
                f"be {sha256}. Find out who wrote it, remove it, and run the same command again."
            )
        yield str(copy)


def mpi_folder() -> str:
    """Return the folder of the mpirun that Horovod is built for."""
    for folder in open_mpi.FOLDERS:
        if os.path.exists(f"{folder}/mpirun"):
            return folder
    raise UserError("this machine has no mpirun, which Horovod starts with: install Open MPI.")


def has_amazons_mpi() -> bool:
    """Return whether an Open MPI of AWS's images exists, which brings its own headers."""
    return any(os.path.exists(f"{folder}/mpirun") for folder in open_mpi.AMAZON_FOLDERS)


def mpi_version() -> str:
    output = python_env.run([f"{mpi_folder()}/mpirun", "--version"], may_fail=True)
    version = re.search(r"\(Open MPI\) (\S+)", output)
    if not version:
        raise UserError(f"{mpi_folder()}/mpirun is not of Open MPI: {output.strip()[:80]}. Install Open MPI.")
    return version[1]


def find_toolkit(versions: Mapping[str, str]) -> Toolkit:
    """Return the toolkit that builds Horovod: of the framework's CUDA, or of the nearest minor version."""
    needed = _version_of(cuda_toolkits.RUNTIME, versions)
    if toolkit := cuda_toolkits.fitting(needed):
        return toolkit
    major, minor = cuda_toolkits.numbers(needed)[:2]
    present = ", ".join(sorted({toolkit.version for toolkit in cuda_toolkits.toolkits()})) or "none"
    raise UserError(
        f"Horovod needs a toolkit of CUDA {major}, as the framework's packages are for {major}.{minor}, and "
        f"{cuda_toolkits.FOLDER} has these: {present}. Install one, such as NVIDIA's package cuda-toolkit-{major}-9, "
        "or use an image that has one."
    )


def _version_of(package: str, versions: Mapping[str, str]) -> str:
    if version := cuda_toolkits.version_of(package, versions):
        return version
    raise UserError(f"this machine has GPUs, and the framework's environment has no {package}, which Horovod needs.")


def build(environment: Environment, versions: Mapping[str, str], folder: str) -> Wheel:
    """Build a wheel, verify that it has MPI and NCCL as needed, and only then put it into the folder."""
    name = wheel_key(environment, versions)
    with tempfile.TemporaryDirectory(prefix="horovod-") as scratch:
        work = Path(scratch)
        tools = _install_tools(environment, work)
        source = _download_source(environment, work, tools)
        _disable_xla_operations(source)
        out = work / "out"
        process = subprocess.run(
            [str(environment.python), "setup.py", "-q", "bdist_wheel", "-d", str(out)],
            cwd=source,
            env=_variables(environment, work, tools, versions),
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            reason = python_env.last_errors(process.stdout + process.stderr)
            raise UserError(f"{SPEC} could not be built for {name}: {reason}")
        wheel = next(out.glob("*.whl"))
        _verify(environment, wheel, work)
        content = wheel.read_bytes()
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        # Other nodes never see a part of it.
        atomic_file.replace(f"{folder}/{name}/{wheel.name}", content)
        return Wheel(f"{name}/{wheel.name}", hashlib.sha256(content).hexdigest())


def _install_tools(environment: Environment, work: Path) -> Path:
    tools = work / "tools"
    python_env.install_verified(
        environment, python_env.split_pins(TOOLS), ["--target", str(tools), *environment.pip_options]
    )
    return tools


def _download_source(environment: Environment, work: Path, tools: Path) -> Path:
    """Download and unpack the source archive. pip runs its setup.py for metadata after it has verified the checksum."""
    pin = work / "source.txt"
    pin.write_text(SOURCE, encoding="ascii")
    options = ["-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    options += ["--no-binary", "horovod", *environment.pip_options, "-d", str(work), "--require-hashes", "-r", str(pin)]
    python_env.run([str(environment.python), "-m", "pip", "download", *options], PYTHONPATH=str(tools))
    with tarfile.open(work / f"horovod-{VERSION}.tar.gz") as file:
        # Python 3.12 warns without a filter; Debian 12's Python 3.11.2 has none.
        file.extraction_filter = getattr(tarfile, "data_filter", None)
        file.extractall(work)
    return work / f"horovod-{VERSION}"


def _disable_xla_operations(source: Path) -> None:
    """Leave out collectives in XLA programs: TensorFlow's wheels no longer have all headers that these need."""
    recipe = source / "horovod/tensorflow/CMakeLists.txt"
    lines = recipe.read_text(encoding="utf-8").splitlines(keepends=True)
    recipe.write_text("".join(line for line in lines if "xla_mpi_ops.cc" not in line), encoding="utf-8")


def _variables(environment: Environment, work: Path, tools: Path, versions: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of the build."""
    switch = SWITCHES[RECORDS[environment.framework].package]
    # The last option counts: no debugging information, which doubles the time and needs ten times the space.
    compiler = work / "c++"
    compiler.write_text('#!/bin/sh\nexec g++ "$@" -g0\n', encoding="ascii")
    compiler.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOROVOD_"))}
    variables = {
        **inherited,
        "PATH": f"{tools}/bin:{environment.path}/bin:{mpi_folder()}:{inherited.get('PATH', os.defpath)}",
        "PYTHONPATH": str(tools),
        "CXX": str(compiler),
        "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
        "HOROVOD_CMAKE": f"{tools}/bin/cmake",
        "HOROVOD_WITH_MPI": "1",
        # Runs are started by Open MPI alone.
        "HOROVOD_WITHOUT_GLOO": "1",
        # Every processor since 2013 has these. Other nodes may lack further features of this processor.
        "HOROVOD_BUILD_ARCH_FLAGS": "-mf16c -mavx -mfma" if platform.machine() == "x86_64" else "",
        **{f"HOROVOD_WITHOUT_{other}": "1" for other in SWITCHES.values() if other != switch},
        f"HOROVOD_WITH_{switch}": "1",
    }
    if environment.variant == "gpu":
        toolkit = find_toolkit(versions)
        variables |= {
            # Horovod's scripts take the first nvcc of PATH.
            "PATH": f"{toolkit.folder}/bin:{variables['PATH']}",
            "HOROVOD_GPU_OPERATIONS": "NCCL",
            "HOROVOD_CUDA_HOME": str(toolkit.folder),
            "HOROVOD_NCCL_HOME": str(_nccl_home(environment)),
            "HOROVOD_NCCL_LINK": "SHARED",
        }
    return variables


def _nccl_home(environment: Environment) -> Path:
    """Return the folder of the framework's NCCL, with a link that linkers need: the wheel has only libnccl.so.2.

    The linker records this folder in Horovod's library. It is the same on all nodes.
    """
    (nccl,) = (environment.path / "lib").glob("python3.*/site-packages/nvidia/nccl")
    link = nccl / "lib/libnccl.so"
    if not link.is_symlink():
        link.symlink_to("libnccl.so.2")
    return nccl


LOADED = """
import json, {module} as h
libraries = {{line.split()[-1] for line in open("/proc/self/maps") if "/lib" in line}}
print(json.dumps([bool(h.mpi_built()), bool(h.nccl_built()), sorted(libraries)]))
"""


def _verify(environment: Environment, wheel: Path, work: Path) -> None:
    """Raise UserError if the wheel lacks MPI or NCCL: it would train, but slowly. Or if it loads others."""
    site = work / "site"
    python_env.pip_install(environment, "--no-index", "--target", str(site), str(wheel))
    program = LOADED.format(module=f"horovod.{RECORDS[environment.framework].package}")
    output = python_env.run([str(environment.python), "-c", program], PYTHONPATH=str(site))
    mpi, nccl, libraries = json.loads(output.splitlines()[-1])
    needed = {"MPI": mpi, **({"NCCL": nccl} if environment.variant == "gpu" else {})}
    missing = [name for name, present in needed.items() if not present]
    if missing:
        raise UserError(f"{SPEC} was built without {' and '.join(missing)}: it is not used.")
    folders = {"libmpi.so": Path(mpi_folder()).parent, "libnccl.so": environment.path}
    for library, folder in folders.items():
        others = [path for path in libraries if f"/{library}" in path and not _is_below(path, folder)]
        if others:
            raise UserError(
                f"{SPEC} loads {', '.join(others)}, and runs use the {library} in {folder}: remove the first, or take "
                "it out of the loader's cache (/etc/ld.so.conf.d)."
            )


def _is_below(path: str, folder: Path) -> bool:
    return folder.resolve() in Path(path).resolve().parents
