"""Elastic File System: tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from localcloud.api.efs.records import bad_request, find_file_system
from localcloud.core.cloud import Call, Result, answers

MAX_TAGS = 50


def read_tags(values: Iterable[Mapping[str, str]], old: Mapping[str, str] | None = None) -> dict[str, str]:
    """Merge the tags of the request into the existing ones."""
    new: dict[str, str] = {}
    for tag in values:
        key, value = tag["Key"], tag.get("Value", "")
        if key in new:
            raise bad_request(f"The tag key '{key}' is given twice.")
        if key.lower().startswith("aws:"):
            raise bad_request("Tag keys that start with 'aws:' are reserved for system use.")
        if not 1 <= len(key) <= 128 or len(value) > 256:
            raise bad_request("A tag key has 1 to 128 characters, a tag value at most 256.")
        new[key] = value
    tags = {**(old or {}), **new}
    if len(tags) > MAX_TAGS:
        raise bad_request(f"A resource can have at most {MAX_TAGS} tags.")
    return tags


@answers("efs", "TagResource")
def tag_resource(call: Call) -> Result:
    tags = find_file_system(call, call.params["ResourceId"]).tags
    tags.update(read_tags(call.params["Tags"], tags))
    return None
