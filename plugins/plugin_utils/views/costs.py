# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What a cluster has cost so far, and what each of its resources costs an hour."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.contract.run_cost import CURRENCY, LEAST_AMOUNT, rate, shown
from ...module_utils.plan import offers
from ...module_utils.plan.prices import MONTH, PriceList, hourly_of_disk
from ..resources.resources import ClusterResources, Resource, count_by_kind
from ..watch.group_history import GroupHistory

_LAUNCHED = re.compile(r"Launching a new EC2 instance: (i-[0-9a-f]+)")
TERMINATED = re.compile(r"Terminating EC2 instance: (i-[0-9a-f]+)")
LEAST_SECONDS = 60.0
"""AWS bills machines by the second, and at least a minute."""
NOT_COUNTED = "disks, addresses, storage and traffic"


@dataclass(frozen=True)
class MachineTime:
    """A machine, and from when until when it ran."""

    type: str
    start: datetime
    end: datetime | None = None
    """None: it runs."""
    is_emr: bool = False

    def hours(self, now: datetime) -> float:
        return max(((self.end or now) - self.start).total_seconds(), LEAST_SECONDS) / 3600


@dataclass(frozen=True)
class Costs:
    """What `cluster_info` reads about costs."""

    prices: PriceList
    machines: Sequence[MachineTime] = ()
    has_history: bool = True
    """Whether the machines that have ended are among them, as far back as Auto Scaling reports them."""


def read_costs(aws: Aws, resources: ClusterResources, history: GroupHistory) -> Costs:
    """Read the prices and the machines of a cluster, with those that have ended."""
    machines, has_history = present_machines(resources), True
    present = {instance.id for instance in resources.of_kind("instance")}
    try:
        for group in resources.groups:
            machines += _former_machines(history, group.name, present)
    except AwsError:
        has_history = False
    has_history &= not resources.of_kind("emr_cluster")
    return Costs(read_prices(aws, machines), machines, has_history)


def read_machine_prices(aws: Aws, types: Sequence[str], is_emr: bool) -> dict[str, float]:
    """Read what machines of these types cost an hour, with EMR's part. Those that are not known are left out."""
    prices = PriceList(aws.region, offers.machine_prices(aws, types, is_emr))
    amounts = {kind: _hourly_of_machine(kind, is_emr, prices) for kind in types}
    return {kind: amount for kind, amount in amounts.items() if amount is not None}


def read_prices(aws: Aws, machines: Sequence[MachineTime]) -> PriceList:
    """Read what resources cost, and these machines."""
    types = sorted({machine.type for machine in machines})
    is_emr = any(machine.is_emr for machine in machines)
    return PriceList(aws.region, offers.current_prices(aws, types, is_emr))


def present_machines(resources: ClusterResources) -> list[MachineTime]:
    return [
        MachineTime(resource.facts["type"], resource.facts["launched_at"], is_emr=bool(resource.facts["job_flow"]))
        for resource in resources.of_kind("instance")
        if resource.ours and resource.costs and resource.facts.get("launched_at")
    ]


def _former_machines(history: GroupHistory, group: str, present: set[str]) -> list[MachineTime]:
    """Return the machines of a group that have ended. Auto Scaling does not report their types: they count as those of
    the current launch template."""
    spans = [span for machine, span in spans_of(history.activities(group)).items() if machine not in present]
    if not spans:
        return []
    newest = max(history.template_versions(group), key=lambda version: int(version["VersionNumber"]))
    kind = str(newest["LaunchTemplateData"].get("InstanceType", ""))
    return [MachineTime(kind, start, end) for start, end in spans]


def spans_of(activities: Sequence[Mapping[str, Any]]) -> dict[str, tuple[datetime, datetime]]:
    """Return when machines were launched and terminated, by their ids, from the activities of a group."""
    starts, ends = {}, {}
    for activity in activities:
        words = str(activity.get("Description", ""))
        if match := _LAUNCHED.match(words):
            starts[match[1]] = activity["StartTime"]
        elif match := TERMINATED.match(words):
            ends[match[1]] = activity.get("EndTime") or activity["StartTime"]
    return {machine: (starts[machine], ends[machine]) for machine in starts.keys() & ends.keys()}


def cost_so_far(resources: ClusterResources, costs: Costs, now: datetime | None = None) -> dict[str, Any]:
    """Return what the machines and NAT gateways of a cluster have cost, and what is not counted."""
    now = now or datetime.now(UTC)
    amount, starts, unknown = 0.0, [], list[str]()
    for machine in sorted(costs.machines, key=lambda machine: machine.type):
        each = _hourly_of_machine(machine.type, machine.is_emr, costs.prices)
        starts.append(machine.start)
        amount += (each or 0.0) * machine.hours(now)
        if each is None:
            unknown.append(f"machines of {machine.type or 'an unknown type'}")
    for gateway in resources.of_kind("nat_gateway"):
        if gateway.costs and gateway.facts.get("created"):
            each = costs.prices.amount(offers.NAT_GATEWAY)
            starts.append(gateway.facts["created"])
            amount += (each or 0.0) * (now - gateway.facts["created"]).total_seconds() / 3600
            if each is None:
                unknown.append("NAT gateways")
    missing = [f"{what}, whose price is not known" for what in dict.fromkeys(unknown)]
    if not costs.has_history:
        missing.append("machines that have ended")
    items = [offers.machine(machine.type) for machine in costs.machines]
    return {
        "amount": round(amount, 4),
        "currency": CURRENCY,
        "since": min(starts).isoformat(timespec="seconds") if starts else "",
        "note": f"machines and NAT gateway at on-demand prices; without {', '.join([NOT_COUNTED, *missing])}",
        "source": costs.prices.source([*items, offers.NAT_GATEWAY]),
    }


def _hourly_of_machine(kind: str, is_emr: bool, prices: PriceList) -> float | None:
    price = prices.amount(offers.machine(kind))
    return price if price is None or not is_emr else price + (prices.amount(offers.emr(kind)) or 0.0)


def hourly_of(resource: Resource, prices: PriceList) -> float | None:
    """Return what a resource costs an hour in USD; None if that is not known, as with the content of a bucket."""
    facts, gib = resource.facts, resource.facts.get("gib", 0.0)
    if resource.kind == "instance":
        return _hourly_of_machine(facts.get("type", ""), bool(facts.get("job_flow")), prices)
    if resource.kind == "volume":
        return hourly_of_disk(prices, facts.get("type", ""), gib, facts.get("throughput", 0))
    by_the_hour = {"nat_gateway": offers.NAT_GATEWAY, "address": offers.ADDRESS}
    by_the_month = {
        "file_system": (offers.FILE_SYSTEM, facts.get("bytes", 0) / 2**30),
        "snapshot": (offers.SNAPSHOT, gib),
    }
    if resource.kind in by_the_hour:
        return prices.amount(by_the_hour[resource.kind])
    item, size = by_the_month.get(resource.kind, ("", 0.0))
    price = prices.amount(item)
    return None if price is None else price * size / MONTH


def hourly_of_machines(types: Sequence[str], is_emr: bool, prices: PriceList) -> str:
    """Return as text what machines of these types cost an hour. An empty type is not known."""
    known = [each for kind in types if (each := _hourly_of_machine(kind, is_emr, prices)) is not None]
    if not known:
        return f"an amount that is not known here ({prices.source([])})"
    return f"{'' if len(known) == len(types) else 'at least '}{shown(sum(known))} {CURRENCY} an hour"


def billed(resources: Sequence[Resource], prices: PriceList) -> list[dict[str, Any]]:
    """Return what is billed now, by kind: `what` (such as `2 instances`), `hourly` in USD (None: not known), and how
    the kind is billed."""
    billing = [resource for resource in resources if resource.costs]
    items = []
    for kind in dict.fromkeys(resource.kind for resource in billing):
        same = [resource for resource in billing if resource.kind == kind]
        amounts = [hourly_of(resource, prices) for resource in same]
        known = [amount for amount in amounts if amount is not None]
        hourly = sum(known) if len(known) == len(amounts) else None
        how = same[0].costs
        if kind == "bucket":
            each = prices.amount(offers.BUCKET)
            how += "" if each is None else f", {each} a month for each"
        items.append({"kind": kind, "what": count_by_kind(same)[0], "hourly": hourly, "how": how})
    return items


def phrase(items: Sequence[Mapping[str, Any]]) -> str:
    """Return billed items as text, such as `0.045 USD an hour, 1.08 a day: 1 NAT gateway (0.045)`."""
    parts = [f"{item['what']} ({item['how'] if item['hourly'] is None else shown(item['hourly'])})" for item in items]
    least, amount = _sum(items)
    # A sum that is at least less than something tells nothing.
    is_sum = amount is not None and not (least and amount < LEAST_AMOUNT)
    return (f"{least}{rate(amount or 0.0)}: " if is_sum and items else "") + ", ".join(parts)


def sum_phrase(items: Sequence[Mapping[str, Any]]) -> str:
    """Return what billed items cost an hour in all, as text without the currency."""
    least, amount = _sum(items)
    return "not known" if amount is None else f"{least}{shown(amount)}"


def _sum(items: Sequence[Mapping[str, Any]]) -> tuple[str, float | None]:
    """Return the known part of what items cost an hour, and whether there is more."""
    known = [item["hourly"] for item in items if item["hourly"] is not None]
    return "" if len(known) == len(items) else "at least ", sum(known) if known or not items else None
