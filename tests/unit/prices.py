"""A list of prices for tests."""

from __future__ import annotations

from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.plan import prices
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.offers import Price
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.prices import PriceList

DATE = "2026-11-20"
AMOUNTS = {
    "machine c5.large, hour": 0.085,
    "machine g5.xlarge, hour": 1.006,
    "machine m5.xlarge, hour": 0.192,
    "machine p5.48xlarge, hour": 55.04,
    "EMR on m5.xlarge, hour": 0.048,
    "NAT gateway, hour": 0.045,
    "NAT gateway, GB": 0.045,
    "public address, hour": 0.005,
    "disk gp2, GB-month": 0.1,
    "disk gp3, GB-month": 0.08,
    "disk gp3, MiB/s-month": 0.04,
    "snapshot, GB-month": 0.05,
    "file system, GB-month": 0.3,
    "file system, GB read": 0.03,
    "file system, GB written": 0.06,
    "bucket, GB-month": 0.023,
}
LIST = PriceList("us-east-1", {item: Price(amount, DATE) for item, amount in AMOUNTS.items()})


def hourly(listed: PriceList, master: str, worker: str, emr: bool = False, **settings: Any) -> dict[str, Any]:
    """Return the hourly costs of a cluster with two workers, unless the settings differ."""
    usual = {"worker_count": 2, "spot": False, "vpc_id": "", "public": True}
    types = {"master_instance_type": master, "instance_type": worker}
    disk = {"root_volume_gib": 100, "root_volume_type": "gp3", "root_volume_throughput": None}
    return prices.hourly(listed, {**usual, **types, **disk, **settings}, emr, "elastic")
