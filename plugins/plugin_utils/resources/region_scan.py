# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Look for a cluster in all other regions of the account, within some seconds and with few calls to each region."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...module_utils.aws.client import UNREACHABLE, Aws, AwsError
from ...module_utils.contract.names import Names
from .kinds import IMAGES
from .resource_reader import EC2, ResourceReader, own_buckets, tagged_resources
from .resources import Resource, count_by_kind, leftovers

LIST_SECONDS = 4.0
"""The part of a scan that may be spent on the list of regions."""

T = TypeVar("T")


@dataclass(frozen=True)
class ClusterInRegion:
    """What a cluster has in a region."""

    region: str
    resources: Sequence[str]
    """such as `2 instances` and `1 NAT gateway`"""


@dataclass(frozen=True)
class RegionScan:
    """What the other regions have answered."""

    clusters: Sequence[ClusterInRegion] = ()
    searched: Sequence[str] = ()
    """Regions that have answered."""
    refused: Sequence[str] = ()
    """Regions that refused access."""
    silent: Sequence[str] = ()
    """Regions that did not answer in time."""
    seconds: float = 0.0
    """The limit of the scan."""
    list_problem: str = ""
    """Why the regions of the account are unknown, so that all regions that the SDK knows were tried."""

    def unsearched_line(self) -> str:
        """Return one line about the regions that may have the cluster all the same; empty if there are none."""
        sentences = []
        if self.list_problem:
            sentences.append(f"All known regions were tried, as the account's cannot be listed: {self.list_problem}")
        parts = []
        if self.refused:
            parts.append(f"{', '.join(self.refused)} (access refused)")
        if self.silent:
            parts.append(f"{', '.join(self.silent)} (no answer within {self.seconds:g} seconds)")
        if parts:
            sentences.append(f"Not searched: {'; '.join(parts)}.")
        return " ".join(sentences)


@dataclass
class Answers(Generic[T]):
    """The results of calls that were made in parallel, by name."""

    results: dict[str, T] = field(default_factory=dict)
    errors: dict[str, AwsError] = field(default_factory=dict)


def scan_regions(aws: Aws, cluster: str, keep: bool, seconds: float) -> RegionScan:
    """Look for the cluster in all regions but that of `aws`. `keep`: whether its file system does not count."""
    end = time.monotonic() + seconds
    bucket_list = ParallelCalls({"buckets": lambda: own_buckets(aws)})
    region_list = ParallelCalls({"regions": lambda: _enabled_regions(aws)})
    listed = region_list.answers(min(end, time.monotonic() + LIST_SECONDS))
    regions = listed.results.get("regions")
    list_problem = ""
    if regions is None:
        regions = _known_regions(aws)
        list_problem = str(listed.errors.get("regions", "AWS does not answer."))
    others = [region for region in regions if region != aws.region]
    reading = ParallelCalls({region: _reading(aws.in_region(region), cluster, keep) for region in others})
    answers = reading.answers(end)
    buckets = bucket_list.answers(end).results.get("buckets", ())
    clusters = []
    for region in others:
        counts = count_by_kind(answers.results.get(region, ()))
        if Names(cluster, aws.account, region).bucket in buckets:
            counts.append("1 bucket")
        if counts:
            clusters.append(ClusterInRegion(region, counts))
    unanswered = [region for region in others if region not in answers.results]
    refused = [region for region, error in answers.errors.items() if error.code != UNREACHABLE]
    return RegionScan(
        clusters,
        searched=[region for region in others if region in answers.results],
        refused=[region for region in unanswered if region in refused],
        silent=[region for region in unanswered if region not in refused],
        seconds=seconds,
        list_problem=list_problem,
    )


class ParallelCalls(Generic[T]):
    """Calls that run in threads from now on. A thread that is not waited for does not keep the process alive."""

    def __init__(self, calls: Mapping[str, Callable[[], T]]) -> None:
        self._answers: Answers[T] = Answers()
        self._threads = [threading.Thread(target=self._make, args=item, daemon=True) for item in calls.items()]
        for thread in self._threads:
            thread.start()

    def _make(self, name: str, call: Callable[[], T]) -> None:
        try:
            self._answers.results[name] = call()
        except AwsError as error:
            self._answers.errors[name] = error

    def answers(self, end: float) -> Answers[T]:
        """Return what has come until this time of the monotonic clock, or as soon as everything has come."""
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        # Threads that are late still write to the original.
        return Answers(dict(self._answers.results), dict(self._answers.errors))


def _enabled_regions(aws: Aws) -> list[str]:
    regions = aws.call("ec2", "describe_regions")["Regions"]
    return sorted(str(item["RegionName"]) for item in regions if item.get("OptInStatus") != "not-opted-in")


def _known_regions(aws: Aws) -> list[str]:
    """Return the regions that the SDK knows in this partition. The account may not have enabled all of them."""
    return [region for region in aws.regions() if aws.in_region(region).partition == aws.partition]


def _reading(aws: Aws, cluster: str, keep: bool) -> Callable[[], list[Resource]]:
    return lambda: _resources_in(aws, cluster, keep)


def _resources_in(aws: Aws, cluster: str, keep: bool) -> list[Resource]:
    """Return what the cluster has in the region.

    IAM and S3 are left out: the documented policies allow an operator to read a cluster's roles and its bucket in one
    region only.
    """
    tagged = [kind for kind in tagged_resources(aws, cluster) if kind in EC2 and kind not in IMAGES]
    resources = ResourceReader(aws, cluster).read_again([*tagged, "auto_scaling_group", "file_system"])
    return [resource for resource in leftovers(resources, keep) if resource.ours]
