"""EFS, whose prefix in IAM is elasticfilesystem. Calls on a mount target are checked on its file system, and on the
network interface with ec2's actions: AWS creates, changes and deletes the interface on the caller's behalf.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..rules import Call, Need, Rule, Service, service_linked_role
from .ec2 import ec2


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    kind = "access-point" if name.startswith("fsap-") else kind
    return call.arn("elasticfilesystem", f"{kind}/{name}")


efs = Service("efs", "elasticfilesystem", arn)
_INTERFACE = "network-interface=MountTargetId<mount-target-interface"


def tags_file_system(call: Call) -> Iterator[Need]:
    """Need elasticfilesystem:TagResource for tags in a creating call."""
    reason = f"{call.operation} tags what it creates"
    for need in efs.on("TagResource file-system=new", when="Tags.Key", reason=reason)(call):
        yield replace(need, context={**need.context, "elasticfilesystem:CreateAction": call.operation})


def creates_linked_role(call: Call) -> Iterator[Need]:
    """EFS creates its service-linked role. AWS's pages do not document that the first mount target does it."""
    yield from service_linked_role(call, "elasticfilesystem.amazonaws.com")


def _interface(action: str) -> Rule:
    """Need what EFS calls in EC2 on the caller's behalf, by a forward access session: hence aws:ViaAWSService.

    The pages of EFS's operations (API_CreateMountTarget …) list the permissions that the caller needs, and say that
    these calls come from EFS's own address. AWS documents the key for such sessions; it was not observed on AWS.
    """
    rule = ec2.on(action, reason="a mount target is a network interface")

    def needs(call: Call) -> Iterator[Need]:
        for need in rule(call):
            yield replace(need, context={**need.context, "aws:ViaAWSService": "true"})

    return needs


def creates_interface(call: Call) -> Iterator[Need]:
    for action in (
        "DescribeSubnets *",
        "DescribeNetworkInterfaces *",
        "CreateNetworkInterface network-interface=new subnet=SubnetId security-group?=SecurityGroups",
    ):
        yield from _interface(action)(call)


ROWS = efs.rows(
    tags_file_system=tags_file_system,
    creates_linked_role=creates_linked_role,
    creates_interface=creates_interface,
    deletes_interface=_interface(f"DeleteNetworkInterface {_INTERFACE}"),
    modifies_interface=_interface(f"ModifyNetworkInterfaceAttribute {_INTERFACE} security-group?=SecurityGroups"),
    describes_interface=_interface("DescribeNetworkInterfaceAttribute *"),
)
