"""The Price List API. All figures are approximate, the same in all regions, and marked so in place of their date.

They are close to AWS's public prices for us-east-1. Real products have an ISO date as their `publicationDate`. Types of
UNLISTED have no price, as new ones on AWS.
"""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from localcloud.api.ec2.instance_types import types
from localcloud.core.cloud import Call, answers
from localcloud.core.settings import DATA

DATE = "approximate figures of the local cloud"
UNLISTED = ("x1.", "g2.")
_ACCELERATORS = ("GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo", "MediaAcceleratorInfo", "FpgaInfo")
_EMR_SHARE = 0.25
_LINUX = {"operation": "RunInstances", "operatingSystem": "Linux", "tenancy": "Shared"}
_LINUX |= {"preInstalledSw": "NA", "capacitystatus": "Used"}
_OTHERS = (
    ("AmazonEC2", "NatGateway-Hours", {"productFamily": "NAT Gateway"}, 0.045),
    ("AmazonEC2", "NatGateway-Bytes", {"productFamily": "NAT Gateway"}, 0.045),
    ("AmazonEC2", "EBS:VolumeUsage.gp2", {"productFamily": "Storage"}, 0.1),
    ("AmazonEC2", "EBS:VolumeUsage.gp3", {"productFamily": "Storage"}, 0.08),
    ("AmazonEC2", "EBS:VolumeP-Throughput.gp3", {"productFamily": "Provisioned Throughput"}, 40.96),
    ("AmazonEC2", "EBS:SnapshotUsage", {"productFamily": "Storage Snapshot"}, 0.05),
    ("AmazonVPC", "PublicIPv4:InUseAddress", {"group": "VPCPublicIPv4Address"}, 0.005),
    ("AmazonVPC", "PublicIPv4:IdleAddress", {"group": "VPCPublicIPv4Address"}, 0.005),
    ("AmazonEFS", "TimedStorage-ByteHrs", {"productFamily": "Storage"}, 0.3),
    ("AmazonEFS", "ETDataAccess-Bytes", {"accessType": "Read"}, 0.03),
    ("AmazonEFS", "ETDataAccess-Bytes", {"accessType": "Write"}, 0.06),
    ("AmazonS3", "TimedStorage-ByteHrs", {"productFamily": "Storage"}, 0.023),
)
_UNITS = {"EBS:VolumeP-Throughput.gp3": "GiBps-mo"}
"""AWS's units, by usage types whose unit differs from what the collection counts."""


@functools.cache
def _listed() -> Mapping[str, Any]:
    return tomllib.loads((DATA / "prices.toml").read_text(encoding="utf-8"))


def _machine(kind: str) -> float | None:
    """Return what a type costs an hour, or None if it has no price."""
    described = types().get(kind)
    if described is None or kind.startswith(UNLISTED):
        return None
    family, _, size = kind.partition(".")
    if any(described.get(key) for key in _ACCELERATORS):
        amount: float | None = _listed()["accelerated"].get(family, {}).get(size)
        return amount
    of_vcpu = _listed()["vcpu"]
    each: float | None = of_vcpu.get(family, of_vcpu.get(family[0]))
    return None if each is None else round(each * described["VCpuInfo"]["DefaultVCpus"], 4)


def _products(service: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yield a service's products: of machines only those of a type, as there are many."""
    amount = _machine(kind)
    if amount is not None and service == "AmazonEC2":
        yield _product(service, {**_LINUX, "instanceType": kind, "usagetype": f"BoxUsage:{kind}"}, amount)
    if amount is not None and service == "ElasticMapReduce":
        attributes = {"softwareType": "EMR", "instanceType": kind, "usagetype": f"BoxUsage:{kind}"}
        yield _product(service, attributes, amount * _EMR_SHARE)
    for of_service, usage, attributes, each in _OTHERS:
        if of_service == service:
            yield _product(service, {**attributes, "usagetype": usage}, each)


def _product(service: str, attributes: Mapping[str, str], amount: float) -> dict[str, Any]:
    """Return a product in AWS's form, but with its family among the attributes, where filters look for it."""
    usage = attributes["usagetype"]
    unit = {"unit": _UNITS[usage]} if usage in _UNITS else {}
    dimension = {"beginRange": "0", "endRange": "Inf", **unit, "pricePerUnit": {"USD": f"{amount:.10f}"}}
    sku = ".".join([service, usage, *([attributes["accessType"]] if "accessType" in attributes else [])])
    return {
        "product": {"sku": sku, "attributes": dict(attributes)},
        "serviceCode": service,
        "terms": {"OnDemand": {f"{sku}.1": {"sku": sku, "priceDimensions": {f"{sku}.1.1": dimension}}}},
        "publicationDate": DATE,
    }


@answers("pricing", "GetProducts")
def get_products(call: Call) -> dict[str, Any]:
    requested = {item["Field"]: item["Value"] for item in call.params.get("Filters") or ()}
    requested.pop("regionCode", None)
    listed = _products(str(call.params["ServiceCode"]), requested.get("instanceType", ""))
    matching = [item for item in listed if requested.items() <= item["product"]["attributes"].items()]
    return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(item) for item in matching]}
