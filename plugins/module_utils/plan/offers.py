# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read AWS's price list by the Price List API."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
FILE_SYSTEM_READ = "file system, GB read"
"""With elastic throughput, as are writes."""
FILE_SYSTEM_WRITE = "file system, GB written"
BUCKET = "bucket, GB-month"


def machine(instance_type: str) -> str:
    return f"machine {instance_type}, hour"


def emr(instance_type: str) -> str:
    """Return the item of what EMR costs on top of a machine."""
    return f"EMR on {instance_type}, hour"


def disk(volume_type: str) -> str:
    return f"disk {volume_type}, GB-month"


def disk_throughput(volume_type: str) -> str:
    """Return the item of the throughput that a disk has in addition to what its type includes."""
    return f"disk {volume_type}, MiB/s-month"


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
    access: str | None = None
    """The attribute `accessType`. None: it does not matter."""
    units: Mapping[str, float] = field(default_factory=dict)
    """How many units of the item there are in each unit that AWS may list, in lower case. Another unit makes the price
    unknown. Empty: the item has AWS's unit."""

    def matches(self, service: str, attributes: Mapping[str, str]) -> bool:
        """Return whether AWS's price list means this usage by the attributes of a product."""
        if service != self.service:
            return False
        if self.operation is not None and attributes.get("operation") != self.operation:
            return False
        if self.access is not None and attributes.get("accessType") != self.access:
            return False
        return self.match(attributes) is not None

    def match(self, attributes: Mapping[str, str]) -> re.Match[str] | None:
        return re.fullmatch(rf"(?:[A-Z0-9]+-)?{self.name}", attributes.get("usagetype", ""))


_USAGES: Sequence[_Usage] = (
    # The operation tells systems and licences apart: this one is plain Linux.
    _Usage("AmazonEC2", r"BoxUsage:([a-z0-9-]+\.[a-z0-9-]+)", machine(r"\1"), "RunInstances"),
    _Usage("ElasticMapReduce", r"BoxUsage:([a-z0-9-]+\.[a-z0-9-]+)", emr(r"\1")),
    _Usage("AmazonEC2", r"EBS:VolumeUsage\.(gp[23])", disk(r"\1")),
    _Usage(
        "AmazonEC2",
        r"EBS:VolumeP-Throughput\.(gp3)",
        disk_throughput(r"\1"),
        # AWS lists the price of 1024 MiB/s.
        units={"gibps-mo": 1024, "mibps-mo": 1},
    ),
    _Usage("AmazonEC2", r"EBS:SnapshotUsage", SNAPSHOT),
    _Usage("AmazonEC2", r"NatGateway-Hours", NAT_GATEWAY),
    _Usage("AmazonEC2", r"NatGateway-Bytes", NAT_GATEWAY_GB),
    _Usage("AmazonVPC", r"PublicIPv4:InUseAddress", ADDRESS),
    _Usage("AmazonEFS", r"TimedStorage-ByteHrs", FILE_SYSTEM),
    _Usage("AmazonEFS", r"ETDataAccess-Bytes", FILE_SYSTEM_READ, access="Read"),
    _Usage("AmazonEFS", r"ETDataAccess-Bytes", FILE_SYSTEM_WRITE, access="Write"),
    _Usage("AmazonS3", r"TimedStorage-ByteHrs", BUCKET),
)
_GENERAL: Sequence[tuple[str, Mapping[str, str]]] = (
    ("AmazonEC2", {"productFamily": "NAT Gateway"}),
    ("AmazonVPC", {"group": "VPCPublicIPv4Address"}),
    ("AmazonEC2", {"productFamily": "Storage"}),
    ("AmazonEC2", {"productFamily": "Provisioned Throughput"}),
    ("AmazonEC2", {"productFamily": "Storage Snapshot"}),
    # Storage and data access belong to different product families.
    ("AmazonEFS", {}),
    ("AmazonS3", {"productFamily": "Storage"}),
)
"""What is asked for in addition to the machines: the service, and the filters that go with the region."""


_OF_THE_QUERY = (
    "InvalidParameterException",
    "ValidationException",
    "NotFoundException",
    "InvalidNextTokenException",
    "ExpiredNextTokenException",
)
"""Error codes that are about one query, so the next one may succeed."""


def item_of(service: str, attributes: Mapping[str, str]) -> str:
    """Return the item of a product; empty if it is none of ours."""
    usage = _usage_of(service, attributes)
    return _item_of_usage(usage, attributes) if usage else ""


def _usage_of(service: str, attributes: Mapping[str, str]) -> _Usage | None:
    return next((usage for usage in _USAGES if usage.matches(service, attributes)), None)


def _item_of_usage(usage: _Usage, attributes: Mapping[str, str]) -> str:
    match = usage.match(attributes)
    return match.expand(usage.item) if match else ""


def amount_of(terms: Mapping[str, Any], units: Mapping[str, float] | None = None) -> float | None:
    """Return the on-demand price of a product: of its first tier, if more costs less. None: it has none.

    `units`: how many units of the item there are in each unit of AWS; without them, the price is for AWS's unit.
    """
    for term in terms.values():
        for dimension in term["priceDimensions"].values():
            if dimension.get("beginRange", "0") == "0" and "USD" in dimension["pricePerUnit"]:
                amount = float(dimension["pricePerUnit"]["USD"])
                size = units.get(str(dimension.get("unit", "")).lower()) if units else 1
                # Reserved capacity that has been paid for is listed with 0.
                return amount / size if amount and size else None
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
        except AwsError as error:
            # What is unknown is reported where it matters.
            if error.code in _OF_THE_QUERY:
                continue
            # A missing permission or a broken connection is the same for all.
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
    attributes = listed["product"]["attributes"]
    usage = _usage_of(service, attributes)
    if usage is None:
        return {}
    amount = amount_of(listed["terms"].get("OnDemand", {}), usage.units)
    if amount is None:
        return {}
    date = str(listed.get("publicationDate", "")).partition("T")[0]
    return {_item_of_usage(usage, attributes): Price(amount, date)}
