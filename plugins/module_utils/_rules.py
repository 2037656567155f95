# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What security groups let through, a rule each.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

OURS = "deeplearning: ssh from cluster_ssh_location"
"""The description of the rules that the settings have made, by which they are told from those made by hand."""
ALL = "-1"

_PEERS: Mapping[str, str] = {
    "IpRanges": "CidrIp",
    "Ipv6Ranges": "CidrIpv6",
    "UserIdGroupPairs": "GroupId",
    "PrefixListIds": "PrefixListId",
}


@dataclass(frozen=True)
class Rule:
    """From one source, or to one. Two that let the same through are equal, however they are described."""

    protocol: str
    kind: str
    """where EC2 lists its peer: a key of _PEERS"""
    peer: str
    first: int | None = None
    last: int | None = None
    description: str = field(default="", compare=False)

    def permission(self) -> dict[str, Any]:
        """As EC2 takes it."""
        ports = {} if self.first is None else {"FromPort": self.first, "ToPort": self.last}
        described = {"Description": self.description} if self.description else {}
        return {"IpProtocol": self.protocol, **ports, self.kind: [{_PEERS[self.kind]: self.peer, **described}]}

    def __str__(self) -> str:
        what = "all" if self.protocol == ALL else self.protocol
        ports = (
            "" if self.first is None else f" {self.first}" if self.first == self.last else f" {self.first}-{self.last}"
        )
        return f"{what}{ports} {self.peer}" + (f" ({self.description})" if self.description else "")


def in_words(rules: Iterable[Rule]) -> list[str]:
    return sorted(map(str, rules))


def rules_in(permissions: Iterable[Mapping[str, Any]]) -> list[Rule]:
    """From what EC2 lists."""
    found = []
    for one in permissions:
        protocol = str(one["IpProtocol"])
        ports = (None, None) if protocol == ALL else (one.get("FromPort"), one.get("ToPort"))
        for kind, key in _PEERS.items():
            found += [
                Rule(protocol, kind, str(peer[key]), *ports, description=str(peer.get("Description") or ""))
                for peer in one.get(kind) or ()
            ]
    return found


def from_block(protocol: str, block: str, port: int | None = None, description: str = "") -> Rule:
    """A block of addresses, in the spelling that EC2 answers."""
    network = ipaddress.ip_network(block, strict=False)
    kind = "IpRanges" if network.version == 4 else "Ipv6Ranges"
    return Rule(protocol, kind, str(network), port, port, description)


def from_group(protocol: str, group_id: str, port: int | None = None) -> Rule:
    return Rule(protocol, "UserIdGroupPairs", group_id, port, port)


def ssh_rules(locations: Iterable[str], have: Iterable[Rule], exact: bool) -> list[Rule]:
    """What shall let ssh in: the locations, and what was added by hand unless it has to go."""
    ours = list(dict.fromkeys(from_block("tcp", location, 22, OURS) for location in locations))
    return ours if exact else ours + [rule for rule in have if rule.description != OURS and rule not in ours]
