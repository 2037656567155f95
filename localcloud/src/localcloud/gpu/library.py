"""The library that answers in place of NVIDIA's. It is compiled on this machine when it is needed first, and kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from localcloud.core.errors import Refusal

NAME = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("nvml.c")
# C11 without GNU's extensions: a newer glibc would otherwise demand itself in the machines as well.
COMPILE = ("cc", "-std=c11", "-D_DEFAULT_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def build(cache: Path) -> Path:
    """Return the path of the library, which has its usual name in a folder of its own below the cache."""
    digest = hashlib.sha256(" ".join(COMPILE).encode() + SOURCE.read_bytes()).hexdigest()[:16]
    library = cache / digest / NAME
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may compile it at the same time.
    incomplete = library.with_name(f"{os.getpid()}.incomplete")
    try:
        done = subprocess.run([*COMPILE, "-o", incomplete, SOURCE], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Refusal("machines with GPUs need a C compiler on this host: apt-get install gcc libc6-dev.") from None
    if done.returncode:
        raise Refusal(f"{SOURCE} cannot be compiled (apt-get install gcc libc6-dev): {done.stderr.strip()}")
    incomplete.rename(library)
    return library
