"""Killed anywhere and run again: one of everything. Then destroyed, killed anywhere in that too: nothing is left.

Here it is a seeded sample of places; `make chaos` goes through all of them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kit import CLOUD_HALF

CLUSTER = "c-chaos"
KILLED = -signal.SIGKILL

_RANDOM = random.Random(3)
SAMPLE = [
    (
        [("task", _RANDOM.randint(8, 30)), ("write", _RANDOM.randint(2, 12))],
        [_RANDOM.randint(1, 12), _RANDOM.randint(2, 15)],
    )
]
"""Where site.yml is killed, one run after the other: after so many tasks, or when AWS has carried out so many writing
calls, the last of them before anybody hears of it. And at which writing calls destroy.yml is."""

if "CHAOS" in os.environ:
    kind, site, destroy = os.environ["CHAOS"].split(":")
    SAMPLE = [([(kind, int(site))], [int(destroy)])]


def census(account: Any) -> Counter[str]:
    """How many there are of everything in the account, by nobody's tags."""
    ec2, scaling, efs = account.client("ec2"), account.client("autoscaling"), account.client("efs")
    iam, s3 = account.client("iam"), account.client("s3")
    reservations = ec2.describe_instances()["Reservations"]
    systems = efs.describe_file_systems()["FileSystems"]
    roles = [one for one in iam.list_roles()["Roles"] if not one["Path"].startswith("/aws-service-role/")]
    found = {
        "vpc": ec2.describe_vpcs()["Vpcs"],
        "subnet": ec2.describe_subnets()["Subnets"],
        "gateway": ec2.describe_internet_gateways()["InternetGateways"],
        "route table": ec2.describe_route_tables()["RouteTables"],
        "security group": ec2.describe_security_groups()["SecurityGroups"],
        "address": ec2.describe_addresses()["Addresses"],
        "NAT": [one for one in ec2.describe_nat_gateways()["NatGateways"] if one["State"] != "deleted"],
        "endpoint": [one for one in ec2.describe_vpc_endpoints()["VpcEndpoints"] if one["State"] != "deleted"],
        "interface": ec2.describe_network_interfaces()["NetworkInterfaces"],
        "volume": ec2.describe_volumes()["Volumes"],
        "instance": [one for all_ in reservations for one in all_["Instances"] if one["State"]["Name"] != "terminated"],
        "template": ec2.describe_launch_templates()["LaunchTemplates"],
        "placement group": ec2.describe_placement_groups()["PlacementGroups"],
        "key": ec2.describe_key_pairs()["KeyPairs"],
        "group": scaling.describe_auto_scaling_groups()["AutoScalingGroups"],
        "file system": systems,
        "mount target": [
            target
            for system in systems
            for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]
        ],
        "role": roles,
        "profile": iam.list_instance_profiles()["InstanceProfiles"],
        "bucket": s3.list_buckets()["Buckets"],
    }
    return Counter({kind: len(things) for kind, things in found.items()})


WORKERS = 2
WHOLE = Counter(
    {
        "vpc": 1,
        "subnet": 2,
        "gateway": 1,
        # The one that each VPC has from the start is used by nobody.
        "route table": 2 + 1,
        "security group": 3 + 1,
        "address": 2,
        "NAT": 1,
        "endpoint": 1,
        "volume": 1 + WORKERS,
        "instance": 1 + WORKERS,
        # Of the instances, the NAT gateway and the mount target.
        "interface": 1 + WORKERS + 2,
        "template": 2,
        "placement group": 1,
        "key": 1,
        "group": 2,
        "file system": 1,
        "mount target": 1,
        "role": 2,
        "profile": 2,
        "bucket": 1,
    }
)


@pytest.fixture
def settings(account: Any, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    account.settings = {
        "cluster_name": CLUSTER,
        "cluster_region": "us-east-1",
        "cluster_ssh_location": ["198.51.100.0/24"],
        "cluster_public_key_file": f"{key}.pub",
        "cluster_worker_count": WORKERS,
    }


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(("site", "destroy"), SAMPLE)
def test_killed_and_run_again(account: Any, site: list[tuple[str, int]], destroy: list[int]) -> None:
    empty = census(account)

    for kind, number in site:
        _expect_killed(account.play(CLOUD_HALF, **{f"kill_at_{kind}": number}), "site.yml")
    ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-4000:]
    assert census(account) - empty == WHOLE

    consent = {"destroy": CLUSTER, "cluster_keep_efs": False}
    for number in destroy:
        _expect_killed(account.play("destroy.yml", kill_at_write=number, **consent), "destroy.yml")
    ran = account.play("destroy.yml", **consent)
    assert ran.code == 0, ran.output[-4000:]
    assert census(account) == empty
    ran = account.play("destroy.yml", **consent)
    assert (ran.code, ran.changed) == (0, 0)


def _expect_killed(ran: Any, playbook: str) -> None:
    if ran.code == 0 and "CHAOS_END" in os.environ:
        # It had come to its end before: so had whoever goes through all places.
        with Path(os.environ["CHAOS_END"]).open("a") as file:
            file.write(f"{playbook}\n")
        return
    assert ran.code == KILLED, ran.output[-4000:]


@pytest.mark.usefixtures("settings")
def test_a_half_made_cluster_goes(account: Any) -> None:
    empty = census(account)
    _expect_killed(account.play(CLOUD_HALF, kill_at_write=18), "site.yml")
    assert census(account) != empty
    ran = account.play("destroy.yml", destroy=CLUSTER, cluster_keep_efs=False)
    assert ran.code == 0, ran.output[-4000:]
    assert census(account) == empty
