"""One Scaling for each region in use, kept with the cloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from localcloud.api.autoscaling import engine, responses
from localcloud.api.autoscaling.ec2 import CloudEc2
from localcloud.api.autoscaling.state import Scaling
from localcloud.api.ec2.lifecycle import on_change
from localcloud.core.cloud import Cloud


@dataclass
class Regions:
    by_name: dict[str, Scaling] = field(default_factory=dict)
    port: Callable[[Cloud, str], CloudEc2] = CloudEc2
    """how EC2 is reached: tests put something of their own here"""


def scaling_in(cloud: Cloud, region: str) -> Scaling:
    regions: Regions = cloud.records("autoscaling", Regions)
    if region not in regions.by_name:
        regions.by_name[region] = Scaling(
            region,
            cloud.clock,
            regions.port(cloud, region),
            engine.step,
            lambda: cloud.latency.of("autoscaling_launch"),
        )
        on_change(cloud, lambda instance: _notice(regions.by_name[region], instance.id))
    return regions.by_name[region]


def _notice(scaling: Scaling, instance_id: str) -> None:
    """Run the next step of a group at once when one of its instances has changed its state."""
    if scaling.find(instance_id):
        scaling.schedule_step()


# What the rules of IAM ask


def described_group(cloud: Cloud, region: str, name: str) -> dict[str, Any] | None:
    """Return a group as DescribeAutoScalingGroups does."""
    group = scaling_in(cloud, region).groups.get(name)
    return responses.group(group) if group else None


def group_of_instance(cloud: Cloud, region: str, instance_id: str) -> str | None:
    """Return the name of an instance's group."""
    pair = scaling_in(cloud, region).find(instance_id)
    return pair[0].name if pair else None


def tags_of(cloud: Cloud, region: str, group_arn: str) -> dict[str, str]:
    """Return the tags of the group with an ARN; nothing if it does not exist."""
    groups = scaling_in(cloud, region).groups.values()
    tags = next((group.tags for group in groups if group.arn == group_arn), {})
    return {key: tag.value for key, tag in tags.items()}
