"""What a stage may cost, at AWS's prices, and what its clusters have cost by the command's own clock."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import offers, prices

PACKAGES_GB, FRAMEWORK_GB = 2, 10
"""What each machine fetches through the NAT gateway to set itself up, at most, without and with a framework: for the
latter, docs/costs.md."""
DISK_GIB = 100
"""cluster_root_volume_gib's default."""


@dataclass(frozen=True)
class Need:
    """What the price of a stage depends on: its clusters are one after the other, and each costs `hours` at most."""

    type: str = ""
    clusters: int = 0
    workers: int = 1
    hours: float = 1.0
    emr: bool = False
    public: bool = True
    framework: bool = False


@dataclass(frozen=True)
class Price:
    hourly: float
    """Of one cluster."""
    setup: float
    """Of one cluster, once: what its machines fetch."""
    most: float
    """Of the stage."""


FREE = Price(0.0, 0.0, 0.0)


def price_of(aws: Aws, need: Need) -> Price | None:
    """Return what it may cost; None if a price is not known."""
    if not need.clusters:
        return FREE
    listed = prices.PriceList(aws.region, offers.current_prices(aws, [need.type] if need.type else [], need.emr))
    nat, traffic = (listed.amount(item) for item in (offers.NAT_GATEWAY, offers.NAT_GATEWAY_GB))
    if nat is None or traffic is None:
        return None
    if not need.type:
        return Price(nat, 0.0, need.clusters * need.hours * nat)
    settings = {
        **{"master_instance_type": need.type, "instance_type": need.type, "worker_count": need.workers, "spot": False},
        **{"root_volume_gib": DISK_GIB, "root_volume_type": "gp3", "root_volume_throughput": None},
        **{"vpc_id": "", "public": need.public},
    }
    cost = prices.hourly(listed, settings, need.emr)
    if not cost["known"]:
        return None
    fetched = (FRAMEWORK_GB if need.framework else PACKAGES_GB) * (need.workers + 1) * traffic
    return Price(cost["amount"], fetched, need.clusters * (need.hours * cost["amount"] + fetched))


def usd(amount: float) -> str:
    return f"{amount:.2f} USD"
