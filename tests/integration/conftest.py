"""Booted machines, in the local cloud."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from localcloud.api.ec2 import images
from localcloud.core import settings
from tests.integration.machines import Cloud, Cluster, cloud_in, localcloud

# Of the others there are no wheels for CPUs and Debian 13's Python.
FRAMEWORKS = {"bookworm": "mxnet,pytorch,tensorflow,tensorpack", "trixie": "tensorflow"}[settings.SUITE]
IMAGE_NAME = images.name_with(FRAMEWORKS.split(","))


@pytest.fixture(scope="session")
def cloud_with_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """For clusters of booted machines. Tests give each a name of its own: the local cloud may be others' as well."""
    with cloud_in(tmp_path_factory.mktemp("operator")) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def training_cluster(cloud_with_machines: Cloud) -> Iterator[Cluster]:
    """A master and two workers that all tests of training share. Their image has frameworks inside: it is built once
    and kept; with nothing kept that takes some minutes."""
    built = localcloud("image", "build", "--with", FRAMEWORKS, timeout=1500)
    assert built.returncode == 0, built.stderr
    image = cloud_with_machines.image(IMAGE_NAME)
    assert image, f"a local cloud without LOCALCLOUD_SUITE={settings.SUITE} is up: end it with localcloud down"
    with cloud_with_machines.cluster(f"t-{secrets.token_hex(3)}", worker_count=2, image=image) as cluster:
        made = cluster.play("site.yml")
        assert made.code == 0, made.output[-6000:]
        cluster.site = made.output
        yield cluster
