"""Debian 11, whose Python is 3.9 as on Amazon Linux 2023, and which has no package of a newer one."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from pathlib import Path

import pytest

from localcloud.testing.images import base_image, overlay
from tests.integration.images import image_after
from tests.integration.machines import Cloud

pytestmark = pytest.mark.long

NODE = Path(__file__).resolve().parents[2] / "files/node"
EMPTY_MIRROR = """#!/bin/bash
set -eu
mkdir /srv/mirror
touch /srv/mirror/Packages
rm -rf /etc/apt/sources.list.d/* /var/lib/apt/lists/*
echo 'deb [trusted=yes] file:/srv/mirror ./' > /etc/apt/sources.list
echo 'apt: {preserve_sources_list: true}' > /etc/cloud/cloud.cfg.d/99-mirror.cfg
systemctl poweroff
"""
SENTENCE = "this image has no Python 3.11 or newer, and the package python3.11 is not installed"
IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, "/srv/node")
import deeplearning
names = [module.name for module in pkgutil.walk_packages(deeplearning.__path__, "deeplearning.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(*sys.version_info[:2], len(names))
"""


def test_a_machine_without_a_newer_python_reports_that_in_one_sentence(cloud_with_machines: Cloud) -> None:
    """The plan refuses such an image by its name. This one has the name of a newer system."""
    name = f"o-{secrets.token_hex(3)}"
    image = image_after(EMPTY_MIRROR, cloud_with_machines, cloud_with_machines.image(), f"{name}-debian-12")
    with cloud_with_machines.cluster(name, worker_count=0, image=image) as cluster:
        made = cluster.play("site.yml")
        assert made.code != 0
        reported = {line.strip() for line in made.output.splitlines() if SENTENCE in line}
        assert len(reported) == 1, made.output[-6000:]
        assert "could not configure themselves: correct the cause that their logs show" in made.output
        assert not cluster.machines()


def test_each_module_of_the_node_program_is_imported(tmp_path: Path) -> None:
    with overlay(base_image(), tmp_path / "upper", prefix=str(tmp_path / "root")) as root:
        shutil.copytree(NODE, root / "srv/node")
        words = ["chroot", root, "python3", "-I"]
        imported = subprocess.check_output([*words, "-c", IMPORT_ALL], text=True).split()
        assert imported[:2] == ["3", "9"] and int(imported[2]) > 60
        shown = subprocess.check_output([*words, "/srv/node/deeplearning/__main__.py", "--help"], text=True)
        assert "usage: deeplearning" in shown
