"""Service quotas, the price list, and the validation of policies."""

from __future__ import annotations

from ..rules import Call, Service


def quota_arn(call: Call, kind: str, name: str) -> str:
    return call.arn("servicequotas", f"{call.value('ServiceCode') or '*'}/{name}")


quotas = Service("service-quotas", "servicequotas", quota_arn)
pricing = Service("pricing", "pricing", lambda _call, _kind, _name: "*")
analyzer = Service("accessanalyzer", "access-analyzer", lambda _call, _kind, _name: "*")

ROWS = quotas.rows() | pricing.rows() | analyzer.rows()
