# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read from AWS what a plan needs. Each failed call is a problem of its own, and what it would have read is unknown."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..aws.client import Aws, AwsError
from ..aws.resource_ids import existing_ids
from ..contract.names import CLUSTER_TAG, CORE, GROUP_ROLE_TAG, GROUP_TAG, IMAGE_TAG, JOB_FLOW_TAG, Names, tags_of
from ..contract.scheduled_end import ForeignAction, foreign_actions, scheduled_ends
from ..resources.emr_cluster import find_clusters, groups_of
from ..resources.launch_template import newest_version
from . import images, quotas
from .offers import current_prices
from .prices import PriceList
from .quotas import AccountQuota

Answer = TypeVar("Answer")
Cluster = Mapping[str, Any]
Item = Mapping[str, Any]
"""An item of an answer of AWS."""
InstanceType = Mapping[str, Any]
"""See `instance_type`."""

_ACCELERATORS = ("GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo", "MediaAcceleratorInfo", "FpgaInfo")
_KEY_OF_AWS = "alias/aws/ebs"
"""The key that encrypts disks unless the account has chosen one of its own. Auto Scaling needs no grant for it."""
SERIES = "emr-7."
"""The releases of EMR of which the newest is the default. Older ones have no Python 3.11."""
UNLIMITED_VCPUS = 100_000
"""Other instances can only matter for a quota that is smaller."""


@dataclass(frozen=True)
class ImageFacts:
    id: str = ""
    """The AMI to boot; empty if the family has none."""
    is_pinned: bool = False
    """The cluster was created with this AMI, and the setting has not changed since."""
    described: Sequence[Item] | None = None
    """The AMI, if it exists."""
    architecture: str = ""
    """The architecture of the family."""
    families: Sequence[str] | None = None
    """The families that exist. Only read if the setting's one does not, or does not fit the types."""


@dataclass(frozen=True)
class EmrFacts:
    """What EMR has. None is unknown."""

    applications: Sequence[str] | None
    """The release's; none if there is no such release."""
    types: Sequence[str] | None
    """The instance types that the release offers."""
    log_bucket_problem: str = ""
    release: str = ""
    """Of the settings, else that of the cluster, else the newest one of SERIES; empty if it is unknown."""


@dataclass(frozen=True)
class AccountFacts:
    """What AWS has. None is unknown, because a call failed or was not needed."""

    region: str
    account: str
    partition: str
    groups: Sequence[Item] | None
    """The cluster's Auto Scaling groups."""
    emr_clusters: Sequence[Item] | None
    """The EMR clusters that live and have the cluster's name and tag."""
    emr: EmrFacts | None
    """Only read for a cluster of EMR's machines."""
    types: Mapping[str, InstanceType] | None
    """The types of the settings that exist, by name."""
    offered_types: Sequence[str]
    """All types of the region. Only read if a type of the settings does not exist."""
    image: ImageFacts
    quotas: Mapping[str, Item]
    """The quotas that the machines count towards, by code."""
    other_instances: Sequence[Item] | None
    """The account's instances outside the cluster."""
    vpcs: Sequence[Item] | None
    """The VPC of the settings, or the cluster's own one, if it exists."""
    subnets: Sequence[Item] | None
    route_tables: Sequence[Item] | None
    endpoints: Sequence[Item] | None
    """The endpoints in the VPC of the settings."""
    file_systems: Sequence[Item] | None
    """The file system of the settings, or those with the cluster's tag."""
    mount_targets: Sequence[Item] | None
    """The mount targets of the first file system."""
    security_groups: Sequence[Item] | None
    zones: Sequence[Item] | None
    offers: Sequence[Item] | None
    """Which of the types each zone offers."""
    key_pairs: Sequence[Item] | None
    prices: PriceList
    """What the Price List API answers about the types."""
    failures: Sequence[str]
    account_usage: Mapping[AccountQuota, tuple[Item, Sequence[Item]]] = field(default_factory=dict)
    """The quotas of the account that the cluster needs something of, with all that counts towards them."""
    ends: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """When the machines are scheduled to end, as `scheduled_ends` returns it."""
    foreign_actions: Sequence[ForeignAction] = ()
    """The other scheduled actions of the groups."""
    actions_to_delete: Sequence[ForeignAction] = ()
    """Those of them that the operator has named."""
    unknown_actions: Sequence[str] = ()
    """Names of actions to delete that no action of others has."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """The versions of the frameworks that machines get now, as checksums."""
    worker_count: int | None = None
    """How many workers are requested of AWS, if the cluster exists."""
    disk_key: str = ""
    """The account's own KMS key that encrypts all new disks. Only read for machines of Auto Scaling."""
    leaving_workers: Sequence[Item] = ()
    """The workers' machines. Only read if there are more than the setting says."""
    nat_gateways: Sequence[Item] | None = None
    """All NAT gateways with the cluster's tag, in any state."""
    nat_route_tables: Sequence[Item] | None = None
    """The route tables of the VPCs of these NAT gateways. Only read if there is more than one."""
    addresses: Sequence[Item] | None = None
    """All Elastic IP addresses with the cluster's tag."""
    existing_duplicates: frozenset[str] = frozenset()
    """Those of the duplicates that the operator has named that exist, whatever they belong to."""


def gather_facts(
    aws: Aws,
    cluster: Cluster,
    pins: Mapping[str, str],
    emr: bool,
    delete_actions: Sequence[str] = (),
    remove_duplicates: Sequence[str] = (),
) -> AccountFacts:
    """Raise AwsError if the credentials or the connection fail."""
    reader = _Reader(aws)
    account = aws.account
    described = reader.ec2("describe_instance_types", "InstanceTypes", {"instance-type": list(type_names(cluster))})
    types = None if described is None else {kind["InstanceType"]: instance_type(kind) for kind in described}
    is_type_missing = types is not None and len(types) < len(type_names(cluster))
    limits = _describe_quotas(reader, cluster, types or {})
    group_ids = cluster["security_group_ids"]
    emr_clusters = reader.read(find_clusters, aws, cluster["name"])
    groups = reader.pages(
        "autoscaling",
        "describe_auto_scaling_groups",
        "AutoScalingGroups",
        AutoScalingGroupNames=list(Names(cluster["name"]).groups.values()),
    )
    offers = ("describe_instance_type_offerings", "InstanceTypeOfferings")
    all_types = reader.ec2(*offers, LocationType="region") if is_type_missing else []
    usage = _describe_account_usage(reader, cluster, emr)
    return AccountFacts(
        region=aws.region,
        account=account,
        partition=aws.partition,
        groups=groups,
        **_describe_workers(reader, cluster, groups or (), emr_clusters or ()),
        **_describe_actions(reader, cluster["name"], delete_actions),
        emr_clusters=emr_clusters,
        emr=_describe_emr(reader, cluster, account, emr_clusters or ()) if emr else None,
        types=types,
        offered_types=sorted(offer["InstanceType"] for offer in all_types or ()),
        image=_describe_image(reader, cluster, types or {}),
        quotas=limits,
        other_instances=_describe_other_instances(reader, cluster, limits),
        account_usage=usage,
        **_describe_vpc(reader, cluster),
        **_describe_duplicates(reader, cluster, remove_duplicates, usage),
        **_describe_file_systems(reader, cluster),
        security_groups=(
            reader.ec2("describe_security_groups", "SecurityGroups", {"group-id": group_ids}) if group_ids else None
        ),
        zones=reader.ec2(
            "describe_availability_zones",
            "AvailabilityZones",
            {"zone-type": ["availability-zone"], "state": ["available"]},
        ),
        offers=(
            reader.ec2(*offers, {"instance-type": sorted(types)}, LocationType="availability-zone") if types else []
        ),
        # Without a filter, as a name with an asterisk would match other key pairs.
        key_pairs=reader.ec2("describe_key_pairs", "KeyPairs") if cluster["key_name"] else None,
        disk_key="" if emr else _disk_key(aws),
        failures=tuple(reader.failures),
        pins=pins,
        prices=PriceList(aws.region, current_prices(aws, sorted(types or ()), emr)),
    )


def _describe_workers(
    reader: _Reader, cluster: Cluster, groups: Sequence[Item], emr_clusters: Sequence[Item]
) -> dict[str, Any]:
    """Return the facts about the workers that AWS has, or EMR's core nodes."""
    name = Names(cluster["name"]).workers_group
    count = next((int(group["DesiredCapacity"]) for group in groups if group["AutoScalingGroupName"] == name), None)
    filters = {f"tag:{GROUP_TAG}": [name]}
    if emr_clusters:
        flow = str(emr_clusters[0]["Id"])
        core = reader.read(groups_of, reader.aws, flow)
        count = None if core is None else int(core.get(CORE, {}).get("RequestedInstanceCount", 0))
        filters = {f"tag:{JOB_FLOW_TAG}": [flow], f"tag:{GROUP_ROLE_TAG}": [CORE]}
    if count is None or count <= cluster["worker_count"]:
        return {"worker_count": count}
    living = {"instance-state-name": ["pending", "running"]}
    machines = reader.read(reader.aws.instances, Filters=_filters({**filters, **living}))
    return {"worker_count": count, "leaving_workers": machines or []}


def _describe_actions(reader: _Reader, cluster: str, delete_actions: Sequence[str]) -> dict[str, Any]:
    """Return the facts about scheduled actions. The operator's names are compared with those that AWS lists."""
    actions = reader.pages("autoscaling", "describe_scheduled_actions", "ScheduledUpdateGroupActions") or []
    now = time.time()
    foreign = foreign_actions(actions, cluster, now)
    to_delete = [action for action in foreign if action.shown in delete_actions]
    gone = {(action.group, action.name) for action in to_delete}
    left = [action for action in actions if (action["AutoScalingGroupName"], action["ScheduledActionName"]) not in gone]
    return {
        "ends": scheduled_ends(left, cluster, now),
        "foreign_actions": [action for action in foreign if action not in to_delete],
        "actions_to_delete": to_delete,
        "unknown_actions": [name for name in delete_actions if name not in {action.shown for action in to_delete}],
    }


class _Reader:
    """Calls that fail are failures of the plan, and their answer is None."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        self.failures: list[str] = []

    def read(self, call: Callable[..., Answer], *words: Any, **params: Any) -> Answer | None:
        try:
            return call(*words, **params)
        except AwsError as error:
            if error.is_fatal:
                raise
            self.failures.append(str(error))
            return None

    def pages(self, service: str, operation: str, key: str, **params: Any) -> list[Any] | None:
        return self.read(self.aws.pages, service, operation, key, **params)

    def ec2(
        self, operation: str, key: str, filters: Mapping[str, Sequence[str]] | None = None, **params: Any
    ) -> list[Any] | None:
        filtered = {"Filters": _filters(filters)} if filters else {}
        return self.pages("ec2", operation, key, **filtered, **params)

    def call(self, service: str, operation: str, *missing: str, **params: Any) -> dict[str, Any] | None:
        """Return the answer, empty for the error codes `missing`."""
        return self.read(self.aws.find, service, operation, missing, **params)


def _filters(filters: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": list(values)} for name, values in filters.items()]


def _disk_key(aws: Aws) -> str:
    """Return the account's own KMS key that encrypts all new disks; empty if there is none or it cannot be read."""
    try:
        if not aws.call("ec2", "get_ebs_encryption_by_default")["EbsEncryptionByDefault"]:
            return ""
        key = str(aws.call("ec2", "get_ebs_default_kms_key_id")["KmsKeyId"])
    except AwsError as error:
        if error.is_fatal:
            raise
        return ""
    return "" if key.endswith(_KEY_OF_AWS) else key


def _bucket_problem(aws: Aws, bucket: str, account: str) -> str:
    """Return why EMR's machines could not write to a bucket; empty if they could."""
    try:
        aws.call("s3", "head_bucket", Bucket=bucket, ExpectedBucketOwner=account)
    except AwsError as error:
        if error.is_fatal:
            raise
        if error.code == "404":
            return f"there is no bucket {bucket}"
        return f"the bucket {bucket} cannot be used, as it does not belong to this account or refuses access"
    return ""


def _describe_emr(reader: _Reader, cluster: Cluster, account: str, existing: Sequence[Item]) -> EmrFacts:
    """A cluster that exists has its release and its types, which do not change."""
    bucket = cluster["emr_log_uri"].partition("/")[0]
    release = str(cluster["emr_release"] or next((item.get("ReleaseLabel", "") for item in existing), ""))
    if not release and not existing:
        release = _newest_release(reader)
    described = None
    if release and not existing:
        # The documentation names the second code only.
        unknown = ("ValidationException", "InvalidRequestException")
        described = reader.call("emr", "describe_release_label", *unknown, ReleaseLabel=release)
    applications = None if described is None else [str(item["Name"]) for item in described.get("Applications") or ()]
    types = None
    if applications:
        types = reader.pages("emr", "list_supported_instance_types", "SupportedInstanceTypes", ReleaseLabel=release)
    return EmrFacts(
        applications,
        None if types is None else [str(item["Type"]) for item in types],
        _bucket_problem(reader.aws, bucket, account) if bucket else "",
        release,
    )


def _newest_release(reader: _Reader) -> str:
    """Return the newest release of the series in the region, empty if it has none or they cannot be listed."""
    labels = reader.pages("emr", "list_release_labels", "ReleaseLabels", Filters={"Prefix": SERIES})
    known = [label for label in labels or () if re.fullmatch(re.escape(SERIES) + r"\d+\.\d+", label)]
    return max(known, key=release_number, default="")


def release_number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))


def type_names(cluster: Cluster) -> dict[str, str]:
    """Return the settings of the instance types by their values."""
    names = {str(cluster["instance_type"]): "instance_type"}
    names.setdefault(str(cluster["master_instance_type"]), "master_instance_type")
    return names


def instance_type(described: Item) -> InstanceType:
    """Return the facts about a type that a plan needs, from an item of DescribeInstanceTypes."""
    gpus = described.get("GpuInfo", {}).get("Gpus") or []
    neuron = described.get("NeuronInfo", {}).get("NeuronDevices") or [{}]
    network = described.get("NetworkInfo", {})
    cards = network.get("NetworkCards", ()) if network.get("EfaSupported") else ()
    return {
        "name": described["InstanceType"],
        "vcpus": int(described["VCpuInfo"]["DefaultVCpus"]),
        "memory_mib": int(described.get("MemoryInfo", {}).get("SizeInMiB", 0)),
        "gpus": sum(int(gpu.get("Count", 0)) for gpu in gpus),
        "accelerated": any(kind in described for kind in _ACCELERATORS),
        "gpu_name": gpus[0].get("Name", "") if gpus else "",
        "gpu_maker": gpus[0].get("Manufacturer", "") if gpus else "",
        "neuron_name": neuron[0].get("Name", ""),
        "efa_cards": [int(card["NetworkCardIndex"]) for card in cards if "efa-only" in card.get("InterfaceTypes", ())],
        "instance_store_gib": described.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0) * 10**9 / 2**30,
        "placement": "cluster" in described.get("PlacementGroupInfo", {}).get("SupportedStrategies", []),
        "spot": "spot" in described.get("SupportedUsageClasses", []),
        "architectures": list(described.get("ProcessorInfo", {}).get("SupportedArchitectures", [])),
    }


def _describe_vpc(reader: _Reader, cluster: Cluster) -> dict[str, Any]:
    """Return the facts about the VPC. The parts of one that the settings do not name are not read."""
    vpc_id, name = cluster["vpc_id"], cluster["name"]
    own = {f"tag:{CLUSTER_TAG}": [name], "tag:Name": [Names(name).of("vpc")]}
    vpcs = reader.ec2("describe_vpcs", "Vpcs", {"vpc-id": [vpc_id]} if vpc_id else own)
    if not vpcs or not vpc_id:
        return {"vpcs": vpcs, "subnets": None, "route_tables": None, "endpoints": None}
    subnet_ids = sorted({*cluster["public_subnet_ids"], *cluster["private_subnet_ids"]})
    return {
        "vpcs": vpcs,
        "subnets": reader.ec2("describe_subnets", "Subnets", {"subnet-id": subnet_ids}),
        "route_tables": reader.ec2("describe_route_tables", "RouteTables", {"vpc-id": [vpc_id]}),
        "endpoints": reader.ec2("describe_vpc_endpoints", "VpcEndpoints", {"vpc-id": [vpc_id]}),
    }


def _describe_duplicates(
    reader: _Reader,
    cluster: Cluster,
    remove_duplicates: Sequence[str],
    usage: Mapping[AccountQuota, tuple[Item, Sequence[Item]]],
) -> dict[str, Any]:
    """Return the facts about NAT gateways and addresses, of which two runs at the same time may have created several.

    The account's addresses are in `usage`, if the cluster needs some.
    """
    tagged = {f"tag:{CLUSTER_TAG}": [cluster["name"]]}
    # DescribeNatGateways names its filters differently.
    gateways = reader.pages("ec2", "describe_nat_gateways", "NatGateways", Filter=_filters(tagged))
    tables: list[Any] | None = []
    if gateways and len(gateways) > 1:
        vpcs = sorted({str(gateway["VpcId"]) for gateway in gateways})
        tables = reader.ec2("describe_route_tables", "RouteTables", {"vpc-id": vpcs})
    existing = reader.read(existing_ids, reader.aws, remove_duplicates)
    if quotas.ADDRESSES in usage:
        listed = usage[quotas.ADDRESSES][1]
        addresses = [item for item in listed if tags_of(item.get("Tags")).get(CLUSTER_TAG) == cluster["name"]]
    else:
        addresses = reader.ec2("describe_addresses", "Addresses", tagged) or []
    return {
        "nat_gateways": gateways,
        "nat_route_tables": tables,
        "addresses": addresses,
        "existing_duplicates": existing or frozenset(),
    }


def _describe_image(reader: _Reader, cluster: Cluster, types: Mapping[str, InstanceType]) -> ImageFacts:
    """Return the image that the cluster is pinned to, if it still exists, or the one of the setting."""
    setting = cluster["image"]
    if not setting:
        return ImageFacts()
    pinned_id = _pinned_image_id(reader, cluster["name"], setting)
    described = _describe_ami(reader, pinned_id) if pinned_id else None
    if described:
        return ImageFacts(pinned_id, is_pinned=True, described=described)
    if setting.startswith("ami-"):
        return ImageFacts(setting, described=_describe_ami(reader, setting))
    return _describe_family(reader, setting, types)


def _pinned_image_id(reader: _Reader, cluster: str, setting: str) -> str:
    """Return the AMI in the workers' launch template, if the template was created with the same setting."""
    filters = {"launch-template-name": [Names(cluster).workers_group], f"tag:{CLUSTER_TAG}": [cluster]}
    for template in reader.ec2("describe_launch_templates", "LaunchTemplates", filters) or ():
        if tags_of(template.get("Tags")).get(IMAGE_TAG) == setting:
            newest = reader.read(newest_version, reader.aws, template["LaunchTemplateId"])
            return str(newest["LaunchTemplateData"].get("ImageId", "")) if newest else ""
    return ""


def _describe_ami(reader: _Reader, image_id: str) -> list[Any] | None:
    # A filter does not name an image: AWS hides deprecated ones of other owners from it.
    return reader.ec2("describe_images", "Images", {"image-id": [image_id]}, IncludeDeprecated=True)


def _describe_family(reader: _Reader, family: str, types: Mapping[str, InstanceType]) -> ImageFacts:
    """Return the newest AMI of a family."""
    architectures = next((kind["architectures"] for kind in types.values()), ["x86_64"])
    architecture = "x86_64" if "x86_64" in architectures else "arm64"
    answer = reader.call("ssm", "get_parameters", Names=[f"{images.PATH}/{architecture}/{family}/latest/ami-id"])
    if answer is None:
        return ImageFacts()
    image_id = str(answer["Parameters"][0]["Value"]) if answer["Parameters"] else ""
    described = _describe_ami(reader, image_id) if image_id else None
    if described and not any(images.misfit(described[0], kind) for kind in types.values()):
        return ImageFacts(image_id, described=described)
    path = f"{images.PATH}/{architecture}"
    parameters = reader.pages("ssm", "get_parameters_by_path", "Parameters", Path=path, Recursive=True)
    families = None if parameters is None else images.families([entry["Name"] for entry in parameters])
    return ImageFacts(image_id, described=described, architecture=architecture, families=families)


def _describe_quotas(reader: _Reader, cluster: Cluster, types: Mapping[str, InstanceType]) -> dict[str, Item]:
    codes = quotas.needs(quotas.machine_counts(cluster, types))
    return {code: limit for code in codes if (limit := _describe_quota(reader, "ec2", code)) is not None}


def _describe_account_usage(
    reader: _Reader, cluster: Cluster, emr: bool
) -> dict[AccountQuota, tuple[Item, Sequence[Item]]]:
    usage: dict[AccountQuota, tuple[Item, Sequence[Item]]] = {}
    for kind in quotas.account_needs(cluster, emr):
        limit, existing = _describe_quota(reader, kind.service, kind.code), reader.ec2(kind.operation, kind.key)
        if limit is not None and existing is not None:
            usage[kind] = (limit, existing)
    return usage


def _describe_quota(reader: _Reader, service: str, code: str) -> Item | None:
    for operation in ("get_service_quota", "get_aws_default_service_quota"):
        answer = reader.call(
            "service-quotas", operation, "NoSuchResourceException", ServiceCode=service, QuotaCode=code
        )
        if answer is None:
            return None
        if answer:
            limit: Item = answer["Quota"]
            return limit
    return None


def _describe_other_instances(reader: _Reader, cluster: Cluster, limits: Mapping[str, Item]) -> list[Any] | None:
    if not any(limit["Value"] < UNLIMITED_VCPUS for limit in limits.values()):
        return []
    filters = _filters({"instance-state-name": ["pending", "running"]})
    instances = reader.read(reader.aws.instances, Filters=filters, MaxResults=1000)
    if instances is None:
        return None
    return [instance for instance in instances if tags_of(instance.get("Tags")).get(CLUSTER_TAG) != cluster["name"]]


def _describe_file_systems(reader: _Reader, cluster: Cluster) -> dict[str, Any]:
    """Return the facts about the file system of the settings, or about those with the cluster's tag."""
    if cluster["efs_id"]:
        answer = reader.call("efs", "describe_file_systems", "FileSystemNotFound", FileSystemId=cluster["efs_id"])
        systems = None if answer is None else answer.get("FileSystems", [])
    elif (systems := reader.pages("efs", "describe_file_systems", "FileSystems")) is not None:
        tagged = [system for system in systems if tags_of(system.get("Tags")).get(CLUSTER_TAG) == cluster["name"]]
        systems = [system for system in tagged if system.get("LifeCycleState") not in ("deleting", "deleted")]
    targets = None
    if systems:
        first = systems[0]["FileSystemId"]
        targets = reader.pages("efs", "describe_mount_targets", "MountTargets", FileSystemId=first)
    return {"file_systems": systems, "mount_targets": targets}
