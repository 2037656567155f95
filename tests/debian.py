"""Programs of Debian's packages that only tests use. They are fetched when they are missing, and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deeplearning-tests"
QUIET = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}


def unpacked_program(name: str, package: str) -> str:
    """Return the path of a program that needs nothing but its file. Its package is unpacked, not installed: that would
    start its services on this machine."""
    installed = shutil.which(name)
    if installed:
        return installed
    folder = CACHE / package
    with _alone(package):
        if not folder.exists():
            incomplete = folder.with_suffix(".incomplete")
            shutil.rmtree(incomplete, ignore_errors=True)
            incomplete.mkdir()
            _run("apt-get", "download", "-q", package, cwd=incomplete, update=True)
            (archive,) = incomplete.glob("*.deb")
            _run("dpkg", "-x", str(archive), str(incomplete), cwd=incomplete)
            incomplete.rename(folder)
    return str(folder / "usr/bin" / name)


def installed_program(name: str, *packages: str) -> str:
    """Return the path of a program. Install it with its dependencies if it is missing, as root."""
    with _alone("install"):
        if not shutil.which(name):
            words = ("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)
            _run(*words, cwd=CACHE, update=True)
    path = shutil.which(name)
    assert path, f"{' '.join(packages)} did not bring {name}"
    return path


def kept_packages(suite: str, names: Sequence[str], members: Sequence[str]) -> Path:
    """Return a folder with those members of packages of another suite, non-free ones included. They may need each
    other, and are neither installed nor all that they depend on."""
    folder = CACHE / f"{suite}-{names[0]}"
    with _alone(folder.name):
        if not folder.exists():
            incomplete = folder.with_suffix(".incomplete")
            shutil.rmtree(incomplete, ignore_errors=True)
            for part in ("lists/partial", "cache/archives/partial", "archives"):
                (incomplete / part).mkdir(parents=True)
            options = _apt_options(incomplete, suite)
            _run("apt-get", *options, "update", "-q", cwd=incomplete)
            _run("apt-get", *options, "download", "-q", *names, cwd=incomplete / "archives")
            for archive in (incomplete / "archives").iterdir():
                _extract(archive, members, incomplete)
            for part in ("lists", "cache", "archives"):
                shutil.rmtree(incomplete / part)
            incomplete.rename(folder)
    return folder


def _apt_options(folder: Path, suite: str) -> list[str]:
    """Let apt read the lists of a suite of Debian from this machine's mirror, and keep what it reads in a folder."""
    indexes = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian")
    # Ubuntu has no index of Debian's.
    mirrors = subprocess.run(indexes, capture_output=True, text=True, check=True).stdout.split()
    mirror = mirrors[0] if mirrors else "http://deb.debian.org/debian"
    sources = folder / "apt.sources"
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    lines = ["Types: deb", f"URIs: {mirror}", f"Suites: {suite}", "Components: main contrib non-free"]
    sources.write_text("\n".join([*lines, f"Signed-By: {keys}", ""]))
    places = {"Etc::sourcelist": sources, "Etc::sourceparts": "-", "State::Lists": folder / "lists"}
    return [f"-oDir::{name}={place}" for name, place in {**places, "Cache": folder / "cache"}.items()]


def _extract(archive: Path, members: Sequence[str], folder: Path) -> None:
    """Unpack those members of a package that match one of the patterns."""
    reading = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE)
    with reading as process, tarfile.open(fileobj=process.stdout, mode="r|") as tar:
        # Python 3.12 warns without a filter; Debian 12's Python 3.11.2 has none.
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)
        for member in tar:
            if any(fnmatch(member.name, pattern) for pattern in members):
                tar.extract(member, folder)
    assert process.returncode == 0, f"{archive} cannot be read"


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Several test processes may need the same."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*words: str, cwd: Path, update: bool = False) -> None:
    """Run a command. With `update`, and if it fails, refresh the package lists, which may be old, and run it again."""
    done = subprocess.run(words, cwd=cwd, env=QUIET, capture_output=True, text=True, check=False)
    if done.returncode and update:
        _run("apt-get", "update", "-q", cwd=cwd)
        _run(*words, cwd=cwd)
    else:
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
