"""Links below the mount point under which old scripts look for a data set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def create_links(folder: Path, efs_mount: Path, links: Mapping[str, str]) -> bool:
    """Create the links that do not exist. Return whether one was missing. A data set of root's gets none inside."""
    missing = {
        link: target
        for link, target in ((efs_mount / name, target) for name, target in links.items())
        if not os.path.lexists(link) and os.access(link.parent, os.W_OK)
    }
    for link, target in missing.items():
        link.symlink_to(os.path.relpath(folder / target, link.parent))
    return bool(missing)
