"""EFS, whose prefix in IAM is elasticfilesystem. Calls on a mount target are checked on its file system, and on the
network interface behind it with ec2's actions: AWS makes, changes and deletes that in the caller's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..rules import Call, Need, Rule, Service, pass_role, rule, service_linked_role, tags_of
from .ec2 import ec2

PAGE = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelasticfilesystem.html"
TAGS_PAGE = "https://docs.aws.amazon.com/efs/latest/ug/using-tags-efs.html"
MOUNT_PAGE = "https://docs.aws.amazon.com/efs/latest/ug/API_CreateMountTarget.html"
UNMOUNT_PAGE = "https://docs.aws.amazon.com/efs/latest/ug/API_DeleteMountTarget.html"
GROUPS_PAGE = "https://docs.aws.amazon.com/efs/latest/ug/API_ModifyMountTargetSecurityGroups.html"
GET_GROUPS_PAGE = "https://docs.aws.amazon.com/efs/latest/ug/API_DescribeMountTargetSecurityGroups.html"
ROLE_PAGE = "https://docs.aws.amazon.com/efs/latest/ug/using-service-linked-roles.html"


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    kind = "access-point" if name.startswith("fsap-") else kind
    return call.arn("elasticfilesystem", f"{kind}/{name}")


def tags(call: Call, kind: str) -> Mapping[str, str]:
    return tags_of(call.params.get("Tags"))


def tag_keys(call: Call) -> list[str]:
    return call.values("TagKeys")


efs = Service("efs", "elasticfilesystem", PAGE, arn, tags=tags, tag_keys=tag_keys)
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
        for need in made.needs(call):
            context = {**need.context, "elasticfilesystem:CreateAction": call.operation}
            yield Need(need.action, need.resource, context, need.reason)

    return Rule(needs, TAGS_PAGE)


@rule(ROLE_PAGE, consulted=False)
def makes_role(call: Call) -> Iterator[Need]:
    """The page says that EFS makes the role by itself; that the first mount target does it is from knowledge."""
    yield from service_linked_role(call, "elasticfilesystem.amazonaws.com", "AWSServiceRoleForAmazonElasticFileSystem")


@rule(PAGE)
def passes_replication_role(call: Call) -> Iterator[Need]:
    for role in call.values("Destinations.RoleArn"):
        yield pass_role(call, role, "elasticfilesystem.amazonaws.com")


def _interface(action: str, targets: str, page: str) -> Rule:
    """What EFS asks of EC2 in the caller's name, by a forward access session: hence aws:ViaAWSService.

    EFS's pages say which permissions the caller needs, and that these calls come from EFS's own address. That they
    carry the key is how AWS describes such sessions; it has not been seen on AWS.
    """
    asked = ec2.on(targets, action=action, page=page, reason="a mount target is a network interface", consulted=True)

    def needs(call: Call) -> Iterator[Need]:
        for need in asked.needs(call):
            yield replace(need, context={**need.context, "aws:ViaAWSService": "true"})

    return replace(asked, needs=needs)


# fmt: off
ROWS = efs.rows({
    "CreateFileSystem": (
        on("*", keys="elasticfilesystem:Encrypted=Encrypted", tagging=True), tagged_on_create("file-system")),
    "UpdateFileSystem": FILE_SYSTEM,
    "UpdateFileSystemProtection": FILE_SYSTEM,
    "DeleteFileSystem": FILE_SYSTEM,
    "DescribeFileSystems": FILE_SYSTEM,
    "PutFileSystemPolicy": FILE_SYSTEM,
    "DescribeFileSystemPolicy": FILE_SYSTEM,
    "DeleteFileSystemPolicy": FILE_SYSTEM,
    "PutBackupPolicy": FILE_SYSTEM,
    "DescribeBackupPolicy": FILE_SYSTEM,
    "PutLifecycleConfiguration": FILE_SYSTEM,
    "DescribeLifecycleConfiguration": FILE_SYSTEM,

    # Mount targets
    "CreateMountTarget": (
        FILE_SYSTEM,
        _interface("DescribeSubnets", "*", MOUNT_PAGE),
        _interface("DescribeNetworkInterfaces", "*", MOUNT_PAGE),
        _interface("CreateNetworkInterface", "network-interface=new subnet=SubnetId security-group?=SecurityGroups",
                   MOUNT_PAGE),
        makes_role),
    "DeleteMountTarget": (MOUNT_TARGET, _interface("DeleteNetworkInterface", _INTERFACE, UNMOUNT_PAGE)),
    "DescribeMountTargets": on("file-system=FileSystemId|MountTargetId<mount-target|AccessPointId"),
    "ModifyMountTargetSecurityGroups": (
        MOUNT_TARGET,
        _interface("ModifyNetworkInterfaceAttribute", f"{_INTERFACE} security-group?=SecurityGroups", GROUPS_PAGE)),
    "DescribeMountTargetSecurityGroups": (
        MOUNT_TARGET, _interface("DescribeNetworkInterfaceAttribute", _INTERFACE, GET_GROUPS_PAGE)),

    # Access points
    "CreateAccessPoint": (on("file-system=FileSystemId", tagging=True), tagged_on_create("access-point")),
    "DeleteAccessPoint": on("access-point=AccessPointId"),
    "DescribeAccessPoints": on("file-system=FileSystemId|AccessPointId"),

    # Tags: two generations of calls
    "TagResource": on("file-system=ResourceId", tagging=True),
    "UntagResource": on("file-system=ResourceId", tagging=True),
    "ListTagsForResource": on("file-system=ResourceId"),
    "CreateTags": on("file-system=FileSystemId", tagging=True),
    "DeleteTags": on("file-system=FileSystemId", tagging=True),
    "DescribeTags": FILE_SYSTEM,

    # Replication and the account
    "CreateReplicationConfiguration": (on("file-system=SourceFileSystemId"), passes_replication_role, makes_role),
    "DeleteReplicationConfiguration": on("file-system=SourceFileSystemId"),
    "DescribeReplicationConfigurations": FILE_SYSTEM,
    "PutAccountPreferences": on("*"),
    "DescribeAccountPreferences": on("*"),
})
# fmt: on
