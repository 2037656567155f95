# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""How many vCPUs an account may run at once, and whether a cluster fits in.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Family(NamedTuple):
    """One quota: types whose names begin with these letters count towards it."""

    letters: tuple[str, ...]
    on_demand: str
    spot: str


# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
_FAMILIES: Sequence[Family] = (
    Family(("g", "gr", "vt"), "L-DB2E81BA", "L-3819A6DF"),
    Family(("p",), "L-417A185B", "L-7212CCBC"),
    Family(("dl",), "L-6E869C2A", "L-85EED4F7"),
    Family(("f",), "L-74FC7D96", "L-88CF9481"),
    Family(("inf",), "L-1945791B", "L-B5D1601B"),
    Family(("trn",), "L-2C3B7624", "L-6B0D517C"),
    Family(("x",), "L-7295265B", "L-E3A00192"),
    Family(("hpc",), "L-F7808C92", ""),
)
STANDARD = Family(("a", "c", "d", "h", "i", "m", "r", "t", "z"), "L-1216C47A", "L-34B43A08")


def family_of(instance_type: str) -> Family:
    letters = re.match(r"[a-z]*", instance_type)
    return next((family for family in _FAMILIES if letters and letters[0] in family.letters), STANDARD)


def code_of(instance_type: str, spot: bool) -> str:
    family = family_of(instance_type)
    return family.spot if spot else family.on_demand


class Machines(NamedTuple):
    """So many machines of a type."""

    type: str
    vcpus: int
    spot: bool
    least: int
    """without these the cluster is of no use"""
    wanted: int


def needs(machines: Iterable[Machines]) -> dict[str, tuple[int, int]]:
    """vCPUs by the code of the quota that they count towards: the least, and all that is wanted."""
    found: dict[str, tuple[int, int]] = {}
    for some in machines:
        code = code_of(some.type, some.spot)
        least, wanted = found.get(code, (0, 0))
        if some.wanted and code:
            found[code] = (least + some.least * some.vcpus, wanted + some.wanted * some.vcpus)
    return found


def used_by(instances: Iterable[Mapping[str, Any]], code: str) -> int:
    """vCPUs that instances (as DescribeInstances tells of them) take of a quota."""
    return sum(
        vcpus(instance)
        for instance in instances
        if code_of(instance["InstanceType"], instance.get("InstanceLifecycle") == "spot") == code
    )


def vcpus(instance: Mapping[str, Any]) -> int:
    options = instance.get("CpuOptions") or {}
    return int(options.get("CoreCount", 1)) * int(options.get("ThreadsPerCore", 1))


class Verdict(NamedTuple):
    problem: str = ""
    note: str = ""


def judge(region: str, quota: Mapping[str, Any], need: tuple[int, int], used: int) -> Verdict:
    """Whether what is needed fits into what is left: the least has to, of the rest it is said."""
    least, wanted = need
    limit = math.floor(quota["Value"])
    left = max(0, limit - used)
    if wanted <= left:
        return Verdict()
    code = quota["QuotaCode"]
    name = f'The quota "{quota["QuotaName"]}" ({code}) in {region} is {limit} vCPUs'
    others = f", of which {used} are in use besides this cluster" if used else ""
    ask = (
        f"Ask for {wanted + used} (it may take days): https://{region}.console.aws.amazon.com/servicequotas/home/services/"
        f"ec2/quotas/{code}"
    )
    if least > left:
        return Verdict(problem=f"{name}{others}: {least} are needed at least, {wanted} for all machines. {ask}")
    return Verdict(note=f"{name}{others}: {wanted} are needed for all machines, so that some will be missing. {ask}")
