"""An operator with the documented policies, in a network and with a file system that no cluster has made: what else
they need is what docs/iam.md lists."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.account.documented import Log, listed, person_of, play
from tests.account.fleet import given_network, wait_for_file_system
from tests.account.kit import CLOUD_HALF
from tests.account.operators import ACCOUNT, MINE, PERSON, REFUSALS, REGION, ROOT, ZONE

FILE_SYSTEMS = ["with a mount target", "without a mount target", "of the cluster"]
HEADING = "### A network and a file system of your own"


def documented_statements(names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the statements of the page by their Sid, filled in."""
    section = (ROOT / "docs/iam.md").read_text(encoding="utf-8").split(HEADING)[1]
    block = re.search(r"```json\n(.*?)```", section, re.DOTALL)
    assert block is not None
    text = re.sub(r"<([\w-]+)>", lambda match: names[match[1]], block[1])
    return {statement["Sid"]: statement for statement in json.loads(text)["Statement"]}


def network_of_ones_own(account: Any) -> dict[str, str]:
    """Create a network, a security group and a file system as their owner would. Return the placeholders' values."""
    network = given_network(account.client("ec2"))
    system = account.client("efs").create_file_system(CreationToken="own")["FileSystemId"]
    wait_for_file_system(account.client("efs"), system)
    return {
        "region": REGION,
        "account": ACCOUNT,
        "vpc": network["vpc"],
        "public-subnet": network["public"],
        "private-subnet": network["private"],
        "security-group": network["group"],
        "file-system": system,
    }


@pytest.fixture
def names(account: Any) -> dict[str, str]:
    return network_of_ones_own(account)


def needs_of(account: Any) -> set[tuple[str, str]]:
    """Return the actions and resources that the operator's calls needed."""
    needs: set[tuple[str, str]] = set()
    for call in Log(account).calls():
        needs.update((need["action"], need["resource"]) for need in call["required"])
    return needs


@pytest.mark.long
def test_the_documented_actions_are_those_that_are_needed(account: Any, names: dict[str, str]) -> None:
    person = person_of(account)
    statements = documented_statements(names)
    document = json.dumps({"Version": "2012-10-17", "Statement": list(statements.values())})
    account.client("iam").put_user_policy(UserName=PERSON, PolicyName="own-network", PolicyDocument=document)
    person.settings |= {
        "cluster_availability_zones": [ZONE],
        "cluster_worker_count": 1,
        "cluster_spot": False,
        "cluster_efs_tls": False,
        "cluster_vpc_id": names["vpc"],
        "cluster_public_subnet_ids": [names["public-subnet"]],
        "cluster_private_subnet_ids": [names["private-subnet"]],
        "cluster_security_group_ids": [names["security-group"]],
    }
    efs = account.client("efs")
    for kind in FILE_SYSTEMS:
        if kind == "with a mount target":
            target = efs.create_mount_target(
                FileSystemId=names["file-system"],
                SubnetId=names["private-subnet"],
                SecurityGroups=[names["security-group"]],
            )["MountTargetId"]
        own = {} if kind == "of the cluster" else {"cluster_efs_id": names["file-system"]}
        play(person, CLOUD_HALF, **own)
        play(person, "destroy.yml", destroy=MINE, cluster_keep_efs=False, **own)
        if kind == "with a mount target":
            efs.delete_mount_target(MountTargetId=target)
    documented: set[str] = set()
    for statement in statements.values():
        documented.update(listed(statement["Resource"]))
    assert refused_on(account, documented) == []

    needed = needs_of(account)
    unneeded: list[str] = []
    for sid, statement in statements.items():
        for action in listed(statement["Action"]):
            if not needed_on(action, listed(statement["Resource"]), needed):
                unneeded.append(f"{sid}: {action}")
    assert unneeded == []


def refused_on(account: Any, resources: set[str]) -> list[str]:
    """Return the refused calls that needed one of these resources. A call on the cluster's own new resources may be
    refused once, as their tags count late."""
    refused: list[str] = []
    for call in Log(account).calls():
        names = {need["resource"] for need in call["required"]}
        if call["result"] in REFUSALS and names & resources:
            refused.append(f"{call['operation']}: {call['result']}")
    return refused


def needed_on(action: str, resources: list[str], needed: set[tuple[str, str]]) -> bool:
    return any((action, resource) in needed for resource in resources)
