# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read AWS's price list by the Price List API."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..aws.client import Aws, AwsError

API = "AWS's Price List API"
API_REGION = "us-east-1"
"""The API is in few regions, and has the prices of all."""

NAT_GATEWAY = "NAT gateway, hour"
NAT_GATEWAY_GB = "NAT gateway, GB"
ADDRESS = "public address, hour"
SNAPSHOT = "snapshot, GB-month"
FILE_SYSTEM = "file system, GB-month"
BUCKET = "bucket, GB-month"


def machine(instance_type: str) -> str:
    return f"machine {instance_type}, hour"


def emr(instance_type: str) -> str:
    """Return the item of what EMR costs on top of a machine."""
    return f"EMR on {instance_type}, hour"


def disk(volume_type: str) -> str:
    return f"disk {volume_type}, GB-month"


@dataclass(frozen=True)
class Price:
    """A figure in USD."""

    amount: float
    date: str


@dataclass(frozen=True)
class _Usage:
    """How AWS names what is billed, after the region's prefix."""

    service: str
    name: str
    item: str
    operation: str | None = None


_USAGES: Sequence[_Usage] = (
    # The operation tells systems and licences apart: this one is plain Linux.
    _Usage("AmazonEC2", r"BoxUsage:([a-z0-9-]+\.[a-z0-9-]+)", machine(r"\1"), "RunInstances"),
    _Usage("ElasticMapReduce", r"BoxUsage:([a-z0-9-]+\.[a-z0-9-]+)", emr(r"\1")),
    _Usage("AmazonEC2", r"EBS:VolumeUsage\.(gp[23])", disk(r"\1")),
    _Usage("AmazonEC2", r"EBS:SnapshotUsage", SNAPSHOT),
    _Usage("AmazonEC2", r"NatGateway-Hours", NAT_GATEWAY),
    _Usage("AmazonEC2", r"NatGateway-Bytes", NAT_GATEWAY_GB),
    _Usage("AmazonVPC", r"PublicIPv4:InUseAddress", ADDRESS),
    _Usage("AmazonEFS", r"TimedStorage-ByteHrs", FILE_SYSTEM),
    _Usage("AmazonS3", r"TimedStorage-ByteHrs", BUCKET),
)
_GENERAL: Sequence[tuple[str, Mapping[str, str]]] = (
    ("AmazonEC2", {"productFamily": "NAT Gateway"}),
    ("AmazonVPC", {"group": "VPCPublicIPv4Address"}),
    ("AmazonEC2", {"productFamily": "Storage"}),
    ("AmazonEC2", {"productFamily": "Storage Snapshot"}),
    ("AmazonEFS", {"productFamily": "Storage"}),
    ("AmazonS3", {"productFamily": "Storage"}),
)
"""What is asked for in addition to the machines: the service, and the filters that go with the region."""


def item_of(service: str, attributes: Mapping[str, str]) -> str:
    """Return the item of a product; empty if it is none of ours."""
    for usage in _USAGES:
        match = re.fullmatch(rf"(?:[A-Z0-9]+-)?{usage.name}", attributes.get("usagetype", ""))
        if match and service == usage.service and usage.operation in (None, attributes.get("operation")):
            return match.expand(usage.item)
    return ""


def amount_of(terms: Mapping[str, Any]) -> float | None:
    """Return the on-demand price of a product: of its first tier, if more costs less. None: it has none."""
    for term in terms.values():
        for dimension in term["priceDimensions"].values():
            if dimension.get("beginRange", "0") == "0" and "USD" in dimension["pricePerUnit"]:
                # Reserved capacity that has been paid for is listed with 0.
                return float(dimension["pricePerUnit"]["USD"]) or None
    return None


def current_prices(aws: Aws, types: Sequence[str], with_emr: bool = False) -> dict[str, Price]:
    """Return today's prices of instance types and of what goes with them, as far as the Price List API answers. Without
    permission: none."""
    return _read(aws, [*_machines(types, with_emr), *_GENERAL])


def machine_prices(aws: Aws, types: Sequence[str], with_emr: bool = False) -> dict[str, Price]:
    """Return today's prices of instance types alone."""
    return _read(aws, _machines(types, with_emr))


def _machines(types: Sequence[str], with_emr: bool) -> list[tuple[str, Mapping[str, str]]]:
    services = ("AmazonEC2", "ElasticMapReduce") if with_emr else ("AmazonEC2",)
    return [(service, _of_type(service, kind)) for service in services for kind in dict.fromkeys(types)]


def _read(aws: Aws, products: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, Price]:
    if aws.partition != "aws":
        return {}
    api = aws.in_region(API_REGION)
    prices: dict[str, Price] = {}
    for service, fields in products:
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in {"regionCode": aws.region, **fields}.items()
        ]
        try:
            listed = api.pages("pricing", "get_products", "PriceList", ServiceCode=service, Filters=filters)
        except AwsError:
            # A refusal or a broken connection is the same for all. What is unknown is reported where it matters.
            return prices
        for text in listed:
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
                prices.update(_prices_of(service, json.loads(text)))
    return prices


def _of_type(service: str, instance_type: str) -> dict[str, str]:
    fields = {"instanceType": instance_type}
    if service == "AmazonEC2":
        fields |= {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
    return fields


def _prices_of(service: str, listed: Mapping[str, Any]) -> dict[str, Price]:
    item = item_of(service, listed["product"]["attributes"])
    amount = amount_of(listed["terms"].get("OnDemand", {}))
    if not item or amount is None:
        return {}
    return {item: Price(amount, str(listed.get("publicationDate", "")).partition("T")[0])}
