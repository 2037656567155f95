"""Links below the mount point under which old scripts look for a data set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def create_links(folder: Path, efs_mount: Path, links: Mapping[str, str]) -> bool:
    """Create the links that do not exist. Return whether one was missing. A data set of root's gets none inside."""
    missing = [
        (efs_mount / name, folder / target)
        for name, target in links.items()
        if not os.path.lexists(efs_mount / name) and os.access((efs_mount / name).parent, os.W_OK)
    ]
    for link, target in missing:
        link.symlink_to(os.path.relpath(target, link.parent))
    return bool(missing)
