# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Estimate the hourly costs of a cluster, to notice an expensive mistake before it runs for a night.

Linux on-demand prices of us-east-1 in US dollars, as AWS's price pages (https://aws.amazon.com/ec2/pricing/on-demand/)
listed them at the end of 2025. They were written down from memory and have not been compared with the pages since.
Other regions cost up to a half more. A type that is not listed is reported as "not known". PRIVATE to the collection:
it may change at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

DATE = "2025-12"
REGION = "us-east-1"
SOURCE = f"AWS list prices of {REGION}, {DATE}, approximate"

INSTANCES: Mapping[str, float] = {
    "c5.large": 0.085,
    "c5.xlarge": 0.17,
    "c5.2xlarge": 0.34,
    "c5.4xlarge": 0.68,
    "c5.9xlarge": 1.53,
    "c5.18xlarge": 3.06,
    "c5n.18xlarge": 3.888,
    "c6i.large": 0.085,
    "c6i.xlarge": 0.17,
    "c6i.2xlarge": 0.34,
    "c6i.4xlarge": 0.68,
    "g4dn.xlarge": 0.526,
    "g4dn.2xlarge": 0.752,
    "g4dn.4xlarge": 1.204,
    "g4dn.8xlarge": 2.176,
    "g4dn.12xlarge": 3.912,
    "g4dn.16xlarge": 4.352,
    "g4dn.metal": 7.824,
    "g5.xlarge": 1.006,
    "g5.2xlarge": 1.212,
    "g5.4xlarge": 1.624,
    "g5.8xlarge": 2.448,
    "g5.12xlarge": 5.672,
    "g5.16xlarge": 4.096,
    "g5.24xlarge": 8.144,
    "g5.48xlarge": 16.288,
    "g6.xlarge": 0.8048,
    "g6.2xlarge": 0.9776,
    "g6.4xlarge": 1.3232,
    "g6.8xlarge": 2.0144,
    "g6.12xlarge": 4.6016,
    "g6.16xlarge": 3.3968,
    "g6.24xlarge": 6.6752,
    "g6.48xlarge": 13.3504,
    "g6e.xlarge": 1.861,
    "g6e.2xlarge": 2.2421,
    "g6e.4xlarge": 3.0042,
    "g6e.8xlarge": 4.5286,
    "g6e.12xlarge": 10.4926,
    "g6e.16xlarge": 7.5772,
    "g6e.24xlarge": 15.0656,
    "g6e.48xlarge": 30.1312,
    "m5.large": 0.096,
    "m5.xlarge": 0.192,
    "m5.2xlarge": 0.384,
    "m5.4xlarge": 0.768,
    "m6i.large": 0.096,
    "m6i.xlarge": 0.192,
    "m6i.2xlarge": 0.384,
    "p2.xlarge": 0.9,
    "p2.8xlarge": 7.2,
    "p2.16xlarge": 14.4,
    "p3.2xlarge": 3.06,
    "p3.8xlarge": 12.24,
    "p3.16xlarge": 24.48,
    "p3dn.24xlarge": 31.212,
    "p4d.24xlarge": 21.96,
    "p4de.24xlarge": 27.45,
    "p5.4xlarge": 6.88,
    "p5.48xlarge": 55.04,
    "p5en.48xlarge": 63.3,
    "t3.micro": 0.0104,
    "t3.small": 0.0208,
    "t3.medium": 0.0416,
    "t3.large": 0.0832,
    "t3.xlarge": 0.1664,
    "t3.2xlarge": 0.3328,
}
EMR_SHARE = 0.25
"""What EMR costs on top of a machine, as a share of its price: DATE, for most types, and unverified. Some large older
types cost less."""
NAT_GATEWAY = 0.045
"""In addition, each GB through it costs 0.045."""
PUBLIC_ADDRESS = 0.005
DISK_GIB_MONTH = 0.08
FILES_GIB_MONTH = 0.30
BUCKET_GIB_MONTH = 0.023
MONTH = 730
"""In hours."""


@dataclass(frozen=True)
class CostItem:
    what: str
    count: int
    each: float | None
    """None if the price is not known."""
    note: str = ""


def hourly(
    region: str,
    master: str,
    worker: str,
    workers: int,
    spot: bool,
    disk_gib: int,
    own_network: bool,
    public: bool,
    emr: bool = False,
) -> dict[str, Any]:
    """Return the hourly costs of a cluster. `known` is false if the price of an instance type is missing."""
    has_nat_gateway = own_network and not (emr and public)
    addresses = workers + 1 if emr and public else has_nat_gateway + public
    items = [
        CostItem(f"master {master}", 1, INSTANCES.get(master)),
        CostItem(f"worker {worker}", workers, INSTANCES.get(worker), "spot: at most this" if spot else ""),
        CostItem(f"disk of {disk_gib} GiB", workers + 1, disk_gib * DISK_GIB_MONTH / MONTH),
        CostItem("NAT gateway", 1 if has_nat_gateway else 0, NAT_GATEWAY, "and 0.045 for each GB through it"),
        CostItem("public address", addresses, PUBLIC_ADDRESS),
    ]
    if emr:
        note = f"{EMR_SHARE:.0%} of the machine's price, unverified"
        items += [
            CostItem(f"EMR on {kind}", count, INSTANCES[kind] * EMR_SHARE if kind in INSTANCES else None, note)
            for kind, count in ((master, 1), (worker, workers))
        ]
    items = [item for item in items if item.count]
    return {
        "amount": round(sum(item.count * item.each for item in items if item.each is not None), 4),
        "currency": "USD",
        "known": all(item.each is not None for item in items),
        "source": SOURCE,
        "exact_region": region == REGION,
        "parts": [asdict(item) for item in items],
    }


def lines(cost: Mapping[str, Any]) -> Sequence[str]:
    """Return the costs as lines of text."""
    shown = []
    for part in cost["parts"]:
        amount = "not known" if part["each"] is None else f"{part['count'] * part['each']:.2f}"
        shown.append(
            f"  {amount:>9}  {part['count']} x {part['what']}" + (f" ({part['note']})" if part["note"] else "")
        )
    unknown = "" if cost["known"] else ", and what is not known"
    where = "" if cost["exact_region"] else "; this region may cost more"
    shown.append(f"  {cost['amount']:>9.2f}  an hour in all{unknown} ({cost['source']}{where})")
    return [
        *shown,
        f"  File system: {FILES_GIB_MONTH:.2f} a month for each GB stored, plus reads and writes.",
    ]
