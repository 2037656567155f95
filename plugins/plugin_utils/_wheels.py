# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wheels of Horovod in a bucket: which there are for a framework, and how they are called there and on the nodes.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.deeplearning.aws.plugins.module_utils._environment import ENVIRONMENTS, MARKER
from ansible_collections.deeplearning.aws.plugins.module_utils._horovod import KITS, VERSION
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage import Bucket

READY = "ready"
_WHEEL = re.compile(r"horovod-[A-Za-z0-9.+_-]+/horovod-[A-Za-z0-9.+_-]+\.whl")
"""A wheel in the folder that is named by all that it fits."""


def beginning(framework: str) -> str:
    return f"horovod-{VERSION}_{KITS[framework].package}-"


def look(folder: str, framework: str) -> str:
    """A command that says which wheels are in a folder, and whether the node's environment needs none any more."""
    marker = shlex.quote(f"{ENVIRONMENTS}/{framework}/{MARKER}")
    has = shlex.quote(f'"horovod": "{VERSION}"')
    there = f"{shlex.quote(f'{folder}/{beginning(framework)}')}*/horovod-*.whl"
    return f"if grep -qs {has} {marker}; then echo {READY}; fi; ls -1 {there} 2>/dev/null || true"


def seen(folder: str, said: Iterable[str]) -> set[str]:
    return _wheels(line.removeprefix(f"{folder}/") for line in said)


def stored(bucket: Bucket, framework: str) -> set[str]:
    return _wheels(bucket.names(beginning(framework)))


def put(folder: str, wheel: str) -> str:
    """A command that puts what it reads there, whole or not at all."""
    target = Path(folder, wheel)
    coming = target.with_name(f".{target.name}.coming")
    parent, coming_, target_ = (shlex.quote(str(path)) for path in (target.parent, coming, target))
    return f"umask 022 && mkdir -p {parent} && cat > {coming_} && mv {coming_} {target_}"


def _wheels(names: Iterable[str]) -> set[str]:
    """Whoever may write there may have left anything."""
    return {name for name in names if _WHEEL.fullmatch(name)}
