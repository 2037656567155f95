"""Service quotas: how many vCPUs of which kind of instance an account may run at once, and how many resources of some
kinds it may have in a region.

The quotas of vCPUs are higher than those of a new AWS account (often 0 for GPUs), so that no caller meets them by
accident; those of resources are AWS's defaults. The fault `quota` sets one to what a test needs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from localcloud.core.cloud import Call, Cloud, answers, arn
from localcloud.core.errors import AwsError
from localcloud.core.settings import DATA
from localcloud.core.words import aws_error

DEFAULT = 20_000.0


@dataclass(frozen=True)
class Family:
    """A quota: the instance types whose names begin with these letters count towards it. One of a single generation has
    its digit too."""

    code: str
    kinds: str
    letters: list[str]
    spot_code: str = ""
    spot_kinds: str = ""
    """If they differ."""


@dataclass(frozen=True)
class Limit:
    """A quota of resources. Creating one more than it allows is refused with this error."""

    service: str
    code: str
    name: str
    usual: float
    operation: str
    error: str
    names_limit: bool = False
    """Whether AWS's sentence has the number."""


_DATA = json.loads((DATA / "quotas.json").read_text(encoding="utf-8"))
FAMILIES = [Family(**entry) for entry in _DATA["vcpus"]]
_STANDARD = FAMILIES[0]
LIMITS = [Limit(**entry) for entry in _DATA["resources"]]
ADDRESSES, VPCS, INTERNET_GATEWAYS, NAT_GATEWAYS = LIMITS


def family_of(instance_type: str) -> Family:
    """Return the quota of a type, by the letters before its generation."""
    match = re.match(r"([a-z]+)\d*", instance_type)
    letters = match[1] if match else ""
    names = (match[0], letters) if match else ()
    result = next((family for name in names for family in FAMILIES if name in family.letters), None)
    return result or next((family for family in FAMILIES if letters[:1] in family.letters), _STANDARD)


def vcpu_limit(cloud: Cloud, instance_type: str, spot: bool = False) -> float:
    """Return the quota of running vCPUs for a type."""
    return _value(cloud, code_of(instance_type, spot), DEFAULT)


def code_of(instance_type: str, spot: bool = False) -> str:
    """Return the code of the quota that a type counts towards."""
    family = family_of(instance_type)
    return family.spot_code if spot and family.spot_code else family.code


def check_limit(cloud: Cloud, limit: Limit, existing: int) -> None:
    """Refuse one more resource where the quota is used up."""
    value = int(_value(cloud, limit.code, limit.usual))
    if existing >= value:
        if limit.names_limit:
            raise aws_error(limit.operation, limit.error, limit=value)
        raise aws_error(limit.operation, limit.error)


def _value(cloud: Cloud, code: str, usual: float) -> float:
    limit = cloud.faults.quota(code, named=any(code == other.code for other in LIMITS))
    return usual if limit is None else float(limit)


def _usual() -> dict[str, dict[str, tuple[str, float]]]:
    """Name and usual value of each quota, by service and code."""
    on_demand = {family.code: (f"Running On-Demand {family.kinds} instances", DEFAULT) for family in FAMILIES}
    spot = {
        family.spot_code: (f"All {family.spot_kinds or family.kinds} Spot Instance Requests", DEFAULT)
        for family in FAMILIES
        if family.spot_code
    }
    listed: dict[str, dict[str, tuple[str, float]]] = {
        "ec2": on_demand | spot,
        "elasticfilesystem": {"L-848C634D": ("File systems per account", 1000.0)},
        "vpc": {},
    }
    for limit in LIMITS:
        listed[limit.service][limit.code] = (limit.name, limit.usual)
    return listed


def _described(call: Call, service: str, code: str, default: bool) -> dict[str, Any]:
    name, usual = _usual()[service][code]
    return {
        "Adjustable": True,
        "GlobalQuota": False,
        "QuotaAppliedAtLevel": "ACCOUNT",
        "QuotaArn": arn("servicequotas", call.region, f"{service}/{code}"),
        "QuotaCode": code,
        "QuotaName": name,
        "ServiceCode": service,
        "ServiceName": _DATA["services"][service],
        "Unit": "None",
        "Value": usual if default else _value(call.cloud, code, usual),
    }


def _service(call: Call) -> str:
    service = str(call.params.get("ServiceCode") or "")
    if service not in _usual():
        raise AwsError("NoSuchResourceException", f"The service {service} is not known here.")
    return service


@answers("service-quotas", "GetServiceQuota", "GetAWSDefaultServiceQuota")
def get_service_quota(call: Call) -> dict[str, Any]:
    service, code = _service(call), str(call.params.get("QuotaCode") or "")
    default = call.operation == "GetAWSDefaultServiceQuota"
    if code not in _usual()[service] or not (default or _is_applied(call.cloud, code)):
        raise aws_error("service-quotas:GetServiceQuota", "NoSuchResourceException")
    return {"Quota": _described(call, service, code, default)}


def _is_applied(cloud: Cloud, code: str) -> bool:
    """Return whether the account has a value of its own. With the fault `default-quotas`, only a changed quota has."""
    return not cloud.faults.of_kind("default-quotas") or cloud.faults.quota(code) is not None
