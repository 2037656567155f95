# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Estimate the hourly costs of a cluster at AWS's on-demand prices: those of the Price List API, or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..contract.run_cost import CURRENCY
from ..resources.file_system import BURSTING, PROVISIONED
from . import offers
from .offers import Price

MONTH = 730
"""In hours."""
INCLUDED_THROUGHPUT = {"gp3": 125}
"""MiB/s of a disk that its size pays for, by the types whose throughput can be set."""


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


def billed_throughput(volume_type: str, throughput: int) -> int:
    """Return the MiB/s of a disk that are billed in addition to its size."""
    included = INCLUDED_THROUGHPUT.get(volume_type)
    return 0 if included is None else max(throughput - included, 0)


def hourly_of_disk(prices: PriceList, volume_type: str, gib: int, throughput: int) -> float | None:
    """Return what a disk costs an hour, or None if a price is missing. `throughput`: its MiB/s; 0 for the included."""
    size_price = prices.amount(offers.disk(volume_type))
    throughput_cost = hourly_of_throughput(prices, volume_type, throughput)
    if size_price is None or throughput_cost is None:
        return None
    return gib * size_price / MONTH + throughput_cost


def hourly_of_throughput(prices: PriceList, volume_type: str, throughput: int) -> float | None:
    """Return what a disk's throughput costs an hour in addition to its size."""
    mib_per_second = billed_throughput(volume_type, throughput)
    if not mib_per_second:
        return 0.0
    price = prices.amount(offers.disk_throughput(volume_type))
    return None if price is None else mib_per_second * price / MONTH


def hourly(
    prices: PriceList, cluster: Mapping[str, Any], emr: bool, file_system_throughput: str = ""
) -> dict[str, Any]:
    """Return the hourly costs of a cluster by its settings. `known` is false if a price is missing.

    `file_system_throughput`: the throughput mode of its file system; empty if it is unknown.
    """
    master, worker, workers = cluster["master_instance_type"], cluster["instance_type"], cluster["worker_count"]
    public = cluster["public"]
    has_nat_gateway = not cluster["vpc_id"] and not (emr and public)
    addresses = workers + 1 if emr and public else has_nat_gateway + public
    traffic = prices.amount(offers.NAT_GATEWAY_GB)
    spot = "spot: at most this" if cluster["spot"] else ""
    traffic_note = "and traffic" if traffic is None else f"and {traffic} for each GB through it"
    items = [
        CostItem(f"master {master}", 1, prices.amount(offers.machine(master)), type=master),
        CostItem(f"worker {worker}", workers, prices.amount(offers.machine(worker)), spot, worker),
        *_disk_items(prices, cluster, workers + 1),
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
    disk = offers.disk(cluster["root_volume_type"])
    return {
        "amount": round(sum(item.count * item.each for item in items if item.each is not None), 4),
        "currency": CURRENCY,
        "known": all(item.each is not None for item in items),
        "source": prices.source([*machines, disk, offers.NAT_GATEWAY, offers.ADDRESS]),
        "parts": [asdict(item) for item in items],
        "file_system_gb_month": prices.amount(offers.FILE_SYSTEM),
        "file_system_throughput": file_system_throughput,
        "file_system_gb_read": prices.amount(offers.FILE_SYSTEM_READ),
        "file_system_gb_written": prices.amount(offers.FILE_SYSTEM_WRITE),
    }


def _disk_items(prices: PriceList, cluster: Mapping[str, Any], count: int) -> list[CostItem]:
    """Return the root volumes, and what their throughput costs on top."""
    kind, gib, throughput = (cluster[f"root_volume_{name}"] for name in ("type", "gib", "throughput"))
    items = [CostItem(f"disk of {gib} GiB", count, hourly_of_disk(prices, kind, gib, 0))]
    if throughput and billed_throughput(kind, throughput):
        each = hourly_of_throughput(prices, kind, throughput)
        note = f"{INCLUDED_THROUGHPUT[kind]} are included in the disk's price"
        items.append(CostItem(f"disk throughput of {throughput} MiB/s", count, each, note))
    return items


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
        f"  File system: {storage}.",
        *(f"  {sentence}" for sentence in access_sentences(cost)),
    ]


def access_sentences(cost: Mapping[str, Any]) -> list[str]:
    """Return sentences about what reads and writes of the file system cost."""
    mode, read, written = (cost[f"file_system_{name}"] for name in ("throughput", "gb_read", "gb_written"))
    if mode == BURSTING:
        return ["Reads and writes of the file system cost nothing more (bursting throughput)."]
    if mode == PROVISIONED:
        return ["The file system's provisioned throughput is billed by the MiB/s, and is not part of this sum."]
    if read is None or written is None:
        price = "Each GB read from the file system or written to it costs an amount that is not known."
    else:
        price = f"Each GB read from the file system costs {read:g}, each GB written to it {written:g}."
    if not mode:
        price = f"{price} This holds for elastic throughput; the file system's mode is not known."
    return [price, "Training pays that for its data set in every epoch; with -e data_on=node once for each node."]


def phrase(cost: Mapping[str, Any]) -> str:
    """Return the costs in one line."""
    least = "" if cost["known"] else "at least "
    rate = f"{cost['amount']:.3f} {cost['currency']} an hour, {cost['amount'] * 24:.2f} a day"
    return f"{least}{rate} ({cost['source']})"
