"""Tags of whatever EC2 has: made only on what exists, and gone with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from localcloud.api.ec2.errors import invalid, missing
from localcloud.api.ec2.filters import listing, refuse_dry_run, tag_list
from localcloud.api.ec2.images import images_of
from localcloud.api.ec2.moto_records import backend_of, groups_in, subnets_in
from localcloud.api.ec2.records import instances_in, records_of
from localcloud.core.cloud import Call, answers
from localcloud.core.errors import AwsError
from localcloud.core.kinds import KINDS, type_of


def _ids(records: Iterable[Any]) -> set[str]:
    return {record.id for record in records}


# What exists, by the prefix of its id. Capacity reservations, flow logs and spot requests do not.
_EXISTING: Mapping[str, Callable[[Call, Any], Iterable[str]]] = {
    "acl": lambda _call, backend: backend.network_acls,
    "ami": lambda call, _backend: images_of(call.cloud),
    "dopt": lambda _call, backend: backend.dhcp_options_sets,
    "eipalloc": lambda _call, backend: [address.allocation_id for address in backend.addresses],
    "eni": lambda _call, backend: backend.enis,
    "i": lambda call, _backend: [instance.id for instance in instances_in(call.cloud, call.region)],
    "igw": lambda _call, backend: backend.internet_gateways,
    "key": lambda _call, backend: _ids(backend.key_pairs.values()),
    "lt": lambda _call, backend: backend.launch_templates,
    "nat": lambda _call, backend: backend.nat_gateways,
    "pg": lambda call, _backend: _ids(records_of(call.cloud).placement_groups.values()),
    "rtb": lambda _call, backend: backend.route_tables,
    "sg": lambda _call, backend: _ids(groups_in(backend)),
    "sgr": lambda _call, backend: _ids(
        rule for group in groups_in(backend) for rule in (*group.ingress_rules, *group.egress_rules)
    ),
    "subnet": lambda _call, backend: _ids(subnets_in(backend)),
    "vol": lambda _call, backend: backend.volumes,
    "vpc": lambda _call, backend: backend.vpcs,
    "vpce": lambda _call, backend: backend.vpc_end_points,
}
_UNCHECKED = ("eigw", "pcx", "pl", "snap")


def _resources(call: Call) -> list[str]:
    """Return the resources of a call. Raise AwsError if one does not exist."""
    requested = [str(resource) for resource in call.params.get("Resources") or ()]
    if not requested:
        raise missing("resourceIdSet")
    backend = backend_of(call.region)
    existing: dict[str, Iterable[str]] = {}
    for resource in requested:
        prefix = resource.rpartition("-")[0]
        if prefix not in (*_EXISTING, *_UNCHECKED):
            raise AwsError("InvalidID", f"The ID '{resource}' is not valid")
        if prefix in _EXISTING:
            if prefix not in existing:
                existing[prefix] = _EXISTING[prefix](call, backend)
            if resource not in existing[prefix]:
                raise KINDS[prefix].not_found(resource)
    return requested


@answers("ec2", "CreateTags")
def create_tags(call: Call) -> dict[str, Any]:
    resources = _resources(call)
    tags = {str(tag.get("Key") or ""): str(tag.get("Value") or "") for tag in call.params.get("Tags") or ()}
    if not tags:
        raise missing("Tag.N")
    for key, value in tags.items():
        if not 1 <= len(key) <= 127:
            raise invalid(f"Tag key must be between 1 and 127 characters: '{key}'")
        if len(value) > 256:
            raise invalid("Tag value exceeds the maximum length of 256 characters")
        if key.startswith("aws:") and call.caller.kind != "service":
            raise invalid(f"Tag keys starting with 'aws:' are reserved for internal use: {key}")
    all_tags = backend_of(call.region).tags
    for resource in resources:
        whole = {**(all_tags.get(resource) or {}), **tags}
        if len([key for key in whole if not key.startswith("aws:")]) > 50:
            raise AwsError("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
    refuse_dry_run(call.params)
    for resource in resources:
        all_tags[resource].update(tags)
    return {}


@answers("ec2", "DeleteTags")
def delete_tags(call: Call) -> dict[str, Any]:
    resources = _resources(call)
    refuse_dry_run(call.params)
    all_tags = backend_of(call.region).tags
    values = call.params.get("Tags")
    for resource in resources:
        tags = all_tags.get(resource) or {}
        if values is None:
            # All, except for those that belong to AWS.
            for key in [key for key in tags if not key.startswith("aws:")]:
                del tags[key]
        for tag in values or ():
            value = tag.get("Value")
            if tag.get("Key") in tags and value in (None, tags[tag["Key"]]):
                del tags[tag["Key"]]
    return {}


@answers("ec2", "DescribeTags")
def describe_tags(call: Call) -> dict[str, Any]:
    filters = list(call.params.get("Filters") or ())
    all_tags = backend_of(call.region).tags
    by_id = next((values["Values"] for values in filters if values.get("Name") == "resource-id"), None)
    if by_id and not any("*" in value or "?" in value for value in by_id):
        all_tags = {resource: all_tags.get(resource) or {} for resource in by_id}
    described = [
        # "Tags" is for the filter "tag:…" and no part of the answer.
        {"Key": key, "ResourceId": name, "ResourceType": type_of(name), "Value": value, "Tags": tag_list({key: value})}
        for name, tags in all_tags.items()
        for key, value in tags.items()
    ]
    answer = listing(call, "Tags", described)
    for tag in answer["Tags"]:
        del tag["Tags"]
    return answer
