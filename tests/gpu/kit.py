"""NVIDIA's parts on a machine without a GPU: a stand-in for the driver's library, and a real toolkit of CUDA 12."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.debian import kept_packages

DRIVER_FUNCTIONS = (
    # What programs ask first.
    "cuDeviceGetCount",
    "cuDriverGetVersion",
    "cuGetProcAddress",
    "cuInit",
    # What MXNet's library needs to be opened (nm -D --undefined-only libmxnet.so).
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuGetErrorString",
    "cuGraphKernelNodeGetParams",
    "cuGraphNodeGetType",
    "cuLaunchKernel",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
)
NO_DEVICE = 100

PUBLISHED_TOOLKIT = "cuda-13.0"
PUBLISHED_COMPILER = (
    *(f"nvidia-{name}==13.0.88" for name in ("cuda-nvcc", "cuda-crt", "nvvm")),
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
)
"""NVIDIA's own wheels of the compiler."""

TOOLKIT = "cuda-12.4"
DECOY = "cuda-13.2"
"""On AWS's images /usr/local/cuda leads to the newest toolkit, next to older ones."""
PACKAGES = ("nvidia-cuda-toolkit", "nvidia-cuda-dev", "libcudart12", "libcu++-dev")
MEMBERS = (
    "./usr/bin/*",
    "./usr/include/*",
    "./usr/lib/nvidia-cuda-toolkit/bin/*",
    "./usr/lib/nvidia-cuda-toolkit/libdevice/*",
    "./usr/lib/x86_64-linux-gnu/libcuda*",
)
"""Those that compile and link: 150 MB of 2.7 GB."""
PROFILE = """\
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
"""
"""Where nvcc finds its parts, relative to itself. Debian's own file has absolute paths."""


def build_driver(folder: Path) -> Path:
    """Build a libcuda.so.1 that has no device, as on a machine whose GPUs are all gone, and return its path."""
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in DRIVER_FUNCTIONS))
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, source], check=True)
    source.unlink()
    return library


def put_toolkits(folder: Path) -> None:
    """Create a toolkit of CUDA 12 in NVIDIA's layout from Debian 13's packages, and a newer one that cannot compile."""
    packages = kept_packages("trixie", PACKAGES, MEMBERS) / "usr"
    toolkit, own = folder / TOOLKIT, packages / "lib/nvidia-cuda-toolkit"
    # Debian's bin/nvcc is a script that runs the real one by an absolute path.
    shutil.copytree(packages / "bin", toolkit / "bin", symlinks=True, ignore=shutil.ignore_patterns("nvcc"))
    shutil.copy(own / "bin/nvcc", toolkit / "bin")
    shutil.copytree(own / "bin/crt", toolkit / "bin/crt")
    (toolkit / "nvvm/bin").mkdir(parents=True)
    shutil.copy(own / "bin/cicc", toolkit / "nvvm/bin")
    shutil.copytree(own / "libdevice", toolkit / "nvvm/libdevice")
    shutil.copytree(packages / "include", toolkit / "include")
    shutil.copytree(packages / "lib/x86_64-linux-gnu", toolkit / "lib64", symlinks=True)
    (toolkit / "bin/nvcc.profile").write_text(PROFILE)
    decoy = folder / DECOY / "bin/nvcc"
    decoy.parent.mkdir(parents=True)
    decoy.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'release {DECOY.removeprefix('cuda-')}, V'\n")
    decoy.chmod(0o755)
    (folder / "cuda").symlink_to(DECOY)


def put_published_toolkit(folder: Path, libraries: Path) -> None:
    """Create a toolkit of CUDA 13 in NVIDIA's layout: the compiler of NVIDIA's wheels, with the headers of libraries
    that an environment has in the folder nvidia/cu13 of its packages."""
    toolkit = folder / PUBLISHED_TOOLKIT
    wheels = folder / f"{PUBLISHED_TOOLKIT}.wheels"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(wheels)]
    subprocess.run([*pip, *PUBLISHED_COMPILER], check=True)
    shutil.move(wheels / "nvidia/cu13", toolkit)
    shutil.rmtree(wheels)
    shutil.copytree(libraries / "include", toolkit / "include", dirs_exist_ok=True)
    (toolkit / "lib64").symlink_to("lib")
    # Wheels have no names for the linker.
    (toolkit / "lib/libcudart.so").symlink_to("libcudart.so.13")
