"""Releases of EMR, and the instance types that they support."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from localcloud.api.ec2.instance_types import types
from localcloud.api.emr.records import page
from localcloud.core.cloud import Call, Result, answers
from localcloud.core.settings import DATA
from localcloud.core.words import aws_error


@functools.cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads((DATA / "emr.json").read_text(encoding="utf-8"))
    return table


def releases() -> Mapping[str, Mapping[str, str]]:
    """Return the versions of the applications of each release."""
    result: Mapping[str, Mapping[str, str]] = _table()["releases"]
    return result


def number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.removeprefix("emr-").split("."))


def supported_types(release: str) -> Sequence[str]:
    older = _table()["types_before_7"] if number(release) < (7,) else []
    return sorted([*_table()["types"], *older])


@answers("emr", "DescribeReleaseLabel")
def describe_release_label(call: Call) -> Result:
    label = call.params.get("ReleaseLabel") or next(iter(releases()))
    if label not in releases():
        raise aws_error("emr:DescribeReleaseLabel", "InvalidRequestException", label=label)
    applications = [{"Name": name.lower(), "Version": version} for name, version in releases()[label].items()]
    return {"ReleaseLabel": label, "Applications": applications, "AvailableOSReleases": [{"Label": "2.0.20261016.0"}]}


@answers("emr", "ListReleaseLabels")
def list_release_labels(call: Call) -> Result:
    """Return the labels in pages. AWS documents no order, so they are not sorted by age."""
    prefix = (call.params.get("Filters") or {}).get("Prefix") or ""
    labels = sorted(label for label in releases() if label.startswith(prefix))
    size = int(call.params.get("MaxResults") or 100)
    shown, marker = page(labels, {"Marker": call.params.get("NextToken")}, size)
    return {"ReleaseLabels": shown} | ({"NextToken": marker["Marker"]} if marker else {})


@answers("emr", "ListSupportedInstanceTypes")
def list_supported_instance_types(call: Call) -> Result:
    label = call.params["ReleaseLabel"]
    if label not in releases():
        raise aws_error("emr:DescribeReleaseLabel", "InvalidRequestException", label=label)
    items, marker = page([_shown(name) for name in supported_types(label)], call.params, 20)
    return {"SupportedInstanceTypes": items} | marker


def _shown(name: str) -> dict[str, Any]:
    described = types()[name]
    disks = (described.get("InstanceStorageInfo") or {}).get("Disks") or ()
    return {
        "Type": name,
        "MemoryGB": described["MemoryInfo"]["SizeInMiB"] / 1024,
        "StorageGB": sum(disk["SizeInGB"] * disk["Count"] for disk in disks),
        "VCPU": described["VCpuInfo"]["DefaultVCpus"],
        "Is64BitsOnly": True,
        "InstanceFamilyId": name.partition(".")[0],
        "EbsOptimizedAvailable": described["EbsInfo"]["EbsOptimizedSupport"] != "unsupported",
        "EbsOptimizedByDefault": described["EbsInfo"]["EbsOptimizedSupport"] == "default",
        "NumberOfDisks": sum(disk["Count"] for disk in disks),
        "EbsStorageOnly": not disks,
        "Architecture": "X86_64",
    }
