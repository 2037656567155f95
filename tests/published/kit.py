"""What the tests of published programs on booted machines share."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.machines import Cluster
from tests.published.programs import PackagedFile

MASTER = "deeplearning-master"
FOLDER = "/efs/published"
DOWNLOAD = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:")
CREATE = """
set -e
$(deeplearning env pytorch)
python -m venv {environment}
cd {environment}/lib/python3*/site-packages
echo $VIRTUAL_ENV/lib/python3*/site-packages > pytorch.pth
{environment}/bin/pip install -q --no-compile --no-index --no-deps {wheels}/*.whl
"""
"""As in docs/training.md and docs/notebooks.md, but without an index."""


def send(cluster: Cluster, folder: Path, names: list[str], target: str) -> None:
    """Unpack files and folders of this machine below a folder of the master."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name in names:
            archive.add(folder / name, name, filter=lambda member: None if "/.git" in member.name else member)
    words = [*cluster.ssh_words(MASTER), f"mkdir -p {target} && tar -xz -C {target}"]
    subprocess.run(words, input=packed.getvalue(), check=True, timeout=120)


@dataclass
class Environment:
    """An environment of the user's own on the nodes' PyTorch, on the file system."""

    python: str
    wheels: Path
    """The folder of its wheels, on this machine."""

    def extract(self, file: PackagedFile) -> bytes:
        content = zipfile.ZipFile(self.wheels / file.wheel).read(file.path)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            pytest.fail(f"{file.path} in {file.wheel} is not the published one: its SHA-256 differs", pytrace=False)
        return content


def create_environment(cluster: Cluster, name: str, wheels: Path, more: str = "") -> Environment:
    """Download what requirements-NAME.txt pins, and install it on the master as a user would."""
    pins = Path(__file__).with_name(f"requirements-{name}.txt")
    words = [*DOWNLOAD, "--python-version", "3.11", "--require-hashes", "-r", pins, "-d", wheels]
    subprocess.run(words, check=True, timeout=300)
    sent, environment = f"{FOLDER}/wheels-{name}", f"{FOLDER}/environment-{name}"
    send(cluster, wheels, sorted(wheel.name for wheel in wheels.iterdir()), sent)
    lines = (CREATE + more).format(environment=environment, wheels=sent)
    created = cluster.ssh(MASTER, "bash -l", input=lines, timeout=300)
    assert created.returncode == 0, created.stdout + created.stderr
    return Environment(f"{environment}/bin/python", wheels)
