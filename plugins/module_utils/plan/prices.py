# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Estimate the hourly costs of a cluster at AWS's on-demand prices.

The prices of instance types come from the Price List API where it answers, everything else from the collection's table
(price_table.py). PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.plan import offers
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.offers import Price
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.price_table import MEMORY, PRICES

CURRENCY = "USD"
MAIN_REGION = "us-east-1"
"""Its prices stand for those of regions that the table does not have."""
OTHER_REGIONS = 2.0
"""No region costs more than this, compared with MAIN_REGION: from memory, São Paulo costs 1.7 times as much."""
EMR_SHARE = 0.25
"""What EMR costs on top of a machine, as a share of its price, for most types: from memory. Some large older types cost
less."""
MONTH = 730
"""In hours."""


@dataclass(frozen=True)
class PriceList:
    """The prices of a region."""

    region: str
    current: Mapping[str, Price] = field(default_factory=dict)
    """Those that the Price List API has answered with."""

    def find(self, item: str) -> Price | None:
        if item in self.current:
            return self.current[item]
        table = PRICES.get(self.region, {}) if item in PRICES.get(self.region, {}) else PRICES[MAIN_REGION]
        return Price(*table[item]) if item in table else None

    def amount(self, item: str) -> float | None:
        price = self.find(item)
        return price.amount if price else None

    def has_own(self, item: str) -> bool:
        """Return whether a price is the region's, and not that of MAIN_REGION in its place."""
        return item in self.current or item in PRICES.get(self.region, {})

    def emr(self, instance_type: str) -> tuple[float | None, str]:
        """Return what EMR costs on top of a machine an hour, and a note on the figure."""
        listed, machine = self.amount(offers.emr(instance_type)), self.amount(offers.machine(instance_type))
        if listed is not None or machine is None:
            return listed, ""
        return machine * EMR_SHARE, f"{EMR_SHARE:.0%} of the machine's price, unverified"

    def source(self, items: Iterable[str]) -> str:
        """Return where the prices of some items come from, and from when they are."""
        dates: dict[str, list[str]] = {}
        for item in items:
            price = self.find(item)
            if price:
                dates.setdefault(price.source if price.source in (offers.API, MEMORY) else "", []).append(price.date)
        words = {
            offers.API: "{}, {}",
            "": "AWS's price list of {1}",
            MEMORY: "the collection's table of {1}, from memory and unverified",
        }
        return "; ".join(text.format(source, min(dates[source])) for source, text in words.items() if source in dates)


@dataclass(frozen=True)
class CostItem:
    what: str
    count: int
    each: float | None
    """None if the price is not known."""
    note: str = ""


def hourly(
    prices: PriceList,
    master: str,
    worker: str,
    workers: int,
    spot: bool,
    disk_gib: int,
    own_network: bool,
    public: bool,
    emr: bool = False,
    disk_type: str = "gp3",
) -> dict[str, Any]:
    """Return the hourly costs of a cluster. `known` is false if the price of an instance type is missing."""
    has_nat_gateway = own_network and not (emr and public)
    addresses = workers + 1 if emr and public else has_nat_gateway + public
    machines = [(offers.machine(master), "master", master, 1), (offers.machine(worker), "worker", worker, workers)]
    used = [item for item, _role, _kind, count in machines if count]
    items = [
        CostItem(
            f"{role} {kind}", count, prices.amount(item), "spot: at most this" if spot and role == "worker" else ""
        )
        for item, role, kind, count in machines
    ]
    disk, traffic = prices.amount(offers.disk(disk_type)), prices.amount(offers.NAT_GATEWAY_GB)
    items += [
        CostItem(f"disk of {disk_gib} GiB", workers + 1, None if disk is None else disk_gib * disk / MONTH),
        CostItem(
            "NAT gateway",
            int(has_nat_gateway),
            prices.amount(offers.NAT_GATEWAY),
            f"and {traffic} for each GB through it",
        ),
        CostItem("public address", addresses, prices.amount(offers.ADDRESS)),
    ]
    if emr:
        items += [CostItem(f"EMR on {kind}", count, *prices.emr(kind)) for _item, _role, kind, count in machines]
    items = [item for item in items if item.count]
    storage = prices.amount(offers.FILE_SYSTEM)
    return {
        "amount": round(sum(item.count * item.each for item in items if item.each is not None), 4),
        "currency": CURRENCY,
        "known": all(item.each is not None for item in items),
        "source": prices.source([*used, offers.disk(disk_type), offers.NAT_GATEWAY, offers.ADDRESS]),
        "exact_region": all(prices.has_own(item) for item in used),
        "parts": [asdict(item) for item in items],
        "file_system_gb_month": storage,
    }


def at_most(cost: Mapping[str, Any]) -> float:
    """Return what `hourly` can be at most: more if the prices are those of another region."""
    return float(cost["amount"]) * (1.0 if cost["exact_region"] else OTHER_REGIONS)


def lines(cost: Mapping[str, Any]) -> Sequence[str]:
    """Return the costs as lines of text."""
    shown = []
    for part in cost["parts"]:
        amount = "not known" if part["each"] is None else f"{part['count'] * part['each']:.3f}"
        shown.append(
            f"  {amount:>9}  {part['count']} x {part['what']}" + (f" ({part['note']})" if part["note"] else "")
        )
    unknown = "" if cost["known"] else ", and what is not known"
    where = "" if cost["exact_region"] else f"; for {MAIN_REGION}, this region may cost twice as much"
    return [
        *shown,
        f"  {cost['amount']:>9.3f}  an hour in all{unknown}",
        f"  Prices: {cost['source']}{where}.",
        f"  File system: {cost['file_system_gb_month']:.2f} a month for each GB stored, plus reads and writes.",
    ]
