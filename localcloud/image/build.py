"""Builds images: a base by mmdebstrap, and layers with framework environments on top of it."""

from __future__ import annotations

import os
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

Progress = Callable[[str], None]

_UNUSED_SECONDS = 14 * 86400


def base_image(images: Path, progress: Progress) -> Path:
    """The folder of the base image, built if it is not there."""
    folder = images / f"base-{base_hash()}"
    if not folder.is_dir():
        _in_place(folder, lambda scratch: _build_base(scratch, images / "packages", progress), progress)
    os.utime(folder)
    return folder


def feature_image(images: Path, names: Sequence[str], progress: Progress) -> tuple[Path, Path]:
    """The layers of an image with these features: the base, and what they add to it."""
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise Refusal(f"image feature {', '.join(unknown)} does not exist: give any of {', '.join(sorted(FEATURES))}.")
    chosen = tuple(sorted(set(names)))
    base = base_image(images, progress)
    layer = images / f"{'-'.join(chosen)}-{feature_hash(chosen)}"
    if not layer.is_dir():
        _in_place(layer, lambda scratch: _build_features(base, scratch, images / "wheels", chosen, progress), progress)
    return base, layer


def built_feature_images(images: Path) -> dict[tuple[str, ...], Path]:
    """The layers that are there and that the recipes of today would give."""
    import itertools

    found = {}
    for count in range(1, len(FEATURES) + 1):
        for names in itertools.combinations(sorted(FEATURES), count):
            layer = images / f"{'-'.join(names)}-{feature_hash(names)}"
            if layer.is_dir():
                found[names] = layer
    return found


def _in_place(folder: Path, build: Callable[[Path], None], progress: Progress) -> None:
    """Build beside the final place and rename: an image is whole or it is not there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.with_name(f".building-{folder.name}-{os.getpid()}")
    started = time.monotonic()
    try:
        build(scratch)
        scratch.rename(folder)
    except subprocess.CalledProcessError as error:
        free = shutil.disk_usage(folder.parent).free // 2**20
        tail = (error.stderr or b"").decode(errors="replace").strip().splitlines()[-6:]
        raise Refusal(
            f"image {folder.name} could not be built: {Path(str(error.cmd[0])).name} failed with {error.returncode} "
            f"({free} MiB are free in {folder.parent}). Its last words:\n  " + "\n  ".join(tail)
        ) from error
    except OSError as error:
        raise Refusal(f"image {folder.name} could not be built: {error}.") from error
    finally:
        remove(scratch)
    progress(f"image {folder.name} is ready after {time.monotonic() - started:.0f} s")


def tidy(images: Path) -> None:
    """Remove what a build that was killed has left, and images that no recipe gives any more and nobody has used for
    long (another checkout may still use them)."""
    for scratch in (*images.glob(".building-*"), *images.glob("wheels/.building-*")):
        remove(scratch)
    current = {base_hash(), *(path.name.rpartition("-")[2] for path in built_feature_images(images).values())}
    for image in images.glob("*-????????????"):
        if image.name.rpartition("-")[2] not in current and time.time() - image.stat().st_mtime > _UNUSED_SECONDS:
            remove(image)


def _build_base(scratch: Path, cache: Path, progress: Progress) -> None:
    progress(f"building the base image: Debian {SUITE} with {len(PACKAGES)} packages and what they need")
    cache.mkdir(parents=True, exist_ok=True)
    _mmdebstrap(scratch, cache, progress)
    progress("putting our files into it")
    shutil.copytree(FILES, scratch, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in FILES.rglob("*"):
        if "__pycache__" not in path.parts:
            inside = scratch / path.relative_to(FILES)
            os.chown(inside, 0, 0)
            inside.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
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
    # Without this, each start of Open MPI's daemon looks for X displays for five seconds.
    (scratch / "etc/environment").write_text("HWLOC_COMPONENTS=-gl\n", encoding="ascii")
    run(["chroot", str(scratch), "python3", "-m", "compileall", "-q", "/usr/lib/python3/dist-packages/cloudinit"])


def _mmdebstrap(scratch: Path, cache: Path, progress: Progress) -> None:
    """Packages are kept in a cache of our own, so that the next build need not fetch them."""
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
        said = []
        for line in process.stderr or ():
            said.append(line)
            if line.startswith("I: ") and "..." in line:
                progress(line[3:].strip())
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr="".join(said).encode())


def _build_features(base: Path, scratch: Path, wheels: Path, names: Sequence[str], progress: Progress) -> None:
    with overlay(base, scratch, beside=str(scratch)) as merged:
        features.build(merged, base, wheels, names, progress)


def say(line: str) -> None:
    """Progress for a person: on standard error, so that what a command answers stays clean."""
    print(f"localcloud: {line}", file=sys.stderr, flush=True)
