"""What machines take over from the host, so that they reach package indexes as it does."""

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
    """What is mounted at a folder or below it, the innermost first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    places = [line.split()[1].encode().decode("unicode_escape") for line in lines]  # a space is written as \\040
    return sorted((place for place in places if place == str(folder) or place.startswith(f"{folder}/")), reverse=True)


@functools.cache
def _pip_says() -> str:
    """Asked once: pip needs a third of a second to say it, and each machine that boots wants it."""
    words = ["python3", "-m", "pip", "config", "list"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


def pip_settings() -> Mapping[str, str]:
    """The host's pip settings that say where packages come from, by name as in pip.conf's [global]. Users and passwords
    are not in them: whoever is in a machine can read its pip.conf, and images keep it."""
    return {name: _CREDENTIALS.sub("", value) for name, value in _host_pip_settings().items()}


def withheld_credentials() -> list[str]:
    """Return the names of the pip settings that machines get without the user and password in them."""
    return sorted(name for name, value in _host_pip_settings().items() if _CREDENTIALS.search(value))


def _host_pip_settings() -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        listed = _pip_says()
    except (OSError, subprocess.SubprocessError):
        return found  # as it is without pip
    for line in listed.splitlines():
        match = re.match(r"(?:global|:env:)\.([a-z-]+)='(.*)'$", line)
        if match and match[1] in ("index-url", "extra-index-url", "find-links", "trusted-host", "default-timeout"):
            found[match[1]] = match[2].replace("\\n", " ").strip()
    return found


def pip_folders() -> list[str]:
    """Local folders that those settings name: machines see them at the same places, read-only."""
    text = " ".join(pip_settings().values())
    places = {part.removeprefix("file://").rstrip("/") for part in text.split() if part.startswith(("/", "file:///"))}
    # The pages of an index lead to files that are kept beside it.
    folders = {place.removesuffix("/simple") for place in places}
    return sorted(folder for folder in folders if os.path.isdir(folder))


def write_host_settings(root: Path, authority: str = "") -> None:
    """pip's settings, and the host's certificates with one more authority among them, into a root folder."""
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    if HOST_BUNDLE.is_file():
        bundle.parent.mkdir(parents=True, exist_ok=True)
        bundle.write_text(HOST_BUNDLE.read_text(encoding="ascii", errors="ignore") + authority, encoding="ascii")
    settings = {
        **pip_settings(),
        "cert": "/etc/ssl/certs/ca-certificates.crt",
        "disable-pip-version-check": "1",
        "no-input": "1",  # an index that requires a password is an error, not a question that nobody answers
    }
    lines = ["[global]", *(f"{name} = {value}" for name, value in sorted(settings.items()))]
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "etc/pip.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
