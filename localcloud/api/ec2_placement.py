"""Placement groups: records with rules; where a machine runs is the same for all here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.api.ec2_filters import Values, chosen, refuse_dry_run, tag_list, tags_of
from localcloud.api.ec2_records import backend_of, instances_in, new_id, records_of, set_tags, tags_in
from localcloud.api.registry import Call, answers
from localcloud.cloud import Cloud, arn
from localcloud.errors import AwsError

STRATEGIES = ("cluster", "spread", "partition")


@dataclass(frozen=True)
class PlacementGroup:
    id: str
    name: str
    region: str
    strategy: str
    partitions: int | None = None
    spread_level: str | None = None


def group_for_launch(cloud: Cloud, region: str, placement: Mapping[str, Any]) -> PlacementGroup | None:
    """The group that a launch names, by its name or id."""
    name, group_id = placement.get("GroupName"), placement.get("GroupId")
    if not name and not group_id:
        return None
    for group in records_of(cloud).placement_groups.values():
        if group.region == region and (group.name == name or group.id == group_id):
            return group
    raise _unknown(str(name or group_id))


def _unknown(name: str) -> AwsError:
    return AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")


def _described(group: PlacementGroup) -> dict[str, Any]:
    described: dict[str, Any] = {
        "GroupArn": arn("ec2", group.region, f"placement-group/{group.name}"),
        "GroupId": group.id,
        "GroupName": group.name,
        "State": "available",
        "Strategy": group.strategy,
        "Tags": tag_list(tags_in(group.region, group.id)),
    }
    if group.partitions is not None:
        described["PartitionCount"] = group.partitions
    if group.spread_level is not None:
        described["SpreadLevel"] = group.spread_level
    return described


@answers("ec2", "CreatePlacementGroup")
def create_placement_group(call: Call) -> dict[str, Any]:
    params = call.params
    name = str(params.get("GroupName") or "")
    strategy = str(params.get("Strategy") or "cluster")
    if not name:
        raise AwsError("MissingParameter", "The request must contain the parameter groupName")
    if strategy not in STRATEGIES:
        raise AwsError("InvalidParameterValue", f"Value ({strategy}) for parameter strategy is invalid.")
    partitions = params.get("PartitionCount")
    if partitions is not None and strategy != "partition":
        raise AwsError("InvalidParameterCombination", "PartitionCount may only be used with the 'partition' strategy.")
    if partitions is not None and not 1 <= int(partitions) <= 7:
        raise AwsError("InvalidParameterValue", "The partition count must be between 1 and 7.")
    groups = records_of(call.cloud).placement_groups
    if (call.region, name) in groups:
        raise AwsError("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
    refuse_dry_run(params)
    group = PlacementGroup(
        new_id("pg"),
        name,
        call.region,
        strategy,
        partitions=int(partitions or 2) if strategy == "partition" else None,
        spread_level=str(params.get("SpreadLevel") or "rack") if strategy == "spread" else None,
    )
    groups[call.region, name] = group
    set_tags(call.region, group.id, tags_of(params, "placement-group"))
    return {"PlacementGroup": _described(group)}


_FILTERS: Mapping[str, Callable[[PlacementGroup], Values]] = {
    "group-arn": lambda group: (_described(group)["GroupArn"],),
    "group-name": lambda group: (group.name,),
    "group-id": lambda group: (group.id,),
    "spread-level": lambda group: (group.spread_level,),
    "state": lambda group: ("available",),
    "strategy": lambda group: (group.strategy,),
}


@answers("ec2", "DescribePlacementGroups")
def describe_placement_groups(call: Call) -> dict[str, Any]:
    refuse_dry_run(call.params)
    found = [group for group in records_of(call.cloud).placement_groups.values() if group.region == call.region]
    for key, field in (("GroupNames", "name"), ("GroupIds", "id")):
        asked = [str(value) for value in call.params.get(key) or ()]
        known = {getattr(group, field): group for group in found}
        for value in asked:
            if value not in known:
                raise _unknown(value)
        found = [known[value] for value in dict.fromkeys(asked)] if asked else found
    found = chosen(found, call.params.get("Filters"), _FILTERS, lambda group: tags_in(group.region, group.id))
    return {"PlacementGroups": [_described(group) for group in found]}


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
        raise AwsError("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted.")
    refuse_dry_run(call.params)
    del groups[call.region, name]
    backend_of(call.region).tags.pop(group.id, None)
    return {}
