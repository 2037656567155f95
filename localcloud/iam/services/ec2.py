"""EC2: most operations are checked on the things that their parameters name.

Not the caller's business, and so not here: what Auto Scaling does later with its own role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..patterns import Value
from ..rules import (
    Call,
    Need,
    Service,
    pass_role,
    request_tags,
    service_linked_role,
    tags_of,
    text_of,
)

# Owned by anyone, so without an account in the ARN.
_NO_ACCOUNT = {"image", "snapshot"}

# The type of a resource, in ARNs and in tags, by the prefix of its id.
RESOURCE_TYPES = {
    "acl": "network-acl",
    "ami": "image",
    "cr": "capacity-reservation",
    "dopt": "dhcp-options",
    "eigw": "egress-only-internet-gateway",
    "eipalloc": "elastic-ip",
    "eni": "network-interface",
    "fl": "vpc-flow-log",
    "i": "instance",
    "igw": "internet-gateway",
    "key": "key-pair",
    "lt": "launch-template",
    "nat": "natgateway",
    "pcx": "vpc-peering-connection",
    "pg": "placement-group",
    "pl": "prefix-list",
    "rtb": "route-table",
    "sg": "security-group",
    "sgr": "security-group-rule",
    "sir": "spot-instances-request",
    "snap": "snapshot",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
}


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    return call.arn("ec2", f"{kind}/{name}", account="" if kind in _NO_ACCOUNT else None)


def tags(call: Call, kind: str) -> Mapping[str, str]:
    """Those of TagSpecifications for that type; CreateTags and DeleteTags have one list for all."""
    if "Tags" in call.params:
        return tags_of(call.params["Tags"])
    return specified_tags(call.params).get(kind, {})


def specified_tags(params: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """TagSpecifications as {type: tags}."""
    found: dict[str, dict[str, str]] = {}
    for one in params.get("TagSpecifications") or []:
        if tags := tags_of(one.get("Tags")):
            found.setdefault(one.get("ResourceType", ""), {}).update(tags)
    return found


ec2 = Service("ec2", "ec2", arn, ("aws:ResourceTag/", "ec2:ResourceTag/"), tags)
on = ec2.on

ANY = on("*")


def create_tags(call: Call, specified: Mapping[str, Mapping[str, str]], created_by: str) -> Iterator[Need]:
    """Tags in a creating call need ec2:CreateTags too, on each type that is tagged."""
    for kind, tags in specified.items():
        context = ec2.region(call) | {"ec2:CreateAction": created_by} | request_tags(tags)
        yield Need("ec2:CreateTags", arn(call, kind, "*"), context, f"{created_by} tags what it creates")


def tags_on_create(call: Call) -> Iterator[Need]:
    if call.operation != "RunInstances":  # it does this itself, with the launch template's tags
        yield from create_tags(call, specified_tags(call.params), call.operation)


def tagged_resources(call: Call) -> Iterator[Need]:
    for one in call.values("Resources") or ["*"]:
        kind = RESOURCE_TYPES.get(one.rpartition("-")[0], "*")
        name = call.lookup("key-pair-id", one) if kind == "key-pair" else None
        name = call.lookup("placement-group-id", one) if kind == "placement-group" else name
        target = arn(call, kind, name or one)
        context = ec2.describe(call, target) | ec2.requested(call, kind)
        yield Need(f"ec2:{call.operation}", target, context)


# RunInstances ---------------------------------------------------------------------------------------------------------


def launch(call: Call) -> Iterator[Need]:
    yield from launch_needs(call, call.params)


def launch_needs(call: Call, params: Mapping[str, Any], *, reason: str = "") -> Iterator[Need]:
    """Everything that launching needs; what the request does not say comes from the launch template. Auto Scaling asks
    the same (as a dry run), in its caller's name, when it is given a launch template: hence `params` and `reason`."""
    template_arn, data = _template(call, params)
    asked: dict[str, Any] = {**data, **{key: value for key, value in params.items() if value is not None}}
    tags = specified_tags(data) | specified_tags(params)
    # In every check of a launch: which template, and whether the thing comes from it and not from the request.
    shared: dict[str, Value] = ec2.region(call) | ({"ec2:LaunchTemplate": template_arn} if template_arn else {})

    def need(kind: str, name: str, about: Mapping[str, Value] | None = None, source: str = "") -> Need:
        target = arn(call, kind, name)
        context = ec2.describe(call, target) | shared | dict(about or {})
        if name == "*":
            context |= request_tags(tags.get(kind, {}))
        if template_arn:
            context["ec2:IsLaunchTemplateResource"] = text_of(source not in params if source else name == "*")
        return Need("ec2:RunInstances", target, context, reason)

    interfaces = asked.get("NetworkInterfaces") or []
    subnets = _unique([one.get("SubnetId") for one in interfaces] + [asked.get("SubnetId")])
    in_subnet = ec2.describe(call, arn(call, "subnet", subnets[0])) if subnets else {}
    where = {key: in_subnet[key] for key in ("ec2:Vpc",) if key in in_subnet}

    yield need("instance", "*", _instance_facts(call, asked))
    image = asked.get("ImageId") or "*"
    if image.startswith("resolve:ssm:"):
        parameter = image.removeprefix("resolve:ssm:")
        yield Need(
            "ssm:GetParameters", parameter_arn(call, parameter), dict(shared), "the image is named by a parameter"
        )
        image = "*"
    yield need("image", image, source="ImageId")
    for one in subnets or ["*"]:
        yield need("subnet", one, source="SubnetId")
    at = where | ({"ec2:Subnet": arn(call, "subnet", subnets[0])} if subnets else {})
    for one in _unique([one.get("NetworkInterfaceId") for one in interfaces]) or ["*"]:
        public = [one["AssociatePublicIpAddress"] for one in interfaces if "AssociatePublicIpAddress" in one]
        yield need(
            "network-interface", one, at | ({"ec2:AssociatePublicIpAddress": text_of(public[0])} if public else {})
        )
    for one in _security_groups(call, asked, interfaces) or ["*"]:
        yield need("security-group", one, where, source="SecurityGroupIds")
    yield from _volumes(asked.get("BlockDeviceMappings") or [], need)
    if asked.get("KeyName"):
        yield need("key-pair", asked["KeyName"], source="KeyName")
    if template_arn:
        yield need("launch-template", template_arn.rpartition("/")[2], source="LaunchTemplate")
    placement = asked.get("Placement") or {}
    group = placement.get("GroupName") or call.lookup("placement-group-id", placement.get("GroupId") or "")
    if group:
        yield need("placement-group", group, source="Placement")
    market = asked.get("InstanceMarketOptions") or {}
    if market.get("MarketType") == "spot":
        yield need("spot-instances-request", "*")
        yield from _because(reason, service_linked_role(call, "spot.amazonaws.com", "AWSServiceRoleForEC2Spot"))
    yield from _because(reason, create_tags(call, tags, "RunInstances"))
    yield from profile_role(call, asked.get("IamInstanceProfile"), reason=reason)


def _because(reason: str, needs: Iterator[Need]) -> Iterator[Need]:
    return (replace(need, reason=reason or need.reason) for need in needs)


def _template(call: Call, params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The ARN of the launch template that the request names, and its data; nothing if it names none."""
    named = params.get("LaunchTemplate") or {}
    name = named.get("LaunchTemplateName")
    found = named.get("LaunchTemplateId") or (call.lookup("launch-template-name", name) if name else None)
    if not (found or name):
        return "", {}
    data = call.world.launch_template(found or name or "", str(named.get("Version") or "$Default"), call.region)
    return arn(call, "launch-template", found or "*"), data or {}


def _instance_facts(call: Call, asked: Mapping[str, Any]) -> dict[str, Value]:
    metadata = asked.get("MetadataOptions") or {}
    placement = asked.get("Placement") or {}
    market = (asked.get("InstanceMarketOptions") or {}).get("MarketType", "on-demand")
    facts = {
        "ec2:InstanceType": asked.get("InstanceType"),
        "ec2:InstanceMarketType": market,
        "ec2:EbsOptimized": asked.get("EbsOptimized", False),
        "ec2:Tenancy": placement.get("Tenancy", "default"),
        "ec2:AvailabilityZone": placement.get("AvailabilityZone"),
        "ec2:MetadataHttpEndpoint": metadata.get("HttpEndpoint"),
        "ec2:MetadataHttpTokens": metadata.get("HttpTokens"),
        "ec2:MetadataHttpPutResponseHopLimit": metadata.get("HttpPutResponseHopLimit"),
        "ec2:InstanceProfile": _profile_arn(call, asked.get("IamInstanceProfile")),
    }
    return {key: text_of(value) for key, value in facts.items() if value is not None}


def _security_groups(call: Call, asked: Mapping[str, Any], interfaces: list[Any]) -> list[str]:
    names = [call.lookup("security-group-name", name) for name in asked.get("SecurityGroups") or []]
    return _unique(
        [*(asked.get("SecurityGroupIds") or []), *names, *[g for one in interfaces for g in one.get("Groups") or []]]
    )


def _volumes(mappings: list[Any], need: Any) -> Iterator[Need]:
    """One check for each distinct disk; an instance has a root volume, mapped or not."""
    disks = [one["Ebs"] for one in mappings if one.get("Ebs")] or [{}]
    names = {
        "VolumeSize": "ec2:VolumeSize",
        "VolumeType": "ec2:VolumeType",
        "Encrypted": "ec2:Encrypted",
        "Iops": "ec2:VolumeIops",
    }
    for disk in disks:
        yield need(
            "volume", "*", {key: text_of(disk[name]) for name, key in names.items() if disk.get(name) is not None}
        )
    for snapshot in _unique([disk.get("SnapshotId") for disk in disks]):
        yield need("snapshot", snapshot)


def _unique(values: list[Any]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))


def parameter_arn(call: Call, name: str) -> str:
    """AWS's own public parameters belong to no account."""
    public = name.startswith("/aws/service/")
    return call.arn("ssm", f"parameter/{name.removeprefix('/')}", account="" if public else None)


# Instance profiles ----------------------------------------------------------------------------------------------------


def _profile_arn(call: Call, profile: Mapping[str, Any] | None) -> str | None:
    profile = profile or {}
    return profile.get("Arn") or (call.lookup("instance-profile", profile["Name"]) if profile.get("Name") else None)


def profile_role(call: Call, profile: Mapping[str, Any] | None, *, reason: str = "") -> Iterator[Need]:
    """iam:PassRole on the role in the profile. A profile that does not exist, or is empty, passes nothing: EC2 itself
    then says that it is not valid."""
    named = (profile or {}).get("Arn") or (profile or {}).get("Name")
    role = call.lookup("instance-profile-role", named) if named else None
    if role:
        yield pass_role(call, role, "ec2.amazonaws.com", to=arn(call, "instance", "*"), reason=reason)


_TEMPLATE = "launch-template=LaunchTemplateId|LaunchTemplateName<launch-template-name"
_GROUP = "security-group=GroupId|GroupName<security-group-name"
_ADDRESS = "elastic-ip=AllocationId|PublicIp<public-ip"
_RULES = on(_GROUP)
_EGRESS_RULES = on("security-group=GroupId")
_TAGGED_RULES = on("security-group-rule=new", given="TagSpecifications.Tags.Key")
_ROUTED = (
    "subnet?=AssociationId<route-table-association-subnet "
    "internet-gateway?=AssociationId<route-table-association-gateway"
)

# fmt: off
ROWS = ec2.rows({
    # The account and what AWS offers
    "DescribeAccountAttributes": ANY,
    "DescribeAvailabilityZones": ANY,
    "DescribeRegions": ANY,
    "DescribeInstanceTypes": ANY,
    "DescribeInstanceTypeOfferings": ANY,

    # VPCs
    "CreateVpc": on("vpc=new"),
    "DeleteVpc": on("vpc=VpcId"),
    "DescribeVpcs": ANY,
    "DescribeVpcAttribute": on("vpc=VpcId"),
    "ModifyVpcAttribute": on("vpc=VpcId"),
    "AssociateVpcCidrBlock": on("vpc=VpcId"),
    "DisassociateVpcCidrBlock": on("vpc=any"),

    # Subnets
    "CreateSubnet": on("subnet=new vpc=VpcId"),
    "DeleteSubnet": on("subnet=SubnetId"),
    "DescribeSubnets": ANY,
    "ModifySubnetAttribute": on("subnet=SubnetId"),

    # Gateways and addresses
    "CreateInternetGateway": on("internet-gateway=new"),
    "DeleteInternetGateway": on("internet-gateway=InternetGatewayId"),
    "DescribeInternetGateways": ANY,
    "AttachInternetGateway": on("internet-gateway=InternetGatewayId vpc=VpcId"),
    "DetachInternetGateway": on("internet-gateway=InternetGatewayId vpc=VpcId"),
    "CreateNatGateway": on("natgateway=new subnet=SubnetId elastic-ip?=AllocationId vpc?=VpcId"),
    "DeleteNatGateway": on("natgateway=NatGatewayId"),
    "DescribeNatGateways": ANY,
    "AllocateAddress": on("elastic-ip=new ipv4pool-ec2?=PublicIpv4Pool"),
    "ReleaseAddress": on(_ADDRESS),
    "DescribeAddresses": ANY,
    "AssociateAddress": on(f"{_ADDRESS} instance?=InstanceId network-interface?=NetworkInterfaceId"),
    "DisassociateAddress": on(
        "elastic-ip=AssociationId<address-association|PublicIp<public-ip "
        "network-interface?=AssociationId<address-association-interface|PublicIp<public-ip-interface"),

    # Routes
    "CreateRouteTable": on("route-table=new vpc=VpcId"),
    "DeleteRouteTable": on("route-table=RouteTableId"),
    "DescribeRouteTables": ANY,
    "AssociateRouteTable": on("route-table=RouteTableId subnet?=SubnetId internet-gateway?=GatewayId"),
    "DisassociateRouteTable": on(f"route-table=AssociationId<route-table-association {_ROUTED}"),
    "ReplaceRouteTableAssociation": on(f"route-table=RouteTableId {_ROUTED}"),
    "CreateRoute": on("route-table=RouteTableId"),
    "ReplaceRoute": on("route-table=RouteTableId"),
    "DeleteRoute": on("route-table=RouteTableId"),

    # Security groups
    "CreateSecurityGroup": on("security-group=new vpc?=VpcId"),
    "DeleteSecurityGroup": on(_GROUP),
    "DescribeSecurityGroups": ANY,
    "DescribeSecurityGroupRules": ANY,
    "AuthorizeSecurityGroupIngress": (_RULES, _TAGGED_RULES),
    "AuthorizeSecurityGroupEgress": (_EGRESS_RULES, _TAGGED_RULES),
    "RevokeSecurityGroupIngress": _RULES,
    "RevokeSecurityGroupEgress": _EGRESS_RULES,
    "UpdateSecurityGroupRuleDescriptionsIngress": _RULES,
    "UpdateSecurityGroupRuleDescriptionsEgress": _RULES,

    # Endpoints and prefix lists
    "CreateVpcEndpoint": (
        on("vpc-endpoint=new", keys="ec2:VpceServiceName=ServiceName"),
        on("vpc=VpcId route-table?=RouteTableIds subnet?=SubnetIds security-group?=SecurityGroupIds")),
    "ModifyVpcEndpoint": on(
        "vpc-endpoint=VpcEndpointId route-table?=AddRouteTableIds route-table?=RemoveRouteTableIds "
        "subnet?=AddSubnetIds subnet?=RemoveSubnetIds "
        "security-group?=AddSecurityGroupIds security-group?=RemoveSecurityGroupIds"),
    "DeleteVpcEndpoints": on("vpc-endpoint=VpcEndpointIds"),
    "DescribeVpcEndpoints": ANY,

    # Network interfaces
    "CreateNetworkInterface": on("network-interface=new subnet=SubnetId security-group?=Groups"),
    "DeleteNetworkInterface": on("network-interface=NetworkInterfaceId"),
    "DescribeNetworkInterfaces": ANY,
    "DescribeNetworkInterfaceAttribute": ANY,
    "ModifyNetworkInterfaceAttribute": on(
        "network-interface=NetworkInterfaceId security-group?=Groups subnet?=AssociatedSubnetIds "
        "instance?=Attachment.AttachmentId<network-interface-attachment-instance"),

    # Instances
    "RunInstances": launch,
    "DescribeInstances": ANY,
    "DescribeInstanceStatus": ANY,
    "DescribeInstanceAttribute": on("instance=InstanceId"),
    "StartInstances": on("instance=InstanceIds"),
    "StopInstances": on("instance=InstanceIds"),
    "RebootInstances": on("instance=InstanceIds"),
    "TerminateInstances": on("instance=InstanceIds"),
    "GetConsoleOutput": on("instance=InstanceId"),

    # Launch templates
    "CreateLaunchTemplate": on("launch-template=new"),
    "CreateLaunchTemplateVersion": on(_TEMPLATE),
    "ModifyLaunchTemplate": on(_TEMPLATE),
    "DeleteLaunchTemplate": on(_TEMPLATE),
    "DeleteLaunchTemplateVersions": on(_TEMPLATE),
    "DescribeLaunchTemplates": ANY,
    "DescribeLaunchTemplateVersions": ANY,

    # Placement groups, keys, tags
    "CreatePlacementGroup": on("placement-group=new:GroupName", keys="ec2:PlacementGroupStrategy=Strategy"),
    "DeletePlacementGroup": on("placement-group=GroupName"),
    "DescribePlacementGroups": ANY,
    "CreateKeyPair": on("key-pair=new:KeyName", keys="ec2:KeyPairType=KeyType"),
    "ImportKeyPair": on("key-pair=new:KeyName"),
    "DeleteKeyPair": on("key-pair=KeyName|KeyPairId<key-pair-id"),
    "DescribeKeyPairs": ANY,
    "CreateTags": tagged_resources,
    "DeleteTags": tagged_resources,
    "DescribeTags": ANY,

    # Images, volumes, snapshots
    "DescribeImages": ANY,
    "CreateVolume": (
        on("volume=new",
           keys="ec2:Encrypted=Encrypted ec2:VolumeSize=Size ec2:VolumeType=VolumeType ec2:VolumeIops=Iops "
                "ec2:AvailabilityZone=AvailabilityZone"),
        on("snapshot?=SnapshotId")),
    "DeleteVolume": on("volume=VolumeId"),
    "DescribeVolumes": ANY,
}, tags_on_create)
# fmt: on
