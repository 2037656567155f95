# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wheels of Horovod in a bucket: which there are for a framework, and how they are called there and on the nodes.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from ansible_collections.deeplearning.aws.plugins.module_utils._horovod import KITS, SHA256, VERSION, WHEEL
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage import Bucket

ROLES = Path(__file__).resolve().parents[2] / "roles"
MACHINE = "uname -m"
"""The command that prints what a key calls a node's kind of machine."""
LIMIT = 256 << 20
"""In bytes: a wheel of Horovod has a few MiB."""


def beginning(framework: str) -> str:
    return f"horovod-{VERSION}_{KITS[framework].package}-"


def built_wheels(framework: str, reported: Mapping[str, str]) -> dict[str, str]:
    """Return what a node reports to have built for a framework: checksums by name. Raises ValueError if it is no such
    thing."""
    for name, sha256 in reported.items():
        named = WHEEL.fullmatch(name) and name.startswith(beginning(framework))
        if not (named and isinstance(sha256, str) and SHA256.fullmatch(sha256)):
            raise ValueError("the node that built Horovod reported no name and checksum of a wheel.")
    return dict(reported)


def check(folder: str, checksums: Mapping[str, str]) -> str:
    """Return a command that prints which wheels in a folder have these checksums."""
    lines = [f"{sha256}  {folder}/{name}" for name, sha256 in checksums.items()]
    return f"printf '%s\\n' {shlex.join(lines)} | LC_ALL=C sha256sum -c 2>/dev/null || true"


def intact(folder: str, checksums: Mapping[str, str], printed: Iterable[str]) -> set[str]:
    """Return the wheels that are in a folder, of those that were checked."""
    lines = {line.strip() for line in printed}
    return {name for name in checksums if f"{folder}/{name}: OK" in lines}


def stored_names(bucket: Bucket, framework: str) -> set[str]:
    """Others may have left anything there."""
    return {name for name in bucket.names(beginning(framework)) if WHEEL.fullmatch(name)}


def usable(framework: str, names: Iterable[str], machine: str) -> set[str]:
    """Return the wheels for the pins of the framework's role and this kind of machine. A cluster cannot use others."""
    files = (ROLES / framework / "files" / f"requirements-{build}.txt" for build in ("cpu", "gpu"))
    pins = "".join(file.read_text(encoding="utf-8") for file in files)
    package = KITS[framework].package
    versions = set(re.findall(rf"^{package}(?:-cpu)?==(\S+)", pins, re.MULTILINE))
    beginnings = tuple(f"{beginning(framework)}{version}_" for version in versions)
    return {name for name in names if name.startswith(beginnings) and name.partition("/")[0].endswith(f"_{machine}")}


def stored_checksums(bucket: Bucket, names: Iterable[str]) -> dict[str, str]:
    """Return the checksums that wheels were kept with, by name. What was kept without one is of no use."""
    checksums = {name: bucket.sha256(name) for name in sorted(names)}
    return {name: sha256 for name, sha256 in checksums.items() if SHA256.fullmatch(sha256)}


def put(folder: str, wheel: str) -> str:
    """Return a command that puts what it reads there, whole or not at all."""
    target = Path(folder, wheel)
    coming = target.with_name(f".{target.name}.coming")
    parent, coming_, target_ = (shlex.quote(str(path)) for path in (target.parent, coming, target))
    return f"umask 022 && mkdir -p {parent} && cat > {coming_} && mv {coming_} {target_}"
