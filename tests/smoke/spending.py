"""What a stage may cost, at AWS's prices, and what its clusters have cost by the command's own clock."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import offers, prices

SETUP_GB = 10
"""What each machine fetches through the NAT gateway to set itself up, at most: docs/costs.md."""
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


@dataclass(frozen=True)
class Price:
    hourly: float
    """Of one cluster."""
    most: float
    """Of the stage, with what its machines fetch."""


def price_of(aws: Aws, need: Need) -> Price | None:
    """Return what it may cost; None if a price is not known."""
    if not need.clusters:
        return Price(0.0, 0.0)
    listed = prices.PriceList(aws.region, offers.current_prices(aws, [need.type] if need.type else [], need.emr))
    nat, traffic = (listed.amount(item) for item in (offers.NAT_GATEWAY, offers.NAT_GATEWAY_GB))
    if nat is None or traffic is None:
        return None
    if not need.type:
        return Price(nat, need.clusters * need.hours * nat)
    cost = prices.hourly(listed, need.type, need.type, need.workers, False, DISK_GIB, True, need.public, need.emr)
    if not cost["known"]:
        return None
    fetched = SETUP_GB * (need.workers + 1) * traffic
    return Price(cost["amount"], need.clusters * (need.hours * cost["amount"] + fetched))


def usd(amount: float) -> str:
    return f"{amount:.2f} USD"
