"""What is changed on a file system: the existing and the desired state in, calls out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.file_system import (
    ExistingFileSystem,
    decide,
    lets_in,
    tls_policy,
)

ARN = "arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/fs-1"
SYSTEM = {
    "FileSystemId": "fs-1",
    "FileSystemArn": ARN,
    "LifeCycleState": "available",
    "ThroughputMode": "elastic",
    "Tags": [{"Key": "deeplearning:cluster", "Value": "c"}],
}
OURS = tls_policy(ARN)
FOREIGN: Mapping[str, Any] = {"Version": "2012-10-17", "Statement": []}
SUBNET = {"SubnetId": "subnet-1", "VpcId": "vpc-1", "AvailabilityZone": "us-east-1a", "CidrBlock": "10.0.0.0/24"}
NFS_FROM_MEMBERS = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "UserIdGroupPairs": [{"GroupId": "sg-m"}]}


def mount_target(zone: str = "us-east-1a", vpc_id: str = "vpc-1") -> dict[str, Any]:
    target = {"MountTargetId": "fsmt-1", "SubnetId": "subnet-1", "LifeCycleState": "available"}
    return {**target, "VpcId": vpc_id, "AvailabilityZoneName": zone}


def desired(**changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"name": "c-efs", "creation_token": "c", "tags": {"deeplearning:cluster": "c"}}
    options |= {"subnet_id": "subnet-1", "security_groups": ["sg-efs"], "clients": ["sg-m"]}
    return {**options, "file_system_id": "", "require_tls": False, "throughput_mode": "", **changes}


def existing(*targets: Mapping[str, Any], groups: Sequence[str] = ("sg-efs",), **changes: Any) -> ExistingFileSystem:
    facts = {"file_system": SYSTEM, "mount_targets": targets, "subnet": SUBNET, "security_groups": groups}
    return ExistingFileSystem(**{**facts, **changes})


NOTHING = existing(file_system={})
COMPLETE = existing(mount_target())
BURSTING = {**SYSTEM, "ThroughputMode": "bursting"}
THEIRS = ["sg-theirs"]


@pytest.mark.parametrize(
    ("now", "target", "operations"),
    [
        pytest.param(COMPLETE, desired(), [], id="complete"),
        pytest.param(NOTHING, desired(), ["create_file_system", "create_mount_target"], id="empty account"),
        pytest.param(NOTHING, desired(subnet_id=""), ["create_file_system"], id="no mount target is managed"),
        pytest.param(
            NOTHING,
            desired(require_tls=True),
            ["create_file_system", "put_file_system_policy", "create_mount_target"],
            id="TLS is required before it can be mounted",
        ),
        pytest.param(existing(mount_target(), file_system=BURSTING), desired(), [], id="another mode is kept"),
        pytest.param(
            existing(mount_target(), file_system=BURSTING),
            desired(throughput_mode="elastic"),
            ["update_file_system"],
            id="another mode is chosen",
        ),
        pytest.param(COMPLETE, desired(tags={"team": "research"}), ["tag_resource"], id="another tag"),
        pytest.param(COMPLETE, desired(require_tls=True), ["put_file_system_policy"], id="TLS from now on"),
        pytest.param(existing(mount_target(), policy=OURS), desired(require_tls=True), [], id="TLS as before"),
        pytest.param(
            existing(mount_target(), policy={**OURS, "Statement": []}),
            desired(require_tls=True),
            ["put_file_system_policy"],
            id="our policy was weakened",
        ),
        pytest.param(existing(mount_target(), policy=OURS), desired(), ["delete_file_system_policy"], id="TLS no more"),
        pytest.param(existing(mount_target(), policy=FOREIGN), desired(), [], id="foreign policy"),
        pytest.param(
            existing(mount_target(), file_system=BURSTING, policy=OURS),
            desired(file_system_id="fs-1", throughput_mode="elastic"),
            [],
            id="the user's own keeps its settings",
        ),
        pytest.param(existing(), desired(), ["create_mount_target"], id="no mount target"),
        pytest.param(existing(mount_target(zone="us-east-1b")), desired(), ["create_mount_target"], id="other zone"),
        pytest.param(existing(subnet={}), desired(), ["create_mount_target"], id="the subnet is yet to be created"),
        pytest.param(
            existing(mount_target(), groups=THEIRS),
            desired(),
            ["modify_mount_target_security_groups"],
            id="it refuses members",
        ),
        pytest.param(
            existing(mount_target(), groups=THEIRS, ingress_rules=[NFS_FROM_MEMBERS]),
            desired(),
            [],
            id="it admits members",
        ),
    ],
)
def test_the_calls_in_order(now: ExistingFileSystem, target: dict[str, Any], operations: list[str]) -> None:
    assert [change.operation for change in decide(now, target)] == operations


@pytest.mark.parametrize(
    ("now", "target", "message"),
    [
        (existing(mount_target(), policy=FOREIGN), desired(require_tls=True), "has a policy that this cluster did not"),
        (existing(mount_target(vpc_id="vpc-2")), desired(), "has its mount targets in vpc-2, the cluster is in vpc-1"),
        (existing(mount_target(), groups=[f"sg-{n}" for n in range(5)]), desired(), "would have 6 security groups"),
    ],
)
def test_what_is_not_ours_to_change(now: ExistingFileSystem, target: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        decide(now, target)


def test_a_change_shows_its_difference() -> None:
    (change,) = decide(existing(mount_target(), groups=THEIRS), desired())
    assert change.params == {"MountTargetId": "fsmt-1", "SecurityGroups": ["sg-theirs", "sg-efs"]}
    assert change.before == {"mount_target": {"id": "fsmt-1", "security_groups": ["sg-theirs"]}}
    assert change.after == {"mount_target": {"id": "fsmt-1", "security_groups": ["sg-efs", "sg-theirs"]}}


@pytest.mark.parametrize(
    ("rule", "admits"),
    [
        (NFS_FROM_MEMBERS, True),
        ({**NFS_FROM_MEMBERS, "UserIdGroupPairs": [{"GroupId": "sg-other"}]}, False),
        ({**NFS_FROM_MEMBERS, "FromPort": 22, "ToPort": 22}, False),
        ({**NFS_FROM_MEMBERS, "IpProtocol": "udp"}, False),
        ({"IpProtocol": "-1", "IpRanges": [{"CidrIp": "10.0.0.0/16"}]}, True),
        ({**NFS_FROM_MEMBERS, "IpProtocol": "-1", "FromPort": -1, "ToPort": -1}, True),
        ({"IpProtocol": "-1", "IpRanges": [{"CidrIp": "10.0.0.0/25"}]}, False),
    ],
)
def test_which_rules_admit_the_members(rule: Mapping[str, Any], admits: bool) -> None:
    assert lets_in([rule], ["sg-m"], "10.0.0.0/24") is admits
