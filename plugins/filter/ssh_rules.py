# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Decide which rules the security group for ssh has."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

DESCRIPTION = "deeplearning: ssh from cluster_ssh_allowed_cidrs"
"""Marks the rules that the settings made."""
_SSH = 22
# Where ec2_security_group_info lists the peers of a rule, its key for them, and ec2_security_group's option.
_PEERS = (
    ("ip_ranges", "cidr_ip", "cidr_ip"),
    ("ipv6_ranges", "cidr_ipv6", "cidr_ipv6"),
    ("user_id_group_pairs", "group_id", "group_id"),
    ("prefix_list_ids", "prefix_list_id", "ip_prefix"),
)


def ssh_rules(
    permissions: Iterable[Mapping[str, Any]], locations: Iterable[str], purge: bool = False, owner: str = ""
) -> list[dict[str, Any]]:
    own = list(dict.fromkeys(_location(block) for block in locations))
    rules = [{"proto": "tcp", "ports": [_SSH], option: block, "rule_desc": DESCRIPTION} for option, block in own]
    if purge:
        return rules
    for rule in _existing(permissions, owner):
        same = any(
            rule.get(option) == block and (rule["proto"], rule.get("from_port"), rule.get("to_port")) == ("tcp", 22, 22)
            for option, block in own
        )
        if rule.get("rule_desc") != DESCRIPTION and not same:
            rules.append(rule)
    return rules


def _location(block: str) -> tuple[str, str]:
    """Return the option of ec2_security_group for a block, and the block as EC2 writes it."""
    network = ipaddress.ip_network(block, strict=False)
    return "cidr_ip" if network.version == 4 else "cidr_ipv6", str(network)


def _existing(permissions: Iterable[Mapping[str, Any]], owner: str) -> Iterator[dict[str, Any]]:
    for permission in permissions:
        rule = {
            "proto": permission["ip_protocol"],
            "from_port": permission.get("from_port"),
            "to_port": permission.get("to_port"),
        }
        for peers, key, option in _PEERS:
            for peer in permission.get(peers) or ():
                name = _foreign(peer) if option == "group_id" and peer.get("user_id", owner) != owner else peer[key]
                described = {**rule, option: name, "rule_desc": peer.get("description")}
                yield {name: value for name, value in described.items() if value is not None}


def _foreign(peer: Mapping[str, Any]) -> str:
    """Return how ec2_security_group names a security group of another account."""
    return f"{peer['user_id']}/{peer['group_id']}/{peer.get('group_name') or 'peer'}"


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"ssh_rules": ssh_rules}
