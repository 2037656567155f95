"""The Price List API: what a few instance types cost. Others are not listed.

The figures are made up in the order of AWS's, and the same in all regions.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from localcloud.core.cloud import Call, answers

INSTANCES = {"c5.large": 0.085, "g5.xlarge": 1.006, "m5.xlarge": 0.192}
_SERVICES = {
    "AmazonEC2": {"operation": "RunInstances", "operatingSystem": "Linux", "tenancy": "Shared"}
    | {"preInstalledSw": "NA", "capacitystatus": "Used"},
    "ElasticMapReduce": {"softwareType": "EMR"},
}
_EMR_SHARE = 0.25


def _product(call: Call, service: str, kind: str) -> dict[str, Any]:
    amount = INSTANCES[kind] * (_EMR_SHARE if service == "ElasticMapReduce" else 1)
    dimension = {"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": f"{amount:.10f}"}}
    attributes = {**_SERVICES[service], "instanceType": kind, "usagetype": f"BoxUsage:{kind}"}
    sku = f"{service}.{kind}"
    return {
        "product": {"sku": sku, "productFamily": "Compute Instance", "attributes": attributes},
        "serviceCode": service,
        "terms": {"OnDemand": {f"{sku}.1": {"sku": sku, "priceDimensions": {f"{sku}.1.1": dimension}}}},
        "publicationDate": datetime.fromtimestamp(call.cloud.clock.time(), UTC).isoformat(),
    }


@answers("pricing", "GetProducts")
def get_products(call: Call) -> dict[str, Any]:
    service = str(call.params["ServiceCode"])
    requested = {item["Field"]: item["Value"] for item in call.params.get("Filters") or ()}
    requested.pop("regionCode", None)
    listed = [_product(call, service, kind) for kind in INSTANCES] if service in _SERVICES else []
    matching = [item for item in listed if requested.items() <= item["product"]["attributes"].items()]
    return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(item) for item in matching]}
