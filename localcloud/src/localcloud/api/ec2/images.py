"""AMIs, from which machines boot. moto's own images are not loaded.

An image has the same id in every region and in every run, unlike in AWS: it follows from its name and features, so that
a test can name it. Images with the names of AWS's Deep Learning AMIs can be looked up by their family; they boot the
base image, or one with their framework if it was built.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from localcloud.api.ec2.filters import listing, tag_list
from localcloud.api.ec2.moto_records import backend_of
from localcloud.core.cloud import Call, Cloud, answers
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT, DATA, IMAGE_NAME, LOGIN_USER, SYSTEM
from localcloud.core.words import aws_error

# moto makes a volume and a snapshot for each AMI that it knows, in each region, before it answers anything.
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"

COMMON: Mapping[str, Mapping[str, Any]] = json.loads((DATA / "ec2_common.json").read_text(encoding="utf-8"))
"""What all instances, images and older types have alike, as the API shows it."""
CREATED = "2026-10-16T08:00:00.000Z"
_AMAZON = "898082745236"  # the account that AWS publishes its Deep Learning AMIs from
_ID = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})\Z")


@dataclass(frozen=True)
class Image:
    name: str
    features: tuple[str, ...] = ()
    """the frameworks inside, such as pytorch"""
    path: Path | None = None
    """where its files are; None: nothing of its own (see `path_of`)"""
    description: str = ""
    boots_nothing: bool = False
    """instances of it are API-only: they go through their states by the clock, and no machine is behind them"""
    family: str | None = None
    """the ami_type under which its id is a public parameter, see ssm.py"""
    owner: str = ACCOUNT
    root_device: str = "/dev/sda1"
    root_gib: int = 8
    imds_support: str | None = None
    """v2.0: instances require tokens unless their launch says otherwise"""
    region: str | None = None
    """Of an image that the account has made; the others are in all regions."""
    made_of: str = ""
    """the instance that such an image was made of"""
    layers: tuple[Path, ...] = ()
    """The layers that its machines boot from, the uppermost first; empty: see `path_of`."""
    state: str = "available"
    created: str = CREATED

    @property
    def public(self) -> bool:
        """An image that the account has made is private: the local cloud has no launch permissions."""
        return not self.made_of

    @property
    def login_user(self) -> str:
        return "ec2-user" if "amazon-linux" in (self.family or "") else LOGIN_USER

    @cached_property
    def id(self) -> str:
        text = " ".join((self.name, *sorted(self.features), self.made_of)).rstrip()
        return "ami-0" + hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def snapshot_id(self) -> str:
        return "snap-0" + self.id.removeprefix("ami-0")


def _given() -> dict[str, Image]:
    families = json.loads((DATA / "dlami.json").read_text(encoding="utf-8"))
    images = [
        BASE,
        API_ONLY,
        *(
            Image(
                entry["name"],
                tuple(entry["features"]),
                description="Stands for AWS's image of that name: a Debian machine without its drivers.",
                family=entry["type"],
                owner=_AMAZON,
                **{key: entry[key] for key in ("root_device", "root_gib", "imds_support") if key in entry},
            )
            for entry in families
        ),
    ]
    return {image.id: image for image in images}


BASE = Image(
    IMAGE_NAME,
    description=f"{SYSTEM} with systemd, sshd, cloud-init, sudo, python3 and the user {LOGIN_USER}",
    family=IMAGE_NAME,
    owner=_AMAZON,
)
API_ONLY = Image(
    "localcloud-api-only",
    description="Instances of this image exist in the API alone: nothing boots. It counts as Ubuntu 22.04",
    boots_nothing=True,
    family="localcloud-api-only",
    owner=_AMAZON,
)


def images_of(cloud: Cloud) -> dict[str, Image]:
    records: dict[str, Image] = cloud.records("images", _given)
    return records


def register(cloud: Cloud, image: Image) -> None:
    """Make an image that was built known as an AMI (again: its files have moved)."""
    images_of(cloud)[image.id] = image


def path_of(cloud: Cloud, image_id: str) -> Path | None:
    """Return the files that machines of an image boot from, or None.

    They are the image's own, those of a built image with its features, or the base image's.
    """
    images = images_of(cloud)
    image = images.get(image_id)
    if image is None:
        return None
    if image.path is not None:
        return image.path
    built = [
        other for other in images.values() if other.path is not None and set(image.features) <= set(other.features)
    ]
    built.sort(key=lambda other: len(other.features))
    fallback = next((other.path for other in images.values() if other.path is not None and not other.features), None)
    return built[0].path if built else fallback


def image_for_launch(cloud: Cloud, image_id: str, pending: bool = False) -> Image:
    """Return the image of a launch, or raise AWS's error. `pending`: also one that is still being made."""
    if not _ID.match(image_id):
        raise aws_error("ec2:DescribeImages", "InvalidAMIID.Malformed", id=image_id)
    image = images_of(cloud).get(image_id)
    if image is None:
        raise aws_error("ec2:*", "InvalidAMIID.NotFound", id=image_id)
    if image.state != "available" and not pending:
        raise AwsError("InvalidAMIID.Unavailable", f"The image ID '[{image_id}]' is not available")
    return image


def _alias(image: Image) -> str | None:
    return "amazon" if image.owner != ACCOUNT else None


def image_as_dict(image: Image, tags: Mapping[str, str]) -> dict[str, Any]:
    described: dict[str, Any] = {
        **COMMON["image"],
        "BlockDeviceMappings": [
            {
                "DeviceName": image.root_device,
                "Ebs": {
                    "DeleteOnTermination": True,
                    "Encrypted": False,
                    "SnapshotId": image.snapshot_id,
                    "VolumeSize": image.root_gib,
                    "VolumeType": "gp3",
                },
            }
        ],
        "CreationDate": image.created,
        "Description": image.description,
        "ImageId": image.id,
        "ImageLocation": f"{_alias(image) or image.owner}/{image.name}",
        "Name": image.name,
        "OwnerId": image.owner,
        "Public": image.public,
        "RootDeviceName": image.root_device,
        "State": image.state,
        "Tags": tag_list(tags),
    }
    optional = {"ImageOwnerAlias": _alias(image), "ImdsSupport": image.imds_support}
    return described | {key: value for key, value in optional.items() if value}


def _named(images: Mapping[str, Image], ids: Sequence[str]) -> list[Image]:
    for image_id in ids:
        if not _ID.match(image_id):
            raise aws_error("ec2:DescribeImages", "InvalidAMIID.Malformed", id=image_id)
    missing = [image_id for image_id in ids if image_id not in images]
    if len(missing) > 1:
        raise aws_error("ec2:DescribeImages", "InvalidAMIID.NotFound", images=", ".join(missing))
    if missing:
        raise aws_error("ec2:*", "InvalidAMIID.NotFound", id=missing[0])
    return [images[image_id] for image_id in dict.fromkeys(ids)]


@answers("ec2", "DescribeImages")
def describe_images(call: Call) -> dict[str, Any]:
    """List images, without the deprecated ones of other owners that are not named by their id.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ami-deprecate.html
    """
    images = {key: image for key, image in images_of(call.cloud).items() if image.region in (None, call.region)}
    ids = list(call.params.get("ImageIds") or ())
    matches = _named(images, ids) if ids else list(images.values())
    owners = set(call.params.get("Owners") or ())
    if owners:
        owners |= {ACCOUNT} if "self" in owners else set()
        matches = [image for image in matches if image.owner in owners or _alias(image) in owners]
    deprecated = {image.id for image in matches if call.cloud.faults.is_deprecated(image.id)}
    if not ids and not call.params.get("IncludeDeprecated"):
        matches = [image for image in matches if image.id not in deprecated or image.owner == ACCOUNT]
    tags = backend_of(call.region).tags
    described = [
        image_as_dict(image, tags.get(image.id) or {})
        | ({"DeprecationTime": image.created} if image.id in deprecated else {})
        for image in matches
    ]
    return listing(call, "Images", described, minimum=1)
