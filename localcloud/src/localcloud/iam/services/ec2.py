"""EC2: most operations are checked on the resources that their parameters name.

What Auto Scaling does later with its own role needs no permission of the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...core.kinds import type_of
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

# Can belong to any account, so their ARNs have none.
_NO_ACCOUNT = {"image", "snapshot"}


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    return call.arn("ec2", f"{kind}/{name}", account="" if kind in _NO_ACCOUNT else None)


def tags(call: Call, kind: str) -> Mapping[str, str]:
    """Return the tags of TagSpecifications for that type; CreateTags and DeleteTags have one list for all."""
    if "Tags" in call.params:
        return tags_of(call.params["Tags"])
    return specified_tags(call.params).get(kind, {})


def specified_tags(params: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return TagSpecifications as {type: tags}."""
    by_type: dict[str, dict[str, str]] = {}
    for specification in params.get("TagSpecifications") or []:
        if tags := tags_of(specification.get("Tags")):
            by_type.setdefault(specification.get("ResourceType", ""), {}).update(tags)
    return by_type


ec2 = Service("ec2", "ec2", arn, ("aws:ResourceTag/", "ec2:ResourceTag/"), tags)


def create_tags(call: Call, specified: Mapping[str, Mapping[str, str]], created_by: str) -> Iterator[Need]:
    """Need ec2:CreateTags for tags in a creating call, on each type that is tagged."""
    for kind, tags in specified.items():
        context = ec2.region(call) | {"ec2:CreateAction": created_by} | request_tags(tags)
        yield Need("ec2:CreateTags", arn(call, kind, "*"), context, f"{created_by} tags what it creates")


def tags_on_create(call: Call) -> Iterator[Need]:
    if call.operation != "RunInstances":  # launch_needs includes the launch template's tags
        yield from create_tags(call, specified_tags(call.params), call.operation)


def tagged_resources(call: Call) -> Iterator[Need]:
    for resource in call.values("Resources") or ["*"]:
        kind = type_of(resource) or "*"
        name = call.lookup("key-pair-id", resource) if kind == "key-pair" else None
        name = call.lookup("placement-group-id", resource) if kind == "placement-group" else name
        target = arn(call, kind, name or resource)
        context = ec2.describe(call, target) | ec2.requested(call, kind)
        yield Need(f"ec2:{call.operation}", target, context)


# RunInstances ---------------------------------------------------------------------------------------------------------


def launch(call: Call) -> Iterator[Need]:
    yield from launch_needs(call, call.params)


def launch_needs(call: Call, params: Mapping[str, Any], *, reason: str = "") -> Iterator[Need]:
    """Need all permissions of a launch; parameters that the request omits come from the launch template.

    Auto Scaling makes a dry run of a launch on its caller's behalf, with `params` and `reason` of its own."""
    template_arn, data = _template(call, params)
    merged: dict[str, Any] = {**data, **{key: value for key, value in params.items() if value is not None}}
    tags = specified_tags(data) | specified_tags(params)
    # Every check of a launch has the template, and whether the resource comes from it and not from the request.
    shared: dict[str, Value] = ec2.region(call) | ({"ec2:LaunchTemplate": template_arn} if template_arn else {})

    def need(kind: str, name: str, keys: Mapping[str, Value] | None = None, source: str = "") -> Need:
        target = arn(call, kind, name)
        context = ec2.describe(call, target) | shared | dict(keys or {})
        if name == "*":
            context |= request_tags(tags.get(kind, {}))
        if template_arn:
            context["ec2:IsLaunchTemplateResource"] = text_of(source not in params if source else name == "*")
        return Need("ec2:RunInstances", target, context, reason)

    interfaces = merged.get("NetworkInterfaces") or []
    subnets = _unique([item.get("SubnetId") for item in interfaces] + [merged.get("SubnetId")])

    yield need("instance", "*", _instance_facts(call, merged))
    image = merged.get("ImageId") or "*"
    yield need("image", image, source="ImageId")
    for subnet in subnets or ["*"]:
        yield need("subnet", subnet, source="SubnetId")
    location = {"ec2:Subnet": arn(call, "subnet", subnets[0])} if subnets else {}
    for interface in _unique([item.get("NetworkInterfaceId") for item in interfaces]) or ["*"]:
        public = [item["AssociatePublicIpAddress"] for item in interfaces if "AssociatePublicIpAddress" in item]
        yield need(
            "network-interface",
            interface,
            location | ({"ec2:AssociatePublicIpAddress": text_of(public[0])} if public else {}),
        )
    for group in _security_groups(merged, interfaces) or ["*"]:
        yield need("security-group", group, source="SecurityGroupIds")
    yield from _volumes(merged.get("BlockDeviceMappings") or [], need)
    if merged.get("KeyName"):
        yield need("key-pair", merged["KeyName"], source="KeyName")
    if template_arn:
        yield need("launch-template", template_arn.rpartition("/")[2], source="LaunchTemplate")
    placement = merged.get("Placement") or {}
    name = placement.get("GroupName") or call.lookup("placement-group-id", placement.get("GroupId") or "")
    if name:
        yield need("placement-group", name, source="Placement")
    target = (merged.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    if target.get("CapacityReservationId"):
        yield need("capacity-reservation", target["CapacityReservationId"], source="CapacityReservationSpecification")
    if target.get("CapacityReservationResourceGroupArn"):
        # A group of the service resource-groups. The reference has no condition keys for it.
        group_of_reservations = target["CapacityReservationResourceGroupArn"]
        yield Need("ec2:RunInstances", group_of_reservations, ec2.describe(call, group_of_reservations), reason)
    market = merged.get("InstanceMarketOptions") or {}
    if market.get("MarketType") == "spot":
        yield need("spot-instances-request", "*")
        yield from _with_reason(reason, service_linked_role(call, "spot.amazonaws.com"))
    yield from _with_reason(reason, create_tags(call, tags, "RunInstances"))
    yield from profile_role(call, merged.get("IamInstanceProfile"), reason=reason)


def _with_reason(reason: str, needs: Iterator[Need]) -> Iterator[Need]:
    return (replace(need, reason=reason or need.reason) for need in needs)


def _template(call: Call, params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the ARN of the launch template that the request names, and its data; both empty without one."""
    template = params.get("LaunchTemplate") or {}
    name = template.get("LaunchTemplateName")
    template_id = template.get("LaunchTemplateId") or (call.lookup("launch-template-name", name) if name else None)
    if not (template_id or name):
        return "", {}
    version = str(template.get("Version") or "$Default")
    data = call.world.launch_template(template_id or name or "", version, call.region)
    return arn(call, "launch-template", template_id or "*"), data or {}


def _instance_facts(call: Call, request: Mapping[str, Any]) -> dict[str, Value]:
    metadata = request.get("MetadataOptions") or {}
    placement = request.get("Placement") or {}
    market = (request.get("InstanceMarketOptions") or {}).get("MarketType", "on-demand")
    facts = {
        "ec2:InstanceType": request.get("InstanceType"),
        "ec2:InstanceMarketType": market,
        "ec2:EbsOptimized": request.get("EbsOptimized", False),
        "ec2:Tenancy": placement.get("Tenancy", "default"),
        "ec2:AvailabilityZone": placement.get("AvailabilityZone"),
        "ec2:MetadataHttpEndpoint": metadata.get("HttpEndpoint"),
        "ec2:MetadataHttpTokens": metadata.get("HttpTokens"),
        "ec2:MetadataHttpPutResponseHopLimit": metadata.get("HttpPutResponseHopLimit"),
        "ec2:InstanceProfile": _profile_arn(call, request.get("IamInstanceProfile")),
    }
    return {key: text_of(value) for key, value in facts.items() if value is not None}


def _security_groups(request: Mapping[str, Any], interfaces: list[Any]) -> list[str]:
    of_interfaces = [group for interface in interfaces for group in interface.get("Groups") or []]
    return _unique([*(request.get("SecurityGroupIds") or []), *of_interfaces])


def _volumes(mappings: list[Any], need: Any) -> Iterator[Need]:
    """Need a check for each distinct volume; an instance has a root volume, mapped or not."""
    disks = [mapping["Ebs"] for mapping in mappings if mapping.get("Ebs")] or [{}]
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


# Instance profiles ----------------------------------------------------------------------------------------------------


def _profile_arn(call: Call, profile: Mapping[str, Any] | None) -> str | None:
    profile = profile or {}
    return profile.get("Arn") or (call.lookup("instance-profile", profile["Name"]) if profile.get("Name") else None)


def profile_role(call: Call, profile: Mapping[str, Any] | None, *, reason: str = "") -> Iterator[Need]:
    """Need iam:PassRole on the role in the profile. EC2 itself reports a profile that does not exist or is empty."""
    name = (profile or {}).get("Arn") or (profile or {}).get("Name")
    role = call.lookup("instance-profile-role", name) if name else None
    if role:
        yield pass_role(call, role, "ec2.amazonaws.com", to=arn(call, "instance", "*"), reason=reason)


ROWS = ec2.rows(tags_on_create, launch=launch, tagged_resources=tagged_resources)
