"""What AWS's own policy for EMR's service role allows, as facts.

AmazonEMRServicePolicy_v2, version 6 of 12 February 2026:
https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonEMRServicePolicy_v2.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VERSION, DATE = "v6", "2026-02-12"


class Permission(NamedTuple):
    action: str
    kind: str
    """The kind of resource, or * for any."""
    tag: str = ""
    """What bears EMR's tag: "resource", "request", or nothing that the policy asks for."""
    create: str = ""
    """The call that the tags are given in."""


LAUNCH = "CreateFleet CreateLaunchTemplate CreateLaunchTemplateVersion RunInstances"
ALARMS = "DeleteAlarms DescribeAlarms PutMetricAlarm"
SEEN = (
    "AccountAttributes CapacityReservations DhcpOptions Images Instances InstanceTypeOfferings LaunchTemplates "
    "NetworkAcls NetworkInterfaces PlacementGroups RouteTables SecurityGroups Subnets Volumes VolumeStatus "
    "VpcAttribute VpcEndpoints Vpcs"
)
MADE = "instance launch-template network-interface volume"
SCALING = (
    "DeleteScalingPolicy DeregisterScalableTarget DescribeScalableTargets DescribeScalingPolicies PutScalingPolicy "
    "RegisterScalableTarget"
)
GROUP_RULES = (
    "AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress RevokeSecurityGroupEgress RevokeSecurityGroupIngress"
)
ROWS = (
    ("ec2", f"{LAUNCH} CreateNetworkInterface", "security-group subnet", "resource", ""),
    ("ec2", "CreateFleet CreateLaunchTemplateVersion RunInstances", "launch-template", "resource", ""),
    ("ec2", "CreateLaunchTemplate", "launch-template", "request", ""),
    ("ec2", "CreateFleet RunInstances", "instance volume", "request", ""),
    ("ec2", LAUNCH, "capacity-reservation dedicated-host fleet image key-pair network-interface", "", ""),
    ("ec2", LAUNCH, "placement-group group", "", ""),
    ("ec2", "CreateLaunchTemplateVersion DeleteLaunchTemplate DeleteNetworkInterface", "*", "resource", ""),
    ("ec2", "ModifyInstanceAttribute TerminateInstances", "*", "resource", ""),
    ("ec2", "CreateTags DeleteTags", MADE, "resource", ""),
    ("ec2", "CreateNetworkInterface", "network-interface", "request", ""),
    ("ec2", "CreateTags", MADE, "", "CreateFleet"),
    ("ec2", "CreateTags", MADE, "", "CreateLaunchTemplate"),
    ("ec2", "CreateTags", MADE, "", "CreateNetworkInterface"),
    ("ec2", "CreateTags", MADE, "", "RunInstances"),
    ("ec2", "CreateTags DeleteTags", "placement-group", "", ""),
    ("ec2", " ".join(f"Describe{what}" for what in SEEN.split()), "*", "", ""),
    ("ec2", "CreateSecurityGroup", "security-group", "request", ""),
    ("ec2", "CreateSecurityGroup", "vpc", "resource", ""),
    ("ec2", "CreateTags", "security-group", "request", "CreateSecurityGroup"),
    ("ec2", GROUP_RULES, "*", "resource", ""),
    ("ec2", "CreatePlacementGroup", "placement-group", "", ""),
    ("ec2", "DeletePlacementGroup", "*", "", ""),
    ("application-autoscaling", SCALING, "*", "", ""),
    ("resource-groups", "ListGroupResources", "*", "", ""),
    ("cloudwatch", ALARMS, "alarm", "", ""),
    ("iam", "PassRole", "EMR_AutoScaling_DefaultRole EMR_EC2_DefaultRole", "", ""),
    ("ec2", "CreateVpcEndpoint ModifyVpcEndpoint", "security-group subnet vpc vpc-endpoint", "resource", ""),
    ("ec2", "CreateVpcEndpoint", "vpc-endpoint", "request", ""),
    ("ec2", "CreateTags", "vpc-endpoint", "request", "CreateVpcEndpoint"),
)


def permissions() -> Iterator[Permission]:
    for service, actions, kinds, tag, create in ROWS:
        for action in actions.split():
            for kind in kinds.split():
                yield Permission(f"{service}:{action}", kind, tag, create)


NO_PLACEMENT = "the request has no PlacementGroupConfigs"
OWN_GROUPS = "the request names its security groups, so that EMR creates none"
NO_SCALING = "the request has no scaling policy"
NO_RESERVATION = "the request names no capacity reservation, no group of them and no dedicated host"
NO_ENDPOINT = "nodes reach EMR by public addresses or the NAT gateway; that EMR then makes no endpoint is not proved"


def reason_to_lack(permission: Permission) -> str:
    """Return why the role of a cluster does not have it; empty if it must."""
    service, _, name = permission.action.partition(":")
    if "PlacementGroup" in name and not name.startswith("Describe"):
        return NO_PLACEMENT
    if name.endswith("VpcEndpoint") or permission.kind == "vpc-endpoint":
        return NO_ENDPOINT
    if name == "CreateSecurityGroup" or permission.create == "CreateSecurityGroup":
        return OWN_GROUPS
    if service in ("application-autoscaling", "cloudwatch") or permission.kind == "EMR_AutoScaling_DefaultRole":
        return NO_SCALING
    if service == "resource-groups" or permission.kind in ("capacity-reservation", "dedicated-host", "group"):
        return NO_RESERVATION
    return NO_PLACEMENT if permission.kind == "placement-group" else ""
