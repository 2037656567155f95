"""Fixtures of booted clusters, in the local cloud. tests/integration and tests/published share them."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from localcloud.testing import facts
from tests.forking import ForkingPython
from tests.images import FRAMEWORKS as FRAMEWORKS_OF
from tests.integration import emr
from tests.integration.machines import Cloud, Cluster, Played, cloud_in, localcloud
from tests.integration.succession import Succession

FRAMEWORKS = FRAMEWORKS_OF[facts.SUITE]
IMAGE_WITH_FRAMEWORKS = facts.image_with(FRAMEWORKS.split(","))


@pytest.fixture(scope="session")
def cloud_with_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """For clusters of booted machines. Tests give each a name of its own: the local cloud may be others' as well."""
    with (
        cloud_in(tmp_path_factory.mktemp("operator")) as cloud,
        ForkingPython(tmp_path_factory.mktemp("forking")) as cloud.forking,
    ):
        yield cloud


@pytest.fixture(scope="session")
def image(cloud_with_machines: Cloud) -> str:
    """Return the id of the image that has frameworks inside: it is built once and kept; with nothing kept that takes
    some minutes."""
    built = localcloud("image", "build", "--with", FRAMEWORKS, timeout=1500)
    assert built.returncode == 0, built.stderr
    image = cloud_with_machines.image(IMAGE_WITH_FRAMEWORKS)
    assert image, f"a local cloud without LOCALCLOUD_SUITE={facts.SUITE} is up: end it with localcloud down"
    return image


@pytest.fixture(scope="session")
def training_cluster(cloud_with_machines: Cloud, image: str) -> Iterator[Cluster]:
    """Yield a master and two workers that all tests but those of EMR share."""
    with cloud_with_machines.cluster(f"t-{secrets.token_hex(3)}", worker_count=2, image=image) as cluster:
        made = cluster.play("site.yml")
        assert made.code == 0, made.output[-6000:]
        cluster.site = made.output
        yield cluster


@pytest.fixture(scope="session")
def background() -> Iterator[ThreadPoolExecutor]:
    """Yield what makes clusters next to other tests, one after the other, as that mostly waits."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def operator_in(folder: Path, cloud: Cloud) -> Cloud:
    """Return the local cloud for another operator, with the same key, whose modules run as users run them."""
    for name in ("key", "key.pub"):
        shutil.copy(cloud.folder / name, folder)
    return replace(cloud, folder=folder, variables=dict(cloud.variables), forking=None)


@pytest.fixture(scope="session")
def emr_creation(
    cloud_with_machines: Cloud, image: str, background: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Future[Played]]]:
    """Yield a cluster and the emr.yml that creates it: a primary node and a core node."""
    cloud = operator_in(tmp_path_factory.mktemp("emr-operator"), cloud_with_machines)
    name = f"e-{secrets.token_hex(3)}"
    # The tests of the long size come to it later than EMR would end an idle cluster.
    more = {"worker_count": 1, "emr_idle_minutes": 240, "s3_read": [f"{emr.readable_bucket(name)}/training-data"]}
    with cloud.cluster(name, **emr.SETTINGS, **more) as cluster:
        yield cluster, background.submit(cluster.play, "emr.yml", emr_poll_seconds=1)


@pytest.fixture(scope="session")
def kept_file_system(
    cloud_with_machines: Cloud, image: str, background: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Future[Succession]]]:
    """Yield a cluster on the file system that the one before it has kept, and how both came about."""
    cloud = operator_in(tmp_path_factory.mktemp("next-operator"), cloud_with_machines)
    with cloud.cluster(f"k-{secrets.token_hex(3)}", image=image) as cluster:
        yield cluster, background.submit(Succession.of, cluster)


@pytest.fixture(scope="session")
def emr_cluster(emr_creation: tuple[Cluster, Future[Played]]) -> Cluster:
    cluster, creation = emr_creation
    made = creation.result()
    assert made.code == 0, made.output[-6000:]
    return cluster
