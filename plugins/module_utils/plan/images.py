# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Derive from an image its user, its smallest root volume and the instance types that can run it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..contract.names import PINS_TAG, USER_TAG, tags_of

PATH = "/aws/service/deeplearning/ami"
"""AWS's public parameters: PATH/<architecture>/<family>/latest/ami-id"""

_AMAZON_LINUX = r"amazon ?linux|\bal20\d\d|amzn"
NEW_PYTHON = r"ubuntu\D*(22|24)\.04|debian\D*1[2-9]|amazon ?linux\D?2023|\bal2023|\b(rhel|rocky|alma|centos)\D*(9|10)\b"
"""Systems that have Python 3.11 or newer, or a package of it."""
OWN_NEW_PYTHON = r"ubuntu\D*24\.04|debian\D*1[2-9]|\b(rhel|rocky|alma|centos)\D*10\b"
"""Systems that have it without a further package."""
TOO_NEW = r"ubuntu\D*26\.04"
"""Its Python 3.14 is newer than ansible-core 2.19 and the pinned frameworks support."""
_USERS: Sequence[tuple[str, str]] = (
    (r"ubuntu", "ubuntu"),
    (_AMAZON_LINUX, "ec2-user"),
    (r"debian", "admin"),
    (r"rocky", "rocky"),
    (r"\balma", "ec2-user"),
    (r"centos", "centos"),
    (r"\brhel\b|red ?hat|suse|\bsles\b", "ec2-user"),
    (r"fedora", "fedora"),
)

# https://docs.aws.amazon.com/dlami/latest/devguide/important-changes.html
# NVIDIA's open kernel modules need Turing or newer. Blackwell and newer GPUs need the open modules. Drivers newer than
# 470 do not support Kepler.
_TOO_OLD_FOR_OPEN = ("g3", "g3s", "p3", "p3dn")
_TOO_OLD_FOR_ALL = ("g2", "p2")
_TOO_NEW_FOR_PROPRIETARY = ("g7", "g7e", "p6", "p6e")


def families(names: Sequence[str]) -> list[str]:
    """Return the families among the names of parameters."""
    pattern = re.compile(re.escape(PATH) + r"/[^/]+/([^/]+)/latest/ami-id\Z")
    return sorted({match[1] for match in map(pattern.match, names) if match})


def user_of(image: Mapping[str, Any]) -> str:
    """Return the user that an image creates; empty if its tag, name and description do not show it."""
    return tags_of(image.get("Tags")).get(USER_TAG) or next(
        (user for pattern, user in _USERS if re.search(pattern, _text(image))), ""
    )


def name_of(image: Mapping[str, Any]) -> str:
    return str(image.get("Name") or image["ImageId"])


def is_amazon_linux(image: Mapping[str, Any]) -> bool:
    """Return whether the image's system is Amazon Linux: it alone has a package of amazon-efs-utils, and it has none of
    Prometheus, which any other may have."""
    return matches(image, _AMAZON_LINUX)


def matches(image: Mapping[str, Any], pattern: str) -> bool:
    """Return whether an image's name or description matches, in lower case. The description of an image that image.yml
    made names what it was made from."""
    return re.search(pattern, _text(image)) is not None


def _text(image: Mapping[str, Any]) -> str:
    return f"{image.get('Name', '')} {image.get('Description', '')}".lower()


def outdated(image: Mapping[str, Any], pins: Mapping[str, str]) -> list[str]:
    """Return the frameworks that an image of image.yml has in other versions than machines get now."""
    baked = baked_pins(image)
    return [framework for framework, checksum in baked.items() if pins.get(framework) != checksum]


def baked_pins(image: Mapping[str, Any]) -> dict[str, str]:
    words = tags_of(image.get("Tags")).get(PINS_TAG, "").split()
    return {name: checksum for name, _equals, checksum in (word.partition("=") for word in words)}


def root_gib(image: Mapping[str, Any]) -> int:
    """Return the minimum size of the root volume."""
    for device in image.get("BlockDeviceMappings") or ():
        if device.get("DeviceName") == image.get("RootDeviceName"):
            return int(device.get("Ebs", {}).get("VolumeSize") or 0)
    return 0


def misfit(image: Mapping[str, Any], kind: Mapping[str, Any]) -> str:
    """Return why an instance type cannot run an image; empty if it can. `kind` has the facts about the type."""
    family = kind["name"].partition(".")[0].partition("-")[0]
    architecture = image.get("Architecture", "x86_64")
    if architecture not in kind["architectures"]:
        return f"that is for {architecture}, and the type is {' or '.join(kind['architectures'])}"
    if matches(image, r"\bnvidia\b") and family in _TOO_OLD_FOR_ALL:
        return "no current image has a driver for GPUs this old, choose a newer type"
    if matches(image, r"\boss nvidia\b") and family in _TOO_OLD_FOR_OPEN:
        return "that has NVIDIA's open driver, which is for newer GPUs"
    if matches(image, r"\bproprietary nvidia\b") and family in _TOO_NEW_FOR_PROPRIETARY:
        return "that has NVIDIA's proprietary driver, which does not support GPUs this new"
    if matches(image, r"\bnvidia\b") and kind["gpus"] and kind["gpu_maker"].lower() != "nvidia":
        return f"that is for NVIDIA's GPUs, and the type has {kind['gpu_maker']}'s"
    return ""
