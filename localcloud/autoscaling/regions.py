"""One Scaling for each region in use, kept with the cloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localcloud.autoscaling.ec2 import CloudEc2, Ec2Port
from localcloud.autoscaling.engine import Scaling

if TYPE_CHECKING:
    from localcloud.cloud import Cloud


@dataclass
class Regions:
    by_name: dict[str, Scaling] = field(default_factory=dict)
    port: Callable[[Cloud, str], Ec2Port] = CloudEc2
    """how EC2 is reached: tests put something of their own here"""


def scaling_in(cloud: Cloud, region: str) -> Scaling:
    regions: Regions = cloud.records("autoscaling", Regions)
    if region not in regions.by_name:
        regions.by_name[region] = Scaling(
            region, cloud.clock, regions.port(cloud, region), lambda: cloud.latency.of("autoscaling_launch")
        )
    return regions.by_name[region]
