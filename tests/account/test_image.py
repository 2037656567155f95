"""image.yml: an AMI with frameworks, made from a machine that is no member. The machine is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localcloud.testing.catalog import API_ONLY
from tests.account.booting import BROKEN, Nodes, nodes_of
from tests.account.fleet import wait_until
from tests.account.kit import CLOUD_HALF, REGION
from tests.account.two_operators import two_operators

IMAGE = "playbooks/image.yml"
OURS = [{"Name": "tag:deeplearning:cluster", "Values": ["red"]}]


@pytest.fixture
def nodes(account: Any) -> Nodes:
    account.wants(
        "red",
        cluster_worker_count=0,
        cluster_default_framework="pytorch",
        cluster_idle_minutes=60,
    )
    ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-4000:]
    return nodes_of(account, "red", "0" * 64)


def images(account: Any) -> list[Any]:
    return list(account.client("ec2").describe_images(Owners=["self"], Filters=OURS)["Images"])


def machines(account: Any) -> list[str]:
    filters = [*OURS, {"Name": "tag:Name", "Values": ["red-image"]}]
    reservations = account.client("ec2").describe_instances(Filters=filters)["Reservations"]
    return [item["Instances"][0]["State"]["Name"] for item in reservations]


def policies(account: Any) -> list[Any]:
    """Return the policies of the cluster's two roles."""
    roles = [f"red-{REGION}-{role}" for role in ("master", "worker")]
    iam = account.client("iam")
    return [iam.get_role_policy(RoleName=role, PolicyName="deeplearning")["PolicyDocument"] for role in roles]


def test_an_image_is_made_once_used_and_deleted(account: Any, nodes: Nodes) -> None:
    ec2 = account.client("ec2")
    assert account.play(IMAGE, "--check").changed and not images(account) and not machines(account)
    before = policies(account)
    assert "autoscaling:PutScheduledUpdateGroupAction" in str(before[0])
    with nodes.bake("red"):
        ran = account.play(IMAGE)
    assert ran.code == 0, ran.output[-4000:]
    assert policies(account) == before
    [image] = images(account)
    tags = {tag["Key"]: tag["Value"] for tag in image["Tags"]}
    assert tags["deeplearning:base"] == API_ONLY.id and tags["deeplearning:pins"].startswith("pytorch=")
    assert image["Description"] == "pytorch on localcloud-api-only" and image["ImageId"] in ran.output
    assert set(machines(account)) == {"terminated"}
    [snapshot] = ec2.describe_snapshots(Filters=OURS)["Snapshots"]

    # It exists, also for a cluster that boots from it.
    again = account.play(IMAGE, cluster_image=image["ImageId"])
    assert (again.code, again.changed) == (0, 0) and image["ImageId"] in again.output, again.output[-4000:]
    assert account.play(CLOUD_HALF, cluster_image=image["ImageId"]).code == 0
    template = ec2.describe_launch_template_versions(LaunchTemplateName="red-workers", Versions=["$Latest"])
    assert template["LaunchTemplateVersions"][0]["LaunchTemplateData"]["ImageId"] == image["ImageId"]

    # It outlives the cluster, with a line about it.
    gone = account.play("destroy.yml", destroy="red", cluster_keep_efs=False)
    kept = f"{snapshot['SnapshotId']} ({image['Name']}) is kept and goes on costing"
    assert gone.code == 0 and kept in gone.output, gone.output
    assert len(images(account)) == 1
    assert account.play(IMAGE, "--check", image_state="absent").changed and images(account)
    assert account.play(IMAGE, image_state="absent").changed
    assert images(account) == [] == ec2.describe_snapshots(Filters=OURS)["Snapshots"]
    again = account.play(IMAGE, image_state="absent")
    assert (again.code, again.changed) == (0, 0)


def test_a_machine_that_cannot_prepare_itself_is_terminated_and_its_log_shown(account: Any, nodes: Nodes) -> None:
    with nodes.bake("red", BROKEN):
        ran = account.play(IMAGE)
    assert ran.code == 2 and "could not prepare itself (framework): TASK [efs_mount" in ran.output
    assert set(machines(account)) <= {"terminated", "shutting-down"} and not images(account)


def test_a_second_playbook_waits_for_the_image_of_the_first(account: Any, nodes: Nodes, tmp_path: Path) -> None:
    first, second = two_operators(account, tmp_path)
    threads = [first.play(IMAGE)]
    wait_until(lambda: machines(account) == ["running"])
    threads.append(second.play(IMAGE))
    wait_until(lambda: any("The image machine of the cluster red is locked by" in line for line in second.lines))
    with nodes.bake("red"):
        for thread in threads:
            thread.join()
    outputs = f"{first.output[-6000:]}\n=== the second\n{second.output[-6000:]}"
    assert (first.code, second.code) == (0, 0), outputs
    [image] = images(account)
    assert image["ImageId"] in first.output and image["ImageId"] in second.output, outputs
    assert machines(account) == ["terminated"], outputs
