"""EFS, whose prefix in IAM is elasticfilesystem. Calls on a mount target are checked on its file system, and on the
network interface with ec2's actions: AWS creates, changes and deletes the interface on the caller's behalf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..rules import Call, Need, Rule, Service, service_linked_role, tags_of
from .ec2 import ec2


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    kind = "access-point" if name.startswith("fsap-") else kind
    return call.arn("elasticfilesystem", f"{kind}/{name}")


def tags(call: Call, kind: str) -> Mapping[str, str]:
    return tags_of(call.params.get("Tags"))


def tag_keys(call: Call) -> list[str]:
    return call.values("TagKeys")


efs = Service("efs", "elasticfilesystem", arn, tags=tags, tag_keys=tag_keys)
on = efs.on

FILE_SYSTEM = on("file-system=FileSystemId")
MOUNT_TARGET = on("file-system=MountTargetId<mount-target")
_INTERFACE = "network-interface=MountTargetId<mount-target-interface"


def tagged_on_create(kind: str) -> Rule:
    """Need elasticfilesystem:TagResource for tags in a creating call."""

    def needs(call: Call) -> Iterator[Need]:
        rule = on(f"{kind}=new", action="TagResource", when="Tags.Key", reason=f"{call.operation} tags what it creates")
        for need in rule(call):
            context = {**need.context, "elasticfilesystem:CreateAction": call.operation}
            yield Need(need.action, need.resource, context, need.reason)

    return needs


def creates_linked_role(call: Call) -> Iterator[Need]:
    """EFS creates its service-linked role. AWS's pages do not document that the first mount target does it."""
    yield from service_linked_role(call, "elasticfilesystem.amazonaws.com", "AWSServiceRoleForAmazonElasticFileSystem")


def _interface(action: str, targets: str) -> Rule:
    """Need what EFS calls in EC2 on the caller's behalf, by a forward access session: hence aws:ViaAWSService.

    The pages of EFS's operations (API_CreateMountTarget …) list the permissions that the caller needs, and say that
    these calls come from EFS's own address. AWS documents the key for such sessions; it was not observed on AWS.
    """
    rule = ec2.on(targets, action=action, reason="a mount target is a network interface")

    def needs(call: Call) -> Iterator[Need]:
        for need in rule(call):
            yield replace(need, context={**need.context, "aws:ViaAWSService": "true"})

    return needs


# fmt: off
ROWS = efs.rows({
    "CreateFileSystem": (
        on("*", keys="elasticfilesystem:Encrypted=Encrypted", tagging=True), tagged_on_create("file-system")),
    "UpdateFileSystem": FILE_SYSTEM,
    "DeleteFileSystem": FILE_SYSTEM,
    "DescribeFileSystems": FILE_SYSTEM,
    "PutFileSystemPolicy": FILE_SYSTEM,
    "DescribeFileSystemPolicy": FILE_SYSTEM,
    "DeleteFileSystemPolicy": FILE_SYSTEM,

    # Mount targets
    "CreateMountTarget": (
        FILE_SYSTEM,
        _interface("DescribeSubnets", "*"),
        _interface("DescribeNetworkInterfaces", "*"),
        _interface("CreateNetworkInterface", "network-interface=new subnet=SubnetId security-group?=SecurityGroups"),
        creates_linked_role),
    "DeleteMountTarget": (MOUNT_TARGET, _interface("DeleteNetworkInterface", _INTERFACE)),
    "DescribeMountTargets": on("file-system=FileSystemId|MountTargetId<mount-target"),
    "ModifyMountTargetSecurityGroups": (
        MOUNT_TARGET,
        _interface("ModifyNetworkInterfaceAttribute", f"{_INTERFACE} security-group?=SecurityGroups")),
    "DescribeMountTargetSecurityGroups": (
        MOUNT_TARGET, _interface("DescribeNetworkInterfaceAttribute", "*")),

    # Tags
    "TagResource": on("file-system=ResourceId", tagging=True),
    "ListTagsForResource": on("file-system=ResourceId"),
})
# fmt: on
