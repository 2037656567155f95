"""AWS's price list: which products are ours, and what they cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import offers
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.offers import Price

from localcloud.testing.catalog import PRICES_DATE
from tests.unit.conftest import Account


@pytest.mark.parametrize(
    ("service", "usage", "operation", "item"),
    [
        ("AmazonEC2", "BoxUsage:g5.xlarge", "RunInstances", "machine g5.xlarge, hour"),
        ("AmazonEC2", "EUW1-BoxUsage:u-6tb1.metal", "RunInstances", "machine u-6tb1.metal, hour"),
        ("AmazonEC2", "BoxUsage:g5.xlarge", "RunInstances:0002", ""),
        ("AmazonEC2", "SpotUsage:g5.xlarge", "RunInstances", ""),
        ("AmazonEC2", "BoxUsage:g5.xlarge.more", "RunInstances", ""),
        ("ElasticMapReduce", "USW2-BoxUsage:m5.xlarge", "RunJobFlow", "EMR on m5.xlarge, hour"),
        ("AmazonEC2", "EBS:VolumeUsage.gp3", "", "disk gp3, GB-month"),
        ("AmazonEC2", "EBS:VolumeUsage.gp2", "", "disk gp2, GB-month"),
        ("AmazonEC2", "EBS:VolumeUsage.io1", "", ""),
        ("AmazonEC2", "EUC1-EBS:VolumeP-Throughput.gp3", "", "disk gp3, MiB/s-month"),
        ("AmazonEC2", "EBS:VolumeP-IOPS.gp3", "", ""),
        ("AmazonEC2", "EBS:SnapshotUsage", "", "snapshot, GB-month"),
        ("AmazonEC2", "NatGateway-Hours", "", "NAT gateway, hour"),
        ("AmazonEC2", "APS2-NatGateway-Bytes", "", "NAT gateway, GB"),
        ("AmazonVPC", "PublicIPv4:InUseAddress", "", "public address, hour"),
        ("AmazonVPC", "PublicIPv4:IdleAddress", "", ""),
        ("AmazonEFS", "TimedStorage-ByteHrs", "", "file system, GB-month"),
        ("AmazonS3", "TimedStorage-ByteHrs", "", "bucket, GB-month"),
        ("AmazonGlacier", "TimedStorage-ByteHrs", "", ""),
    ],
)
def test_what_a_product_is(service: str, usage: str, operation: str, item: str) -> None:
    assert offers.item_of(service, {"usagetype": usage, "operation": operation}) == item
    assert offers.item_of(service, {}) == ""


def dimension(amount: str, begin: str | None = "0", currency: str = "USD") -> dict[str, Any]:
    return {"pricePerUnit": {currency: amount}} | ({} if begin is None else {"beginRange": begin})


@pytest.mark.parametrize(
    ("dimensions", "amount"),
    [
        ([dimension("0.5")], 0.5),
        ([dimension("0.5", begin=None)], 0.5),
        ([dimension("0.02", begin="1024"), dimension("0.03")], 0.03),
        ([dimension("0.02", begin="1024")], None),
        ([dimension("7", currency="CNY")], None),
        ([dimension("0.0000000000")], None),
        ([], None),
    ],
)
def test_the_price_is_that_of_the_first_tier(dimensions: list[dict[str, Any]], amount: float | None) -> None:
    terms = {"term": {"priceDimensions": {str(number): tier for number, tier in enumerate(dimensions)}}}
    assert offers.amount_of(terms) == amount
    assert offers.amount_of({}) is None


@pytest.mark.parametrize(
    ("usage", "access", "item"),
    [
        ("ETDataAccess-Bytes", "Read", offers.FILE_SYSTEM_READ),
        ("APN1-ETDataAccess-Bytes", "Write", offers.FILE_SYSTEM_WRITE),
        ("ETDataAccess-Bytes", "", ""),
        ("IADataAccess-Bytes", "Read", ""),
        ("TimedStorage-ByteHrs", "", offers.FILE_SYSTEM),
        ("IATimedStorage-ET-ByteHrs", "", ""),
    ],
)
def test_reads_and_writes_of_a_file_system_are_told_apart_by_their_access(usage: str, access: str, item: str) -> None:
    assert offers.item_of("AmazonEFS", {"usagetype": usage, "accessType": access}) == item


@pytest.mark.parametrize(("unit", "amount"), [("GiBps-mo", 0.04), ("MiBps-Mo", 40.96), ("Gbps-mo", None), (None, None)])
def test_the_price_of_a_disks_throughput_is_for_a_mebibyte_a_second(unit: str | None, amount: float | None) -> None:
    listed = dimension("40.96") | ({"unit": unit} if unit else {})
    attributes = {"usagetype": "EBS:VolumeP-Throughput.gp3"}
    product = {"product": {"attributes": attributes}, "terms": {"OnDemand": {"1": {"priceDimensions": {"1": listed}}}}}
    prices = offers._prices_of("AmazonEC2", product)
    known = {item: price.amount for item, price in prices.items()}
    assert known == ({} if amount is None else {offers.disk_throughput("gp3"): pytest.approx(amount)})


@pytest.fixture
def requests(aws: Account, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """The filters of each call of the API, by the service."""
    seen: list[tuple[str, dict[str, str]]] = []
    pages = Aws.pages

    def recorded(self: Aws, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        assert self.region == "us-east-1", "the API is in few regions"
        assert all(item["Type"] == "TERM_MATCH" for item in params["Filters"])
        seen.append((params["ServiceCode"], {item["Field"]: item["Value"] for item in params["Filters"]}))
        return pages(self, service, operation, key, **params)

    monkeypatch.setattr(Aws, "pages", recorded)
    return seen


def test_each_type_is_requested_once_for_plain_linux_in_the_clusters_region(
    requests: list[tuple[str, dict[str, str]]],
) -> None:
    types = ["m5.xlarge", "g5.xlarge", "m5.xlarge", "p4d.24xlarge"]
    prices = offers.current_prices(Aws("eu-west-1"), types)
    assert {item for item in prices if item.startswith("machine")} == {f"machine {kind}, hour" for kind in types}
    assert prices["machine g5.xlarge, hour"] == Price(1.006, PRICES_DATE)
    linux = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
    assert requests[:3] == [
        ("AmazonEC2", {"regionCode": "eu-west-1", "instanceType": kind, **linux}) for kind in dict.fromkeys(types)
    ]


def test_the_prices_of_machines_alone_take_no_other_request(requests: list[tuple[str, dict[str, str]]]) -> None:
    prices = offers.machine_prices(Aws("us-east-1"), ["m5.xlarge"], with_emr=True)
    assert prices.keys() == {"machine m5.xlarge, hour", "EMR on m5.xlarge, hour"} and len(requests) == 2


def test_what_goes_with_machines_is_requested_without_a_type(requests: list[tuple[str, dict[str, str]]]) -> None:
    prices = offers.current_prices(Aws("eu-west-1"), [])
    assert {item: price.amount for item, price in prices.items()} == {
        offers.NAT_GATEWAY: 0.045,
        offers.NAT_GATEWAY_GB: 0.045,
        offers.ADDRESS: 0.005,
        offers.disk("gp2"): 0.1,
        offers.disk("gp3"): 0.08,
        # AWS lists 40.96 for 1024 MiB/s.
        offers.disk_throughput("gp3"): 0.04,
        offers.SNAPSHOT: 0.05,
        offers.FILE_SYSTEM: 0.3,
        offers.FILE_SYSTEM_READ: 0.03,
        offers.FILE_SYSTEM_WRITE: 0.06,
        offers.BUCKET: 0.023,
    }
    assert ("AmazonVPC", {"regionCode": "eu-west-1", "group": "VPCPublicIPv4Address"}) in requests


def test_what_emr_costs_on_top_is_requested_for_emr_alone(requests: list[tuple[str, dict[str, str]]]) -> None:
    prices = offers.current_prices(Aws("us-east-1"), ["m5.xlarge"], with_emr=True)
    assert prices["EMR on m5.xlarge, hour"].amount == pytest.approx(0.048)
    assert requests[1] == ("ElasticMapReduce", {"regionCode": "us-east-1", "instanceType": "m5.xlarge"})


def test_a_query_that_is_refused_makes_only_its_own_prices_unknown(aws: Account) -> None:
    words = {"code": "InvalidParameterException", "message": "Unknown field.", "status": 400}
    aws.cloud.faults.add("error", {"action": "pricing:GetProducts"}, words, left=1)
    prices = offers.current_prices(Aws("us-east-1"), ["m5.xlarge", "g5.xlarge"])
    assert offers.machine("m5.xlarge") not in prices
    assert {offers.machine("g5.xlarge"), offers.NAT_GATEWAY, offers.FILE_SYSTEM, offers.BUCKET} <= prices.keys()


def test_without_permission_there_is_one_call(aws: Account, requests: list[tuple[str, dict[str, str]]]) -> None:
    words = {"code": "AccessDeniedException", "message": "No.", "status": 400}
    aws.cloud.faults.add("error", {"action": "pricing:GetProducts"}, words)
    assert offers.current_prices(Aws("us-east-1"), ["m5.xlarge", "g5.xlarge"]) == {}
    assert len(requests) == 1


def test_another_partition_has_no_price_list(requests: list[tuple[str, dict[str, str]]]) -> None:
    assert offers.current_prices(Aws("cn-north-1"), ["m5.xlarge"]) == {} and requests == []


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", json.dumps({"product": {"attributes": {}}}), "null"])
def test_a_list_that_cannot_be_read_has_no_prices(aws: Account, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(Aws, "pages", lambda *_params, **_more: [text])
    assert offers.current_prices(Aws("us-east-1"), ["m5.xlarge"]) == {}


def test_products_without_a_price_are_left_out(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    def product(kind: str, terms: dict[str, Any], **more: Any) -> str:
        attributes = {"usagetype": f"BoxUsage:{kind}", "operation": "RunInstances"}
        return json.dumps({"product": {"attributes": attributes}, "terms": terms, **more})

    on_demand = {"OnDemand": {"term": {"priceDimensions": {"1": dimension("2")}}}}
    listed = [product("a1.large", {}), product("a2.large", {"Reserved": on_demand["OnDemand"]})]
    listed += [product("a3.large", on_demand), json.dumps({"product": {"attributes": {}}, "terms": on_demand})]
    monkeypatch.setattr(Aws, "pages", lambda *_params, **_more: listed)
    assert offers.current_prices(Aws("us-east-1"), ["m5.xlarge"]) == {"machine a3.large, hour": Price(2.0, "")}
