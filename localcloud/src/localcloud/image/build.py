"""Builds images: a base by mmdebstrap, and layers with framework environments on top of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from localcloud.core.errors import Refusal
from localcloud.image import features
from localcloud.image.features import FEATURES, feature_hash
from localcloud.image.mounting import overlay, remove, run
from localcloud.image.recipe import FILES, MASKED, PACKAGES, SUITE, base_hash
from localcloud.state import only_builder

Progress = Callable[[str], None]

_UNUSED_SECONDS = 14 * 86400


def base_image(images: Path, progress: Progress) -> Path:
    """Return the folder of the base image, and build it if it is missing."""
    folder = images / f"base-{base_hash()}"
    if not folder.is_dir():
        _build_atomically(folder, lambda scratch: _build_base(scratch, images / "packages", progress), progress)
    os.utime(folder)
    return folder


def feature_image(images: Path, names: Sequence[str], progress: Progress) -> tuple[Path, Path]:
    """Return the layers of an image with these features: the base, and the layer over it."""
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise Refusal(f"image feature {', '.join(unknown)} does not exist; choose from {', '.join(sorted(FEATURES))}.")
    chosen = tuple(sorted(set(names)))
    base = base_image(images, progress)
    layer = images / f"{'-'.join(chosen)}-{feature_hash(chosen)}"
    if not layer.is_dir():
        _build_atomically(
            layer, lambda scratch: _build_features(base, scratch, images / "wheels", chosen, progress), progress
        )
    return base, layer


def built_feature_images(images: Path) -> dict[tuple[str, ...], Path]:
    """Return the existing layers that match the current recipes."""
    import itertools

    layers = {}
    for count in range(1, len(FEATURES) + 1):
        for names in itertools.combinations(sorted(FEATURES), count):
            layer = images / f"{'-'.join(names)}-{feature_hash(names)}"
            if layer.is_dir():
                layers[names] = layer
    return layers


def _build_atomically(folder: Path, build: Callable[[Path], None], progress: Progress) -> None:
    """Build next to the folder and rename, so that an image is complete or missing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.with_name(f".building-{folder.name}-{os.getpid()}")
    started = time.monotonic()
    try:
        with only_builder(folder.name):
            # Another process may have built it while this one waited.
            if folder.is_dir():
                return
            build(scratch)
            scratch.rename(folder)
    except subprocess.CalledProcessError as error:
        free = shutil.disk_usage(folder.parent).free // 2**20
        tail = (error.stderr or b"").decode(errors="replace").strip().splitlines()[-6:]
        raise Refusal(
            f"image {folder.name} could not be built: {Path(str(error.cmd[0])).name} failed with {error.returncode} "
            f"({free} MiB are free in {folder.parent}). Its last lines:\n  " + "\n  ".join(tail)
        ) from error
    except OSError as error:
        raise Refusal(f"image {folder.name} could not be built: {error}.") from error
    finally:
        remove(scratch)
    progress(f"image {folder.name} is ready after {time.monotonic() - started:.0f} s")


_BUILDER = re.compile(r"-(\d+)(?:\.work|\.merged)?$")
"""The process at the end of a scratch folder's name. Those of mounts have a suffix."""


def tidy(images: Path) -> None:
    """Remove leftovers of killed builds, and images of other recipes that were not used for two weeks (another checkout
    may use them)."""
    for scratch in (*images.glob(".building-*"), *images.glob("wheels/.building-*")):
        builder = _BUILDER.search(scratch.name)
        if not (builder and Path("/proc", builder[1]).exists()):
            remove(scratch)
    current = {base_hash(), *(path.name.rpartition("-")[2] for path in built_feature_images(images).values())}
    for image in images.glob("*-????????????"):
        if image.name.rpartition("-")[2] not in current and time.time() - image.stat().st_mtime > _UNUSED_SECONDS:
            remove(image)


def _build_base(scratch: Path, cache: Path, progress: Progress) -> None:
    progress(f"building the base image: Debian {SUITE} with {len(PACKAGES)} packages and what they need")
    cache.mkdir(parents=True, exist_ok=True)
    _mmdebstrap(scratch, cache, progress)
    progress("copying the local cloud's files")
    shutil.copytree(FILES, scratch, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in FILES.rglob("*"):
        if "__pycache__" not in path.parts:
            copy = scratch / path.relative_to(FILES)
            os.chown(copy, 0, 0)
            copy.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    scratch.chmod(0o755)
    for unit in MASKED:
        link = scratch / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for key in (scratch / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (scratch / "etc/hostname").unlink(missing_ok=True)
    (scratch / "etc/machine-id").write_text("", encoding="ascii")
    (scratch / "etc/hosts").write_text(
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n", encoding="ascii"
    )
    # Without this, each start of Open MPI's daemon searches for X displays for five seconds.
    (scratch / "etc/environment").write_text("HWLOC_COMPONENTS=-gl\n", encoding="ascii")
    run(["chroot", str(scratch), "python3", "-m", "compileall", "-q", "/usr/lib/python3/dist-packages/cloudinit"])


def _mmdebstrap(scratch: Path, cache: Path, progress: Progress) -> None:
    """Install Debian's packages, which a cache keeps for the next build."""
    archives = "/var/cache/apt/archives"
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        "--skip=download/empty",
        "--skip=essential/unlink",
        "--aptopt=Apt::Install-Recommends false",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--dpkgopt=force-unsafe-io",
        f'--setup-hook=mkdir -p "$1{archives}/partial" && (cp -al "{cache}/." "$1{archives}/" || true)',
        f'--customize-hook=cp -nl "$1{archives}"/*.deb "{cache}/" || true',
        SUITE,
        str(scratch),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stderr or ():
            lines.append(line)
            if line.startswith("I: ") and "..." in line:
                progress(line[3:].strip())
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr="".join(lines).encode())


def _build_features(base: Path, scratch: Path, wheels: Path, names: Sequence[str], progress: Progress) -> None:
    with overlay(base, scratch, prefix=str(scratch)) as merged:
        features.build(merged, base, wheels, names, progress)


def print_progress(line: str) -> None:
    """Print progress on standard error, as standard output is for the result of a command."""
    print(f"localcloud: {line}", file=sys.stderr, flush=True)
