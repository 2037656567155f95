"""Placement groups: records with rules; where a machine runs is the same for all here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.ec2.errors import invalid, missing
from localcloud.api.ec2.filters import by_name, listing, refuse_dry_run, tag_list, tags_of
from localcloud.api.ec2.moto_records import backend_of, new_id, set_tags, tags_in
from localcloud.api.ec2.records import PlacementGroup, instances_in, records_of
from localcloud.core.cloud import Call, Cloud, answers, arn
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error


def group_for_launch(cloud: Cloud, region: str, placement: Mapping[str, Any]) -> PlacementGroup | None:
    """Return the placement group of a launch, by its name or id."""
    name, group_id = placement.get("GroupName"), placement.get("GroupId")
    if not name and not group_id:
        return None
    for group in records_of(cloud).placement_groups.values():
        if group.region == region and (group.name == name or group.id == group_id):
            return group
    raise _unknown(str(name or group_id))


def _unknown(name: str) -> AwsError:
    return aws_error("ec2:*", "InvalidPlacementGroup.Unknown", id=name)


def _described(group: PlacementGroup) -> dict[str, Any]:
    return {
        "GroupArn": arn("ec2", group.region, f"placement-group/{group.name}"),
        "GroupId": group.id,
        "GroupName": group.name,
        "State": "available",
        "Strategy": group.strategy,
        "Tags": tag_list(tags_in(group.region, group.id)),
    }


@answers("ec2", "CreatePlacementGroup")
def create_placement_group(call: Call) -> dict[str, Any]:
    params = call.params
    name = str(params.get("GroupName") or "")
    strategy = str(params.get("Strategy") or "cluster")
    if not name:
        raise missing("groupName")
    if strategy != "cluster":
        raise invalid(f"The local cloud has no placement groups with strategy {strategy}.")
    groups = records_of(call.cloud).placement_groups
    if (call.region, name) in groups:
        raise AwsError("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
    refuse_dry_run(params)
    group = PlacementGroup(new_id("pg"), name, call.region, strategy)
    groups[call.region, name] = group
    set_tags(call.region, group.id, tags_of(params, "placement-group"))
    return {"PlacementGroup": _described(group)}


@answers("ec2", "DescribePlacementGroups")
def describe_placement_groups(call: Call) -> dict[str, Any]:
    groups = [group for group in records_of(call.cloud).placement_groups.values() if group.region == call.region]
    for key, field in (("GroupNames", "name"), ("GroupIds", "id")):
        groups = by_name(groups, field, call.params.get(key) or (), _unknown)
    return listing(call, "PlacementGroups", map(_described, groups), default=None)


@answers("ec2", "DeletePlacementGroup")
def delete_placement_group(call: Call) -> dict[str, Any]:
    name = str(call.params.get("GroupName") or "")
    groups = records_of(call.cloud).placement_groups
    group = groups.get((call.region, name))
    if group is None:
        raise _unknown(name)
    used = any(
        instance.placement_group == group and instance.state != "terminated"
        for instance in instances_in(call.cloud, call.region)
    )
    if used:
        raise aws_error("ec2:DeletePlacementGroup", "InvalidPlacementGroup.InUse", name=name)
    refuse_dry_run(call.params)
    del groups[call.region, name]
    backend_of(call.region).tags.pop(group.id, None)
    return {}
