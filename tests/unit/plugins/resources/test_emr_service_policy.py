"""The role of EMR's service allows what AWS's own policy allows, for the cluster alone, except what it cannot need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from moto.iam.aws_managed_policies import aws_managed_policies_data

from tests.unit.plugins.resources.emr_policy_kit import ACCOUNT, EC2, MARKED, MARKING, allowed
from tests.unit.plugins.resources.emr_service_policy import DATE, VERSION, Permission, permissions, reason_to_lack

TAG = "for-use-with-amazon-emr-managed-policies"


def published() -> Iterator[Permission]:
    for statement in AWS["Document"]["Statement"]:
        conditions = (statement.get("Condition") or {}).get("StringEquals") or {}
        tags = [way.lower() for way in ("Resource", "Request") if f"aws:{way}Tag/{TAG}" in conditions]
        creates = conditions.get("ec2:CreateAction") or [""]
        for action in listed(statement["Action"]):
            for resource in listed(statement["Resource"]):
                for create in listed(creates):
                    yield Permission(action, kind_of(resource), "".join(tags), create)


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value


def kind_of(resource: str) -> str:
    """Return a role's name, and the kind of other resources."""
    kind, _, name = re.sub(r"^arn:[^:]+:[^:]+:[^:]*:[^:]*:", "", resource).replace("alarm:", "alarm/").partition("/")
    return name if kind == "role" else kind


AWS = json.loads(aws_managed_policies_data)["AmazonEMRServicePolicy_v2"]


def test_the_facts_are_those_of_the_published_policy() -> None:
    assert (AWS["DefaultVersionId"], AWS["UpdateDate"][:10]) == (VERSION, DATE), (
        "compare the facts with the new version"
    )
    assert set(permissions()) == set(published())


RESOURCES = {
    "*": f"{EC2}:any/x-1",
    "image": "arn:aws:ec2:us-east-1::image/ami-1",
    # A new one, whose ARN ends with a plain `*` in the request.
    "network-interface": f"{EC2}:network-interface/*",
    "placement-group": f"{EC2}:placement-group/EMR_1",
    "group": f"arn:aws:resource-groups:us-east-1:{ACCOUNT}:group/x",
    "alarm": f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:alarm:x_EMR_Auto_Scaling",
    "EMR_AutoScaling_DefaultRole": f"arn:aws:iam::{ACCOUNT}:role/red-us-east-1-scaling",
    "EMR_EC2_DefaultRole": f"arn:aws:iam::{ACCOUNT}:role/red-us-east-1-node",
}


def is_allowed(permission: Permission) -> bool:
    """Return whether the role has it for what bears the cluster's tag, in place of EMR's. EMR gives the tags of the
    cluster to all that it creates."""
    context = dict(MARKED) if permission.tag == "resource" else {}
    if permission.tag == "request" or permission.create:
        context |= MARKING
    if permission.create:
        context["ec2:CreateAction"] = permission.create
    if permission.action == "iam:PassRole":
        context["iam:PassedToService"] = "ec2.amazonaws.com"
    is_list = permission.kind == "*" and ":Describe" in permission.action
    resource = "*" if is_list else RESOURCES.get(permission.kind, f"{EC2}:{permission.kind}/x-1")
    return allowed("emr", permission.action, resource, context)


@pytest.mark.parametrize("lacking", [False, True], ids=["has", "lacks"])
def test_the_role_lacks_only_what_there_is_a_reason_for(lacking: bool) -> None:
    expected = {each for each in permissions() if bool(reason_to_lack(each)) is lacking}
    assert expected
    assert {each for each in expected if is_allowed(each) is lacking} == set()
