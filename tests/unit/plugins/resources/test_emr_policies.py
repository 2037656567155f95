"""What EMR itself and its machines may do, as the local cloud's evaluator decides it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import MemberAccess, policy_for

from tests.unit.plugins.resources.emr_policy_kit import (
    ACCOUNT,
    BUCKET,
    DATA,
    EC2,
    MARKED,
    MARKING,
    OTHER,
    OTHERS,
    OTHERS_MARKING,
    allowed,
)


@pytest.mark.parametrize(
    "action", ["CreateFleet", "CreateLaunchTemplate", "CreateLaunchTemplateVersion", "RunInstances"]
)
def test_emr_launches_what_gets_the_clusters_tag(action: str) -> None:
    for kind in ("instance", "volume", "network-interface", "launch-template", "fleet"):
        for context, outcome in ((MARKING, True), (OTHERS_MARKING, False), ({}, False)):
            # Fleets and interfaces of a launch may have no tag.
            expected = outcome or kind in ("fleet", "network-interface")
            assert allowed("emr", f"ec2:{action}", f"{EC2}:{kind}/*", context) == expected, (kind, context)
    # From its own launch templates, in its own reservations, and not with another server's network interface.
    for place in ("launch-template/lt-1", "capacity-reservation/cr-1"):
        for context, outcome in ((MARKED, True), (OTHERS, False), ({}, False)):
            assert allowed("emr", f"ec2:{action}", f"{EC2}:{place}", context) == outcome, (place, context)
    for context in ({}, OTHERS):
        assert not allowed("emr", f"ec2:{action}", f"{EC2}:network-interface/eni-1", context)
    assert allowed("emr", f"ec2:{action}", f"{EC2}:key-pair/k")
    assert not allowed("emr", f"ec2:{action}", f"arn:aws:ec2:us-east-1:{OTHER}:key-pair/k")
    for context, outcome in ((MARKED, True), (OTHERS, False), ({}, True)):
        assert allowed("emr", f"ec2:{action}", "arn:aws:ec2:us-east-1::image/ami-1", context) == outcome
    assert not allowed("emr", f"ec2:{action}", "arn:aws:ec2:eu-west-1::image/ami-1")


PLACES: dict[str, Any] = {"emr_subnets": ["subnet-2"], "emr_security_groups": ["sg-2"]}


@pytest.mark.parametrize("action", ["CreateFleet", "CreateNetworkInterface", "RunInstances"])
@pytest.mark.parametrize("kind", ["subnet/subnet", "security-group/sg"])
def test_emr_launches_in_the_clusters_network_and_the_named_one(action: str, kind: str) -> None:
    for context, named, outcome in (
        (MARKED, {}, True),
        (OTHERS, {}, False),
        ({}, {}, False),
        ({}, PLACES, True),
        (OTHERS, PLACES, True),
    ):
        assert allowed("emr", f"ec2:{action}", f"{EC2}:{kind}-2", context, **named) == outcome, (context, named)
    assert not allowed("emr", f"ec2:{action}", f"{EC2}:{kind}-1", OTHERS, **PLACES)
    assert not allowed("emr", f"ec2:{action}", f"{EC2.replace(ACCOUNT, OTHER)}:{kind}-2", **PLACES)


def test_emr_creates_interfaces_with_the_tag() -> None:
    interface = f"{EC2}:network-interface/eni-1"
    assert allowed("emr", "ec2:CreateNetworkInterface", interface, MARKING)
    assert not allowed("emr", "ec2:CreateNetworkInterface", interface, OTHERS_MARKING)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("AuthorizeSecurityGroupEgress", "security-group"),
        ("AuthorizeSecurityGroupIngress", "security-group"),
        ("CreateLaunchTemplateVersion", "launch-template"),
        ("DeleteLaunchTemplate", "launch-template"),
        ("DeleteNetworkInterface", "network-interface"),
        ("DeleteTags", "instance"),
        ("ModifyInstanceAttribute", "instance"),
        ("RevokeSecurityGroupEgress", "security-group"),
        ("RevokeSecurityGroupIngress", "security-group"),
        ("TerminateInstances", "instance"),
    ],
)
def test_emr_changes_only_what_has_the_clusters_tag(action: str, kind: str) -> None:
    for context, outcome in ((MARKED, True), (OTHERS, False), ({}, False)):
        assert allowed("emr", f"ec2:{action}", f"{EC2}:{kind}/x-1", context) == outcome
    assert not allowed("emr", f"ec2:{action}", f"arn:aws:ec2:us-east-1:{OTHER}:{kind}/x-1", MARKED)


def test_emr_tags_as_the_cluster_alone() -> None:
    instance = f"{EC2}:instance/i-1"
    team = {"aws:RequestTag/team": "research"}
    for context, outcome in (
        ({**MARKING, "ec2:CreateAction": "RunInstances"}, True),
        ({**OTHERS_MARKING, "ec2:CreateAction": "RunInstances"}, False),
        ({**team, "ec2:CreateAction": "RunInstances"}, False),
        # What exists is the cluster's already, and stays so.
        (MARKING, False),
        ({**OTHERS, **MARKING}, False),
        ({**MARKED, **team}, True),
        ({**MARKED, **OTHERS_MARKING}, False),
    ):
        assert allowed("emr", "ec2:CreateTags", instance, context) == outcome, context
    assert not allowed("emr", "ec2:CreateTags", f"{EC2}:vpc/vpc-1", {**MARKED, "ec2:CreateAction": "CreateVpc"})
    assert not allowed("emr", "ec2:DeleteTags", f"{EC2}:security-group/sg-1", MARKED)


@pytest.mark.parametrize(
    "action",
    [
        *("AccountAttributes", "CapacityReservations", "DhcpOptions", "Images", "Instances", "InstanceStatus"),
        *("InstanceTypeOfferings", "InstanceTypes", "KeyPairs", "LaunchTemplates", "NetworkAcls", "NetworkInterfaces"),
        *("PlacementGroups", "RouteTables", "SecurityGroups", "Subnets", "Volumes", "VolumeStatus", "VpcAttribute"),
        *("VpcEndpoints", "Vpcs"),
    ],
)
def test_emr_sees_what_it_has_to(action: str) -> None:
    assert allowed("emr", f"ec2:Describe{action}", "*")


def test_emr_gives_machines_the_role_of_the_clusters_nodes_and_no_other() -> None:
    roles = f"arn:aws:iam::{ACCOUNT}:role"
    to_ec2 = {"iam:PassedToService": "ec2.amazonaws.com"}
    assert allowed("emr", "iam:PassRole", f"{roles}/red-us-east-1-node", to_ec2)
    assert allowed(
        "emr", "iam:PassRole", f"{roles}/red-us-east-1-node", {"iam:PassedToService": "ec2.amazonaws.com.cn"}
    )
    assert not allowed("emr", "iam:PassRole", f"{roles}/red-us-east-1-node", {"iam:PassedToService": "lambda.x"})
    for name in ("red-us-east-1-master", "blue-us-east-1-node", "Admin"):
        assert not allowed("emr", "iam:PassRole", f"{roles}/{name}", to_ec2)


def test_emr_itself_reads_no_data_and_ends_no_cluster() -> None:
    assert not allowed("emr", "s3:GetObject", f"arn:aws:s3:::{BUCKET}/data/x", {"aws:ResourceAccount": ACCOUNT})
    assert not allowed("emr", "elasticmapreduce:TerminateJobFlows", "*")


@pytest.mark.parametrize(
    ("action", "node"),
    [
        *((f"elasticmapreduce:{name}", True) for name in ("DescribeCluster", "ListInstances")),
        *((f"elasticmapreduce:{verb}AutoTerminationPolicy", True) for verb in ("Get", "Put", "Remove")),
        ("elasticmapreduce:TerminateJobFlows", False),
        ("elasticmapreduce:ModifyInstanceGroups", False),
    ],
)
def test_a_node_sees_and_keeps_its_own_cluster(action: str, node: bool) -> None:
    cluster = f"arn:aws:elasticmapreduce:us-east-1:{ACCOUNT}:cluster/j-1"
    assert allowed("node", action, cluster, MARKED) == node
    assert not allowed("node", action, cluster, OTHERS)
    assert not allowed("node", action, cluster)
    assert not allowed("node", action, cluster.replace("us-east-1", "eu-west-1"), MARKED)


def test_a_node_lists_and_ranks_members() -> None:
    assert allowed("node", "ec2:DescribeInstances", "*")
    marked = {"ec2:ResourceTag/deeplearning:cluster": "red"}
    rank, run = ({"aws:TagKeys": [f"deeplearning:{name}"]} for name in ("rank", "run"))
    instance = f"{EC2}:instance/i-1"
    assert allowed("node", "ec2:CreateTags", instance, {**marked, **rank})
    assert not allowed("node", "ec2:CreateTags", instance, {**marked, **run})
    assert not allowed("node", "ec2:CreateTags", instance, rank)
    assert not allowed("node", "ec2:TerminateInstances", instance, MARKED)
    assert not allowed("node", "autoscaling:CompleteLifecycleAction", "*")


@pytest.mark.parametrize("logs", ["", "theirs/of-emr"])
def test_a_node_stores_emrs_logs_in_their_place_alone(logs: str) -> None:
    place = logs or f"{BUCKET}/emr-logs"
    own = {"aws:ResourceAccount": ACCOUNT}
    write = "s3:PutObject"
    assert allowed("node", write, f"arn:aws:s3:::{place}/j-1/x.gz", own, logs=logs)
    assert not allowed("node", write, f"arn:aws:s3:::{place}/j-1/x.gz", {"aws:ResourceAccount": OTHER}, logs=logs)
    assert not allowed("node", write, f"arn:aws:s3:::{place}-2/j-1/x.gz", own, logs=logs)
    assert not allowed("node", "s3:DeleteObject", f"arn:aws:s3:::{place}/j-1/x.gz", own, logs=logs)
    if logs:
        assert not allowed("node", write, f"arn:aws:s3:::{BUCKET}/emr-logs/j-1/x.gz", own, logs=logs)


def test_a_node_fetches_emr_itself_and_the_clusters_data() -> None:
    for place in ("us-east-1.elasticmapreduce/bootstrap/x", "repo.us-east-1.emr.amazonaws.com/apps/x"):
        assert allowed("node", "s3:GetObject", f"arn:aws:s3:::{place}"), place
    assert not allowed("node", "s3:GetObject", "arn:aws:s3:::eu-west-1.elasticmapreduce/x")
    for place in (f"{BUCKET}/bundles/1.py", f"{DATA}/coco2017/x"):
        assert allowed("node", "s3:GetObject", f"arn:aws:s3:::{place}", {"aws:ResourceAccount": ACCOUNT})
    report = f"arn:aws:s3:::{BUCKET}/members/AROANODE:i-01/report.json"
    assert allowed("node", "s3:PutObject", report, {"aws:ResourceAccount": ACCOUNT})


def test_in_another_partition_all_names_have_it() -> None:
    for role in ("emr", "node", "master", "worker"):
        access = MemberAccess("red", "cn-north-1", ACCOUNT, BUCKET, ["a"], ["b"], partition="aws-cn", idle_end=True)
        text = repr(policy_for(role, access))
        assert "arn:aws-cn:" in text and "arn:aws:" not in text
