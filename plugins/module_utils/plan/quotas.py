# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare the vCPUs, the addresses and the network of a cluster with the account's quotas."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .findings import Finding, note


class Family(NamedTuple):
    """Instance types that share their quotas: the letters that their names begin with, with the generation where it
    has a quota of its own, and the codes of the quotas. An empty code is unknown."""

    letters: tuple[str, ...]
    on_demand: str
    spot: str


# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
_FAMILIES: Sequence[Family] = (
    Family(("g", "gr", "vt"), "L-DB2E81BA", "L-3819A6DF"),
    # "All P5 Spot Instance Requests". The quota of the others is called "All P4, P3 and P2 Spot Instance Requests", and
    # public lists disagree about that of P6.
    Family(("p5",), "L-417A185B", "L-C4BD4855"),
    Family(("p6",), "L-417A185B", ""),
    Family(("p",), "L-417A185B", "L-7212CCBC"),
    Family(("dl",), "L-6E869C2A", "L-85EED4F7"),
    Family(("f",), "L-74FC7D96", "L-88CF9481"),
    Family(("inf",), "L-1945791B", "L-B5D1601B"),
    Family(("trn",), "L-2C3B7624", "L-6B0D517C"),
    Family(("x",), "L-7295265B", "L-E3A00192"),
    Family(("hpc",), "L-F7808C92", ""),
)
STANDARD = Family(("a", "c", "d", "h", "i", "m", "r", "t", "z"), "L-1216C47A", "L-34B43A08")


class AccountQuota(NamedTuple):
    """A quota that everything of a kind in the account and region counts towards, by whomever it was created."""

    service: str
    code: str
    unit: str
    operation: str
    """The operation of EC2 that lists it, with the key of the answer."""
    key: str


ADDRESSES = AccountQuota("ec2", "L-0263D0A3", "addresses", "describe_addresses", "Addresses")
VPCS = AccountQuota("vpc", "L-F678F1CE", "VPCs", "describe_vpcs", "Vpcs")


def account_needs(cluster: Mapping[str, Any], emr: bool) -> dict[AccountQuota, int]:
    """Return how much of each a cluster has: a VPC, an address for its NAT gateway, and one for a public master.

    EMR's machines have public addresses of their subnet, and then no NAT gateway.
    """
    vpcs = int(not cluster["vpc_id"])
    addresses = 0 if emr and cluster["public"] else vpcs + int(cluster["public"])
    return {quota: need for quota, need in ((ADDRESSES, addresses), (VPCS, vpcs)) if need}


def family_of(instance_type: str) -> Family:
    name = re.match(r"([a-z]*)\d*", instance_type)
    names = (name[0], name[1]) if name else ()
    return next((family for family in _FAMILIES if set(family.letters) & set(names)), STANDARD)


def code_of(instance_type: str, spot: bool) -> str:
    family = family_of(instance_type)
    return family.spot if spot else family.on_demand


class MachineCount(NamedTuple):
    """How many machines of a type a cluster has."""

    type: str
    vcpus: int
    spot: bool
    minimum: int
    """The cluster cannot start with fewer."""
    desired: int


def machine_counts(cluster: Mapping[str, Any], types: Mapping[str, Mapping[str, Any]]) -> list[MachineCount]:
    """Return the machines of the settings; none if a type is not among the known ones."""
    master, worker = types.get(cluster["master_instance_type"]), types.get(cluster["instance_type"])
    if not master or not worker:
        return []
    return [
        MachineCount(master["name"], master["vcpus"], False, 1, 1),
        MachineCount(worker["name"], worker["vcpus"], cluster["spot"], cluster["worker_min"], cluster["worker_count"]),
    ]


def needs(machines: Iterable[MachineCount]) -> dict[str, tuple[int, int]]:
    """Return the minimum and the desired number of vCPUs by the code of the quota that they count towards."""
    vcpus_by_code: dict[str, tuple[int, int]] = {}
    for kind in machines:
        code = code_of(kind.type, kind.spot)
        minimum, desired = vcpus_by_code.get(code, (0, 0))
        if kind.desired and code:
            vcpus_by_code[code] = (minimum + kind.minimum * kind.vcpus, desired + kind.desired * kind.vcpus)
    return vcpus_by_code


def vcpus_of(instances: Iterable[Mapping[str, Any]], code: str) -> int:
    """Return the vCPUs of those instances (items of DescribeInstances) that count towards a quota."""
    return sum(
        vcpus(instance)
        for instance in instances
        if code_of(instance["InstanceType"], instance.get("InstanceLifecycle") == "spot") == code
    )


def vcpus(instance: Mapping[str, Any]) -> int:
    options = instance.get("CpuOptions") or {}
    return int(options.get("CoreCount", 1)) * int(options.get("ThreadsPerCore", 1))


def check(region: str, quota: Mapping[str, Any], need: tuple[int, int], in_use: int) -> Iterator[Finding]:
    """Yield a problem if the quota does not allow the minimum, or a note if it does not allow all machines."""
    minimum, desired = need
    limit = math.floor(quota["Value"])
    left = max(0, limit - in_use)
    if desired <= left:
        return
    name, hint = description(region, quota, "vCPUs", in_use), request_hint(region, "ec2", quota, desired + in_use)
    if minimum > left:
        yield Finding(f"{name}: at least {minimum} are needed, and {desired} for all machines. {hint}")
    else:
        yield note(f"{name}: {desired} are needed for all machines, so some will be missing. {hint}")


def description(region: str, quota: Mapping[str, Any], unit: str, in_use: int) -> str:
    """Return what a quota is, and how much of it is in use outside the cluster."""
    others = f", of which {in_use} are in use outside this cluster" if in_use else ""
    limit = math.floor(quota["Value"])
    return f'The quota "{quota["QuotaName"]}" ({quota["QuotaCode"]}) in {region} is {limit} {unit}{others}'


def request_hint(region: str, service: str, quota: Mapping[str, Any], value: int) -> str:
    """Return how to get a higher value."""
    pages = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/{service}/quotas"
    return f"Request {value} (it may take days): {pages}/{quota['QuotaCode']}"
