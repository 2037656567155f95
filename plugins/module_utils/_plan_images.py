# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What follows from an image: its user, and the instance types that its driver is for.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

PATH = "/aws/service/deeplearning/ami"
"""AWS's public parameters: PATH/<architecture>/<family>/latest/ami-id"""

_AMAZON_LINUX = r"amazon ?linux|\bal20\d\d|amzn"
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
# NVIDIA's open kernel modules begin with Turing; from Blackwell on there are no others.
_TOO_OLD_FOR_OPEN = ("g2", "g3", "g3s", "p2", "p3", "p3dn")
_TOO_NEW_FOR_PROPRIETARY = ("g7", "g7e", "p6", "p6e")


def parameter(family: str, architecture: str = "x86_64") -> str:
    return f"{PATH}/{architecture}/{family}/latest/ami-id"


def families(names: Sequence[str]) -> list[str]:
    """The families among the names of parameters."""
    pattern = re.compile(re.escape(PATH) + r"/[^/]+/([^/]+)/latest/ami-id\Z")
    return sorted({found[1] for found in map(pattern.match, names) if found})


def user_of(image: Mapping[str, Any]) -> str:
    """The user that an image's system makes; empty where its name does not tell."""
    return next((user for pattern, user in _USERS if re.search(pattern, _text(image))), "")


def can_install_efs_utils(image: Mapping[str, Any]) -> bool:
    """Return whether the image's system has a package of amazon-efs-utils: Amazon Linux alone has one."""
    return re.search(_AMAZON_LINUX, _text(image)) is not None


def _text(image: Mapping[str, Any]) -> str:
    return f"{image.get('Name', '')} {image.get('Description', '')}".lower()


def root_gib(image: Mapping[str, Any]) -> int:
    """The least that the root volume can have."""
    for device in image.get("BlockDeviceMappings") or ():
        if device.get("DeviceName") == image.get("RootDeviceName"):
            return int(device.get("Ebs", {}).get("VolumeSize") or 0)
    return 0


def misfit(image: Mapping[str, Any], kind: Mapping[str, Any]) -> str:
    """Why a type (as `types.facts` has it) cannot run an image; empty if it can."""
    name = str(image.get("Name", ""))
    family = kind["name"].partition(".")[0].partition("-")[0]
    architecture = image.get("Architecture", "x86_64")
    if architecture not in kind["architectures"]:
        return f"that is for {architecture}, and the type is {' or '.join(kind['architectures'])}"
    if re.search(r"\bOSS Nvidia\b", name, re.IGNORECASE) and family in _TOO_OLD_FOR_OPEN:
        return "that has NVIDIA's open driver, which is for newer GPUs"
    if re.search(r"\bProprietary Nvidia\b", name, re.IGNORECASE) and family in _TOO_NEW_FOR_PROPRIETARY:
        return "that has NVIDIA's proprietary driver, which does not know GPUs so new"
    if re.search(r"\bnvidia\b", name, re.IGNORECASE) and kind["gpus"] and kind["gpu_maker"].lower() != "nvidia":
        return f"that is for NVIDIA's GPUs, and the type has {kind['gpu_maker']}'s"
    return ""
