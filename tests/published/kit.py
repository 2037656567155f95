"""What the tests of published programs on booted machines share."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.integration.machines import Cluster

MASTER = "deeplearning-master"
FOLDER = "/efs/published"


def send(cluster: Cluster, folder: Path, names: list[str], target: str) -> None:
    """Unpack files and folders of this machine below a folder of the master."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name in names:
            archive.add(folder / name, name, filter=lambda member: None if "/.git" in member.name else member)
    words = [*cluster.ssh_words(MASTER), f"mkdir -p {target} && tar -xz -C {target}"]
    subprocess.run(words, input=packed.getvalue(), check=True, timeout=120)
