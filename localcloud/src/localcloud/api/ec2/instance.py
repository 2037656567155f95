"""An EC2 instance: an object of moto's class, so that moto's operations on instances work, with data of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moto.ec2.models import elastic_block_store
from moto.ec2.models import instances as moto_instances
from moto.ec2.models.block_device import BlockDeviceMapping, BlockDeviceType

from localcloud.api.ec2.images import Image
from localcloud.api.ec2.moto_records import new_id

# To mypy these are abstract: moto leaves out methods that only CloudFormation would call.
Volume: Any = elastic_block_store.Volume
VolumeAttachment: Any = elastic_block_store.VolumeAttachment

STATES: Mapping[str, int] = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}
ALIVE = ("pending", "running", "stopping", "shutting-down")
"""the states in which an instance has, or may have, a machine"""


@dataclass(frozen=True)
class InterfaceSpec:
    """A network interface of a launch, checked: objects are moto's."""

    index: int
    card: int
    subnet: Any
    groups: tuple[Any, ...]
    public: bool = False
    delete_on_termination: bool = True
    description: str = ""
    kind: str = "interface"


@dataclass(frozen=True)
class Launch:
    """Everything that the instances of one launch have in common, checked."""

    region: str
    image: Image
    type: str
    interfaces: tuple[InterfaceSpec, ...]
    volumes: tuple[Mapping[str, Any], ...]
    """as in BlockDeviceMappings, the root among them"""
    tags: Mapping[str, Mapping[str, str]]
    """by type of resource"""
    key_name: str | None = None
    user_data: str | None = None
    """in base64"""
    profile: Any = None
    placement_group: Any = None
    tenancy: str = "default"
    metadata: Mapping[str, Any] | None = None
    shutdown_behavior: str = "stop"
    disable_api_termination: bool = False
    disable_api_stop: bool = False
    ebs_optimized: bool = False
    monitoring: bool = False
    spot: bool = False
    client_token: str = ""

    @property
    def zone(self) -> str:
        return str(self.interfaces[0].subnet.availability_zone)


class Instance(moto_instances.Instance):
    """moto's attributes, since moto reads them; our own are at the end of `__init__`."""

    def __init__(self, backend: Any, launch: Launch, index: int, reservation_id: str, moment: datetime) -> None:
        # moto's own __init__ is left out: it searches all records for each instance, and says "running" at once.
        image = launch.image
        self.ec2_backend = backend
        self.id = new_id("i")
        self.owner_id = backend.account_id
        self.client_token = launch.client_token
        self.lifecycle = "spot" if launch.spot else None
        subnet = launch.interfaces[0].subnet
        self._placement = moto_instances.InstancePlacement(subnet.availability_zone)
        self._placement.group_name = launch.placement_group.name if launch.placement_group else ""
        self._placement.tenancy = launch.tenancy
        self.kernel = self.ramdisk = None
        self.product_codes = []
        self.image_id = image.id
        self._state = moto_instances.InstanceState("pending", 0)
        self._reason = ""
        self.state_reason = moto_instances.StateReason()
        self.user_data: Any = launch.user_data
        self.instance_type = launch.type
        self.region_name = launch.region
        self._subnet_id = subnet.id
        self.key_name = launch.key_name
        self.ebs_optimized = launch.ebs_optimized
        self.monitoring_state = "enabled" if launch.monitoring else "disabled"
        self.source_dest_check = True
        self.launch_time = moment
        self.state_since = moment.timestamp()
        self.ami_launch_index = index
        self.disable_api_termination = launch.disable_api_termination
        self.disable_api_stop = launch.disable_api_stop
        self.instance_initiated_shutdown_behavior = launch.shutdown_behavior
        self.sriov_net_support = "simple"
        self.root_device_name = image.root_device
        self.metadata_options = moto_instances.MetadataOptions(dict(launch.metadata or {}))
        self.block_device_mapping = BlockDeviceMapping()
        self.nics = {}
        self.image = image
        self.reservation_id = reservation_id
        self.placement_group = launch.placement_group
        self.profile = launch.profile
        """moto's record of the instance profile"""
        self.ready_at = 0.0
        """when it may be called running (or stopped, or terminated), by the clock"""
        self.was_stopped = False
        """when it was terminated: its capacity had been given back already"""
        self.terminated_as = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")

    def __del__(self) -> None:
        """moto gives addresses back here; ours are given back when interfaces are deleted."""

    @property
    def boots_nothing(self) -> bool:
        return bool(self.image.boots_nothing)

    @property
    def security_groups(self) -> list[Any]:
        return list(self.nics[0]._group_set) if 0 in self.nics else []

    @security_groups.setter
    def security_groups(self, groups: list[Any]) -> None:
        self.nics[0]._group_set = list(groups)

    @property
    def iam_instance_profile(self) -> dict[str, str] | None:
        return {"Arn": self.profile.arn, "Id": self.profile.id} if self.profile else None

    @iam_instance_profile.setter
    def iam_instance_profile(self, _value: Any) -> None:
        """moto's associations write an id of theirs here."""

    @property
    def tags(self) -> Mapping[str, str]:
        result: Mapping[str, str] = self.ec2_backend.tags.get(self.id) or {}
        return result

    def become(self, state: str, moment: float) -> None:
        self._state = moto_instances.InstanceState(state, STATES[state])
        self.state_since = moment

    @property
    def private_ip(self) -> str | None:
        return self.nics[0].private_ip_address if 0 in self.nics else None

    @property
    def public_ip(self) -> str | None:
        return self.nics[0].public_ip if 0 in self.nics else None

    @property
    def subnet_id(self) -> str | None:
        return self._subnet_id

    @property
    def vpc_id(self) -> str | None:
        return self.nics[0].subnet.vpc_id if 0 in self.nics else None


def attach_volumes(instance: Instance, launch: Launch, moment: datetime) -> None:
    backend = instance.ec2_backend
    zone = launch.interfaces[0].subnet._availability_zone
    for mapping in launch.volumes:
        ebs = mapping.get("Ebs") or {}
        kind = str(ebs.get("VolumeType") or "gp3")
        volume = Volume(
            backend,
            new_id("vol"),
            int(ebs["VolumeSize"]),
            zone,
            snapshot_id=ebs.get("SnapshotId"),
            encrypted=bool(ebs.get("Encrypted")),
            kms_key_id=_key_of(backend, ebs) if ebs.get("Encrypted") else None,
            volume_type=kind,
            iops=int(ebs["Iops"]) if ebs.get("Iops") else 3000 if kind == "gp3" else None,
            throughput=int(ebs["Throughput"]) if ebs.get("Throughput") else 125 if kind == "gp3" else None,
        )
        volume.create_time = moment
        volume.attachment = VolumeAttachment(volume, instance, mapping["DeviceName"], "attached")
        volume.attachment.attach_time = moment
        backend.volumes[volume.id] = volume
        instance.block_device_mapping[mapping["DeviceName"]] = BlockDeviceType(
            volume_id=volume.id,
            status="in-use",
            size=volume.size,
            attach_time=moment,
            delete_on_termination=bool(ebs.get("DeleteOnTermination", True)),
        )
        if launch.tags.get("volume"):
            backend.create_tags([volume.id], dict(launch.tags["volume"]))


def _key_of(backend: Any, ebs: Mapping[str, Any]) -> str:
    """Return the key that encrypts a volume; without a key in the request, AWS's own for EBS."""
    if ebs.get("KmsKeyId"):
        return str(ebs["KmsKeyId"])
    if not backend.default_kms_key_id:
        backend._create_default_encryption_key()
    return str(backend.default_kms_key_id)


def attach_interfaces(instance: Instance, launch: Launch, moment: datetime) -> None:
    backend = instance.ec2_backend
    for position, spec in enumerate(launch.interfaces):
        interface = backend.create_network_interface(
            spec.subnet,
            group_ids=[group.id for group in spec.groups],
            description=spec.description,
            delete_on_termination=spec.delete_on_termination,
        )
        interface.interface_type = spec.kind
        # moto files the interfaces of an instance by device index; in AWS each card has its own indexes.
        instance.attach_eni(interface, position)
        interface.card_index, interface.shown_index = spec.card, spec.index
        interface.attach_time = moment
        interface.public_ip_auto_assign = spec.public
        if launch.tags.get("network-interface"):
            backend.create_tags([interface.id], dict(launch.tags["network-interface"]))
