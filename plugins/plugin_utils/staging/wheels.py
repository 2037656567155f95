# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wheels of Horovod in a bucket: which ones fit a framework, and their names there and on the nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.node.horovod import KITS, SHA256, VERSION, WHEEL
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging.bucket import Bucket

PINS = Path(__file__).resolve().parents[3] / "roles/framework/files"
PREFIX = "wheels"
ARCHITECTURE = "uname -m"
"""The command that prints a node's architecture as the names of wheels have it."""
MOST_BYTES = 256 << 20
"""A wheel of Horovod has a few MiB."""


def name_prefix(framework: str) -> str:
    return f"horovod-{VERSION}_{KITS[framework].package}-"


def check_built(framework: str, reported: Mapping[str, str]) -> dict[str, str]:
    """Return the wheels that a node reports to have built for a framework: checksums by name.

    Raise UserError if the report is malformed.
    """
    for name, sha256 in reported.items():
        is_wheel = WHEEL.fullmatch(name) and name.startswith(name_prefix(framework))
        if not (is_wheel and isinstance(sha256, str) and SHA256.fullmatch(sha256)):
            raise UserError("the node that built Horovod reported no name and checksum of a wheel.")
    return dict(reported)


def check_command(folder: str, checksums: Mapping[str, str]) -> str:
    """Return a command that prints which wheels in a folder have these checksums."""
    lines = [f"{sha256}  {folder}/{name}" for name, sha256 in checksums.items()]
    return f"printf '%s\\n' {shlex.join(lines)} | LC_ALL=C sha256sum -c 2>/dev/null || true"


def intact(folder: str, checksums: Mapping[str, str], printed: Iterable[str]) -> set[str]:
    """Return the wheels that the printed lines of `check_command` show to be intact."""
    lines = {line.strip() for line in printed}
    return {name for name in checksums if f"{folder}/{name}: OK" in lines}


def stored_names(bucket: Bucket, framework: str) -> set[str]:
    """Return the names of a framework's wheels. The bucket may hold anything else, too."""
    return {name for name in bucket.names(name_prefix(framework)) if WHEEL.fullmatch(name)}


def usable(framework: str, names: Iterable[str], architecture: str) -> set[str]:
    """Return the wheels that a cluster can use: for the pins of the framework and this architecture."""
    files = (PINS / framework / f"requirements-{build}.txt" for build in ("cpu", "gpu"))
    pins = "".join(file.read_text(encoding="utf-8") for file in files)
    package = KITS[framework].package
    versions = set(re.findall(rf"^{package}(?:-cpu)?==(\S+)", pins, re.MULTILINE))
    prefixes = tuple(f"{name_prefix(framework)}{version}_" for version in versions)
    return {name for name in names if name.startswith(prefixes) and name.partition("/")[0].endswith(f"_{architecture}")}


def stored_checksums(bucket: Bucket, names: Iterable[str]) -> dict[str, str]:
    """Return the checksums of wheels by name. A wheel that was stored without one is left out: it cannot be checked."""
    checksums = {name: bucket.sha256(name) for name in sorted(names)}
    return {name: sha256 for name, sha256 in checksums.items() if SHA256.fullmatch(sha256)}


def write_command(folder: str, wheel: str) -> str:
    """Return a command that writes its input to a wheel's file. The file appears complete or not at all."""
    file = Path(folder, wheel)
    parent, partial, target = (
        shlex.quote(str(path)) for path in (file.parent, file.with_name(f".{file.name}.partial"), file)
    )
    return f"umask 022 && mkdir -p {parent} && cat > {partial} && mv {partial} {target}"
