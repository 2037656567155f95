# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Which GPU, or other accelerator, EC2's instance types have, and the compute capability of each GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

NVIDIA = "NVIDIA"
X86, ARM = "x86_64", "arm64"
"""EC2's names of architectures."""

# By the names that EC2 gives, read on 2026-11-24. EC2's A10G is an A10, and its T4g a T4.
# https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus
CAPABILITIES: Mapping[str, str] = {
    "K520": "3.0",
    "K80": "3.7",
    "M60": "5.2",
    "V100": "7.0",
    "T4": "7.5",
    "T4g": "7.5",
    "A100": "8.0",
    "A10G": "8.6",
    "L4": "8.9",
    "L40S": "8.9",
    "H100": "9.0",
    "H200": "9.0",
    "B200": "10.0",
    "GB200": "10.0",
    "B300": "10.3",
    "GB300": "10.3",
    "RTX PRO 4500": "12.0",
    "RTX PRO Server 6000": "12.0",
}


class Accelerator(NamedTuple):
    maker: str
    name: str
    machine: str = X86


class AcceleratedFamily(NamedTuple):
    accelerator: Accelerator
    sizes: Mapping[int, str]
    """By number of GPUs. 0 is a part of one."""


def _nvidia(name: str, sizes: Mapping[int, str], machine: str = X86) -> AcceleratedFamily:
    return AcceleratedFamily(Accelerator(NVIDIA, name, machine), sizes)


_UP_TO_48 = {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge 24xlarge", 8: "48xlarge"}
_G7 = {1: "2xlarge 4xlarge 8xlarge", 2: "12xlarge", 4: "24xlarge", 8: "48xlarge"}

# As DescribeInstanceTypes answers: the copy in moto 5.2.5, and for the types that it lacks (the oldest ones, g4ad, dl1
# and p6e-gb200) other public copies, read on 2026-11-24.
FAMILIES: Mapping[str, AcceleratedFamily] = {
    "g2": _nvidia("K520", {1: "2xlarge", 4: "8xlarge"}),
    "g3": _nvidia("M60", {1: "4xlarge", 2: "8xlarge", 4: "16xlarge"}),
    "g3s": _nvidia("M60", {1: "xlarge"}),
    "g4dn": _nvidia("T4", {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge", 8: "metal"}),
    "g5": _nvidia("A10G", _UP_TO_48),
    "g5g": _nvidia("T4g", {1: "xlarge 2xlarge 4xlarge 8xlarge", 2: "16xlarge metal"}, ARM),
    "g6": _nvidia("L4", _UP_TO_48),
    "g6e": _nvidia("L40S", _UP_TO_48),
    "g6f": _nvidia("L4", {0: "large xlarge 2xlarge 4xlarge"}),
    "g7": _nvidia("RTX PRO 4500", _G7),
    "g7e": _nvidia("RTX PRO Server 6000", _G7),
    "gr6": _nvidia("L4", {1: "4xlarge 8xlarge"}),
    "gr6f": _nvidia("L4", {0: "4xlarge"}),
    "p2": _nvidia("K80", {1: "xlarge", 8: "8xlarge", 16: "16xlarge"}),
    "p3": _nvidia("V100", {1: "2xlarge", 4: "8xlarge", 8: "16xlarge"}),
    "p3dn": _nvidia("V100", {8: "24xlarge"}),
    "p4d": _nvidia("A100", {8: "24xlarge"}),
    "p4de": _nvidia("A100", {8: "24xlarge"}),
    "p5": _nvidia("H100", {1: "4xlarge", 8: "48xlarge"}),
    "p5e": _nvidia("H200", {8: "48xlarge"}),
    "p5en": _nvidia("H200", {8: "48xlarge"}),
    "p6-b200": _nvidia("B200", {8: "48xlarge"}),
    "p6-b300": _nvidia("B300", {8: "48xlarge"}),
    "p6e-gb200": _nvidia("GB200", {4: "36xlarge"}, ARM),
    "g4ad": AcceleratedFamily(
        Accelerator("AMD", "Radeon Pro V520"), {1: "xlarge 2xlarge 4xlarge", 2: "8xlarge", 4: "16xlarge"}
    ),
    "dl1": AcceleratedFamily(Accelerator("Habana", "Gaudi HL-205"), {8: "24xlarge"}),
    "dl2q": AcceleratedFamily(Accelerator("Qualcomm", "AI100"), {8: "24xlarge"}),
    "inf1": AcceleratedFamily(Accelerator("AWS", "Inferentia"), {1: "xlarge 2xlarge", 4: "6xlarge", 16: "24xlarge"}),
    "inf2": AcceleratedFamily(Accelerator("AWS", "Inferentia2"), {1: "xlarge 8xlarge", 6: "24xlarge", 12: "48xlarge"}),
    "trn1": AcceleratedFamily(Accelerator("AWS", "Trainium"), {1: "2xlarge", 16: "32xlarge"}),
    "trn1n": AcceleratedFamily(Accelerator("AWS", "Trainium"), {16: "32xlarge"}),
    "trn2": AcceleratedFamily(Accelerator("AWS", "Trainium2"), {1: "3xlarge", 16: "48xlarge"}),
}


def accelerator_of(instance_type: str) -> Accelerator | None:
    """Return what a type of a known family has. None if the family is unknown, or has no accelerator."""
    family = FAMILIES.get(instance_type.partition(".")[0])
    return family.accelerator if family else None


def number_of(instance_type: str) -> int:
    """Return how many accelerators a known type has; 0 if it is unknown."""
    name, _dot, size = instance_type.partition(".")
    sizes = FAMILIES[name].sizes if name in FAMILIES else {}
    return next((number for number, names in sizes.items() if size in names.split()), 0)


def vcpus_of(instance_type: str) -> int:
    """Return the vCPUs by the size: four for each `xlarge`. 0 for other sizes, such as `metal`."""
    match = re.search(r"\.(\d*)xlarge\Z", instance_type)
    return 4 * int(match[1] or 1) if match else 0
