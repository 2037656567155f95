"""tools/prices.py writes the table of prices from AWS's price list. Here the list is a few files of our own."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import price_table

ROOT = Path(__file__).resolve().parents[3]
REGION = "eu-west-1"
STORED = {
    "AmazonEC2": [
        ("EU-BoxUsage:g5.xlarge", "RunInstances", "1.123"),
        ("EU-BoxUsage:p6-b200.48xlarge", "RunInstances", "120.5"),
        ("EU-BoxUsage:z9.large", "RunInstances", "0.7"),
        # With Windows, on dedicated hardware, reserved and paid for.
        ("EU-BoxUsage:g5.xlarge", "RunInstances:0002", "1.6"),
        ("EU-DedicatedUsage:g5.xlarge", "RunInstances", "1.3"),
        ("EU-UnusedBox:g5.xlarge", "RunInstances", "0"),
        ("EU-EBS:VolumeUsage.gp3", "", "0.088"),
        ("EU-EBS:VolumeUsage.gp2", "", "0.11"),
        ("EU-EBS:SnapshotUsage", "", "0.05"),
        ("EU-NatGateway-Hours", "NatGateway", "0.048"),
        ("EU-RegionalNatGateway-Hours", "NatGateway", "0.9"),
        ("EU-NatGateway-Bytes", "NatGateway", "0.048"),
    ],
    "ElasticMapReduce": [("EU-BoxUsage:g5.xlarge", "", "0.25"), ("EU-HunkBoxUsage:g5.xlarge", "", "9")],
    "AmazonVPC": [("EU-PublicIPv4:InUseAddress", "", "0.005"), ("EU-PublicIPv4:IdleAddress", "", "0.006")],
    "AmazonEFS": [("EU-TimedStorage-ByteHrs", "", "0.33"), ("EU-TimedStorage-Z-ByteHrs", "", "0.17")],
    "AmazonS3": [("EU-TimedStorage-ByteHrs", "", "0.023")],
}


def offer(service: str, products: list[tuple[str, str, str]]) -> dict[str, Any]:
    """An offer file, as AWS publishes one for each service and region."""
    listed, terms = {}, {}
    for number, (usage, operation, price) in enumerate(products):
        sku = f"SKU{number}"
        listed[sku] = {"sku": sku, "attributes": {"usagetype": usage, "operation": operation, "regionCode": REGION}}
        tiers = [("0", price), ("51200", "0.001")]
        dimensions = {f"{sku}.{at}": {"beginRange": at, "pricePerUnit": {"USD": cost}} for at, cost in reversed(tiers)}
        terms[sku] = {f"{sku}.1": {"sku": sku, "priceDimensions": dimensions}}
    return {
        "offerCode": service,
        "version": "20261120120000",
        "publicationDate": "2026-11-20T12:00:00Z",
        "products": listed,
        "terms": {"OnDemand": terms, "Reserved": {}},
    }


def loaded(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"loaded_{file.stem}", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program, with a price list on this machine and a table of its own."""
    for service, products in STORED.items():
        file = tmp_path / service / "current" / REGION / "index.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(offer(service, products)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = loaded(ROOT / "tools/prices.py")
    monkeypatch.setattr(module, "LIST", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(module, "FILE", tmp_path / "price_table.py")
    yield module
    server.shutdown()
    server.server_close()


def test_a_region_is_added_with_the_date_and_source_of_each_figure(tool: Any) -> None:
    tool.main([REGION, "--types", "p6-b200"])
    tables = loaded(tool.FILE).PRICES
    assert tables["us-east-1"] == price_table.PRICES["us-east-1"]
    figures = tables[REGION]
    assert {source.partition(" ")[0] for _amount, _date, source in figures.values()} == set(STORED)
    assert {date for _amount, date, _source in figures.values()} == {"2026-11-20"}
    assert {item: amount for item, (amount, _date, _source) in figures.items()} == {
        "machine g5.xlarge, hour": 1.123,
        "machine p6-b200.48xlarge, hour": 120.5,
        "EMR on g5.xlarge, hour": 0.25,
        "disk gp2, GB-month": 0.11,
        "disk gp3, GB-month": 0.088,
        "snapshot, GB-month": 0.05,
        "NAT gateway, hour": 0.048,
        "NAT gateway, GB": 0.048,
        "public address, hour": 0.005,
        "file system, GB-month": 0.33,
        "bucket, GB-month": 0.023,
    }


def test_the_table_is_as_the_program_writes_it(tool: Any) -> None:
    assert tool.written(price_table.PRICES) == (ROOT / "plugins/module_utils/plan/price_table.py").read_text()


def test_a_list_that_cannot_be_read_changes_nothing(tool: Any) -> None:
    with pytest.raises(SystemExit, match=r"current/eu-north-1/index.json cannot be read: .* The table is as it was."):
        tool.main(["eu-north-1"])
    assert not tool.FILE.exists()


def test_a_name_that_aws_has_changed_is_reported(tool: Any) -> None:
    file = tool.FILE.parent / "AmazonVPC/current" / REGION / "index.json"
    file.write_text(file.read_text().replace("InUseAddress", "UsedAddress"))
    with pytest.raises(SystemExit, match="AWS's list for eu-west-1 has no public address, hour: plan/offers.py"):
        tool.main([REGION])
    assert not tool.FILE.exists()
