"""An operator with the documented policies lets Auto Scaling replace a node. No machine boots."""

from __future__ import annotations

import json

import pytest

from tests.account.fleet import Fleet, fleet, wait_until
from tests.account.kit import Account
from tests.account.operators import operator

PLAYBOOK = "playbooks/replace.yml"


@pytest.fixture
def red(account: Account) -> Fleet:
    """A master and two workers."""
    inventory = account.folder / "red.deeplearning.yml"
    inventory.write_text(
        json.dumps({"plugin": "deeplearning.aws.cluster", "cluster": "red", "folder": str(account.folder)})
    )
    account.environment.update(ANSIBLE_INVENTORY=str(inventory))
    red = fleet(account, "red", 2)
    red.rank()
    return red


def ids(red: Fleet, kind: str) -> set[str]:
    return {str(machine["InstanceId"]) for machine in red.machines(kind)}


def test_a_node_is_replaced_by_another_machine_and_nothing_else_changes(red: Fleet) -> None:
    master, before, bad = ids(red, "master"), ids(red, "workers"), red.id(3)
    person = operator(red.account)
    for node, problem in (
        ("deeplearning-worker9", "(account 123456789012) has no such machine: its nodes are deeplearning-master, "),
        ("deeplearning-worker3", f"give the id of the one in the cluster red. Example: -e node={bad}"),
    ):
        refused = person.play(PLAYBOOK, node=node)
        assert refused.code == 2 and ids(red, "workers") == before
        words = " ".join(refused.output.split())
        assert f"node is {node}, and " in words and problem in words, words

    planned = person.play(PLAYBOOK, "--check", node=bad)
    assert (planned.code, planned.changed) == (0, 1), planned.output[-4000:]
    consequence = "would be terminated, and the group red-workers launches another machine in its place."
    assert f"{bad} (deeplearning-worker3) {consequence}" in " ".join(planned.output.split()), planned.output
    assert not person.writes(planned.started[0]) and ids(red, "workers") == before

    ran = person.play(PLAYBOOK, node=bad)
    assert f"{bad} (deeplearning-worker3) is terminated, and" in " ".join(ran.output.split()), ran.output
    assert (ran.code, ran.changed) == (0, 1), ran.output[-4000:]
    wait_until(lambda: bad not in ids(red, "workers") and len(ids(red, "workers")) == 2)
    assert before - {bad} < ids(red, "workers") and ids(red, "master") == master
    (group,) = red.account.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=["red-workers"])[
        "AutoScalingGroups"
    ]
    assert group["DesiredCapacity"] == 2

    # Who gives the same again replaces nothing else.
    assert person.play(PLAYBOOK, node=bad).code == 2
    assert person.play(PLAYBOOK, node=red.id(1)).code == 0
    wait_until(lambda: not ids(red, "master") & master and len(ids(red, "master")) == 1)
