"""What a stage may cost, by the price list alone."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import offers
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.offers import Price

from tests.smoke.options import Refused, read
from tests.smoke.spending import Need, price_of
from tests.smoke.stages import STAGES

AMOUNTS = {
    offers.machine("t3.medium"): 0.04,
    offers.NAT_GATEWAY: 0.05,
    offers.NAT_GATEWAY_GB: 0.05,
    offers.ADDRESS: 0.005,
    offers.disk("gp3"): 0.073,
}
SETTINGS = {"SMOKE_ACCOUNT": "123456789012", "SMOKE_USD": "3", "SMOKE_CIDR": "203.0.113.7/32"}


class Account:
    region = "us-east-1"


def price(monkeypatch: pytest.MonkeyPatch, need: Need, **missing: Any) -> Any:
    listed = {item: Price(amount, "2026-11-26") for item, amount in AMOUNTS.items() if item not in missing.values()}
    monkeypatch.setattr(offers, "current_prices", lambda *_words: listed)
    account: Any = Account()
    return price_of(account, need)


def test_machines_disks_gateway_addresses_and_traffic_count(monkeypatch: pytest.MonkeyPatch) -> None:
    hourly = 2 * 0.04 + 2 * 100 * 0.073 / 730 + 0.05 + 2 * 0.005
    actual = price(monkeypatch, Need("t3.medium", clusters=3))
    assert actual.hourly == pytest.approx(hourly)
    assert actual.most == pytest.approx(3 * (hourly + 2 * 2 * 0.05))
    assert price(monkeypatch, Need("t3.medium", clusters=1, framework=True)).setup == pytest.approx(2 * 10 * 0.05)


def test_a_network_costs_its_gateway_and_the_plan_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert price(monkeypatch, Need(clusters=1)).most == pytest.approx(0.05)
    assert price(monkeypatch, Need()).most == 0


@pytest.mark.parametrize("item", [offers.machine("t3.medium"), offers.NAT_GATEWAY, offers.NAT_GATEWAY_GB])
def test_a_price_that_is_not_known_is_not_guessed(item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert price(monkeypatch, Need("t3.medium", clusters=1), item=item) is None


def test_optional_stages_are_run_only_if_they_are_named() -> None:
    assert list(read(SETTINGS).stages) == [0, 1, 2, 3, 4]
    assert list(read({**SETTINGS, "SMOKE_STAGES": "5, 0"}).stages) == [0, 5]
    assert [number for number, stage in STAGES.items() if stage.is_optional] == [5, 6]


@pytest.mark.parametrize("stage", [2, 4, 5, 6])
def test_a_stage_that_logs_in_needs_an_address(stage: int) -> None:
    without = {**SETTINGS, "SMOKE_CIDR": "", "SMOKE_STAGES": str(stage)}
    with pytest.raises(Refused, match="SMOKE_CIDR is not set: name the address that you log in from"):
        read(without)
    assert read({**without, "SMOKE_STAGES": "0,1,3"}).cidr == "192.0.2.1/32"
    assert read({**without, "AWS_ENDPOINT_URL": "http://127.0.0.1:4599"}).cidr == "198.51.100.1/32"


def test_to_destroy_a_cluster_needs_no_stage() -> None:
    options = read({**SETTINGS, "SMOKE_CIDR": "", "SMOKE_DESTROY": "smoke-1-net"})
    assert (options.destroy, list(options.stages)) == ("smoke-1-net", [])
