"""image.yml on a booted machine: two machines boot from the AMI, and have nothing of it or of each other."""

from __future__ import annotations

import secrets

import pytest

from tests.integration.machines import Cloud

NODES = ("deeplearning-master", "deeplearning-worker2")
OWN = "cat /etc/machine-id; cut -d' ' -f2 /etc/ssh/ssh_host_*_key.pub"
INSTALLED = "stat -c %Y /opt/deeplearning/env/pytorch/bin/python"


@pytest.mark.long
def test_two_machines_boot_from_an_image_with_nothing_in_common(cloud_with_machines: Cloud) -> None:
    name = f"i-{secrets.token_hex(3)}"
    with cloud_with_machines.cluster(name, worker_count=0, image=cloud_with_machines.image()) as cluster:
        created = cluster.play("site.yml")
        assert created.code == 0, created.output[-6000:]
        on_base = set(cluster.says(NODES[0], OWN).split())
        baked = cluster.play("playbooks/image.yml", image_frameworks=["pytorch"])
        assert baked.code == 0, baked.output[-6000:]
        ours = [{"Name": "tag:deeplearning:cluster", "Values": [name]}]
        [image] = cloud_with_machines.client("ec2").describe_images(Owners=["self"], Filters=ours)["Images"]

    with cloud_with_machines.cluster(
        f"{name}-2", worker_count=1, image=image["ImageId"], default_framework="pytorch"
    ) as cluster:
        created = cluster.play("site.yml")
        assert created.code == 0, created.output[-6000:]
        own = [set(cluster.says(node, OWN).split()) for node in NODES]
        assert all(len(words) > 2 for words in own)
        assert not own[0] & own[1] and not on_base & (own[0] | own[1])
        launched = min(machine["LaunchTime"] for machine in cluster.machines().values())
        for node in NODES:
            # The framework is older than the machine: it came with the image.
            assert int(cluster.says(node, INSTALLED)) < launched.timestamp(), node
            assert cluster.says(node, "python -c 'import torch; print(torch.ones(2).sum().item())'") == "2.0"
