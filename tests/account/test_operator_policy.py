"""The documented policies and nothing else do not reach what others have."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.account.attempts import BLUE, ELSEWHERE, ON_OTHERS, RED, Refused, allowed
from tests.account.booting import nodes_of
from tests.account.documented import DOCUMENTED, OF_EMR, Log, Roles, listed_in_readme, person_of, play
from tests.account.kit import CLOUD_HALF
from tests.account.operators import (
    ACCOUNT,
    BOUNDARY,
    MINE,
    OTHERS,
    PERSON,
    REGION,
    TYPE,
    ZONE,
    cluster_tag,
    operator,
    resources_of,
    tagged,
)

pytestmark = pytest.mark.gate

PROFILE_UNKNOWN = "emr:RunJobFlow: AccessDeniedException"
"""EMR's answer while it does not know a new instance profile, too. A real refusal fails the playbook."""


@pytest.fixture
def person(account: Any) -> Any:
    return person_of(account)


@pytest.mark.long
def test_tags_that_count_late_are_waited_for(account: Any, person: Any) -> None:
    """Policies that allow calls by tags deny them until the tags of a new resource count."""
    account.cloud.faults.add("late-tags", {}, 2.0)
    play(person, CLOUD_HALF, cluster_worker_count=1, cluster_spot=False)


def test_emr_runs_with_it_and_needs_all_of_it(account: Any, person: Any) -> None:
    log, roles = Log(account), Roles(Log(account))
    of_others = ("image", "login_user", "spot", "efs_tls", "ttl_hours")
    for setting in of_others:
        del person.settings[f"cluster_{setting}"]
    person.settings |= {"cluster_instance_type": "m5.xlarge", "emr_poll_seconds": 1}
    # AWS does not document whether it checks the end of a new cluster: tests/account/test_neighbour.py has both.
    account.cloud.faults.add("emr-end-checked", {})
    roles.add(play(person, CLOUD_HALF, emr=True, cluster_worker_count=1))
    changes = {"cluster_emr_replace_unhealthy": False, "cluster_emr_termination_protection": True}
    changes |= {"cluster_emr_idle_minutes": 30, "cluster_tags": {"team": "research"}}
    roles.add(play(person, CLOUD_HALF, emr=True, cluster_worker_count=2, **changes))
    changes |= {"cluster_emr_idle_minutes": 0, "remove_end": True}
    iam = account.client("iam")
    for kind in ("emr", "node"):
        assert boundary_of(account, kind) == BOUNDARY
        iam.delete_role_permissions_boundary(RoleName=f"{MINE}-{REGION}-{kind}")
    roles.add(play(person, CLOUD_HALF, emr=True, cluster_worker_count=1, remove_workers=1, **changes))
    assert [boundary_of(account, kind) for kind in ("emr", "node")] == [BOUNDARY, BOUNDARY]
    play(person, "status.yml")
    play(person, "destroy.yml", destroy=MINE, cluster_keep_efs=False)

    needed = log.needed()
    problems = [f"refused: {call}" for call in log.refused() if call != PROFILE_UNKNOWN]
    problems += [
        f"needed, and not in docs/iam: {action} ({needed[action]})"
        for action in sorted(needed.keys() - DOCUMENTED - OF_EMR)
    ]
    problems += [f"in operator-emr, and never needed: {action}" for action in sorted(OF_EMR - needed.keys())]
    assert not problems, "\n" + "\n".join(problems)
    # A failure needs more than this.
    assert roles.needed["emr_cluster"] <= listed_in_readme("emr_cluster")


GIVEN_AWAY: Refused = [
    # One's own does not become the neighbour's by a tag: the neighbour's playbooks find their network by it.
    ("ec2", "create_tags", {"Resources": ["{own_vpc}"], "Tags": BLUE}),
    ("ec2", "create_tags", {"Resources": ["{own_subnet}", "{own_gateway}"], "Tags": BLUE}),
    ("ec2", "create_tags", {"Resources": ["{own_instance}"], "Tags": [*BLUE, {"Key": "team", "Value": "x"}]}),
    ("efs", "tag_resource", {"ResourceId": "{own_system}", "Tags": BLUE}),
    ("iam", "tag_role", {"RoleName": "{own_role}", "Tags": BLUE}),
    ("iam", "tag_instance_profile", {"InstanceProfileName": "{own_role}", "Tags": BLUE}),
    (
        "autoscaling",
        "create_or_update_tags",
        {
            "Tags": [
                {
                    "ResourceId": "{own_name}-workers",
                    "ResourceType": "auto-scaling-group",
                    **BLUE[0],
                    "PropagateAtLaunch": True,
                }
            ]
        },
    ),
]
READING = re.compile(
    r"\w+:(Describe|List|GetAccelerate|GetBucket|GetEbs|GetEncryption|GetInstanceProfile|GetInventory|GetProducts|GetRole"
    r"|GetAWSDefaultServiceQuota|GetServiceQuota)"
)


def own_resources(account: Any) -> dict[str, str]:
    return {f"own_{kind}": result for kind, result in resources_of(account, MINE, MINE).items()}


@pytest.mark.parametrize("cluster", [OTHERS, None], ids=["another cluster's", "without any tag"])
def test_it_does_not_reach_what_others_have(account: Any, person: Any, cluster: str | None) -> None:
    names = own_resources(account) | resources_of(account, OTHERS, cluster)
    came_through = allowed(person, ON_OTHERS + ELSEWHERE, names)
    assert not came_through, "\n" + "\n".join(came_through)
    # Every action that changes something was among what these calls needed.
    untried = {action for action in DOCUMENTED if not READING.match(action)} - Log(account).needed().keys()
    assert untried == set()


def emr_cluster(account: Any, cluster: str | None, **roles: str) -> tuple[str, str]:
    """Create an EMR cluster as its owner would, and return its id and its subnet."""
    ec2 = account.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.3.0.0/16")["Vpc"]["VpcId"]
    tagged_so = tagged("subnet", cluster)
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.3.0.0/24", AvailabilityZone=ZONE, TagSpecifications=tagged_so)
    subnet = str(made["Subnet"]["SubnetId"])
    groups = [{"InstanceRole": role, "InstanceType": "m5.xlarge", "InstanceCount": 1} for role in ("MASTER", "CORE")]
    instances = {"InstanceGroups": groups, "Ec2SubnetId": subnet, "KeepJobFlowAliveWhenNoSteps": True}
    tags = cluster_tag(cluster)
    request = {"Name": "blue", "ReleaseLabel": "emr-7.14.0", "Instances": instances, "Tags": tags, **roles}
    return str(account.client("emr").run_job_flow(**request)["JobFlowId"]), subnet


@pytest.mark.parametrize("cluster", [OTHERS, None], ids=["another cluster's", "without any tag"])
def test_it_does_not_reach_the_emr_clusters_of_others(account: Any, person: Any, cluster: str | None) -> None:
    iam = account.client("iam")
    role, service = f"{OTHERS}-{REGION}-node", f"{OTHERS}-{REGION}-emr"
    for name, principal in ((role, "ec2"), (service, "elasticmapreduce")):
        trusted = {
            "Effect": "Allow",
            "Principal": {"Service": f"{principal}.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
        document = json.dumps({"Version": "2012-10-17", "Statement": [trusted]})
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)
    launch = {"Effect": "Allow", "Action": ["ec2:*", "iam:PassRole"], "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [launch]})
    iam.put_role_policy(RoleName=service, PolicyName="launch", PolicyDocument=document)
    iam.create_instance_profile(InstanceProfileName=role)
    iam.add_role_to_instance_profile(InstanceProfileName=role, RoleName=role)
    roles = {"JobFlowRole": role, "ServiceRole": service}
    for tags in ([], cluster_tag(OTHERS), RED):
        # The roles are not its own, so even its own tag does not help.
        with pytest.raises(ClientError, match="AccessDenied"):
            person_emr_cluster(person, tags, **roles)
    job_flow, subnet = emr_cluster(account, cluster, **roles)
    (group,) = [
        group
        for group in account.client("emr").list_instance_groups(ClusterId=job_flow)["InstanceGroups"]
        if group["InstanceGroupType"] == "CORE"
    ]
    of_it = {"ClusterId": job_flow}
    calls: Refused = [
        ("emr", "add_tags", {"ResourceId": job_flow, "Tags": RED}),
        (
            "emr",
            "modify_instance_groups",
            {**of_it, "InstanceGroups": [{"InstanceGroupId": group["Id"], "InstanceCount": 2}]},
        ),
        ("emr", "put_auto_termination_policy", {**of_it, "AutoTerminationPolicy": {"IdleTimeout": 60}}),
        ("emr", "remove_auto_termination_policy", of_it),
        ("emr", "set_termination_protection", {"JobFlowIds": [job_flow], "TerminationProtected": False}),
        ("emr", "set_unhealthy_node_replacement", {"JobFlowIds": [job_flow], "UnhealthyNodeReplacement": False}),
        ("emr", "terminate_job_flows", {"JobFlowIds": [job_flow]}),
        ("emr", "describe_cluster", of_it),
        ("emr", "list_instances", of_it),
        ("emr", "list_instance_groups", of_it),
        ("emr", "get_auto_termination_policy", of_it),
        ("ec2", "modify_subnet_attribute", {"SubnetId": subnet, "MapPublicIpOnLaunch": {"Value": True}}),
        ("iam", "create_role", {"RoleName": f"{service}-2", "AssumeRolePolicyDocument": "{{}}"}),
        ("iam", "put_role_policy", {"RoleName": service, "PolicyName": "launch", "PolicyDocument": "{{}}"}),
        ("iam", "put_role_permissions_boundary", {"RoleName": service, "PermissionsBoundary": BOUNDARY}),
    ]
    came_through = allowed(person, calls, {})
    assert not came_through, "\n" + "\n".join(came_through)
    assert {action for action in OF_EMR if not READING.match(action)} - Log(account).needed().keys() == set()


def person_emr_cluster(person: Any, tags: Any, **roles: str) -> None:
    groups = [{"InstanceRole": "MASTER", "InstanceType": "m5.xlarge", "InstanceCount": 1}]
    instances = {"InstanceGroups": groups, "KeepJobFlowAliveWhenNoSteps": True}
    person.client("emr").run_job_flow(Name="red", ReleaseLabel="emr-7.14.0", Instances=instances, Tags=tags, **roles)


def test_it_does_not_give_away_what_is_its_own(account: Any, person: Any) -> None:
    names = own_resources(account)
    came_through = allowed(person, GIVEN_AWAY, names)
    assert not came_through, "\n" + "\n".join(came_through)
    ours = [*RED, {"Key": "team", "Value": "research"}]
    person.client("ec2").create_tags(Resources=[names["own_vpc"], names["own_instance"]], Tags=ours)
    person.client("efs").tag_resource(ResourceId=names["own_system"], Tags=ours)
    person.client("iam").tag_role(RoleName=names["own_role"], Tags=ours)


def test_it_does_not_change_the_bucket_that_operators_share(account: Any, person: Any) -> None:
    bucket, photos = f"{ACCOUNT}-{REGION}-deeplearning-data", account.folder / "photos"
    photos.mkdir()
    (photos / "photos.bin").write_bytes(b"photos")
    options = {"dataset": "photos", "source_dir": str(photos)}
    missing = play(person, "stage.yml", code=2, **options)
    assert f"The bucket {bucket} does not exist, and these credentials may not create it" in words(missing)
    play(account, "stage.yml", **options)
    since = len(list(Log(account).calls()))
    assert play(person, "stage.yml", **options).changed == 0
    assert not [call for call in list(Log(account).calls())[since:] if call["operation"].startswith("Put")]
    (photos / "photos.bin").write_bytes(b"others")
    assert play(person, "stage.yml", **options).changed == 1

    block = {"Bucket": bucket, "PublicAccessBlockConfiguration": {"BlockPublicPolicy": False}}
    calls: Refused = [
        ("s3", "put_bucket_policy", {"Bucket": bucket, "Policy": "{{}}"}),
        ("s3", "put_public_access_block", block),
        ("s3", "put_bucket_tagging", {"Bucket": bucket, "Tagging": {"TagSet": RED}}),
        ("s3", "put_bucket_encryption", {"Bucket": bucket, "ServerSideEncryptionConfiguration": {"Rules": []}}),
        ("s3", "put_bucket_ownership_controls", {"Bucket": bucket, "OwnershipControls": {"Rules": []}}),
        ("s3", "delete_object", {"Bucket": bucket, "Key": "photos/photos.bin"}),
        ("s3", "delete_bucket", {"Bucket": bucket}),
    ]
    assert allowed(person, calls, {}) == []
    account.client("s3").delete_public_access_block(Bucket=bucket)
    changed = play(person, "stage.yml", code=2, **options)
    assert f"The bucket {bucket} is not configured as it should be, and these credentials may not" in words(changed)


def words(ran: Any) -> str:
    return " ".join(ran.output.split())


def boundary_of(account: Any, role: str) -> str:
    described = account.client("iam").get_role(RoleName=f"{MINE}-{REGION}-{role}")["Role"]
    return str(described.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", ""))


def test_a_boundary_holds_the_operator_to_it(account: Any, person: Any) -> None:
    del person.settings["cluster_permissions_boundary"]
    refused = person.play(CLOUD_HALF)
    role = f"arn:aws:iam::{ACCOUNT}:role/{MINE}-{REGION}-master"
    who = f"arn:aws:iam::{ACCOUNT}:user/{PERSON}"
    assert refused.code == 2 and f"AWS does not allow iam:CreateRole on {role} to {who}" in words(refused)
    # The roles come first; what follows them is the same with a boundary.
    error = {"code": "VpcLimitExceeded", "message": "The maximum number of VPCs has been reached.", "status": 400}
    account.cloud.faults.add("error", {"action": "ec2:CreateVpc"}, value=error)
    play(person, CLOUD_HALF, code=2, cluster_permissions_boundary=BOUNDARY)
    assert [boundary_of(account, kind) for kind in ("master", "worker")] == [BOUNDARY, BOUNDARY]
    assert set(Log(account).refused()) == {"iam:CreateRole: AccessDenied"}


def test_a_running_cluster_gets_the_boundary(account: Any) -> None:
    """It was created without one. Its machines go on, and it is scaled and removed by the operator's policies."""
    account.wants(MINE, cluster_instance_type=TYPE, cluster_worker_count=1, provision_settle_seconds=1)
    nodes = nodes_of(account, MINE)
    with nodes.boot():
        play(account, CLOUD_HALF)
    assert boundary_of(account, "worker") == ""
    machine = machines_of(account)[0]
    nodes.report(f"{MINE}-workers", machine, "ready")

    person = operator(account)
    with nodes.boot():
        play(person, CLOUD_HALF, cluster_worker_count=2, cluster_permissions_boundary=BOUNDARY)
    assert [boundary_of(account, kind) for kind in ("master", "worker")] == [BOUNDARY, BOUNDARY]
    assert len(machines_of(account)) == 2
    # The machine has been there before, and reports as before.
    nodes.report(f"{MINE}-workers", machine, "ready")

    # The setting is recorded.
    play(person, CLOUD_HALF, cluster_worker_count=1, remove_workers=1)
    assert boundary_of(account, "worker") == BOUNDARY
    play(person, "destroy.yml", destroy=MINE, cluster_keep_efs=False)
    assert Log(account).refused() == []


def machines_of(account: Any) -> list[str]:
    """Return the ids of the workers in service, the oldest first."""
    names = {"AutoScalingGroupNames": [f"{MINE}-workers"]}
    (group,) = account.client("autoscaling").describe_auto_scaling_groups(**names)["AutoScalingGroups"]
    return [machine["InstanceId"] for machine in group["Instances"] if machine["LifecycleState"] == "InService"]


def test_it_is_for_one_region(person: Any) -> None:
    elsewhere = person.client("ec2", "eu-west-1")
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        elsewhere.create_vpc(CidrBlock="10.2.0.0/16", TagSpecifications=tagged("vpc", MINE))
    created = person.client("ec2").create_vpc(CidrBlock="10.2.0.0/16", TagSpecifications=tagged("vpc", MINE))
    assert created["Vpc"]["VpcId"]
