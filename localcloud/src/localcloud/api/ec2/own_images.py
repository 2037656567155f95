"""AMIs that the account makes of stopped instances, and their snapshots. An image has the disk of its instance."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from localcloud.api.ec2.errors import invalid
from localcloud.api.ec2.filters import listing, refuse_dry_run, tag_list, tags_of
from localcloud.api.ec2.images import Image, image_for_launch, images_of
from localcloud.api.ec2.lifecycle import machines_of
from localcloud.api.ec2.moto_records import backend_of, set_tags, spelled, tags_in
from localcloud.api.ec2.records import instance_of
from localcloud.core.cloud import Call, Cloud, answers
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT
from localcloud.core.words import aws_error


def _snapshots(cloud: Cloud) -> dict[str, Image]:
    """Return the images of the snapshots that exist, by the ids of the snapshots. One outlives its image."""
    records: dict[str, Image] = cloud.records("snapshots", dict)
    return records


@answers("ec2", "CreateImage")
def create_image(call: Call) -> dict[str, Any]:
    params, cloud = call.params, call.cloud
    name = str(params.get("Name") or "")
    if not 3 <= len(name) <= 128:
        raise AwsError("InvalidAMIName.Malformed", "AMI names must be between 3 and 128 characters long")
    instance = instance_of(cloud, call.region, str(params.get("InstanceId") or ""))
    if any(image.name == name and image.region == call.region for image in images_of(cloud).values()):
        raise AwsError("InvalidAMIName.Duplicate", f"AMI name {name} is already in use by another AMI")
    if instance.state != "stopped":
        raise AwsError("IncorrectState", f"The local cloud makes images of stopped instances: {instance.id} is not.")
    if params.get("BlockDeviceMappings"):
        raise invalid("The local cloud makes images of the root disk alone, without BlockDeviceMappings.")
    refuse_dry_run(params)
    source = image_for_launch(cloud, instance.image_id)
    image = replace(
        source,
        name=name,
        path=None,
        description=str(params.get("Description") or ""),
        family=None,
        owner=ACCOUNT,
        region=call.region,
        made_of=instance.id,
        state="pending",
        created=spelled(datetime.fromtimestamp(cloud.clock.time(), UTC)),
    )
    images_of(cloud)[image.id] = _snapshots(cloud)[image.snapshot_id] = image
    set_tags(call.region, image.id, tags_of(params, "image"))
    set_tags(call.region, image.snapshot_id, tags_of(params, "snapshot"))

    def finish(layers: tuple[Path, ...]) -> None:
        if image.id in images_of(cloud):
            images_of(cloud)[image.id] = replace(image, state="available", layers=layers)

    machines = machines_of(cloud, instance)
    machines.copy_disk(instance.id, image.id, lambda layers: cloud.clock.later(0, lambda: finish(layers)))
    return {"ImageId": image.id}


@answers("ec2", "DeregisterImage")
def deregister_image(call: Call) -> dict[str, Any]:
    image = image_for_launch(call.cloud, str(call.params.get("ImageId") or ""), pending=True)
    if image.region != call.region:
        raise AwsError("AuthFailure", f"Not authorized for image: {image.id}")
    refuse_dry_run(call.params)
    del images_of(call.cloud)[image.id]
    backend_of(call.region).tags.pop(image.id, None)
    return {"Return": True}


@answers("ec2", "DescribeSnapshots")
def describe_snapshots(call: Call) -> dict[str, Any]:
    matches = [image for image in _snapshots(call.cloud).values() if image.region == call.region]
    requested = call.params.get("SnapshotIds")
    if requested:
        matches = [image for image in matches if image.snapshot_id in requested]
    described = [
        {
            "Description": f"Created by CreateImage({image.made_of}) for {image.id}",
            "OwnerId": ACCOUNT,
            "SnapshotId": image.snapshot_id,
            "State": "completed",
            "Tags": tag_list(tags_in(call.region, image.snapshot_id)),
            "VolumeSize": image.root_gib,
        }
        for image in matches
    ]
    return listing(call, "Snapshots", described)


@answers("ec2", "DeleteSnapshot")
def delete_snapshot(call: Call) -> dict[str, Any]:
    snapshot_id = str(call.params.get("SnapshotId") or "")
    image = _snapshots(call.cloud).get(snapshot_id)
    if image is None or image.region != call.region:
        raise aws_error("ec2:*", "InvalidSnapshot.NotFound", id=snapshot_id)
    if image.id in images_of(call.cloud):
        raise aws_error("ec2:DeleteSnapshot", "InvalidSnapshot.InUse", id=snapshot_id, image=image.id)
    refuse_dry_run(call.params)
    del _snapshots(call.cloud)[snapshot_id]
    backend_of(call.region).tags.pop(snapshot_id, None)
    return {}


@answers("ec2", "DescribeImageAttribute")
def describe_image_attribute(call: Call) -> dict[str, Any]:
    image = image_for_launch(call.cloud, str(call.params.get("ImageId") or ""), pending=True)
    keys = {"launchPermission": "LaunchPermissions", "productCodes": "ProductCodes"}
    attribute = str(call.params.get("Attribute"))
    if image.owner != ACCOUNT:
        raise AwsError("AuthFailure", f"Not authorized for image: {image.id}")
    if attribute not in keys:
        raise invalid(f"The local cloud has no attribute {attribute} of images.")
    refuse_dry_run(call.params)
    return {"ImageId": image.id, keys[attribute]: []}
