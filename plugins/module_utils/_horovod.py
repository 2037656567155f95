# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Horovod, built once into a wheel for the very framework, Python, MPI, CUDA and NCCL that are here.

PRIVATE to the collection: it may change at any time. It imports nothing but the standard library and its neighbour, so
that whoever makes images can run it as it is.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.deeplearning.aws.plugins.module_utils._environment import Unfit, Wanted, build

VERSION = "0.28.1"
SPEC = f"horovod=={VERSION}"
# Of horovod-0.28.1.tar.gz, as PyPI gave it on 2026-11-21.
SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"

# Its last release is from 2023, and is built with tools of its time.
TOOLS = ("cmake==3.27.9", "setuptools==69.5.1", "wheel==0.43.0", "packaging==24.0")

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


def wheel_in(folder: str, name: str) -> str:
    """The path of the wheel that was built for this. Empty: there is none."""
    found = glob.glob(f"{glob.escape(folder)}/{glob.escape(name)}/horovod-*.whl")
    return found[0] if found else ""


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


def make(wanted: Wanted, versions: Mapping[str, str], folder: str) -> str:
    """Build the wheel, see that it has what is needed, and only then put it into the folder: its path."""
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
        return _put(made, Path(folder) / name)


def _tools(wanted: Wanted, work: Path) -> Path:
    tools = work / "tools"
    _must([str(wanted.python), "-m", "pip", "install", "-q", "--target", str(tools), *_from(wanted), *TOOLS])
    return tools


def _source(wanted: Wanted, work: Path, tools: Path) -> Path:
    _must(
        [str(wanted.python), "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
        + ["--no-binary", "horovod", *_from(wanted), "-d", str(work), SPEC],
        env={**os.environ, "PYTHONPATH": str(tools)},
    )
    archive = work / f"horovod-{VERSION}.tar.gz"
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise Unfit(f"{archive.name} is not the one that was published: its SHA-256 is another than {SHA256}.")
    with tarfile.open(archive) as file:
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


def _put(wheel: Path, place: Path) -> str:
    """By a rename: other nodes see all of it or nothing."""
    place.mkdir(parents=True, exist_ok=True)
    new = place / f".{wheel.name}.{os.uname().nodename}"
    shutil.copyfile(wheel, new)
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(place / wheel.name)
    return str(place / wheel.name)


def _asked(wanted: Wanted, code: str, env: Mapping[str, str] | None = None) -> str:
    return _must([str(wanted.python), "-c", code], env)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _must(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Unfit(_why(f"{' '.join(command)} failed with {ran.returncode}", ran.stderr or ran.stdout))
    return ran.stdout


def _why(sentence: str, output: str) -> str:
    lines = output.strip().splitlines()
    errors = [line for line in lines if "error" in line.lower()]
    return f"{sentence}: " + "\n".join((errors or lines)[-8:])
