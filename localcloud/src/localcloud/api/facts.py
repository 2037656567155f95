"""Names, tags and condition keys of resources, from the records of moto and of the services.

Every call needs them, so they are read straight from memory. A missing resource is None or empty and never an error, as
the service itself reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moto.backends import get_backend

from localcloud.api.autoscaling import regions as scaling
from localcloud.api.ec2 import late_tags
from localcloud.api.ec2 import records as ec2_records
from localcloud.api.ec2.images import images_of
from localcloud.api.efs import file_systems as efs
from localcloud.api.efs import records as efs_records
from localcloud.api.emr import records as emr_records
from localcloud.api.iam.history import backend as iam_backend
from localcloud.api.iam.history import boundary_arn_in_effect
from localcloud.core.cloud import Cloud
from localcloud.core.settings import ACCOUNT, OTHER_ACCOUNT
from localcloud.iam import Lookup
from localcloud.iam.rules import tags_of

Tags = Mapping[str, str]
Facts = Mapping[str, Any]
"""texts, numbers and truth values; None where it is not known"""
FindTags = Callable[[Cloud, str, str, str], Tags]
"""by ARN, region and the ARN's last part"""
FindFacts = Callable[[Cloud, str, str], Facts]
"""by region and the ARN's last part"""
Find = Callable[[Cloud, str, str], Any]
"""by key and region"""


def bucket_named(name: str) -> Any:
    """moto's record of a bucket; None if there is no such bucket."""
    return get_backend("s3")[ACCOUNT]["aws"].buckets.get(name)


def bucket_owner(cloud: Cloud, name: str) -> str | None:
    """Return the account that owns the bucket; None if there is no such bucket."""
    if cloud.faults.of_kind("foreign-bucket", bucket=name):
        return OTHER_ACCOUNT
    bucket = bucket_named(name)
    return str(bucket.account_id) if bucket else None


def _ec2(region: str) -> Any:
    """moto's records of a region; None if there is no such region."""
    regions = get_backend("ec2")[ACCOUNT]
    if region not in regions:
        return None
    return regions[region]


def _by_arn(records: Mapping[str, Any], arn: str) -> Any:
    return next((record for record in records.values() if record.arn == arn), None)


def _named(records: Mapping[str, Any], name: str) -> Any:
    return next((record for record in records.values() if record.name == name), None)


# Lookups of names and associations ------------------------------------------------------------------------------------


def _in_ec2(find: Callable[[Any, str], Iterator[Any]]) -> Find:
    """Return a lookup of the first match in moto's records of the region."""

    def lookup(_cloud: Cloud, key: str, region: str) -> Any:
        backend = _ec2(region)
        return next(find(backend, key), None) if backend else None

    return lookup


def _associated(answer: Callable[[Any], str]) -> Find:
    """Return a lookup of an elastic address by its association, with `answer` as its result."""
    return _in_ec2(
        lambda backend, value: (answer(address) for address in backend.addresses if address.association_id == value)
    )


def _attached(answer: Callable[[Any], str]) -> Find:
    """Return a lookup of an interface by its attachment, with `answer` as its result."""
    return _in_ec2(
        lambda backend, value: (
            answer(interface) for interface in backend.enis.values() if interface.attachment_id == value
        )
    )


def _table_of(backend: Any, association: str) -> Iterator[Any]:
    return (table.id for table in backend.route_tables.values() if association in table.all_associations_ids)


def _routed(kind: str) -> Find:
    """Return a lookup of the subnet or the gateway of an association; a VPC's main association has none."""

    def find(backend: Any, association: str) -> Iterator[Any]:
        targets = (table._associations.get(association, "") for table in backend.route_tables.values())
        return (target for target in targets if target.startswith(kind))

    return _in_ec2(find)


def _placement_group_name(cloud: Cloud, key: str, region: str) -> Any:
    groups = ec2_records.records_of(cloud).placement_groups.values()
    return next((group.name for group in groups if (group.id, group.region) == (key, region)), None)


def _mount_target(cloud: Cloud, key: str, region: str) -> efs_records.MountTarget | None:
    existing = efs_records.regions_of(cloud).get(region)
    return existing.mount_targets.get(key) if existing else None


def _mount_target_member(member: str) -> Find:
    return lambda cloud, key, region: getattr(_mount_target(cloud, key, region), member, None)


def _iam_arn(kind: str) -> Find:
    """Return the ARN of a user, role, group or profile by its name."""
    return lambda _cloud, name, _region: getattr(_named(getattr(iam_backend(), kind), name), "arn", None)


def _profile_role(_cloud: Cloud, key: str, _region: str) -> Any:
    profiles = iam_backend().instance_profiles
    profile = _by_arn(profiles, key) if key.startswith("arn:") else _named(profiles, key)
    return profile.roles[0].arn if profile and profile.roles else None


def _scaling(cloud: Cloud, region: str) -> Any:
    """Auto Scaling in a region; None where it was never used."""
    existing: scaling.Regions = cloud.records("autoscaling", scaling.Regions)
    return existing.by_name.get(region)


def _scaling_group_arn(cloud: Cloud, name: str, region: str) -> Any:
    existing = _scaling(cloud, region)
    return getattr(existing.groups.get(name), "arn", None) if existing else None


EC2_LOOKUPS: Mapping[Lookup, Find] = {
    "launch-template-name": _in_ec2(lambda ec2, name: iter([ec2.launch_template_name_to_ids.get(name)])),
    "key-pair-id": _in_ec2(lambda ec2, key: (pair.key_name for pair in ec2.key_pairs.values() if pair.id == key)),
    "placement-group-id": _placement_group_name,
    "address-association": _associated(lambda address: address.allocation_id),
    "address-association-interface": _associated(lambda address: address.network_interface_id),
    "route-table-association": _in_ec2(_table_of),
    "route-table-association-subnet": _routed("subnet-"),
    "route-table-association-gateway": _routed("igw-"),
    "network-interface-attachment-instance": _attached(lambda interface: interface.instance.id),
}

EFS_LOOKUPS: Mapping[Lookup, Find] = {
    "mount-target": _mount_target_member("file_system_id"),
    "mount-target-interface": _mount_target_member("interface_id"),
}

IAM_LOOKUPS: Mapping[Lookup, Find] = {
    "role": _iam_arn("roles"),
    "user": _iam_arn("users"),
    "instance-profile": _iam_arn("instance_profiles"),
    "instance-profile-role": _profile_role,
}

AUTOSCALING_LOOKUPS: Mapping[Lookup, Find] = {
    "auto-scaling-group": _scaling_group_arn,
    "auto-scaling-instance": lambda cloud, key, region: (
        scaling.group_of_instance(cloud, region, key) if _scaling(cloud, region) else None
    ),
}


# Tags -----------------------------------------------------------------------------------------------------------------


def tags_in_ec2(cloud: Cloud, _arn: str, region: str, resource: str) -> Tags:
    backend = _ec2(region)
    if backend is None:
        return {}
    kind, _, name = resource.partition("/")
    # These two have a name in their ARN, and their tags under their id.
    if kind == "key-pair":
        name = getattr(backend.key_pairs.get(name), "id", "")
    elif kind == "placement-group":
        name = getattr(ec2_records.records_of(cloud).placement_groups.get((region, name)), "id", "")
    return late_tags.counting(cloud, name, backend.tags.get(name) or {})


def tags_in_iam(_cloud: Cloud, arn: str, _region: str, resource: str) -> Tags:
    backend = iam_backend()
    match resource.partition("/")[0]:
        case "user":
            result: Tags = backend.tagger.get_tag_dict_for_resource(arn)
            return result
        case "role":
            return tags_of(getattr(_by_arn(backend.roles, arn), "tags", None))
        case "instance-profile":
            return tags_of(getattr(_by_arn(backend.instance_profiles, arn), "tags", None))
        case "policy":
            policy = backend.managed_policies.get(arn)
            return tags_of(list((getattr(policy, "tags", None) or {}).values()))
    return {}


def tags_in_s3(_cloud: Cloud, _arn: str, _region: str, resource: str) -> Tags:
    """Objects' tags alone: those of a bucket are condition keys only where that was switched on."""
    bucket, _, key = resource.partition("/")
    backend = get_backend("s3")[ACCOUNT]["aws"]
    thing = backend.buckets[bucket].keys.get(key) if key and bucket in backend.buckets else None
    result: Tags = backend.tagger.get_tag_dict_for_resource(getattr(thing, "arn", ""))
    return result


def tags_in_ssm(_cloud: Cloud, _arn: str, region: str, resource: str) -> Tags:
    regions = get_backend("ssm")[ACCOUNT]
    kind, _, name = resource.partition("/")
    if kind != "parameter" or region not in regions:
        return {}
    # The ARN does not say whether the name begins with a slash.
    tagged: Mapping[str, Tags] = regions[region]._resource_tags.get("Parameter", {})
    return tagged.get(f"/{name}") or tagged.get(name) or {}


def tags_in_autoscaling(cloud: Cloud, arn: str, region: str, _resource: str) -> Tags:
    return scaling.tags_of(cloud, region, arn) if _scaling(cloud, region) else {}


def tags_in_efs(cloud: Cloud, arn: str, _region: str, _resource: str) -> Tags:
    return efs.tags_of(cloud, arn)


def tags_in_emr(cloud: Cloud, _arn: str, _region: str, resource: str) -> Tags:
    return emr_records.tags_of(cloud, resource.partition("/")[2])


# What else is known of resources --------------------------------------------------------------------------------------
def facts_in_ec2(cloud: Cloud, _region: str, resource: str) -> Facts:
    kind, _, name = resource.partition("/")
    image = images_of(cloud).get(name) if kind == "image" else None
    return {"ec2:Public": image.public} if image else {}


def facts_in_iam(cloud: Cloud, _region: str, resource: str) -> Facts:
    kind, _, name = resource.partition("/")
    role = _named(iam_backend().roles, name.rpartition("/")[2]) if kind == "role" else None
    return {"iam:PermissionsBoundary": boundary_arn_in_effect(cloud, role)} if role else {}


def facts_in_s3(cloud: Cloud, _region: str, resource: str) -> Facts:
    return {"aws:ResourceAccount": bucket_owner(cloud, resource.partition("/")[0])}
