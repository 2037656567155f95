"""What the rules of IAM ask about the account, answered out of the records that moto and the extensions keep.

Asked for every call, so it reads straight from memory. What is not there is None or nothing, never an error: it is the
service itself that says that a thing does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moto.backends import get_backend

from localcloud.api import ec2_records, efs, efs_records
from localcloud.api.ec2_records import groups_in, subnets_in
from localcloud.api.ec2_template import version_of
from localcloud.api.iam_history import backend as iam_backend
from localcloud.api.iam_linked_roles import has_service_linked_role
from localcloud.api.images import images_of
from localcloud.autoscaling import regions as scaling
from localcloud.cloud import Cloud
from localcloud.errors import AwsError
from localcloud.iam import Lookup
from localcloud.iam.patterns import Value
from localcloud.iam.rules import tags_of, text_of
from localcloud.settings import ACCOUNT

Tags = Mapping[str, str]
Facts = Mapping[str, Any]
"""texts, numbers and truth values; None where it is not known"""


class Account:
    """A localcloud.iam.World."""

    account = ACCOUNT
    partition = "aws"

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def lookup(self, kind: Lookup, key: str, region: str) -> str | None:
        found = _LOOKUPS[kind](self._cloud, key, region)
        return str(found) if found else None

    def tags(self, arn: str) -> Tags:
        service, region, resource = _parts(arn)
        read = _TAGS.get(service)
        return read(self._cloud, arn, region, resource) if read else {}

    def facts(self, arn: str) -> Mapping[str, Value]:
        service, region, resource = _parts(arn)
        kind, _, name = resource.partition("/")
        known: Facts = {}
        if service == "ec2" and kind in _EC2_FACTS and (backend := _ec2(region)):
            known = _EC2_FACTS[kind](self._cloud, backend, name)
        elif service == "iam" and kind == "role":
            role = _by_arn(iam_backend().roles, arn)
            known = {"iam:PermissionsBoundary": role.permissions_boundary_arn} if role else {}
        elif service == "s3" and (bucket := bucket_named(kind)):
            known = {"aws:ResourceAccount": bucket.account_id}
        return {key: text_of(value) for key, value in known.items() if value not in (None, "")}

    def launch_template(self, name_or_id: str, version: str, region: str) -> Mapping[str, Any] | None:
        key = "LaunchTemplateId" if name_or_id.startswith("lt-") else "LaunchTemplateName"
        if _ec2(region) is None:
            return None
        try:
            data: Mapping[str, Any] = version_of(region, {key: name_or_id, "Version": version}).data
        except AwsError:
            return None
        return data

    def auto_scaling_group(self, name: str, region: str) -> Mapping[str, Any] | None:
        return scaling.group_shown(self._cloud, region, name)

    def has_service_linked_role(self, service: str) -> bool:
        return has_service_linked_role(self._cloud, service)


def bucket_named(name: str) -> Any:
    """moto's record of a bucket, whose account_id is its owner; None if there is no such bucket."""
    return get_backend("s3")[ACCOUNT]["aws"].buckets.get(name)


def _parts(arn: str) -> tuple[str, str, str]:
    """Service, region, and the resource."""
    parts = arn.split(":", 5)
    return (parts[2], parts[3], parts[5]) if len(parts) == 6 else ("", "", "")


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


# What a name or a connection means ------------------------------------------------------------------------------------

Find = Callable[[Cloud, str, str], Any]
"""of the cloud, the key and the region"""


def _in_ec2(find: Callable[[Any, str], Iterator[Any]]) -> Find:
    """The first that is found in moto's records of the region."""

    def lookup(_cloud: Cloud, key: str, region: str) -> Any:
        backend = _ec2(region)
        return next(find(backend, key), None) if backend else None

    return lookup


def _group_by_name(backend: Any, name: str) -> Iterator[Any]:
    """Names are unique in a VPC only: the default one's is meant, if it has such a group."""
    found = [group for group in groups_in(backend) if group.name == name]
    found.sort(key=lambda group: not getattr(backend.vpcs.get(group.vpc_id), "is_default", False))
    return (group.id for group in found)


def _placement_group_name(cloud: Cloud, key: str, region: str) -> Any:
    groups = ec2_records.records_of(cloud).placement_groups.values()
    return next((group.name for group in groups if (group.id, group.region) == (key, region)), None)


def _profile_association(cloud: Cloud, key: str, region: str) -> Any:
    instances = ec2_records.instances_in(cloud, region)
    return next((one.id for one in instances if one.profile and one.association_id == key), None)


def _mount_target(cloud: Cloud, key: str, region: str) -> efs_records.MountTarget | None:
    known = efs_records.records_of(cloud).regions.get(region)
    return known.mount_targets.get(key) if known else None


def _mount_target_member(member: str) -> Find:
    return lambda cloud, key, region: getattr(_mount_target(cloud, key, region), member, None)


def _iam_arn(kind: str) -> Find:
    """The ARN of a user, role, group or profile, by its name."""
    return lambda _cloud, name, _region: getattr(_named(getattr(iam_backend(), kind), name), "arn", None)


def _profile_role(_cloud: Cloud, key: str, _region: str) -> Any:
    profiles = iam_backend().instance_profiles
    profile = _by_arn(profiles, key) if key.startswith("arn:") else _named(profiles, key)
    return profile.roles[0].arn if profile and profile.roles else None


def _scaling(cloud: Cloud, region: str) -> Any:
    """Auto Scaling in a region; None where it was never used."""
    known: scaling.Regions = cloud.records("autoscaling", scaling.Regions)
    return known.by_name.get(region)


def _scaling_group_arn(cloud: Cloud, name: str, region: str) -> Any:
    known = _scaling(cloud, region)
    return getattr(known.groups.get(name), "arn", None) if known else None


_LOOKUPS: Mapping[Lookup, Find] = {
    "launch-template-name": _in_ec2(lambda ec2, name: iter([ec2.launch_template_name_to_ids.get(name)])),
    "security-group-name": _in_ec2(_group_by_name),
    "key-pair-id": _in_ec2(lambda ec2, key: (pair.key_name for pair in ec2.key_pairs.values() if pair.id == key)),
    "placement-group-id": _placement_group_name,
    "public-ip": _in_ec2(lambda ec2, ip: (one.allocation_id for one in ec2.addresses if one.public_ip == ip)),
    "address-association": _in_ec2(
        lambda ec2, key: (one.allocation_id for one in ec2.addresses if one.association_id == key)
    ),
    "route-table-association": _in_ec2(
        lambda ec2, key: (table.id for table in ec2.route_tables.values() if key in table.all_associations_ids)
    ),
    "network-acl-association": _in_ec2(
        lambda ec2, key: (acl.id for acl in ec2.network_acls.values() if key in acl._associations)
    ),
    "network-interface-attachment": _in_ec2(
        lambda ec2, key: (one.id for one in ec2.enis.values() if one.attachment_id == key)
    ),
    "instance-profile-association": _profile_association,
    "mount-target": _mount_target_member("file_system_id"),
    "mount-target-interface": _mount_target_member("interface_id"),
    "role": _iam_arn("roles"),
    "user": _iam_arn("users"),
    "iam-group": _iam_arn("groups"),
    "instance-profile": _iam_arn("instance_profiles"),
    "instance-profile-role": _profile_role,
    "auto-scaling-group": _scaling_group_arn,
    "auto-scaling-instance": lambda cloud, key, region: (
        scaling.group_of_instance(cloud, region, key) if _scaling(cloud, region) else None
    ),
    "launch-configuration": lambda cloud, key, region: (
        scaling.configuration_arn(cloud, region, key) if _scaling(cloud, region) else None
    ),
}


# Tags -----------------------------------------------------------------------------------------------------------------


def _tags_in_ec2(cloud: Cloud, _arn: str, region: str, resource: str) -> Tags:
    backend = _ec2(region)
    if backend is None:
        return {}
    kind, _, name = resource.partition("/")
    # These two have a name in their ARN, and their tags under their id.
    if kind == "key-pair":
        name = getattr(backend.key_pairs.get(name), "id", "")
    elif kind == "placement-group":
        name = getattr(ec2_records.records_of(cloud).placement_groups.get((region, name)), "id", "")
    found: Tags = backend.tags.get(name) or {}
    return found


def _tags_in_iam(_cloud: Cloud, arn: str, _region: str, resource: str) -> Tags:
    backend = iam_backend()
    match resource.partition("/")[0]:
        case "user":
            found: Tags = backend.tagger.get_tag_dict_for_resource(arn)
            return found
        case "role":
            return tags_of(getattr(_by_arn(backend.roles, arn), "tags", None))
        case "instance-profile":
            return tags_of(getattr(_by_arn(backend.instance_profiles, arn), "tags", None))
        case "policy":
            policy = backend.managed_policies.get(arn)
            return tags_of(list((getattr(policy, "tags", None) or {}).values()))
    return {}


def _tags_in_s3(_cloud: Cloud, _arn: str, _region: str, resource: str) -> Tags:
    """Objects' tags alone: those of a bucket are condition keys only where that was switched on."""
    bucket, _, key = resource.partition("/")
    backend = get_backend("s3")[ACCOUNT]["aws"]
    thing = backend.buckets[bucket].keys.get(key) if key and bucket in backend.buckets else None
    found: Tags = backend.tagger.get_tag_dict_for_resource(getattr(thing, "arn", ""))
    return found


def _tags_in_ssm(_cloud: Cloud, _arn: str, region: str, resource: str) -> Tags:
    regions = get_backend("ssm")[ACCOUNT]
    kind, _, name = resource.partition("/")
    if kind != "parameter" or region not in regions:
        return {}
    # The ARN does not say whether the name begins with a slash.
    tagged: Mapping[str, Tags] = regions[region]._resource_tags.get("Parameter", {})
    return tagged.get(f"/{name}") or tagged.get(name) or {}


_TAGS: Mapping[str, Callable[[Cloud, str, str, str], Tags]] = {
    "autoscaling": lambda cloud, arn, region, _: scaling.tags_of(cloud, region, arn) if _scaling(cloud, region) else {},
    "ec2": _tags_in_ec2,
    "elasticfilesystem": lambda cloud, arn, _region, _resource: efs.tags_of(cloud, arn),
    "iam": _tags_in_iam,
    "s3": _tags_in_s3,
    "ssm": _tags_in_ssm,
}


# What else is known of EC2's resources --------------------------------------------------------------------------------
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html#amazonec2-policy-keys


def _arn(backend: Any, kind: str, name: str | None) -> str | None:
    return f"arn:aws:ec2:{backend.region_name}:{ACCOUNT}:{kind}/{name}" if name else None


def _of_instance(cloud: Cloud, backend: Any, name: str) -> Facts:
    instance = ec2_records.records_of(cloud).instances.get(name)
    if instance is None:
        return {}
    options = instance.metadata_options
    return {
        "ec2:InstanceID": name,
        "ec2:InstanceType": instance.instance_type,
        "ec2:InstanceMarketType": instance.lifecycle or "on-demand",
        "ec2:InstanceProfile": instance.profile.arn if instance.profile else None,
        "ec2:AvailabilityZone": instance.placement.zone,
        "ec2:Tenancy": instance.placement.tenancy,
        "ec2:PlacementGroup": _arn(backend, "placement-group", instance.placement.group_name),
        "ec2:EbsOptimized": bool(instance.ebs_optimized),
        "ec2:RootDeviceType": "ebs",
        "ec2:MetadataHttpEndpoint": options.http_endpoint,
        "ec2:MetadataHttpTokens": options.http_tokens,
        "ec2:MetadataHttpPutResponseHopLimit": options.http_put_response_hop_limit,
    }


def _of_subnet(_cloud: Cloud, backend: Any, name: str) -> Facts:
    subnet = next((one for one in subnets_in(backend) if one.id == name), None)
    if subnet is None:
        return {}
    return {
        "ec2:SubnetID": name,
        "ec2:Vpc": _arn(backend, "vpc", subnet.vpc_id),
        "ec2:AvailabilityZone": subnet.availability_zone,
    }


def _of_group(_cloud: Cloud, backend: Any, name: str) -> Facts:
    group = next((one for one in groups_in(backend) if one.id == name), None)
    return {"ec2:SecurityGroupID": name, "ec2:Vpc": _arn(backend, "vpc", group.vpc_id)} if group else {}


def _of_interface(_cloud: Cloud, backend: Any, name: str) -> Facts:
    interface = backend.enis.get(name)
    if interface is None:
        return {}
    return {
        "ec2:NetworkInterfaceID": name,
        "ec2:Vpc": _arn(backend, "vpc", interface.subnet.vpc_id),
        "ec2:Subnet": _arn(backend, "subnet", interface.subnet.id),
        "ec2:AvailabilityZone": interface.subnet.availability_zone,
    }


def _of_image(cloud: Cloud, _backend: Any, name: str) -> Facts:
    image = images_of(cloud).get(name)
    if image is None:
        return {}
    return {
        "ec2:ImageID": name,
        "ec2:ImageType": "machine",
        "ec2:Owner": image.owner if image.owner == ACCOUNT else "amazon",
        "ec2:Public": image.owner != ACCOUNT,
        "ec2:RootDeviceType": "ebs",
    }


def _of_volume(_cloud: Cloud, backend: Any, name: str) -> Facts:
    volume = backend.volumes.get(name)
    if volume is None:
        return {}
    return {
        "ec2:VolumeID": name,
        "ec2:AvailabilityZone": volume.zone,
        "ec2:Encrypted": bool(volume.encrypted),
        "ec2:VolumeSize": volume.size,
        "ec2:VolumeType": volume.volume_type,
        "ec2:VolumeIops": volume.iops,
    }


def _of_address(_cloud: Cloud, backend: Any, name: str) -> Facts:
    address = next((one for one in backend.addresses if one.allocation_id == name), None)
    return {"ec2:AllocationId": name, "ec2:Domain": "vpc", "ec2:PublicIpAddress": address.public_ip} if address else {}


def _of_table(_cloud: Cloud, backend: Any, name: str) -> Facts:
    table = backend.route_tables.get(name)
    return {"ec2:RouteTableID": name, "ec2:Vpc": _arn(backend, "vpc", table.vpc_id)} if table else {}


def _of_placement_group(cloud: Cloud, backend: Any, name: str) -> Facts:
    group = ec2_records.records_of(cloud).placement_groups.get((backend.region_name, name))
    return {"ec2:PlacementGroupName": name, "ec2:PlacementGroupStrategy": group.strategy} if group else {}


def _of_key_pair(_cloud: Cloud, backend: Any, name: str) -> Facts:
    pair = backend.key_pairs.get(name)
    return {"ec2:KeyPairName": name, "ec2:KeyPairType": pair.key_type or "rsa"} if pair else {}


_EC2_FACTS: Mapping[str, Callable[[Cloud, Any, str], Facts]] = {
    "elastic-ip": _of_address,
    "image": _of_image,
    "instance": _of_instance,
    "key-pair": _of_key_pair,
    "network-interface": _of_interface,
    "placement-group": _of_placement_group,
    "route-table": _of_table,
    "security-group": _of_group,
    "subnet": _of_subnet,
    "volume": _of_volume,
    "vpc": lambda _cloud, backend, name: {"ec2:VpcID": name} if name in backend.vpcs else {},
}
