"""The rules of the security group for ssh: those of the settings, and those that were added by hand."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.filter.core import SSH_DESCRIPTION, ssh_rules

HERE = "198.51.100.7/32"
OWN = {"proto": "tcp", "ports": [22], "cidr_ip": HERE, "rule_desc": SSH_DESCRIPTION}


def existing(proto: str = "tcp", ports: tuple[int, int] | None = (22, 22), **peers: Any) -> dict[str, Any]:
    """A rule as ec2_security_group_info returns it."""
    lists = {"ip_ranges": [], "ipv6_ranges": [], "user_id_group_pairs": [], "prefix_list_ids": []}
    limits = {"from_port": ports[0], "to_port": ports[1]} if ports else {}
    return {"ip_protocol": proto, **limits, **lists, **peers}


OWN_EARLIER = existing(ip_ranges=[{"cidr_ip": "203.0.113.0/24", "description": SSH_DESCRIPTION}])


def test_each_location_is_a_rule() -> None:
    assert ssh_rules([], [HERE, HERE]) == [OWN]
    (rule,) = ssh_rules([], ["2001:db8::1/64"])
    assert rule["cidr_ipv6"] == "2001:db8::/64" and "cidr_ip" not in rule


def test_rules_of_earlier_settings_go() -> None:
    assert ssh_rules([OWN_EARLIER], [HERE]) == [OWN]
    assert ssh_rules([OWN_EARLIER], []) == []


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (
            existing(ip_ranges=[{"cidr_ip": "192.0.2.7/32", "description": "Eve"}]),
            {"proto": "tcp", "from_port": 22, "to_port": 22, "cidr_ip": "192.0.2.7/32", "rule_desc": "Eve"},
        ),
        (
            existing(ipv6_ranges=[{"cidr_ipv6": "2001:db8::/32"}]),
            {"proto": "tcp", "from_port": 22, "to_port": 22, "cidr_ipv6": "2001:db8::/32"},
        ),
        (
            existing("-1", None, user_id_group_pairs=[{"group_id": "sg-1", "user_id": ""}]),
            {"proto": "-1", "group_id": "sg-1"},
        ),
        (
            existing("icmp", (-1, -1), prefix_list_ids=[{"prefix_list_id": "pl-1"}]),
            {"proto": "icmp", "from_port": -1, "to_port": -1, "ip_prefix": "pl-1"},
        ),
        # The same addresses, but other ports.
        (existing(ports=(80, 80), ip_ranges=[{"cidr_ip": HERE}]),
         {"proto": "tcp", "from_port": 80, "to_port": 80, "cidr_ip": HERE}),
    ],
)  # fmt: skip
def test_rules_that_were_added_by_hand_stay_unless_rules_are_purged(rule: dict[str, Any], kept: dict[str, Any]) -> None:
    assert ssh_rules([rule], [HERE]) == [OWN, kept]
    assert ssh_rules([rule], [HERE], purge=True) == [OWN]


def test_a_group_of_another_account_keeps_its_account() -> None:
    pairs = [{"group_id": "sg-1", "user_id": "1"}, {"group_id": "sg-2", "user_id": "2"}]
    rules = ssh_rules([existing(user_id_group_pairs=pairs)], [], owner="1")
    assert [rule["group_id"] for rule in rules] == ["sg-1", "2/sg-2/peer"]


def test_a_rule_by_hand_that_equals_a_location_is_not_listed_twice() -> None:
    assert ssh_rules([existing(ip_ranges=[{"cidr_ip": HERE}])], [HERE]) == [OWN]
