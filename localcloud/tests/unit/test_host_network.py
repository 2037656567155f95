"""The host's part of the network: each VPC has a link and an address of its own."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from localcloud.core.settings import TRANSIT_NETWORK
from localcloud.machines.network import HostNetwork, Vpc


def test_more_vpcs_than_a_byte_can_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostNetwork, "_connect", lambda _network, _vpc: None)
    network = HostNetwork(tmp_path, list, set, lambda _vpc: lambda: None)
    vpcs: list[Vpc] = [network._create(f"vpc-{number}") for number in range(300)]
    assert len({vpc.link for vpc in vpcs}) == 300
    addresses = {ipaddress.ip_address(vpc.transit) for vpc in vpcs}
    assert len(addresses) == 300
    assert all(address in ipaddress.ip_network(TRANSIT_NETWORK) for address in addresses)
