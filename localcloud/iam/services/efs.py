"""EFS, whose prefix in IAM is elasticfilesystem. Calls on a mount target are checked on its file system, and on the
network interface behind it with ec2's actions: AWS makes, changes and deletes that in the caller's name.
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
    """elasticfilesystem:TagResource for tags in a creating call."""

    def needs(call: Call) -> Iterator[Need]:
        made = on(
            f"{kind}=new", action="TagResource", given="Tags.Key", reason=f"{call.operation} tags what it creates"
        )
        for need in made(call):
            context = {**need.context, "elasticfilesystem:CreateAction": call.operation}
            yield Need(need.action, need.resource, context, need.reason)

    return needs


def makes_role(call: Call) -> Iterator[Need]:
    """EFS makes its role by itself. That the first mount target does it is from knowledge, not from AWS's pages."""
    yield from service_linked_role(call, "elasticfilesystem.amazonaws.com", "AWSServiceRoleForAmazonElasticFileSystem")


def _interface(action: str, targets: str) -> Rule:
    """What EFS asks of EC2 in the caller's name, by a forward access session: hence aws:ViaAWSService.

    The pages of EFS's operations (API_CreateMountTarget …) say which permissions the caller needs, and that these
    calls come from EFS's own address. That they carry the key is how AWS describes such sessions; it has not been seen
    on AWS.
    """
    asked = ec2.on(targets, action=action, reason="a mount target is a network interface")

    def needs(call: Call) -> Iterator[Need]:
        for need in asked(call):
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
        makes_role),
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
