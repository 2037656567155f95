"""Duplicates of NAT gateways and addresses: which may be deleted, and what is said about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import tag_list
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import duplicates
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts

from tests.unit.plugins.plan.facts_kit import FACTS, cluster

FIRST, SECOND, THIRD = (f"nat-0123456789abcdef{number}" for number in range(3))
ONE, TWO, THREE, FOUR = (f"eipalloc-0123456789abcdef{number}" for number in range(4))


def gateway(gateway_id: str, address: str = "", state: str = "available") -> dict[str, Any]:
    held = [{"AllocationId": address}] if address else []
    return {
        "NatGatewayId": gateway_id,
        "State": state,
        "VpcId": "vpc-0123456789abcdef0",
        "CreateTime": f"2026-11-20T10:00:0{gateway_id[-1]}+00:00",
        "NatGatewayAddresses": held,
    }


def address(address_id: str, what: str = "nat", **association: str) -> dict[str, Any]:
    public_ip = f"198.51.100.{address_id[-1]}"
    tags = tag_list({"Name": f"red-{what}", "deeplearning:cluster": "red"})
    return {"AllocationId": address_id, "PublicIp": public_ip, "Tags": tags, **association}


def table(table_id: str, *gateways: str) -> dict[str, Any]:
    local = {"GatewayId": "local", "DestinationCidrBlock": "10.0.0.0/16"}
    routes = [{"NatGatewayId": gateway_id, "DestinationCidrBlock": "0.0.0.0/0"} for gateway_id in gateways]
    return {"RouteTableId": table_id, "Routes": [local, *routes]}


def facts(
    gateways: Sequence[Any] = (),
    addresses: Sequence[Any] = (),
    tables: Sequence[Any] = (),
    existing: Sequence[str] = (),
) -> AccountFacts:
    return replace(
        FACTS,
        nat_gateways=list(gateways),
        addresses=list(addresses),
        nat_route_tables=list(tables),
        existing_duplicates=frozenset(existing),
    )


TWO_RUNS = facts(
    [gateway(FIRST, ONE), gateway(SECOND, TWO)],
    [address(ONE, AssociationId="a"), address(TWO, AssociationId="b"), address(THREE), address(FOUR, "master")],
    [table("rtb-1", SECOND), table("rtb-2")],
    [FIRST, SECOND, ONE, TWO, THREE, FOUR],
)
"""What two runs of site.yml leave: the second NAT gateway has the routes."""


@pytest.mark.parametrize(
    ("observed", "named", "suggested"),
    [
        pytest.param(TWO_RUNS, [], [FIRST, ONE, THREE], id="one is used"),
        pytest.param(
            facts([gateway(FIRST, ONE)], [address(ONE, AssociationId="a"), address(FOUR, "master")]), [], [], id="none"
        ),
        pytest.param(
            facts([gateway(FIRST, ONE)], [address(ONE, AssociationId="a"), address(TWO)]), [], [TWO], id="an address"
        ),
        pytest.param(
            facts([gateway(FIRST, ONE), gateway(SECOND, TWO)], [address(ONE), address(TWO)]),
            [],
            [SECOND, TWO],
            id="no routes yet: the oldest stays",
        ),
        pytest.param(
            facts([gateway(FIRST, ONE), gateway(SECOND, TWO)], [address(ONE), address(TWO)]),
            [FIRST, ONE],
            [FIRST, ONE],
            id="no routes yet: the operator's choice",
        ),
        pytest.param(
            facts([gateway(FIRST, ONE), gateway(SECOND, TWO, "deleting")], [address(ONE), address(TWO)]),
            [],
            [TWO],
            id="interrupted while the NAT gateway was deleted",
        ),
        pytest.param(
            facts([gateway(FIRST, ONE), gateway(SECOND, TWO, "deleted")], [address(ONE), address(TWO)]),
            [],
            [TWO],
            id="interrupted before the address was released",
        ),
        pytest.param(
            facts([gateway(FIRST, ONE), gateway(SECOND, state="failed")], [address(ONE)]), [], [], id="one has failed"
        ),
        pytest.param(
            facts(addresses=[address(ONE, "master", InstanceId="i-1"), address(TWO, "master")]),
            [],
            [TWO],
            id="two addresses of the master",
        ),
        pytest.param(
            facts(addresses=[address(ONE), address(TWO, NetworkInterfaceId="eni-1")]),
            [],
            [ONE],
            id="an interface of others uses one",
        ),
        pytest.param(facts(addresses=[address(ONE), address(TWO)]), [], [TWO], id="nothing uses the addresses"),
        pytest.param(
            facts([gateway(FIRST, ONE), gateway(SECOND, TWO)], tables=[table("rtb-1", FIRST), table("rtb-2", SECOND)]),
            [],
            [],
            id="both are used",
        ),
        pytest.param(
            facts(
                [gateway(FIRST, ONE), gateway(SECOND, TWO), gateway(THIRD, THREE)],
                [address(ONE), address(TWO), address(THREE)],
                [table("rtb-1", FIRST), table("rtb-2", SECOND)],
            ),
            [],
            [THIRD, THREE],
            id="two of three are used",
        ),
        pytest.param(
            facts([gateway("nat-1; reboot", ONE), gateway(FIRST, TWO)], [address(TWO)]), [], [], id="no id of AWS"
        ),
    ],
)
def test_only_what_nothing_uses_may_be_deleted(
    observed: AccountFacts, named: Sequence[str], suggested: Sequence[str]
) -> None:
    decision = duplicates.decide(observed, cluster(), named)
    assert [duplicate.id for duplicate in decision.suggested] == suggested


def problems(observed: AccountFacts, *named: str, **settings: Any) -> list[str]:
    return [finding.text for finding in duplicates.check(observed, cluster(**settings), named) if finding.is_problem]


def notes(observed: AccountFacts, *named: str) -> list[str]:
    return [finding.text for finding in duplicates.check(observed, cluster(), named) if not finding.is_problem]


def test_without_consent_the_plan_names_them_with_prices_and_the_option() -> None:
    (problem,) = problems(TWO_RUNS)
    assert f"NAT gateway {FIRST} (0.045 USD an hour), Elastic IP address {ONE} (198.51.100.0, 0.005 USD an" in problem
    assert f"ansible-playbook deeplearning.aws.site -e remove_duplicates={FIRST},{ONE},{THREE}. To look" in problem
    assert f"aws ec2 describe-nat-gateways --region us-east-1 --nat-gateway-ids {FIRST}; aws ec2 " in problem
    assert f"describe-addresses --region us-east-1 --allocation-ids {ONE} {THREE}." in problem
    assert "None of the" not in problem
    assert duplicates.to_remove(TWO_RUNS, cluster(), [])["lines"] == []


def test_with_consent_they_are_handed_to_the_role() -> None:
    named = [FIRST, ONE, THREE]
    assert problems(TWO_RUNS, *named) == [] and notes(TWO_RUNS, *named) == []
    assert duplicates.to_remove(TWO_RUNS, cluster(), named) == {
        "nat_gateways": [FIRST],
        "addresses": [{"id": ONE, "public_ip": "198.51.100.0"}, {"id": THREE, "public_ip": "198.51.100.2"}],
        "lines": [
            f"NAT gateway {FIRST} (0.045 USD an hour)",
            f"Elastic IP address {ONE} (198.51.100.0, 0.005 USD an hour)",
            f"Elastic IP address {THREE} (198.51.100.2, 0.005 USD an hour)",
        ],
    }


@pytest.mark.parametrize(
    ("named", "names", "allowed"),
    [
        pytest.param([SECOND], SECOND, f"{FIRST}, {ONE}, {THREE}", id="used by a route"),
        pytest.param([FIRST, ONE, THREE, FOUR], FOUR, f"{FIRST}, {ONE}, {THREE}", id="no duplicate"),
        pytest.param([TWO], TWO, f"{FIRST}, {ONE}, {THREE}", id="used by the NAT gateway"),
    ],
)
def test_other_ids_are_refused_with_the_list(named: Sequence[str], names: str, allowed: str) -> None:
    (problem,) = problems(TWO_RUNS, *named)
    assert problem.startswith(f"remove_duplicates names {names}, and only duplicates that nothing uses can be deleted")
    assert f": {allowed}. Nothing was deleted." in problem


def test_one_of_each_kind_stays() -> None:
    unused = facts(addresses=[address(ONE), address(TWO)], existing=[ONE, TWO])
    (problem,) = problems(unused, ONE, TWO)
    assert problem.startswith(f"remove_duplicates names {ONE}, and only")
    (problem,) = problems(unused)
    assert f"None of the Elastic IP addresses called red-nat is used ({ONE}, {TWO}): {ONE} would stay." in problem
    assert problems(unused, ONE) == [] and problems(unused, TWO) == []


def test_some_of_them_are_not_enough() -> None:
    (problem,) = problems(TWO_RUNS, FIRST, ONE)
    assert f"-e remove_duplicates={FIRST},{ONE},{THREE}" in problem


def test_ids_that_are_gone_do_no_harm_so_that_an_interrupted_run_can_be_repeated() -> None:
    repaired = facts([gateway(SECOND, TWO)], [address(TWO)], existing=[])
    assert problems(repaired, FIRST, ONE) == []
    assert notes(repaired, FIRST) == [f"remove_duplicates names {FIRST}, which does not exist any more."]
    single = facts([gateway(SECOND, TWO)], [address(TWO)], existing=[SECOND])
    assert problems(single, SECOND) == [
        f"remove_duplicates names {SECOND}, and only duplicates that nothing uses can be deleted, as long as one of "
        "each kind stays: none. Nothing was deleted."
    ]


def test_where_several_are_used_the_sentence_says_what_to_do() -> None:
    both = facts([gateway(FIRST), gateway(SECOND)], tables=[table("rtb-1", FIRST), table("rtb-2", SECOND)])
    (problem,) = problems(both)
    assert f"more than one of them is used: {FIRST} (route table rtb-1), {SECOND} (route table rtb-2)." in problem
    assert "aws ec2 replace-route --region us-east-1" in problem
    (problem,) = problems(
        facts(addresses=[address(ONE, "master", InstanceId="i-1"), address(TWO, "master", NetworkInterfaceId="eni-2")])
    )
    assert f"is used: {ONE} (instance i-1), {TWO} (network interface eni-2)." in problem
    assert f"aws ec2 describe-addresses --region us-east-1 --allocation-ids {ONE} {TWO}" in problem


def test_nat_gateways_in_a_vpc_of_the_users_own_are_theirs() -> None:
    subnets = {"public_subnet_ids": ["subnet-0123456789abcdef0"], "private_subnet_ids": ["subnet-0123456789abcdef1"]}
    two = facts([gateway(FIRST), gateway(SECOND)])
    assert problems(two, vpc_id="vpc-0123456789abcdef0", **subnets) == []
    assert len(problems(two)) == 1


def test_a_second_vpc_is_never_deleted() -> None:
    vpcs = [{"VpcId": "vpc-2"}, {"VpcId": "vpc-1"}]
    (problem,) = problems(replace(FACTS, vpcs=vpcs))
    assert problem.startswith("The VPCs vpc-1, vpc-2 all have this cluster's tag and name, and site.yml never deletes")
    assert "aws ec2 describe-network-interfaces --region us-east-1 --filters Name=vpc-id,Values=vpc-1,vpc-2" in problem
    assert "destroy.yml would delete all of them" in problem
