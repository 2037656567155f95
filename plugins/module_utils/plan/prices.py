# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Estimate the hourly costs of a cluster at AWS's on-demand prices: those of the Price List API, or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..contract.run_cost import CURRENCY
from . import offers
from .offers import Price

MONTH = 730
"""In hours."""


@dataclass(frozen=True)
class PriceList:
    """The prices of a region."""

    region: str
    current: Mapping[str, Price] = field(default_factory=dict)
    """Those that the Price List API has answered with. All others are unknown."""

    def amount(self, item: str) -> float | None:
        price = self.current.get(item)
        return price.amount if price else None

    def source(self, items: Iterable[str]) -> str:
        """Return where the prices of some items come from, and from when they are."""
        dates = [self.current[item].date for item in items if item in self.current]
        return f"{offers.API}, {min(dates)}" if dates else f"unknown: {offers.API} has not answered"


@dataclass(frozen=True)
class CostItem:
    what: str
    count: int
    each: float | None
    """None if the price is not known."""
    note: str = ""
    type: str = ""
    """The instance type that the price depends on."""


def hourly(prices: PriceList, cluster: Mapping[str, Any], emr: bool) -> dict[str, Any]:
    """Return the hourly costs of a cluster by its settings. `known` is false if a price is missing."""
    master, worker, workers = cluster["master_instance_type"], cluster["instance_type"], cluster["worker_count"]
    disk_gib, disk_type, public = cluster["root_volume_gib"], cluster["root_volume_type"], cluster["public"]
    has_nat_gateway = not cluster["vpc_id"] and not (emr and public)
    addresses = workers + 1 if emr and public else has_nat_gateway + public
    disk, traffic = prices.amount(offers.disk(disk_type)), prices.amount(offers.NAT_GATEWAY_GB)
    spot = "spot: at most this" if cluster["spot"] else ""
    traffic_note = "and traffic" if traffic is None else f"and {traffic} for each GB through it"
    items = [
        CostItem(f"master {master}", 1, prices.amount(offers.machine(master)), type=master),
        CostItem(f"worker {worker}", workers, prices.amount(offers.machine(worker)), spot, worker),
        CostItem(f"disk of {disk_gib} GiB", workers + 1, None if disk is None else disk_gib * disk / MONTH),
        CostItem("NAT gateway", int(has_nat_gateway), prices.amount(offers.NAT_GATEWAY), traffic_note),
        CostItem("public address", addresses, prices.amount(offers.ADDRESS)),
    ]
    if emr:
        items += [
            CostItem(f"EMR on {kind}", count, prices.amount(offers.emr(kind)), type=kind)
            for kind, count in ((master, 1), (worker, workers))
        ]
    items = [item for item in items if item.count]
    machines = [offers.machine(kind) for kind in (master, *[worker] * bool(workers))]
    return {
        "amount": round(sum(item.count * item.each for item in items if item.each is not None), 4),
        "currency": CURRENCY,
        "known": all(item.each is not None for item in items),
        "source": prices.source([*machines, offers.disk(disk_type), offers.NAT_GATEWAY, offers.ADDRESS]),
        "parts": [asdict(item) for item in items],
        "file_system_gb_month": prices.amount(offers.FILE_SYSTEM),
    }


def lines(cost: Mapping[str, Any]) -> Sequence[str]:
    """Return the costs as lines of text."""
    shown = []
    for part in cost["parts"]:
        amount = "not known" if part["each"] is None else f"{part['count'] * part['each']:.3f}"
        shown.append(
            f"  {amount:>9}  {part['count']} x {part['what']}" + (f" ({part['note']})" if part["note"] else "")
        )
    unknown = "" if cost["known"] else ", and what is not known"
    stored = cost["file_system_gb_month"]
    storage = "price not known" if stored is None else f"{stored:.2f} a month for each GB stored"
    return [
        *shown,
        f"  {cost['amount']:>9.3f}  an hour in all, {cost['amount'] * 24:.2f} a day{unknown}",
        f"  Prices: {cost['source']}.",
        f"  File system: {storage}, plus reads and writes.",
    ]


def phrase(cost: Mapping[str, Any]) -> str:
    """Return the costs in one line."""
    least = "" if cost["known"] else "at least "
    rate = f"{cost['amount']:.3f} {cost['currency']} an hour, {cost['amount'] * 24:.2f} a day"
    return f"{least}{rate} ({cost['source']})"
