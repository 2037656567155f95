"""A neighbour with intent: an operator of the same account, with the documented policies for a cluster of their own,
who wants what another cluster has. tests/account/test_operator_policy.py tries all actions on others' resources; here
they come through their own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import MemberAccess, policy_for
from botocore.exceptions import ClientError, WaiterError

from localcloud.testing.catalog import BASE
from tests.account.attempts import ELSEWHERE, ON_OTHERS, Refused, allowed
from tests.account.kit import account_in, new_session
from tests.account.operators import (
    ACCOUNT,
    BOUNDARY,
    MINE,
    OTHERS,
    PERSON,
    REFUSALS,
    REGION,
    S3_SERVICE,
    TYPE,
    cluster_tag,
    image_of,
    operator,
    resources_of,
    tagged,
    with_names,
)

pytestmark = pytest.mark.gate

FULL_ACCESS = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
DISK = {"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": "{snapshot}"}}
OWN_DISK = {"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": "{own_snapshot}"}}
TAGS = [*tagged("instance", MINE), *tagged("volume", MINE), *tagged("network-interface", MINE)]
LAUNCH = {"ImageId": BASE.id, "InstanceType": TYPE, "SecurityGroupIds": ["{own_group}"], "TagSpecifications": TAGS}
RUN = LAUNCH | {"MinCount": 1, "MaxCount": 1, "SubnetId": "{own_subnet}"}
GROUP = {"AutoScalingGroupName": "{own_name}-workers"}
SERVICE, NODE = f"{MINE}-{REGION}-emr", f"{MINE}-{REGION}-node"
MASTER = f"{MINE}-{REGION}-master"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with account_in(tmp_path_factory.mktemp("neighbour")) as account:
        yield account


@pytest.fixture(scope="module")
def names(account: Any) -> dict[str, str]:
    """Return what the neighbours have: of red's, `own_…`."""
    names = {f"own_{kind}": name for kind, name in resources_of(account, MINE, MINE).items()}
    names |= resources_of(account, OTHERS, OTHERS)
    ec2 = account.client("ec2")
    for kind, subnet in (("free", names["subnet"]), ("untagged", names["own_subnet"])):
        created = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]
        names[f"{kind}_interface"] = created["NetworkInterfaceId"]
    golden, snapshot = image_of(account, "golden", None, names["own_subnet"])
    return names | {"golden": golden, "untagged_snapshot": snapshot}


@pytest.fixture(scope="module")
def red(account: Any) -> Any:
    """Return red's operator, an IAM user with the documented policies and nothing else."""
    return operator(account)


def tried(client: Any, operation: str, params: dict[str, Any], names: dict[str, str]) -> str:
    """Return "refused", or "allowed" if AWS took the call, or refused it for another reason than permissions."""
    try:
        getattr(client, operation)(**with_names(params, names))
    except ClientError as error:
        return "refused" if error.response["Error"]["Code"] in REFUSALS else "allowed"
    return "allowed"


RESERVATIONS = f"arn:aws:resource-groups:{REGION}:{ACCOUNT}:group/reservations"


def reserved(**target: str) -> dict[str, Any]:
    return {"CapacityReservationTarget": target}


@pytest.mark.parametrize(
    ("disks", "outcome"),
    [
        ([DISK], "refused"),
        ([{"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": "{untagged_snapshot}"}}], "refused"),
        ([OWN_DISK, DISK], "refused"),
        # The local cloud refuses mappings, after it has checked the permissions.
        ([OWN_DISK], "allowed"),
        ([], "allowed"),
    ],
)
def test_an_image_of_its_own_machine_has_no_snapshots_of_others(
    red: Any, names: dict[str, str], disks: list[Any], outcome: str
) -> None:
    tags = [*tagged("image", MINE), *tagged("snapshot", MINE)]
    request = {"InstanceId": "{own_instance}", "Name": "copy", "TagSpecifications": tags, "DryRun": True}
    mapping = {"BlockDeviceMappings": disks} if disks else {}
    assert tried(red.client("ec2"), "create_image", request | mapping, names) == outcome


@pytest.fixture
def version(red: Any, names: dict[str, str]) -> Any:
    """Return a function that makes a version of red's own launch template, which nothing refuses."""

    def make(**data: Any) -> str:
        made = red.client("ec2").create_launch_template_version(
            LaunchTemplateId=names["own_template"], LaunchTemplateData=with_names(LAUNCH | data, names)
        )
        return str(made["LaunchTemplateVersion"]["VersionNumber"])

    return make


def template(version: str | None) -> dict[str, Any]:
    return {"LaunchTemplateId": "{own_template}", **({"Version": version} if version else {})}


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ({}, "allowed"),
        ({"IamInstanceProfile": {"Name": "{role}"}}, "refused"),
        ({"SecurityGroupIds": ["{group}"]}, "refused"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "NetworkInterfaceId": "{free_interface}"}]}, "refused"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "NetworkInterfaceId": "{untagged_interface}"}]}, "refused"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": "{subnet}", "Groups": ["{own_group}"]}]}, "refused"),
        ({"ImageId": "{image}"}, "refused"),
        ({"ImageId": "{golden}"}, "refused"),
        ({"ImageId": "{own_image}"}, "allowed"),
        ({"Placement": {"GroupName": "{name}"}}, "refused"),
        ({"BlockDeviceMappings": [DISK]}, "refused"),
        ({"BlockDeviceMappings": [OWN_DISK]}, "allowed"),
    ],
)
def test_a_version_of_its_own_template_brings_its_group_nothing_of_others(
    red: Any, names: dict[str, str], version: Any, data: dict[str, Any], outcome: str
) -> None:
    request = GROUP | {"LaunchTemplate": template(version(**data)), "MaxSize": 1}
    assert tried(red.client("autoscaling"), "update_auto_scaling_group", request, names) == outcome


MIXED = {"LaunchTemplate": {"LaunchTemplateSpecification": template("$Latest")}}
OVERRIDDEN = {
    "LaunchTemplate": {
        "LaunchTemplateSpecification": template("1"),
        "Overrides": [{"LaunchTemplateSpecification": template("$Default")}],
    }
}


@pytest.mark.parametrize("operation", ["create_auto_scaling_group", "update_auto_scaling_group"])
@pytest.mark.parametrize(
    "source",
    [
        {"LaunchTemplate": template("$Latest")},
        {"LaunchTemplate": template("$Default")},
        {"LaunchTemplate": template(None)},
        {"MixedInstancesPolicy": MIXED},
        {"MixedInstancesPolicy": OVERRIDDEN},
        {"LaunchConfigurationName": "web"},
        {"InstanceId": "{instance}"},
    ],
)
def test_a_group_has_a_numbered_version_of_a_template(
    red: Any, names: dict[str, str], version: Any, operation: str, source: dict[str, Any]
) -> None:
    # The versions themselves are allowed: a numbered one passes.
    number = version()
    red.client("ec2").modify_launch_template(LaunchTemplateId=names["own_template"], DefaultVersion=number)
    if operation == "update_auto_scaling_group" and "InstanceId" in source:
        source = {}  # an update has no instance to copy
    request = group(operation) | source
    assert tried(red.client("autoscaling"), operation, request, names) == "refused"
    numbered = group(operation) | {"LaunchTemplate": template(number)}
    assert tried(red.client("autoscaling"), operation, numbered, names) == "allowed"


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"TargetGroupARNs": [f"arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:targetgroup/web/1"]},
        {"LoadBalancerNames": ["web"]},
        {"TrafficSources": [{"Identifier": "arn:aws:vpc-lattice:x"}]},
    ],
    ids=lambda params: next(iter(params)),
)
def test_a_group_is_created_without_the_requests_of_others(
    red: Any, names: dict[str, str], version: Any, elsewhere: dict[str, Any]
) -> None:
    request = group("create_auto_scaling_group") | {"LaunchTemplate": template(version())}
    assert tried(red.client("autoscaling"), "create_auto_scaling_group", request | elsewhere, names) == "refused"
    assert tried(red.client("autoscaling"), "create_auto_scaling_group", request, names) == "allowed"


def group(operation: str) -> dict[str, Any]:
    sizes = {"MinSize": 0, "MaxSize": 0}
    tags = [
        {"ResourceId": "{own_name}-workers", "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False, **tag}
        for tag in cluster_tag(MINE)
    ]
    new = {"VPCZoneIdentifier": "{own_subnet}", "Tags": tags} if operation.startswith("create") else {}
    return GROUP | sizes | new


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ({}, "allowed"),
        ({"SubnetId": "{subnet}"}, "refused"),
        ({"SecurityGroupIds": ["{own_group}", "{group}"]}, "refused"),
        ({"IamInstanceProfile": {"Name": "{role}"}}, "refused"),
        ({"BlockDeviceMappings": [DISK]}, "refused"),
        ({"BlockDeviceMappings": [OWN_DISK]}, "allowed"),
        ({"LaunchTemplate": {"LaunchTemplateId": "{template}", "Version": "1"}}, "refused"),
        ({"LaunchTemplate": {"LaunchTemplateId": "{own_template}", "Version": "1"}}, "allowed"),
        ({"ImageId": "{image}"}, "refused"),
        ({"ImageId": "{golden}"}, "refused"),
        ({"ImageId": "{own_image}"}, "allowed"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "NetworkInterfaceId": "{free_interface}"}]}, "refused"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "NetworkInterfaceId": "{untagged_interface}"}]}, "refused"),
        ({"TagSpecifications": [*tagged("instance", OTHERS), *TAGS[1:]]}, "refused"),
        # amazon.aws does not tag the interface of the machine that an image is made of.
        ({"TagSpecifications": TAGS[:2]}, "allowed"),
        ({"CapacityReservationSpecification": reserved(CapacityReservationId="cr-0123456789abcdef0")}, "refused"),
        ({"CapacityReservationSpecification": reserved(CapacityReservationResourceGroupArn=RESERVATIONS)}, "refused"),
        ({"CapacityReservationSpecification": {"CapacityReservationPreference": "open"}}, "allowed"),
    ],
)
def test_a_machine_has_nothing_of_others(red: Any, names: dict[str, str], data: dict[str, Any], outcome: str) -> None:
    assert tried(red.client("ec2"), "run_instances", RUN | data, names) == outcome


@pytest.mark.parametrize("operation", ["create_auto_scaling_group", "update_auto_scaling_group"])
@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, "allowed"),
        ({"VPCZoneIdentifier": "{subnet}"}, "refused"),
        ({"VPCZoneIdentifier": "{own_subnet},{subnet}"}, "refused"),
        ({"LaunchTemplate": {"LaunchTemplateId": "{template}", "Version": "1"}}, "refused"),
    ],
)
def test_a_group_has_no_subnet_and_no_template_of_others(
    red: Any, names: dict[str, str], version: Any, operation: str, change: dict[str, Any], outcome: str
) -> None:
    request = group(operation) | {"VPCZoneIdentifier": "{own_subnet}", "LaunchTemplate": template(version())}
    assert tried(red.client("autoscaling"), operation, request | change, names) == outcome


ASSOCIATION = {"AllocationId": "{own_address}", "NetworkInterfaceId": "{own_interface}", "AllowReassociation": True}
NAT = {"SubnetId": "{own_subnet}", "AllocationId": "{own_address}", "TagSpecifications": tagged("natgateway", MINE)}
ENDPOINT = {
    "VpcId": "{own_vpc}",
    "ServiceName": S3_SERVICE,
    "RouteTableIds": ["{own_table}"],
    "TagSpecifications": tagged("vpc-endpoint", MINE),
}


@pytest.mark.parametrize(
    ("operation", "params", "of_others"),
    [
        ("associate_address", ASSOCIATION, {"NetworkInterfaceId": "{interface}"}),
        ("associate_address", ASSOCIATION, {"NetworkInterfaceId": "{untagged_interface}"}),
        ("create_nat_gateway", NAT, {"AllocationId": "{address}"}),
        ("create_vpc_endpoint", ENDPOINT, {"RouteTableIds": ["{own_table}", "{table}"]}),
    ],
)
def test_its_own_network_takes_nothing_of_others(
    red: Any, names: dict[str, str], operation: str, params: dict[str, Any], of_others: dict[str, Any]
) -> None:
    assert tried(red.client("ec2"), operation, params | of_others, names) == "refused"
    assert tried(red.client("ec2"), operation, params, names) == "allowed"


@pytest.mark.parametrize("name", [OTHERS, f"{OTHERS}-2"])
def test_a_name_of_others_is_not_taken(red: Any, names: dict[str, str], name: str) -> None:
    """AWS has no condition for the names of launch templates and the tokens of file systems: docs/security.md."""
    ec2 = red.client("ec2")
    for own, outcome in ((name, "refused"), (MINE, "allowed")):
        key = {"KeyName": own, "PublicKeyMaterial": b"ssh-ed25519 AAAA", "TagSpecifications": tagged("key-pair", MINE)}
        assert tried(ec2, "import_key_pair", key, names) == outcome
        near = {"GroupName": own, "Strategy": "cluster", "TagSpecifications": tagged("placement-group", MINE)}
        assert tried(ec2, "create_placement_group", near, names) == outcome


@pytest.fixture(scope="module")
def roles(account: Any) -> dict[str, str]:
    """Return red's own roles of EMR, as emr.yml creates them."""
    iam = account.client("iam")
    access = MemberAccess(MINE, REGION, ACCOUNT, f"{MINE}-{ACCOUNT}-{REGION}")
    for name, kind, service in ((SERVICE, "emr", "elasticmapreduce"), (NODE, "node", "ec2")):
        trusted = {"Effect": "Allow", "Principal": {"Service": f"{service}.amazonaws.com"}, "Action": "sts:AssumeRole"}
        document = {"Version": "2012-10-17", "Statement": [trusted]}
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document))
        policy = json.dumps(policy_for(kind, access))
        iam.put_role_policy(RoleName=name, PolicyName="deeplearning", PolicyDocument=policy)
    iam.create_instance_profile(InstanceProfileName=NODE)
    iam.add_role_to_instance_profile(InstanceProfileName=NODE, RoleName=NODE)
    return {"JobFlowRole": NODE, "ServiceRole": SERVICE}


@pytest.fixture(scope="module")
def emr(account: Any, roles: dict[str, str]) -> Any:
    """Return EMR's service as it acts for red: no permission of the operator counts for what it launches."""
    issued = account.cloud.credentials.issue(SERVICE, "emr", 3600)
    session = new_session(issued.access_key, issued.secret, REGION, issued.token)
    return session.client("ec2", endpoint_url=account.endpoint)


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ({}, "allowed"),
        ({"SubnetId": "{subnet}"}, "refused"),
        ({"SecurityGroupIds": ["{own_group}", "{group}"]}, "refused"),
        ({"ImageId": "{image}"}, "refused"),
        ({"TagSpecifications": [*tagged("instance", OTHERS), *TAGS[1:]]}, "refused"),
    ],
)
def test_emr_launches_nothing_in_the_network_of_others(
    emr: Any, names: dict[str, str], data: dict[str, Any], outcome: str
) -> None:
    assert tried(emr, "run_instances", RUN | data, names) == outcome


def test_emr_makes_no_interface_in_the_network_of_others_and_adopts_no_machine(emr: Any, names: dict[str, str]) -> None:
    tags = tagged("network-interface", MINE)
    for subnet, of in itertools.product(("own_subnet", "subnet"), ("own_group", "group")):
        params = {"SubnetId": names[subnet], "Groups": [names[of]], "TagSpecifications": tags}
        outcome = "allowed" if (subnet, of) == ("own_subnet", "own_group") else "refused"
        assert tried(emr, "create_network_interface", params, names) == outcome
    for resource in ("instance", "untagged_interface"):
        params = {"Resources": [names[resource]], "Tags": cluster_tag(MINE)}
        assert tried(emr, "create_tags", params, names) == "refused"


MANAGED = {"EmrManagedMasterSecurityGroup": "{own_group}", "EmrManagedSlaveSecurityGroup": "{own_group}"}
PLACE = {"Ec2SubnetId": "{own_subnet}", **MANAGED}


@pytest.mark.parametrize("checked", [False, True], ids=["", "with the end checked"])
def test_an_emr_cluster_of_its_own_is_launched(
    account: Any, red: Any, names: dict[str, str], roles: dict[str, str], checked: bool
) -> None:
    fault = account.cloud.faults.add("emr-end-checked", {}) if checked else None
    try:
        state, instances = launched(account, red, with_names(PLACE, names), roles)
    finally:
        if fault:
            account.cloud.faults.remove(fault)
    assert state == "WAITING"
    assert {instance["SubnetId"] for instance in instances} == {names["own_subnet"]}


@pytest.mark.parametrize(
    "place",
    [
        {
            "Ec2SubnetId": "{subnet}",
            "EmrManagedMasterSecurityGroup": "{group}",
            "EmrManagedSlaveSecurityGroup": "{group}",
        },
        {"Ec2SubnetId": "{subnet}"},
        {"EmrManagedMasterSecurityGroup": "{near_group}"},
        {"AdditionalMasterSecurityGroups": ["{near_group}"]},
        {"AdditionalSlaveSecurityGroups": ["{near_group}"]},
    ],
)
def test_an_emr_cluster_is_not_launched_in_the_network_of_others(
    account: Any, red: Any, names: dict[str, str], roles: dict[str, str], place: dict[str, Any]
) -> None:
    # In a VPC that both use, as only such groups are accepted with the own subnet.
    group = {"VpcId": names["own_vpc"], "GroupName": "near", "Description": "near"}
    ec2 = account.client("ec2")
    near = ec2.create_security_group(**group, TagSpecifications=tagged("security-group", OTHERS))["GroupId"]
    try:
        request = {**({} if "Ec2SubnetId" in place else MANAGED), "Ec2SubnetId": "{own_subnet}", **place}
        state, instances = launched(account, red, with_names(request, names | {"near_group": near}), roles)
        assert state == "TERMINATED_WITH_ERRORS"
        # The core nodes come after the primary node, which was no one else's matter here.
        began = [
            tag["Value"] for instance in instances for tag in instance["Tags"] if tag["Key"].endswith("group-role")
        ]
        assert began == (["MASTER"] if "AdditionalSlaveSecurityGroups" in place else [])
        (rules,) = ec2.describe_security_groups(GroupIds=[near])["SecurityGroups"]
        assert rules["IpPermissions"] == []
    finally:
        ec2.delete_security_group(GroupId=near)


def launched(account: Any, red: Any, place: dict[str, Any], roles: dict[str, str]) -> tuple[str, list[dict[str, Any]]]:
    """Have red start an EMR cluster. Return its state when it is ready or has ended, and its instances."""
    groups = [{"InstanceRole": role, "InstanceType": "m5.xlarge", "InstanceCount": 1} for role in ("MASTER", "CORE")]
    request = {"Name": MINE, "ReleaseLabel": "emr-7.14.0", "Tags": cluster_tag(MINE), **roles}
    request |= {"Instances": {"InstanceGroups": groups, "KeepJobFlowAliveWhenNoSteps": True, **place}}
    emr, ec2 = red.client("emr"), account.client("ec2")
    flow = emr.run_job_flow(**request, AutoTerminationPolicy={"IdleTimeout": 3600})["JobFlowId"]
    with suppress(WaiterError):
        emr.get_waiter("cluster_running").wait(ClusterId=flow, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    own = [{"Name": "tag:aws:elasticmapreduce:job-flow-id", "Values": [flow]}]
    reservations = ec2.describe_instances(Filters=own)["Reservations"]
    instances = [instance for reservation in reservations for instance in reservation["Instances"]]
    state = emr.describe_cluster(ClusterId=flow)["Cluster"]["Status"]["State"]
    return state, instances


# A role of its own, with all permissions


def trust_in(person: str, *actions: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"AWS": person}, "Action": list(actions)}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


OPERATOR = f"arn:aws:iam::{ACCOUNT}:user/{PERSON}"


@pytest.fixture(scope="module")
def own_role(red: Any, names: dict[str, str]) -> str:
    """Return the ARN of a role that red's operator has created for themselves. It may do everything that its boundary
    allows, and the operator may give its sessions any tags."""
    del names
    iam = red.client("iam")
    trust = trust_in(OPERATOR, "sts:AssumeRole", "sts:TagSession")
    created = iam.create_role(
        RoleName=MASTER, AssumeRolePolicyDocument=trust, PermissionsBoundary=BOUNDARY, Tags=cluster_tag(MINE)
    )
    iam.put_role_policy(RoleName=MASTER, PolicyName="everything", PolicyDocument=FULL_ACCESS)
    return str(created["Role"]["Arn"])


@pytest.mark.parametrize(
    "change",
    [
        {"PermissionsBoundary": None},
        {"PermissionsBoundary": "arn:aws:iam::aws:policy/AdministratorAccess"},
        {"PermissionsBoundary": f"{BOUNDARY}-2"},
        {"Tags": cluster_tag(OTHERS)},
        {"RoleName": f"{OTHERS}-{REGION}-master"},
        {"Path": "/path/"},
    ],
    ids=str,
)
def test_a_role_is_created_with_the_boundary_and_its_own_tag(red: Any, change: dict[str, Any]) -> None:
    request = {
        "RoleName": NODE,
        "AssumeRolePolicyDocument": trust_in(OPERATOR, "sts:AssumeRole"),
        "PermissionsBoundary": BOUNDARY,
        **change,
    }
    without_empty = {key: value for key, value in request.items() if value is not None}
    with pytest.raises(ClientError, match="AccessDenied"):
        red.client("iam").create_role(**without_empty)


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("delete_role_permissions_boundary", {}),
        ("put_role_permissions_boundary", {"PermissionsBoundary": "arn:aws:iam::aws:policy/AdministratorAccess"}),
        ("attach_role_policy", {"PolicyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}),
        ("update_assume_role_policy", {"PolicyDocument": trust_in("*", "sts:AssumeRole")}),
        ("tag_role", {"Tags": cluster_tag(OTHERS)}),
        ("tag_role", {"Tags": [{"Key": "DeepLearning:Cluster", "Value": OTHERS}]}),
        ("untag_role", {"TagKeys": ["deeplearning:cluster"]}),
    ],
)
def test_the_boundary_and_the_tag_of_its_role_stay(
    red: Any, own_role: str, operation: str, params: dict[str, Any]
) -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        getattr(red.client("iam"), operation)(RoleName=own_role.rpartition("/")[2], **params)


def test_a_role_without_the_boundary_gets_no_policy(account: Any, red: Any, names: dict[str, str]) -> None:
    """Clusters of older versions have such roles."""
    iam, role = red.client("iam"), names["own_role"]
    policy = {"RoleName": role, "PolicyName": "everything", "PolicyDocument": FULL_ACCESS}
    with pytest.raises(ClientError, match="AccessDenied"):
        iam.put_role_policy(**policy)
    iam.put_role_permissions_boundary(RoleName=role, PermissionsBoundary=BOUNDARY)
    iam.put_role_policy(**policy)
    with pytest.raises(ClientError, match="with an explicit deny"):
        iam.delete_role_permissions_boundary(RoleName=role)
    account.client("iam").delete_role_policy(RoleName=role, PolicyName="everything")
    account.client("iam").delete_role_permissions_boundary(RoleName=role)


class RoleSession:
    """A session of a role, in the place of an account."""

    def __init__(self, account: Any, red: Any, role: str, **more: Any) -> None:
        assumed = red.client("sts").assume_role(RoleArn=role, RoleSessionName="bob", **more)
        issued = assumed["Credentials"]
        self._endpoint = account.endpoint
        self._session = new_session(issued["AccessKeyId"], issued["SecretAccessKey"], REGION, issued["SessionToken"])

    def client(self, service: str) -> Any:
        return self._session.client(service, endpoint_url=self._endpoint)


BY_ROLE: Refused = [
    ("iam", "create_user", {"UserName": "eve"}),
    ("iam", "create_access_key", {"UserName": PERSON}),
    ("iam", "put_user_policy", {"UserName": PERSON, "PolicyName": "p", "PolicyDocument": "{{}}"}),
    ("iam", "put_role_policy", {"RoleName": MASTER, "PolicyName": "p", "PolicyDocument": "{{}}"}),
    ("iam", "delete_role_permissions_boundary", {"RoleName": MASTER}),
    ("sts", "assume_role", {"RoleArn": f"arn:aws:iam::{ACCOUNT}:role/{{role}}", "RoleSessionName": "bob"}),
    ("s3", "list_objects_v2", {"Bucket": "{bucket}"}),
    ("s3", "put_object", {"Bucket": "{bucket}", "Key": "results/model", "Body": b""}),
    ("s3", "delete_object", {"Bucket": "{bucket}", "Key": "results/model"}),
    ("s3", "put_object", {"Bucket": f"{ACCOUNT}-{REGION}-deeplearning-data", "Key": "coco/x", "Body": b""}),
    (
        "autoscaling",
        "put_scheduled_update_group_action",
        {"AutoScalingGroupName": "{name}-workers", "ScheduledActionName": "end", "MinSize": 0, "MaxSize": 0},
    ),
    ("ec2", "create_tags", {"Resources": ["{instance}"], "Tags": [{"Key": "deeplearning:rank", "Value": "0"}]}),
    ("ec2", "delete_tags", {"Resources": ["{instance}"], "Tags": [{"Key": "deeplearning:cluster"}]}),
    ("ec2", "associate_address", {"AllocationId": "{address}", "NetworkInterfaceId": "{interface}"}),
]
SESSIONS: dict[str, dict[str, Any]] = {
    "the role's tag": {},
    "the neighbour's tag": {"Tags": cluster_tag(OTHERS)},
    "the neighbour's tag in capitals": {"Tags": [{"Key": "DEEPLEARNING:CLUSTER", "Value": OTHERS}]},
}


@pytest.mark.parametrize("tags", SESSIONS.values(), ids=SESSIONS)
def test_a_role_of_its_own_reaches_nothing_of_others(
    account: Any, red: Any, names: dict[str, str], own_role: str, tags: dict[str, Any]
) -> None:
    session = RoleSession(account, red, own_role, **tags)
    came_through = allowed(session, [*ON_OTHERS, *ELSEWHERE, *BY_ROLE], names)
    assert not came_through, "\n" + "\n".join(came_through)


def test_a_role_of_its_own_writes_its_own_results_alone(
    account: Any, red: Any, names: dict[str, str], own_role: str
) -> None:
    session = RoleSession(account, red, own_role)
    session.client("ec2").describe_instances()
    s3, bucket = session.client("s3"), names["own_bucket"]
    s3.put_object(Bucket=bucket, Key="results/model", Body=b"")
    s3.get_object(Bucket=bucket, Key="results/model")
    for key in ("lock.json", "settings.json", "bundles/a.tar", "members/AROA:i-01/report.json"):
        with pytest.raises(ClientError, match="AccessDenied"):
            s3.put_object(Bucket=bucket, Key=key, Body=b"")


@pytest.fixture
def bounded_service(account: Any, red: Any, roles: dict[str, str]) -> Iterator[Any]:
    """Return EC2 for the role of EMR's service, with all permissions within the boundary."""
    del roles
    iam, administrator = red.client("iam"), account.client("iam")
    administrator.tag_role(RoleName=SERVICE, Tags=cluster_tag(MINE))
    iam.put_role_permissions_boundary(RoleName=SERVICE, PermissionsBoundary=BOUNDARY)
    iam.put_role_policy(RoleName=SERVICE, PolicyName="everything", PolicyDocument=FULL_ACCESS)
    issued = account.cloud.credentials.issue(SERVICE, "emr", 3600)
    session = new_session(issued.access_key, issued.secret, REGION, issued.token)
    yield session.client("ec2", endpoint_url=account.endpoint)
    administrator.delete_role_policy(RoleName=SERVICE, PolicyName="everything")
    administrator.delete_role_permissions_boundary(RoleName=SERVICE)


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ({}, "allowed"),
        ({"IamInstanceProfile": {"Name": NODE}}, "allowed"),
        ({"IamInstanceProfile": {"Name": "{role}"}}, "refused"),
        ({"SubnetId": "{subnet}"}, "refused"),
        ({"SecurityGroupIds": ["{own_group}", "{group}"]}, "refused"),
        ({"ImageId": "{image}"}, "refused"),
        ({"BlockDeviceMappings": [DISK]}, "refused"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "NetworkInterfaceId": "{untagged_interface}"}]}, "refused"),
        ({"LaunchTemplate": {"LaunchTemplateId": "{template}", "Version": "1"}}, "refused"),
        ({"CapacityReservationSpecification": reserved(CapacityReservationId="cr-0123456789abcdef0")}, "refused"),
        ({"TagSpecifications": [*tagged("instance", OTHERS), *TAGS[1:]]}, "refused"),
    ],
)
def test_a_service_role_with_all_permissions_launches_nothing_of_others(
    bounded_service: Any, names: dict[str, str], data: dict[str, Any], outcome: str
) -> None:
    assert tried(bounded_service, "run_instances", RUN | data, names) == outcome


def test_emr_launches_within_the_boundary(
    account: Any, red: Any, names: dict[str, str], roles: dict[str, str], bounded_service: Any
) -> None:
    del bounded_service
    state, instances = launched(account, red, with_names(PLACE, names), roles)
    assert state == "WAITING"
    assert {instance["SubnetId"] for instance in instances} == {names["own_subnet"]}
    theirs = {"EmrManagedMasterSecurityGroup": "{group}", "EmrManagedSlaveSecurityGroup": "{group}"}
    state, _instances = launched(account, red, with_names({"Ec2SubnetId": "{subnet}", **theirs}, names), roles)
    assert state == "TERMINATED_WITH_ERRORS"
