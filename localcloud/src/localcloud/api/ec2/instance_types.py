"""Instance types: moto's data, and the older GPU types that it has no more."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from localcloud.api.ec2.filters import listing
from localcloud.api.ec2.images import COMMON
from localcloud.api.ec2.moto_records import zones_of
from localcloud.core.cloud import Call, answers
from localcloud.core.errors import AwsError
from localcloud.core.settings import DATA


@functools.cache
def types() -> Mapping[str, Mapping[str, Any]]:
    """Return all instance types, by name."""
    older = json.loads((DATA / "instance_types.json").read_text(encoding="utf-8"))
    return dict(INSTANCE_TYPES) | {name: _spelled_out(name, short) for name, short in older.items()}


def _spelled_out(name: str, short: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the local cloud's table in the form of DescribeInstanceTypes."""
    count, gpu, memory = short["gpus"]
    cores = short["vcpus"] // short["threads"]
    card = {
        "BaselineBandwidthInGbps": short["gbps"],
        "MaximumNetworkInterfaces": short["interfaces"],
        "NetworkCardIndex": 0,
        "NetworkPerformance": short["network"],
        "PeakBandwidthInGbps": short["gbps"],
    }
    described: dict[str, Any] = {
        **COMMON["older_type"],
        "GpuInfo": {
            "Gpus": [{"Count": count, "Manufacturer": "NVIDIA", "MemoryInfo": {"SizeInMiB": memory}, "Name": gpu}],
            "TotalGpuMemoryInMiB": count * memory,
        },
        "InstanceStorageSupported": "disks" in short,
        "InstanceType": name,
        "MemoryInfo": {"SizeInMiB": short["memory_mib"]},
        "NetworkInfo": {
            "DefaultNetworkCardIndex": 0,
            "EfaSupported": False,
            "EnaSupport": "unsupported" if name.startswith("g2.") else "supported",
            "EncryptionInTransitSupported": False,
            "Ipv4AddressesPerInterface": short["addresses"],
            "Ipv6AddressesPerInterface": short["addresses"],
            "Ipv6Supported": True,
            "MaximumNetworkCards": 1,
            "MaximumNetworkInterfaces": short["interfaces"],
            "NetworkCards": [card],
            "NetworkPerformance": short["network"],
        },
        "ProcessorInfo": {
            "Manufacturer": "Intel",
            "SupportedArchitectures": ["x86_64"],
            "SustainedClockSpeedInGhz": short["ghz"],
        },
        "SupportedRootDeviceTypes": ["ebs", "instance-store"] if "disks" in short else ["ebs"],
        "VCpuInfo": {
            "DefaultCores": cores,
            "DefaultThreadsPerCore": short["threads"],
            "DefaultVCpus": short["vcpus"],
            "ValidCores": list(range(1, cores + 1)),
            "ValidThreadsPerCore": [1, 2],
        },
    }
    if "disks" in short:
        number, size = short["disks"]
        described["InstanceStorageInfo"] = {
            "Disks": [{"Count": number, "SizeInGB": size, "Type": "ssd"}],
            "EncryptionSupport": "unsupported",
            "NvmeSupport": "unsupported",
            "TotalSizeInGB": number * size,
        }
    return described


def vcpus(name: str) -> int:
    return int(types()[name]["VCpuInfo"]["DefaultVCpus"])


def gpus(name: str) -> tuple[int, str, int]:
    """Return the number of GPUs of a type, their name, and the MiB of each."""
    listed = types().get(name, {}).get("GpuInfo", {}).get("Gpus") or ()
    if not listed:
        return 0, "", 0
    return (
        sum(int(gpu.get("Count", 0)) for gpu in listed),
        str(listed[0]["Name"]),
        int(listed[0]["MemoryInfo"]["SizeInMiB"]),
    )


def zones_with(name: str, region: str, zones: list[str]) -> list[str]:
    """Return the zones of a region that offer a type. A type that moto does not have is offered in all."""
    offered = _offered(region)
    if name not in INSTANCE_TYPES or not offered:
        return zones
    return [zone for zone in zones if (name, zone) in offered]


@functools.cache
def _offered(region: str) -> frozenset[tuple[str, str]]:
    listed = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, ())
    return frozenset((offer["InstanceType"], offer["Location"]) for offer in listed)


@answers("ec2", "DescribeInstanceTypes")
def describe_instance_types(call: Call) -> dict[str, Any]:
    existing = types()
    requested = [str(name) for name in call.params.get("InstanceTypes") or ()]
    unknown = [name for name in requested if name not in existing]
    if unknown:
        raise AwsError(
            "InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        )
    matches = [existing[name] for name in dict.fromkeys(requested)] if requested else list(existing.values())
    return listing(call, "InstanceTypes", matches, maximum=100, default=None if requested else 100)


@answers("ec2", "DescribeInstanceTypeOfferings")
def describe_instance_type_offerings(call: Call) -> dict[str, Any]:
    kind = str(call.params.get("LocationType") or "region")
    if kind not in ("region", "availability-zone"):
        raise AwsError("UnsupportedOperation", f"The local cloud lists no types by {kind}.")
    zones = [zone.name for zone in zones_of(call.region)]
    offers = [
        {"InstanceType": name, "LocationType": kind, "Location": place}
        for name in types()
        if (offering := zones_with(name, call.region, zones))
        for place in (offering if kind == "availability-zone" else [call.region])
    ]
    return listing(call, "InstanceTypeOfferings", offers)
