"""The rules of a VPC as nftables reads them: who may reach whom, on what, and which way leads out."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from localcloud.core.views import Permission, RouteView, VpcView
from localcloud.machines.ruleset import host_rules, ruleset
from localcloud_kits.views_kit import (
    EVERYTHING,
    GATEWAY,
    INTERNET,
    NAT,
    NOWHERE,
    group,
    machine,
    subnet,
    target,
    vpc,
)

TRANSIT = "198.18.0.1"
SSH = Permission("tcp", 22, 22, cidrs=("0.0.0.0/0",))


def chains(view: VpcView, cut: tuple[str, ...] = ()) -> dict[str, list[str]]:
    return chains_of(ruleset(view, TRANSIT, cut))


def chains_of(text: str) -> dict[str, list[str]]:
    """The rules of each chain, in order."""
    result = re.findall(r"^  chain (\S+) \{\n(.*?)^  \}", text, re.M | re.S)
    return {name: [line.strip() for line in body.splitlines()] for name, body in result}


def members(view: VpcView, name: str, cut: tuple[str, ...] = ()) -> set[str]:
    """The addresses of a set."""
    result = re.search(
        rf"^  set {name} \{{ type ipv4_addr;(?: elements = \{{ (.*) \}})? \}}$", ruleset(view, TRANSIT, cut), re.M
    )
    assert result, name
    return set((result[1] or "").split(", ")) - {""}


@pytest.mark.parametrize(
    "permission, rules",
    [
        (Permission("tcp", 22, 22, cidrs=("10.0.0.0/8",)), ["ip saddr 10.0.0.0/8 tcp dport 22-22 accept"]),
        (Permission("6", 22, 22, cidrs=("10.0.0.0/8",)), ["ip saddr 10.0.0.0/8 tcp dport 22-22 accept"]),
        (Permission("udp", 53, 54, cidrs=("10.1.0.0/16",)), ["ip saddr 10.1.0.0/16 udp dport 53-54 accept"]),
        (Permission("17", 53, 54, cidrs=("10.1.0.0/16",)), ["ip saddr 10.1.0.0/16 udp dport 53-54 accept"]),
        (Permission("tcp", 0, 65535, cidrs=("0.0.0.0/0",)), ["meta l4proto tcp accept"]),
        (Permission("udp", -1, -1, cidrs=("0.0.0.0/0",)), ["meta l4proto udp accept"]),
        (Permission("tcp", None, None, cidrs=("0.0.0.0/0",)), ["meta l4proto tcp accept"]),
        (Permission("icmp", -1, -1, cidrs=("0.0.0.0/0",)), ["meta l4proto icmp accept"]),
        (Permission("1", 8, 0, cidrs=("0.0.0.0/0",)), ["icmp type 8 accept"]),
        (Permission("50", None, None, cidrs=("10.0.0.1/32",)), ["ip saddr 10.0.0.1/32 meta l4proto 50 accept"]),
        (Permission("-1", None, None, cidrs=("0.0.0.0/0",)), ["accept"]),
        (
            Permission("tcp", 1, 2, cidrs=("10.1.0.0/16", "10.2.0.0/16"), groups=("sg-b",)),
            [
                "ip saddr 10.1.0.0/16 tcp dport 1-2 accept",
                "ip saddr 10.2.0.0/16 tcp dport 1-2 accept",
                "ip saddr @sg-b tcp dport 1-2 accept",
            ],
        ),
        (Permission("-1", None, None, groups=("sg-a",)), ["ip saddr @sg-a  accept"]),
        (Permission("-1", None, None, groups=("sg-elsewhere",)), []),
        (Permission("-1", None, None), []),
    ],
)
def test_a_permission_becomes_rules_and_all_else_is_dropped(permission: Permission, rules: list[str]) -> None:
    view = vpc(machine(), security_groups=(group("sg-a", permission), group("sg-b")))
    assert chains(view)["in-i-10"] == [*rules, "drop"]


def test_what_goes_out_is_asked_of_the_other_groups_rules() -> None:
    narrow = (Permission("tcp", 443, 443, cidrs=("10.9.0.0/16",)), Permission("udp", 53, 53, groups=("sg-b",)))
    view = vpc(machine(), security_groups=(group(egress=narrow), group("sg-b")))
    assert chains(view)["out-i-10"] == [
        "ip daddr 10.9.0.0/16 tcp dport 443-443 return",
        "ip daddr @sg-b udp dport 53-53 return",
        "drop",
    ]
    assert chains(vpc(machine()))["out-i-10"] == ["return", "drop"]


def test_a_machine_in_several_groups_may_what_any_of_them_says_and_in_none_nothing() -> None:
    groups = (group("sg-a", SSH), group("sg-b", EVERYTHING, egress=()))
    both = chains(vpc(machine(security_groups=("sg-a", "sg-b")), security_groups=groups))
    assert both["in-i-10"] == ["tcp dport 22-22 accept", "accept", "drop"]
    assert both["out-i-10"] == ["return", "drop"]
    none = chains(vpc(machine(security_groups=()), security_groups=groups))
    assert (none["in-i-10"], none["out-i-10"]) == (["drop"], ["drop"])


def test_a_group_stands_for_the_addresses_of_its_members() -> None:
    view = vpc(
        machine(9),
        machine(10, security_groups=("sg-b", "sg-a")),
        machine(11, security_groups=("sg-b",)),
        security_groups=(group("sg-a"), group("sg-b"), group("sg-c")),
    )
    assert members(view, "sg-a") == {"10.0.0.9", "10.0.0.10"}
    assert members(view, "sg-b") == {"10.0.0.10", "10.0.0.11"}
    assert members(view, "sg-c") == set()


def test_each_machine_is_led_to_its_own_rules() -> None:
    forward = chains(vpc(machine(10), machine(11)))["forward"]
    assert forward[0] == "type filter hook forward priority 0; policy drop;"
    assert 'iifname != "up0" ip saddr vmap { 10.0.0.10 : jump out-i-10, 10.0.0.11 : jump out-i-11 }' in forward
    assert "ip daddr vmap { 10.0.0.10 : goto in-i-10, 10.0.0.11 : goto in-i-11 }" in forward
    assert forward[-2:] == ["ip daddr 10.0.0.0/16 drop", 'iifname != "up0" oifname "up0" goto internet']
    assert not [rule for rule in chains(vpc())["forward"] if "vmap" in rule]


def test_who_is_cut_off_is_cut_off_before_anything_else() -> None:
    view = vpc(machine(10), machine(11))
    assert members(view, "cut", cut=("10.0.0.11",)) == {"10.0.0.11"}
    assert members(view, "cut") == set()
    for hook in ("forward", "input"):
        assert chains(view)[hook][1] == "ip saddr @cut drop"
    assert chains(view)["forward"][2] == "ip daddr @cut drop"


# The way out

PUBLIC = machine(10, public_ip="198.51.100.20")
PRIVATE = machine(10, subnet="subnet-private")


def test_an_internet_gateway_is_for_machines_with_a_public_address() -> None:
    result = chains(vpc(PUBLIC, machine(11)))
    assert result["internet"] == ["ip saddr 10.0.0.10 accept", "ip saddr 10.0.0.0/24 drop", "drop"]
    assert result["postrouting"][1:] == ['oifname "up0" ip saddr 10.0.0.10 snat to 198.51.100.20']
    assert result["prerouting"][1:] == ['iifname "up0" ip daddr 198.51.100.20 dnat to 10.0.0.10']


def test_a_public_address_without_an_internet_gateway_is_worth_nothing() -> None:
    for routes in ((), (NOWHERE,)):
        result = chains(vpc(PUBLIC, subnets=(subnet("subnet-public", *routes),)))
        assert not [rule for rule in result["internet"] if "accept" in rule]
        assert (result["prerouting"][1:], result["postrouting"][1:]) == ([], [])


@pytest.mark.parametrize(
    "state, home, opens",
    [
        ("available", "subnet-public", True),
        ("pending", "subnet-public", False),
        ("deleting", "subnet-public", False),
        ("available", "subnet-private", False),  # it leads back to itself
    ],
)
def test_a_nat_gateway_works_when_it_is_available_and_reaches_the_internet_itself(
    state: str, home: str, opens: bool
) -> None:
    gateway = type(GATEWAY)("nat-1", home, "198.51.100.9", state)
    subnets = (subnet("subnet-public", INTERNET), subnet("subnet-private", NAT))
    result = chains(vpc(PRIVATE, subnets=subnets, nat_gateways=(gateway,)))
    assert ("ip saddr 10.0.1.0/24 accept" in result["internet"]) == opens
    assert ('oifname "up0" ip saddr 10.0.1.0/24 snat to 198.51.100.9' in result["postrouting"]) == opens
    assert "ip saddr 10.0.1.0/24 drop" in result["internet"]


def test_the_most_specific_route_wins() -> None:
    routes = (NAT, RouteView("203.0.113.0/24", "other", "pcx-1"), RouteView("203.0.0.0/16", "internet", "igw-1"))
    subnets = (subnet("subnet-public", INTERNET), subnet("subnet-private", *routes))
    private = machine(10, subnet="subnet-private", public_ip="198.51.100.20")
    result = chains(vpc(private, subnets=subnets, nat_gateways=(GATEWAY,)))
    assert result["internet"][1:] == [
        "ip saddr 10.0.1.0/24 ip daddr 203.0.113.0/24 drop",
        "ip saddr 10.0.1.10 ip daddr 203.0.0.0/16 accept",
        "ip saddr 10.0.1.0/24 ip daddr 203.0.0.0/16 drop",
        "ip saddr 10.0.1.0/24 accept",
        "ip saddr 10.0.1.0/24 drop",
        "drop",
    ]
    assert result["postrouting"][1:] == [
        'oifname "up0" ip saddr 10.0.1.10 ip daddr 203.0.0.0/16 snat to 198.51.100.20',
        'oifname "up0" ip saddr 10.0.1.0/24 snat to 198.51.100.9',
    ]


S3 = "ip saddr 10.0.1.0/24 ip daddr 198.51.100.1 tcp dport 443"


@pytest.mark.parametrize("routes", [(), (NOWHERE,), (INTERNET,), (RouteView("10.9.0.0/16", "other", "pcx-1"),)])
def test_an_s3_endpoint_is_a_way_where_there_is_no_other(routes: tuple[RouteView, ...]) -> None:
    subnets = (subnet("subnet-private", *routes, s3_endpoint=True),)
    result = chains(vpc(PRIVATE, subnets=subnets))
    assert result["internet"][0] == f"{S3} accept"
    assert result["postrouting"][-1] == f'oifname "up0" {S3} snat to {TRANSIT}'
    assert len([rule for rule in result["internet"] if "accept" in rule]) == 1


def test_beside_a_nat_gateway_an_s3_endpoint_leaves_the_way_to_it() -> None:
    subnets = (subnet("subnet-public", INTERNET), subnet("subnet-private", NAT, s3_endpoint=True))
    result = chains(vpc(PRIVATE, subnets=subnets, nat_gateways=(GATEWAY,)))
    assert result["postrouting"][1] == 'oifname "up0" ip saddr 10.0.1.0/24 snat to 198.51.100.9'


# What answers inside


def test_mount_targets_answer_on_their_port_to_whom_both_sides_let() -> None:
    nfs = Permission("tcp", 2049, 2049, groups=("sg-a",))
    view = vpc(
        machine(),
        security_groups=(group(), group("sg-efs", nfs)),
        mount_targets=(target(200), target(201, state="creating")),
    )
    result = chains(view)
    assert result["in-fsmt-200"] == ["ip saddr @sg-a tcp dport 2049-2049 accept", "drop"]
    assert result["input"][-4:] == [
        "ip daddr != { 10.0.1.200 } drop",
        "tcp dport != 2049 drop",
        "ip saddr vmap { 10.0.0.10 : jump out-i-10 }",
        "ip daddr vmap { 10.0.1.200 : goto in-fsmt-200 }",
    ]


def test_metadata_and_names_are_there_whatever_the_groups_say_and_nothing_else_is() -> None:
    rules = chains(vpc(machine(security_groups=())))["input"]
    assert rules[0] == "type filter hook input priority 0; policy drop;"
    assert [rule for rule in rules if rule.endswith("accept")] == [
        "ct state established,related accept",
        'iifname "lo" accept',
        "ip daddr 169.254.169.254 tcp dport 80 accept",
        "ip daddr 169.254.169.253 meta l4proto { tcp, udp } th dport 53 accept",
        "icmp type echo-request accept",
    ]
    assert 'iifname "up0" drop' in rules[: rules.index("ip daddr 169.254.169.254 tcp dport 80 accept")]


# The host


def test_a_host_that_routed_nothing_routes_for_machines_alone() -> None:
    assert chains_of(host_rules(machines_only=True))["forward"] == [
        "type filter hook forward priority 0; policy accept;",
        'iifname "lc-*" accept',
        'oifname "lc-*" ct state established,related accept',
        "drop",
    ]


def test_frames_within_a_bridge_of_the_host_are_not_routed_and_pass() -> None:
    rules = chains_of(host_rules(machines_only=True, bridges=("virbr0", "br-lan")))["forward"]
    assert rules[-3:] == [
        'iifname "virbr0" oifname "virbr0" accept',
        'iifname "br-lan" oifname "br-lan" accept',
        "drop",
    ]


def test_a_host_that_routed_already_goes_on_for_everybody() -> None:
    limited = chains_of(host_rules(machines_only=True))
    del limited["forward"]
    assert chains_of(host_rules(machines_only=False)) == limited


# nft itself


def nft(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """In a network namespace of its own: it looks at its text nowhere else without root."""
    return subprocess.run(
        ["unshare", "--map-root-user", "--net", "nft", *words], input=text, capture_output=True, text=True
    )


# Not every machine has nft, or gives namespaces to everybody. There, the integration tests try the same in earnest.
if shutil.which("nft") and shutil.which("unshare") and nft("list", "tables").returncode == 0:

    @pytest.mark.parametrize("full", [False, True])
    def test_nft_takes_it(full: bool) -> None:
        words = (
            ("tcp", 22, 22), ("udp", 1, 65535), ("6", None, None), ("icmp", -1, -1), ("icmp", 8, 0), ("50", None, None),
            ("58", -1, -1), ("icmpv6", -1, -1), ("-1", None, None),
        )  # fmt: skip
        permissions = [Permission(*each, cidrs=("0.0.0.0/0", "10.1.0.0/16"), groups=("sg-a", "sg-b")) for each in words]
        groups = (group("sg-a", *permissions, egress=tuple(permissions)), group("sg-b"), group("sg-efs", SSH))
        view = vpc(
            PUBLIC,
            machine(11, subnet="subnet-private", security_groups=("sg-a", "sg-b")),
            subnets=(subnet("subnet-public", INTERNET), subnet("subnet-private", NAT, NOWHERE, s3_endpoint=True)),
            security_groups=groups,
            nat_gateways=(GATEWAY,),
            mount_targets=(target(200), target(201), target(202, state="creating")),
        )
        text = ruleset(view, TRANSIT, cut=("10.0.0.10",)) if full else ruleset(vpc(), TRANSIT)
        done = nft("--check", "--file", "-", text=text)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("machines_only", [False, True])
    def test_nft_takes_the_rules_of_the_host(machines_only: bool) -> None:
        done = nft("--check", "--file", "-", text=host_rules(machines_only, bridges=("virbr0",)))
        assert done.returncode == 0, done.stderr
