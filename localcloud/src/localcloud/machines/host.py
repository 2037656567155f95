"""The host's settings that machines get, so that they reach package indexes as the host does."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")

HOST_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def mounts_below(folder: Path) -> list[str]:
    """Return the mount points at a folder or below it, the innermost first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    paths = [line.split()[1].encode().decode("unicode_escape") for line in lines]  # a space is written as \\040
    return sorted((path for path in paths if path == str(folder) or path.startswith(f"{folder}/")), reverse=True)


def unmount(path: Path | str) -> None:
    """Detach a mount now, even if it is in use. Nothing happens if there is none."""
    subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)


@functools.cache
def _pip_config() -> str:
    """Return the output of `pip config list`, cached: it takes a third of a second, and every boot needs it."""
    command = ["python3", "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def pip_settings() -> Mapping[str, str]:
    """Return the host's pip settings for the source of packages, by name as in pip.conf's [global].

    Users and passwords are removed: every user of a machine can read its pip.conf, and images contain it."""
    return {name: _CREDENTIALS.sub("", value) for name, value in _host_pip_settings().items()}


def withheld_credentials() -> list[str]:
    """Return the names of the pip settings that machines get without the user and password in them."""
    return sorted(name for name, value in _host_pip_settings().items() if _CREDENTIALS.search(value))


def _host_pip_settings() -> dict[str, str]:
    settings: dict[str, str] = {}
    try:
        listed = _pip_config()
    except (OSError, subprocess.SubprocessError):
        return settings  # the host has no pip
    for line in listed.splitlines():
        match = re.match(r"(?:global|:env:)\.([a-z-]+)='(.*)'$", line)
        if match and match[1] in ("index-url", "extra-index-url", "find-links", "trusted-host", "default-timeout"):
            settings[match[1]] = match[2].replace("\\n", " ").strip()
    return settings


def pip_folders() -> list[str]:
    """Return the local folders in those settings. Machines see them at the same paths, read-only."""
    text = " ".join(pip_settings().values())
    paths = {part.removeprefix("file://").rstrip("/") for part in text.split() if part.startswith(("/", "file:///"))}
    # The pages of an index link to files next to its folder.
    folders = {path.removesuffix("/simple") for path in paths}
    return sorted(folder for folder in folders if os.path.isdir(folder))


def write_host_settings(root: Path, authority: str = "") -> None:
    """Write pip's settings, and the host's certificates with an additional authority, below a root folder."""
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    if HOST_BUNDLE.is_file():
        bundle.parent.mkdir(parents=True, exist_ok=True)
        bundle.write_text(HOST_BUNDLE.read_text(encoding="ascii", errors="ignore") + authority, encoding="ascii")
        # As Debian 12 has it. Debian 11 looks for certificates by their hashes alone.
        link = root / "usr/lib/ssl/cert.pem"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to("/etc/ssl/certs/ca-certificates.crt")
    settings = {
        **pip_settings(),
        "cert": "/etc/ssl/certs/ca-certificates.crt",
        "disable-pip-version-check": "1",
        "no-input": "1",  # an index that requires a password is an error, not a prompt
    }
    lines = ["[global]", *(f"{name} = {value}" for name, value in sorted(settings.items()))]
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "etc/pip.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
