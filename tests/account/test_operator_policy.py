"""The documented policies and nothing else do not reach what others have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.api.ec2.images import BASE
from tests.account.documented import DOCUMENTED, OF_EMR, Log, Roles, listed_in_readme, person_of, play
from tests.account.kit import CLOUD_HALF
from tests.account.operators import (
    ACCOUNT,
    MINE,
    OTHERS,
    PERSON,
    REFUSALS,
    REGION,
    ROOT,
    S3_SERVICE,
    TYPE,
    ZONE,
    cluster_tag,
    resources_of,
    tagged,
    with_names,
)

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
    roles.add(play(person, CLOUD_HALF, emr=True, cluster_worker_count=1, remove_workers=1, **changes))
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


RED, BLUE = cluster_tag(MINE), cluster_tag(OTHERS)
ANYWHERE = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
ROUTE = {"RouteTableId": "{table}", "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "{gateway}"}
GROUP = {"AutoScalingGroupName": "{name}-workers"}
Refused = list[tuple[str, str, dict[str, Any]]]

ON_OTHERS: Refused = [
    # What another user owns is neither deleted …
    ("ec2", "delete_vpc", {"VpcId": "{vpc}"}),
    ("ec2", "create_image", {"InstanceId": "{instance}", "Name": "copy", "TagSpecifications": tagged("image", MINE)}),
    ("ec2", "deregister_image", {"ImageId": "{image}"}),
    ("ec2", "delete_snapshot", {"SnapshotId": "{snapshot}"}),
    ("ec2", "delete_subnet", {"SubnetId": "{subnet}"}),
    ("ec2", "delete_internet_gateway", {"InternetGatewayId": "{gateway}"}),
    ("ec2", "delete_route_table", {"RouteTableId": "{table}"}),
    ("ec2", "delete_vpc_endpoints", {"VpcEndpointIds": ["{endpoint}"]}),
    ("ec2", "delete_nat_gateway", {"NatGatewayId": "{nat}"}),
    ("ec2", "delete_security_group", {"GroupId": "{group}"}),
    ("ec2", "delete_network_interface", {"NetworkInterfaceId": "{interface}"}),
    ("ec2", "terminate_instances", {"InstanceIds": ["{instance}"]}),
    ("ec2", "release_address", {"AllocationId": "{address}"}),
    ("ec2", "delete_volume", {"VolumeId": "{volume}"}),
    ("ec2", "delete_launch_template", {"LaunchTemplateId": "{template}"}),
    ("ec2", "delete_key_pair", {"KeyPairId": "{key}"}),
    ("ec2", "delete_placement_group", {"GroupName": "{name}"}),
    ("autoscaling", "delete_auto_scaling_group", GROUP | {"ForceDelete": True}),
    (
        "autoscaling",
        "terminate_instance_in_auto_scaling_group",
        {"InstanceId": "{instance}", "ShouldDecrementDesiredCapacity": True},
    ),
    ("efs", "delete_file_system", {"FileSystemId": "{system}"}),
    ("efs", "delete_mount_target", {"MountTargetId": "{target}"}),
    ("iam", "delete_instance_profile", {"InstanceProfileName": "{role}"}),
    ("iam", "remove_role_from_instance_profile", {"InstanceProfileName": "{role}", "RoleName": "{role}"}),
    ("iam", "delete_role_policy", {"RoleName": "{role}", "PolicyName": "p"}),
    ("iam", "detach_role_policy", {"RoleName": "{role}", "PolicyArn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}),
    ("iam", "delete_role", {"RoleName": "{role}"}),
    ("s3", "delete_bucket", {"Bucket": "{bucket}"}),
    ("s3", "delete_object", {"Bucket": "{bucket}", "Key": "report"}),
    ("s3", "delete_object", {"Bucket": "{bucket}", "Key": "report", "VersionId": "null"}),
    # … nor changed or used.
    ("ec2", "modify_vpc_attribute", {"VpcId": "{vpc}", "EnableDnsHostnames": {"Value": True}}),
    ("ec2", "attach_internet_gateway", {"InternetGatewayId": "{gateway}", "VpcId": "{own_vpc}"}),
    ("ec2", "attach_internet_gateway", {"InternetGatewayId": "{own_gateway}", "VpcId": "{vpc}"}),
    ("ec2", "detach_internet_gateway", {"InternetGatewayId": "{gateway}", "VpcId": "{vpc}"}),
    ("ec2", "create_route", ROUTE | {"DestinationCidrBlock": "10.9.0.0/16"}),
    ("ec2", "replace_route", ROUTE),
    ("ec2", "associate_route_table", {"RouteTableId": "{own_table}", "SubnetId": "{subnet}"}),
    ("ec2", "disassociate_route_table", {"AssociationId": "{association}"}),
    (
        "ec2",
        "update_security_group_rule_descriptions_ingress",
        {"GroupId": "{group}", "IpPermissions": ANYWHERE},
    ),
    ("ec2", "authorize_security_group_ingress", {"GroupId": "{group}", "IpPermissions": ANYWHERE}),
    ("ec2", "authorize_security_group_egress", {"GroupId": "{group}", "IpPermissions": ANYWHERE}),
    ("ec2", "revoke_security_group_ingress", {"GroupId": "{group}", "IpPermissions": ANYWHERE}),
    ("ec2", "revoke_security_group_egress", {"GroupId": "{group}", "IpPermissions": ANYWHERE}),
    ("ec2", "modify_network_interface_attribute", {"NetworkInterfaceId": "{interface}", "Groups": ["{own_group}"]}),
    (
        "ec2",
        "modify_network_interface_attribute",
        {"NetworkInterfaceId": "{interface}", "SourceDestCheck": {"Value": False}},
    ),
    ("ec2", "get_console_output", {"InstanceId": "{instance}"}),
    (
        "ec2",
        "create_launch_template_version",
        {"LaunchTemplateId": "{template}", "LaunchTemplateData": {"ImageId": "ami-0"}},
    ),
    ("ec2", "modify_launch_template", {"LaunchTemplateId": "{template}", "DefaultVersion": "1"}),
    ("ec2", "associate_address", {"AllocationId": "{address}", "InstanceId": "{instance}"}),
    ("ec2", "disassociate_address", {"AssociationId": "{use}"}),
    (
        "ec2",
        "create_subnet",
        {"VpcId": "{vpc}", "CidrBlock": "10.1.9.0/24", "TagSpecifications": tagged("subnet", MINE)},
    ),
    ("ec2", "create_route_table", {"VpcId": "{vpc}", "TagSpecifications": tagged("route-table", MINE)}),
    (
        "ec2",
        "create_security_group",
        {
            "VpcId": "{vpc}",
            "GroupName": "h",
            "Description": "h",
            "TagSpecifications": tagged("security-group", MINE),
        },
    ),
    (
        "ec2",
        "create_vpc_endpoint",
        {"VpcId": "{vpc}", "ServiceName": S3_SERVICE, "TagSpecifications": tagged("vpc-endpoint", MINE)},
    ),
    (
        "ec2",
        "create_nat_gateway",
        {
            "SubnetId": "{subnet}",
            "AllocationId": "{own_address}",
            "TagSpecifications": tagged("natgateway", MINE),
        },
    ),
    ("ec2", "create_network_interface", {"SubnetId": "{subnet}"}),
    ("ec2", "create_network_interface", {"SubnetId": "{own_subnet}", "Groups": ["{group}"]}),
    (
        "ec2",
        "run_instances",
        {
            "ImageId": BASE.id,
            "InstanceType": TYPE,
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": "{subnet}",
            "IamInstanceProfile": {"Name": "{role}"},
            "TagSpecifications": tagged("instance", MINE),
        },
    ),
    ("autoscaling", "update_auto_scaling_group", GROUP | {"MaxSize": 9}),
    ("autoscaling", "set_desired_capacity", GROUP | {"DesiredCapacity": 0}),
    ("autoscaling", "suspend_processes", GROUP),
    ("autoscaling", "resume_processes", GROUP),
    ("autoscaling", "disable_metrics_collection", GROUP),
    ("autoscaling", "put_lifecycle_hook", GROUP | {"LifecycleHookName": "h"}),
    ("autoscaling", "put_scheduled_update_group_action", GROUP | {"ScheduledActionName": "end", "MinSize": 0}),
    ("autoscaling", "delete_scheduled_action", GROUP | {"ScheduledActionName": "end"}),
    (
        "autoscaling",
        "complete_lifecycle_action",
        GROUP | {"LifecycleHookName": "h", "LifecycleActionResult": "ABANDON", "InstanceId": "{instance}"},
    ),
    (
        "autoscaling",
        "create_or_update_tags",
        {
            "Tags": [
                {
                    "ResourceId": "{name}-workers",
                    "ResourceType": "auto-scaling-group",
                    "Key": "team",
                    "Value": "red",
                    "PropagateAtLaunch": True,
                }
            ]
        },
    ),
    ("efs", "create_mount_target", {"FileSystemId": "{system}", "SubnetId": "{own_subnet}"}),
    ("efs", "create_mount_target", {"FileSystemId": "{own_system}", "SubnetId": "{subnet}"}),
    ("efs", "modify_mount_target_security_groups", {"MountTargetId": "{target}", "SecurityGroups": ["{own_group}"]}),
    ("efs", "update_file_system", {"FileSystemId": "{system}", "ThroughputMode": "elastic"}),
    ("iam", "put_role_policy", {"RoleName": "{role}", "PolicyName": "p", "PolicyDocument": "{{}}"}),
    ("iam", "update_role", {"RoleName": "{role}", "Description": "d"}),
    ("iam", "update_assume_role_policy", {"RoleName": "{role}", "PolicyDocument": "{{}}"}),
    ("iam", "add_role_to_instance_profile", {"InstanceProfileName": "{role}", "RoleName": "{role}"}),
    ("efs", "put_file_system_policy", {"FileSystemId": "{system}", "Policy": "{{}}"}),
    ("efs", "delete_file_system_policy", {"FileSystemId": "{system}"}),
    ("s3", "put_bucket_policy", {"Bucket": "{bucket}", "Policy": "{{}}"}),
    ("s3", "put_object", {"Bucket": "{bucket}", "Key": "report", "Body": b""}),
    ("s3", "get_object", {"Bucket": "{bucket}", "Key": "report"}),
    ("s3", "get_object_tagging", {"Bucket": "{bucket}", "Key": "report"}),
    ("s3", "abort_multipart_upload", {"Bucket": "{bucket}", "Key": "report", "UploadId": "u"}),
    ("s3", "put_bucket_tagging", {"Bucket": "{bucket}", "Tagging": {"TagSet": RED}}),
    ("s3", "put_bucket_encryption", {"Bucket": "{bucket}", "ServerSideEncryptionConfiguration": {"Rules": []}}),
    ("s3", "put_bucket_ownership_controls", {"Bucket": "{bucket}", "OwnershipControls": {"Rules": []}}),
    ("s3", "put_public_access_block", {"Bucket": "{bucket}", "PublicAccessBlockConfiguration": {}}),
    # It does not become one's own by a tag.
    ("ec2", "create_tags", {"Resources": ["{vpc}"], "Tags": RED}),
    ("ec2", "create_tags", {"Resources": ["{interface}"], "Tags": RED}),
    ("ec2", "create_tags", {"Resources": ["{instance}"], "Tags": RED}),
    ("ec2", "create_tags", {"Resources": ["{volume}"], "Tags": RED}),
    ("ec2", "create_tags", {"Resources": ["{key}"], "Tags": RED}),
    ("efs", "tag_resource", {"ResourceId": "{system}", "Tags": RED}),
    ("iam", "tag_role", {"RoleName": "{role}", "Tags": RED}),
    ("iam", "tag_instance_profile", {"InstanceProfileName": "{role}", "Tags": RED}),
]
ELSEWHERE: Refused = [
    # Nothing is created without the cluster's tag, or with another cluster's.
    ("ec2", "create_vpc", {"CidrBlock": "10.2.0.0/16"}),
    ("ec2", "create_vpc", {"CidrBlock": "10.2.0.0/16", "TagSpecifications": tagged("vpc", OTHERS)}),
    ("ec2", "create_volume", {"AvailabilityZone": ZONE, "Size": 1, "TagSpecifications": tagged("volume", MINE)}),
    ("ec2", "create_internet_gateway", {}),
    ("ec2", "create_launch_template", {"LaunchTemplateName": "t", "LaunchTemplateData": {"ImageId": BASE.id}}),
    ("ec2", "create_placement_group", {"GroupName": "p", "Strategy": "cluster"}),
    ("ec2", "import_key_pair", {"KeyName": "k", "PublicKeyMaterial": b"ssh-ed25519 AAAA"}),
    ("ec2", "allocate_address", {"Domain": "vpc"}),
    ("ec2", "run_instances", {"ImageId": BASE.id, "InstanceType": TYPE, "MinCount": 1, "MaxCount": 1}),
    (
        "autoscaling",
        "create_auto_scaling_group",
        {
            "AutoScalingGroupName": "extra",
            "MinSize": 0,
            "MaxSize": 0,
            "VPCZoneIdentifier": "{own_subnet}",
            "LaunchTemplate": {"LaunchTemplateId": "{own_template}"},
        },
    ),
    ("efs", "create_file_system", {"CreationToken": "t"}),
    ("iam", "create_role", {"RoleName": "admin", "AssumeRolePolicyDocument": "{{}}"}),
    ("iam", "create_instance_profile", {"InstanceProfileName": "admin"}),
    ("iam", "create_user", {"UserName": "admin"}),
    ("iam", "create_service_linked_role", {"AWSServiceName": "ecs.amazonaws.com"}),
    ("s3", "create_bucket", {"Bucket": "anything"}),
    # What belongs to the account stays unread, secrets first of all.
    ("ssm", "get_parameter", {"Name": "/prod/database/password"}),
    ("ssm", "get_parameters", {"Names": ["/prod/database/password"], "WithDecryption": True}),
    ("ssm", "get_parameters", {"Names": ["aws-service-password"]}),
    ("ssm", "get_parameters_by_path", {"Path": "/", "Recursive": True, "WithDecryption": True}),
    ("ssm", "get_parameters_by_path", {"Path": "/prod"}),
]
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


def allowed(person: Any, calls: Refused, names: Mapping[str, str]) -> list[str]:
    """The calls that were not refused, with what came of them."""
    came_through = []
    for service, operation, params in calls:
        try:
            getattr(person.client(service), operation)(**with_names(params, names))
        except ClientError as error:
            if error.response["Error"]["Code"] in REFUSALS:
                continue
            came_through.append(f"{service}.{operation} {params}: {error}")
        else:
            came_through.append(f"{service}.{operation} {params}: done")
    return came_through


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


def test_a_boundary_holds_the_operator_to_it(account: Any, person: Any) -> None:
    iam, own = account.client("iam"), person.client("iam")
    text = (ROOT / "docs/iam.md").read_text(encoding="utf-8")
    (denial,) = [result for result in re.findall(r"```json\n(.*?)```", text, re.DOTALL) if '"Deny"' in result]
    boundary = f"arn:aws:iam::{ACCOUNT}:policy/cluster-members"
    granted = {"Effect": "Allow", "Action": ["s3:*", "ec2:*", "autoscaling:*"], "Resource": "*"}
    most = json.dumps({"Version": "2012-10-17", "Statement": [granted]})
    iam.create_policy(PolicyName="cluster-members", PolicyDocument=most)
    document = denial.replace("<the ARN of the boundary>", boundary)
    created = iam.create_policy(PolicyName="held-to-the-boundary", PolicyDocument=document)
    iam.attach_user_policy(UserName=PERSON, PolicyArn=created["Policy"]["Arn"])

    refused = person.play(CLOUD_HALF)
    role = f"arn:aws:iam::{ACCOUNT}:role/{MINE}-{REGION}-master"
    who = f"arn:aws:iam::{ACCOUNT}:user/{PERSON}"
    reason = f"AWS does not allow iam:CreateRole on {role} to {who}, with an explicit deny"
    assert refused.code == 2 and reason in " ".join(refused.output.split())
    # The roles come first; what follows them is the same with a boundary.
    error = {"code": "VpcLimitExceeded", "message": "The maximum number of VPCs has been reached.", "status": 400}
    account.cloud.faults.add("error", {"action": "ec2:CreateVpc"}, value=error)
    play(person, CLOUD_HALF, code=2, cluster_permissions_boundary=boundary)
    role = f"{MINE}-{REGION}-master"
    assert iam.get_role(RoleName=role)["Role"]["PermissionsBoundary"]["PermissionsBoundaryArn"] == boundary

    for service, operation, params in (
        ("iam", "delete_role_permissions_boundary", {"RoleName": role}),
        ("iam", "put_role_permissions_boundary", {"RoleName": role, "PermissionsBoundary": created["Policy"]["Arn"]}),
        ("iam", "create_policy_version", {"PolicyArn": boundary, "PolicyDocument": "{{}}"}),
        ("iam", "delete_user_policy", {"UserName": PERSON, "PolicyName": "held-to-the-boundary"}),
        ("iam", "detach_user_policy", {"UserName": PERSON, "PolicyArn": created["Policy"]["Arn"]}),
    ):
        assert allowed(person, [(service, operation, params)], {}) == []
    iam.delete_role_permissions_boundary(RoleName=role)
    with pytest.raises(ClientError, match="AccessDenied"):
        own.put_role_policy(RoleName=role, PolicyName="p", PolicyDocument=most)


def test_it_is_for_one_region(person: Any) -> None:
    elsewhere = person.client("ec2", "eu-west-1")
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        elsewhere.create_vpc(CidrBlock="10.2.0.0/16", TagSpecifications=tagged("vpc", MINE))
    created = person.client("ec2").create_vpc(CidrBlock="10.2.0.0/16", TagSpecifications=tagged("vpc", MINE))
    assert created["Vpc"]["VpcId"]
