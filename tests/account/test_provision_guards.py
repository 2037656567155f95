"""What could leave machines running, or hand them to another account: sessions that end, names that others have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.account.kit import CLOUD_HALF
from tests.account.observed import Seen, play

pytestmark = pytest.mark.gate


@pytest.mark.long
def test_it_outlives_the_sessions_of_its_role(account: Any) -> None:
    """Each wait for machines is longer than a session: the first zone is left, and the second one is finished."""
    started: list[str] = []
    credentials = account.cloud.credentials

    def end_sessions(record: Any) -> None:
        # Sessions that the wait begins with are short, and all that there are end with its first look.
        if record.operation == "CreateAutoScalingGroup":
            credentials.default_seconds = 3
        elif record.operation == "DescribeScalingActivities" and credentials.default_seconds == 3:
            credentials.default_seconds = 3600
            credentials.expire("deeplearning")
            started.append(record.caller)

    account.wants(
        "red",
        cluster_availability_zones=["us-east-1a", "us-east-1b"],
        cluster_worker_count=2,
        cluster_capacity_policy="all_or_nothing",
        cluster_role_arn=account.role("operator"),
        provision_settle_seconds=1,
    )
    account.cloud.faults.add("capacity", {"type": "t3.medium", "zone": "us-east-1a"}, value=2)
    account.cloud.calls.tell = end_sessions
    ran = play(account, CLOUD_HALF)
    assert len(started) == 2 and "Remove what is in us-east-1a" in ran.output
    seen = Seen(account, region="us-east-1")
    assert {instance["Placement"]["AvailabilityZone"] for instance in seen.instances()} == {"us-east-1b"}
    assert len(seen.instances()) == 3


def test_a_bucket_that_another_account_has_under_its_name_ends_it_before_any_machine_starts(account: Any) -> None:
    """Names of buckets can be foreseen, and the other account may let everybody in."""
    account.wants("red")
    seen = Seen(account, region="us-east-1")
    name = seen.bucket()
    seen.s3.create_bucket(Bucket=name)
    seen.s3.delete_public_access_block(Bucket=name)
    anyone = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{name}"}
    seen.s3.put_bucket_policy(Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [anyone]}))
    account.cloud.faults.add("foreign-bucket", {"bucket": name})
    ran = account.play(CLOUD_HALF)
    assert ran.code == 2
    assert f"The bucket {seen.bucket()} belongs to another account" in " ".join(ran.output.split())
    assert not seen.instances() and not seen.listed("describe_launch_templates", "LaunchTemplates")


def test_a_cluster_that_costs_more_than_the_limit_is_refused_before_anything_is_created(account: Any) -> None:
    """site.yml begins with these playbooks."""
    account.wants("red", cluster_max_hourly_cost=0.1)
    ran = account.play(CLOUD_HALF)
    assert ran.code == 2
    assert "cluster_max_hourly_cost is 0.1: with all machines the cluster costs up to" in " ".join(ran.output.split())
    assert not [call for call in account.cloud.calls.since() if call["writes"]]


def test_a_training_check_with_a_distribution_of_another_framework_ends_site_before_anything_is_created(
    account: Any,
) -> None:
    account.wants("red")
    check = {"health_scope": "training", "framework": "pytorch", "distribution": "horovod"}
    ran = account.play("site.yml", **check)
    assert ran.code == 2
    assert "distribution is horovod, which only tensorpack has: give pytorch's ddp." in " ".join(ran.output.split())
    assert not [call for call in account.cloud.calls.since() if call["writes"]]
