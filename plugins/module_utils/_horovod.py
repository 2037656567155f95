# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Horovod, built once into a wheel for the very framework, Python, MPI, CUDA and NCCL that are here.

PRIVATE to the collection: it may change at any time. It imports nothing but the standard library and its neighbour, so
that whoever makes images can run it as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ansible_collections.deeplearning.aws.plugins.module_utils._environment import (
    VERIFIED,
    Unfit,
    Wanted,
    build,
    pip_problem,
)

# It also runs without Ansible, so it has no module whose run_command it could call.
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
"""A wheel in the folder that is named by all that it fits."""
SHA256 = re.compile(r"[0-9a-f]{64}")

MPI_FOLDERS = ("/opt/amazon/openmpi/bin", "/usr/lib64/openmpi/bin", "/usr/bin")
"""EFA's own Open MPI goes first, as on AWS's images."""
CUDA = Path("/usr/local/cuda")


class Kit:
    """What one framework needs for Horovod."""

    def __init__(self, package: str, module: str, switch: str, flags: str = "") -> None:
        self.package = package
        self.module = module
        self.switch = switch
        self.flags = flags


_TENSORFLOW = Kit("tensorflow", "horovod.tensorflow", "TENSORFLOW")
KITS: Mapping[str, Kit] = {
    "tensorflow": _TENSORFLOW,
    "tensorpack": _TENSORFLOW,
    # Its headers are C++20, which Horovod does not know of.
    "pytorch": Kit("torch", "horovod.torch", "PYTORCH", "-std=c++20"),
}


def key(wanted: Wanted, versions: Mapping[str, str]) -> str:
    """What a wheel fits, as the name of its folder."""
    package = KITS[wanted.framework].package
    framework = versions.get(package) or versions.get(f"{package}-cpu", "")
    major, minor = _asked(wanted, "import sys; print('%d %d' % sys.version_info[:2])").split()
    parts = [f"horovod-{VERSION}", f"{package}-{framework}", f"cp{major}{minor}", f"openmpi-{mpi_version()}"]
    if build() == "gpu":
        parts += [f"cuda-{cuda_version()}", f"nccl-{nccl_version(versions)}"]
    return "_".join([*parts, platform.machine()])


class Wheel(NamedTuple):
    """A wheel that was built: its path below the folder of wheels, and its checksum."""

    name: str
    sha256: str


def known_wheel(folder: str, key: str, checksums: Mapping[str, str]) -> str:
    """Return the name of the wheel that fits and whose checksum is known; empty if there is none. Others may write to
    the folder, so what else is in it does not count."""
    names = (name for name in checksums if WHEEL.fullmatch(name) and name.startswith(f"{key}/"))
    return next((name for name in names if Path(folder, name).is_file()), "")


@contextmanager
def verified(wheel: Path, sha256: str) -> Iterator[str]:
    """Yield the path of a copy that nobody else can change and that has this checksum."""
    with tempfile.TemporaryDirectory(prefix="horovod-") as scratch:
        copy = Path(scratch, wheel.name)
        shutil.copyfile(wheel, copy)
        digest = hashlib.sha256(copy.read_bytes()).hexdigest()
        if digest != sha256:
            raise Unfit(
                f"{wheel} is not the wheel that was built, and was not installed: its SHA-256 is {digest}, and should "
                f"be {sha256}. Find out who wrote it, remove it, and run the same command again."
            )
        yield str(copy)


def mpi_folder() -> str:
    for folder in MPI_FOLDERS:
        if os.path.exists(f"{folder}/mpirun"):
            return folder
    raise Unfit("there is no mpirun on this machine, which Horovod starts with: install Open MPI.")


def mpi_version() -> str:
    said = _output([f"{mpi_folder()}/mpirun", "--version"])
    found = re.search(r"\(Open MPI\) (\S+)", said)
    if not found:
        raise Unfit(f"{mpi_folder()}/mpirun is no Open MPI: {said.strip()[:80]}")
    return found[1]


def cuda_version() -> str:
    if not (CUDA / "bin/nvcc").exists():
        raise Unfit(
            f"this machine has GPUs and no {CUDA}/bin/nvcc, which builds Horovod for them: install CUDA's toolkit."
        )
    found = re.search(r"release ([\d.]+)", _output([str(CUDA / "bin/nvcc"), "--version"]))
    return found[1] if found else "unknown"


def nccl_version(versions: Mapping[str, str]) -> str:
    """The one that the framework brings along."""
    for name, version in versions.items():
        if name.startswith("nvidia-nccl-"):
            return version
    raise Unfit("this machine has GPUs, and the framework's environment has no NCCL: Horovod would be slow without.")


def make(wanted: Wanted, versions: Mapping[str, str], folder: str) -> Wheel:
    """Build the wheel, see that it has what is needed, and only then put it into the folder."""
    kit = KITS[wanted.framework]
    name = key(wanted, versions)
    with tempfile.TemporaryDirectory(prefix="horovod-") as scratch:
        work = Path(scratch)
        tools = _tools(wanted, work)
        source = _source(wanted, work, tools)
        _leave_out_xla(source)
        out = work / "out"
        ran = subprocess.run(
            [str(wanted.python), "setup.py", "-q", "bdist_wheel", "-d", str(out)],
            cwd=source,
            env=_environment(wanted, kit, work, tools),
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise Unfit(_why(f"{SPEC} could not be built for {name}", ran.stdout + ran.stderr))
        made = next(out.glob("*.whl"))
        _look_at(wanted, kit, made, work)
        _put(made, Path(folder) / name)
        return Wheel(f"{name}/{made.name}", hashlib.sha256(made.read_bytes()).hexdigest())


def _tools(wanted: Wanted, work: Path) -> Path:
    tools, pins = work / "tools", work / "tools.txt"
    pins.write_text(TOOLS, encoding="ascii")
    pip = [str(wanted.python), "-m", "pip", "install", "-q", "--no-deps", "--target", str(tools), *_from(wanted)]
    _must([*pip, *VERIFIED, "-r", str(pins)])
    return tools


def _source(wanted: Wanted, work: Path, tools: Path) -> Path:
    """Download the archive and unpack it. pip runs its setup.py for metadata, after it has compared the checksum."""
    pin = work / "source.txt"
    pin.write_text(SOURCE, encoding="ascii")
    _must(
        [str(wanted.python), "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
        + ["--no-binary", "horovod", *_from(wanted), "-d", str(work), "--require-hashes", "-r", str(pin)],
        env={**os.environ, "PYTHONPATH": str(tools)},
    )
    with tarfile.open(work / f"horovod-{VERSION}.tar.gz") as file:
        # Python 3.12 wants a filter to be chosen; Debian 12's 3.11.2 has none.
        file.extraction_filter = getattr(tarfile, "data_filter", None)
        file.extractall(work)
    return work / f"horovod-{VERSION}"


def _from(wanted: Wanted) -> Sequence[str]:
    return ["--disable-pip-version-check"] + (["--no-index", "--find-links", wanted.wheels] if wanted.wheels else [])


def _leave_out_xla(source: Path) -> None:
    """Collectives inside of XLA's programs: TensorFlow's wheels have not all of the headers that they need any more."""
    recipe = source / "horovod/tensorflow/CMakeLists.txt"
    lines = recipe.read_text(encoding="utf-8").splitlines(keepends=True)
    recipe.write_text("".join(line for line in lines if "xla_mpi_ops.cc" not in line), encoding="utf-8")


def _environment(wanted: Wanted, kit: Kit, work: Path, tools: Path) -> dict[str, str]:
    # What is said last counts: no debugging information, which takes as long again and ten times the room.
    compiler = work / "c++"
    compiler.write_text(f'#!/bin/sh\nexec g++ "$@" -g0 {kit.flags}\n', encoding="ascii")
    compiler.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOROVOD_"))}
    made = {
        **kept,
        "PATH": f"{tools}/bin:{wanted.place}/bin:{mpi_folder()}:{kept.get('PATH', os.defpath)}",
        "PYTHONPATH": str(tools),
        "CXX": str(compiler),
        "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
        "HOROVOD_CMAKE": f"{tools}/bin/cmake",
        "HOROVOD_WITH_MPI": "1",
        # Runs are started by Open MPI alone.
        "HOROVOD_WITHOUT_GLOO": "1",
        # Every processor since 2013 has these; what the builder's processor has beyond, others may lack.
        "HOROVOD_BUILD_ARCH_FLAGS": "-mf16c -mavx -mfma" if platform.machine() == "x86_64" else "",
        **{f"HOROVOD_WITHOUT_{other}": "1" for other in ("TENSORFLOW", "PYTORCH", "MXNET") if other != kit.switch},
        f"HOROVOD_WITH_{kit.switch}": "1",
    }
    if build() == "gpu":
        made |= {
            "HOROVOD_GPU_OPERATIONS": "NCCL",
            "HOROVOD_CUDA_HOME": str(CUDA),
            "HOROVOD_NCCL_HOME": str(_nccl(wanted, work)),
            "HOROVOD_NCCL_LINK": "SHARED",
        }
    return made


def _nccl(wanted: Wanted, work: Path) -> Path:
    """The framework's own NCCL, where a linker finds it: its wheel leaves out the name without a number."""
    (found,) = (wanted.place / "lib").glob("python3.*/site-packages/nvidia/nccl")
    home = work / "nccl"
    (home / "lib").mkdir(parents=True)
    (home / "include").symlink_to(found / "include")
    (home / "lib/libnccl.so").symlink_to(found / "lib/libnccl.so.2")
    return home


def _look_at(wanted: Wanted, kit: Kit, wheel: Path, work: Path) -> None:
    """A build that lacks what was asked for would train, slowly."""
    place = work / "look"
    pip = [str(wanted.python), "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(place)]
    _must([*pip, str(wheel)])
    ask = f"import json, {kit.module} as h; print(json.dumps([bool(h.mpi_built()), bool(h.nccl_built())]))"
    said = _asked(wanted, ask, {**os.environ, "PYTHONPATH": str(place)}).splitlines()[-1]
    mpi, nccl = json.loads(said)
    needed = {"MPI": mpi, **({"NCCL": nccl} if build() == "gpu" else {})}
    missing = [what for what, there in needed.items() if not there]
    if missing:
        raise Unfit(f"{SPEC} was built without {' and '.join(missing)}: it is not used.")


def _put(wheel: Path, place: Path) -> None:
    """By a rename: other nodes see all of it or nothing."""
    place.mkdir(parents=True, exist_ok=True)
    new = place / f".{wheel.name}.{os.uname().nodename}"
    shutil.copyfile(wheel, new)
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(place / wheel.name)


def _asked(wanted: Wanted, code: str, env: Mapping[str, str] | None = None) -> str:
    return _must([str(wanted.python), "-c", code], env)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _must(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        if problem := pip_problem(ran.stderr):
            raise problem
        raise Unfit(_why(f"{' '.join(command)} failed with {ran.returncode}", ran.stderr or ran.stdout))
    return ran.stdout


def _why(sentence: str, output: str) -> str:
    lines = output.strip().splitlines()
    errors = [line for line in lines if "error" in line.lower()]
    return f"{sentence}: " + "\n".join((errors or lines)[-8:])
