"""Machines of an image that is less kind than Debian's configure themselves."""

from __future__ import annotations

import secrets
from concurrent.futures import Future

import pytest

from tests.integration.machines import Cloud, Cluster
from tests.integration.runs import MASTER
from tests.integration.succession import Succession
from tests.integration.unkind import Unkind


def test_a_machine_configures_itself_on_an_image_that_is_less_kind(
    kept_file_system: tuple[Cluster, Future[Succession]],
) -> None:
    """The cluster before the one on its file system had such a machine, and trained."""
    assert kept_file_system[1].result().unkind == Unkind(locked=20, mirror=25)


@pytest.mark.long
@pytest.mark.parametrize(("locked", "mirror"), [(60, 90), (90, 60)])
def test_a_machine_waits_for_the_lock_and_the_mirror_and_needs_no_running_sshd(
    cloud_with_machines: Cloud, locked: int, mirror: int
) -> None:
    name, unkind = f"u-{secrets.token_hex(3)}", Unkind(locked, mirror)
    image = unkind.make_image(cloud_with_machines, cloud_with_machines.image(), f"{name}-debian-12")
    with cloud_with_machines.cluster(name, worker_count=0, image=image) as cluster:
        created = cluster.play("site.yml")
        assert created.code == 0, created.output[-6000:]
        unkind.assert_met(cluster, MASTER)
        again = cluster.play("playbooks/configure.yml")
        assert again.code == 0, again.output[-6000:]
