"""EC2 Auto Scaling: tags of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localcloud.api.autoscaling import responses, validation
from localcloud.api.autoscaling.records import Group
from localcloud.api.autoscaling.regions import scaling_in
from localcloud.api.autoscaling.state import Scaling
from localcloud.api.autoscaling.validation import invalid
from localcloud.core.cloud import Call, Result, answers


@answers("autoscaling", "CreateOrUpdateTags")
def put_tags(call: Call) -> Result:
    scaling = scaling_in(call.cloud, call.region)
    tagged = [(_tagged(scaling, tag), tag) for tag in call.params["Tags"]]
    validation.read_tags(tag for _, tag in tagged)
    for group, tag in tagged:
        group.tags.update(validation.read_tags([tag]))
    return {}


@answers("autoscaling", "DeleteTags")
def delete_tags(call: Call) -> Result:
    """With a value, the tag is removed only if it has that value."""
    scaling = scaling_in(call.cloud, call.region)
    for group, tag in [(_tagged(scaling, tag), tag) for tag in call.params["Tags"]]:
        existing = group.tags.get(tag["Key"])
        if existing is not None and tag.get("Value") in (None, existing.value):
            del group.tags[tag["Key"]]
    return {}


def _tagged(scaling: Scaling, tag: Mapping[str, Any]) -> Group:
    if tag.get("ResourceType", "auto-scaling-group") != "auto-scaling-group" or not tag.get("ResourceId"):
        raise invalid("Tags need a ResourceId and the ResourceType auto-scaling-group.")
    return validation.group_named(scaling, tag["ResourceId"])


@answers("autoscaling", "DescribeTags")
def describe_tags(call: Call) -> Result:
    scaling = scaling_in(call.cloud, call.region)
    fields: dict[str, Callable[[dict[str, Any]], str]] = {
        "auto-scaling-group": lambda tag: tag["ResourceId"],
        "key": lambda tag: tag["Key"],
    }
    tags = [tag for _, group in sorted(scaling.groups.items()) for tag in responses.tags(group)]
    for filter_ in call.params.get("Filters") or []:
        field = fields.get(filter_.get("Name", ""))
        if field is None:
            raise invalid(
                f"Filter type {filter_.get('Name')} is not correct. Allowed Filter types are: {', '.join(fields)}"
            )
        tags = [tag for tag in tags if field(tag) in (filter_.get("Values") or [])]
    tags, token = responses.page(tags, lambda tag: f"{tag['ResourceId']}:{tag['Key']}", call.params, 50, 100)
    return {"Tags": tags, **token}
