"""Failed modules of amazon.aws: which are repeated, and how the others are explained."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.deeplearning.aws.plugins.filter.core import failure_reason, missing_service
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import refusal
from ansible_collections.deeplearning.aws.plugins.test.core import failed_denied, failed_not_found

ROOT = Path(__file__).resolve().parents[4]


def failed(code: str, words: str = "It does not exist", operation: str = "CreateSubnet") -> dict[str, Any]:
    message = f"Failed to do it: An error occurred ({code}) when calling the {operation} operation: {words}"
    return {"failed": True, "msg": message, "error": {"code": code, "message": words}}


def without_error(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "error"}


@pytest.mark.parametrize(
    ("result", "repeats"),
    [
        (failed("InvalidVpcID.NotFound"), True),
        (without_error(failed("InvalidVpcID.NotFound")), True),
        (failed("NatGatewayNotFound"), True),
        (failed("VpcLimitExceeded"), False),
        (without_error(failed("VpcLimitExceeded", "no VPC: NotFound")), False),
        ({"failed": True, "results": [{"msg": "fine"}, failed("InvalidVpcID.NotFound")]}, True),
        ({"failed": True, "results": [failed("VpcLimitExceeded"), failed("InvalidVpcID.NotFound")]}, False),
        ({"failed": True, "msg": "Task failed: Module failed: list index out of range"}, True),
        ({"failed": True, "msg": "Task failed: Module failed: 'NoneType' object has no attribute 'items'"}, True),
        ({"failed": True, "msg": "Failed to modify subnet"}, True),
        ({"failed": True, "msg": "No auto scaling group found with the name red-master"}, True),
        (failed("InvalidLaunchTemplateName.NotFoundException"), True),
        ({"failed": True, "msg": "It is late"}, False),
        ({"changed": True, "msg": "An error occurred (InvalidVpcID.NotFound)"}, False),
    ],
)
def test_only_what_is_not_found_counts(result: dict[str, Any], repeats: bool) -> None:
    assert failed_not_found(result) is repeats


DENIED = (
    "You are not authorized to perform this operation. User: arn:aws:iam::1:user/eve is not authorized to perform: "
    "ec2:CreateVpc on resource: arn:aws:ec2:us-east-1:1:vpc/* because no identity-based policy allows it"
)

SCP = "with an explicit deny in a service control policy"
LIMITED = DENIED.replace("because no identity-based policy allows it", SCP)


@pytest.mark.parametrize(
    ("result", "denied"),
    [
        (failed("UnauthorizedOperation", DENIED, "CreateVpc"), True),
        (without_error(failed("UnauthorizedOperation", DENIED, "CreateVpc")), True),
        (failed("AccessDeniedException"), True),
        ({"failed": True, "msg": "AWS does not allow ec2:CreateTags to these credentials: give it"}, True),
        ({"failed": True, "results": [{"msg": "fine"}, failed("AccessDenied")]}, True),
        (
            {
                "failed": True,
                "msg": "Unable to authorize ingress rules: []: Failed to authorize security group ingress",
            },
            True,
        ),
        ({"failed": True, "msg": "Unable to revoke egress rules: []: Failed to revoke security group egress"}, True),
        # No tag that counts later helps against these.
        (failed("UnauthorizedOperation", LIMITED, "CreateVpc"), False),
        (without_error(failed("UnauthorizedOperation", LIMITED, "CreateVpc")), False),
        ({"failed": True, "msg": f"AWS does not allow ec2:CreateTags to these credentials, {SCP}: a"}, False),
        (failed("AccessDenied", "no session policy: because no session policy allows the ec2:CreateVpc action"), False),
        (failed("InvalidVpcID.NotFound"), False),
        ({"failed": True, "msg": "It is late"}, False),
        ({"changed": True, "msg": "An error occurred (AccessDenied)"}, False),
    ],
)
def test_what_is_denied(result: dict[str, Any], denied: bool) -> None:
    assert failed_denied(result) is denied


def tasks_of(name: str) -> Any:
    path = str(ROOT / "playbooks/tasks/provision" / name)
    return DataLoader().load_from_file(path, trusted_as_template=True)


def attempts(result: dict[str, Any], seconds: float, facts: dict[str, Any] | None = None, now: float = 1000) -> int:
    """Return how often provision attempts a task that always fails so, and each time after so many seconds. It reads
    and sets the facts."""
    loader = DataLoader()
    (whole,) = tasks_of("resources.yml")
    facts = {} if facts is None else facts
    record, fail, pause = (
        next(task for task in whole["rescue"] if words in task["name"])
        for words in ("Record which resource", "Fail unless", "Wait until AWS shows")
    )
    variables: dict[str, Any] = {"ansible_failed_result": result, "ansible_failed_task": {"name": "Create it"}}
    for count in range(1, 100):
        variables["now"] = lambda now=now: datetime.fromtimestamp(now)
        templar = Templar(loader, variables | facts)
        if templar.evaluate_conditional(trust_as_template(record["when"])):
            facts |= templar.template(record["ansible.builtin.set_fact"])
        templar = Templar(loader, variables | facts)
        if templar.evaluate_conditional(trust_as_template(fail["when"])):
            return count
        now += float(templar.template(pause["ansible.builtin.pause"]["seconds"])) + seconds
    return 0


@pytest.mark.parametrize("seconds", [0, 20])
def test_a_denied_task_is_tried_once_more(seconds: float) -> None:
    """Tags of a new resource count late for policies by tags: hashicorp/terraform-provider-aws#6055 and #32966."""
    assert attempts(failed("UnauthorizedOperation", DENIED, "CreateSubnet"), seconds) == 2
    assert attempts(failed("VpcLimitExceeded"), seconds) == 1
    assert attempts(failed("UnauthorizedOperation", LIMITED, "CreateSubnet"), seconds) == 1
    assert attempts(failed("InvalidVpcID.NotFound"), seconds) > 2


def test_a_task_that_was_denied_in_one_zone_has_its_second_attempt_in_the_next() -> None:
    denied, facts = failed("UnauthorizedOperation", DENIED, "CreateSubnet"), dict[str, Any]()
    assert attempts(denied, 0, facts) == 2
    set_facts = [
        task["ansible.builtin.set_fact"] for task in tasks_of("next_zone.yml") if "ansible.builtin.set_fact" in task
    ]
    (new,) = set_facts
    facts |= {name: value for name, value in new.items() if name in facts}
    assert attempts(denied, 0, facts, now=5000) == 2


def sentence(code: str, action: str) -> dict[str, Any]:
    """Return the failure of a module of the collection."""
    return {"failed": True, "msg": str(refusal(code, "It is not available here", action))}


NO_EFS = sentence("UnsupportedAvailabilityZone", "elasticfilesystem:CreateMountTarget")


@pytest.mark.parametrize(
    ("result", "service"),
    [
        (NO_EFS, "EFS"),
        (failed("NotAvailableInZone", operation="CreateNatGateway"), "NAT gateways"),
        (without_error(failed("NotAvailableInZone", operation="CreateNatGateway")), "NAT gateways"),
        (sentence("NotAvailableInZone", "ec2:CreateNatGateway"), "NAT gateways"),
        (sentence("NoFreeAddressesInSubnet", "elasticfilesystem:CreateMountTarget"), ""),
        (failed("NatGatewayLimitExceeded", "It is NotAvailableInZone", "CreateNatGateway"), ""),
        ({"failed": True}, ""),
        ({"changed": True, "msg": "It was refused before (NotAvailableInZone)"}, ""),
    ],
)
def test_a_service_that_the_zone_lacks_is_named(result: dict[str, Any], service: str) -> None:
    assert missing_service(result) == service


LACKS_CAPACITY = {"failed": True, "msg": "AWS has no capacity for 2 of red-workers", "elsewhere": True}
LATE = {"failed": True, "msg": "2 of red-workers did not come in time", "elsewhere": False}


@pytest.mark.parametrize(
    ("result", "left", "zone", "emr", "problem"),
    [
        (LACKS_CAPACITY, ["a", "b"], "a", {}, None),
        (NO_EFS, ["a", "b"], "a", {}, None),
        # An interrupted run has left its subnets in another zone than those of the settings.
        (NO_EFS, ["b"], "a", {}, None),
        (NO_EFS, ["a"], "a", {}, "AWS has no EFS in the zone a: name other zones with cluster_availability_zones."),
        (LACKS_CAPACITY, ["a"], "a", {}, LACKS_CAPACITY["msg"]),
        (LATE, ["a", "b"], "a", {}, LATE["msg"]),
        (failed("VpcLimitExceeded"), ["a", "b"], None, {}, "Failed to do it"),
        (NO_EFS, ["a", "b"], "a", {"emr": True, "exists": False}, None),
        # Its machines would be removed with the zone.
        (NO_EFS, ["a", "b"], "a", {"emr": True, "exists": True}, "AWS has no EFS in the zone a"),
    ],
)
def test_another_zone_is_tried_if_it_may_have_what_is_missing(
    result: dict[str, Any], left: list[str], zone: str | None, emr: dict[str, bool], problem: str | None
) -> None:
    (whole,) = tasks_of("zone.yml")
    fail, further = whole["rescue"]
    assert further["ansible.builtin.include_tasks"] == "next_zone.yml"
    variables = {
        "ansible_failed_result": result,
        "ansible_failed_task": {"name": "Create it", "action": "ansible.builtin.fail"},
        "zones_left": left,
        "checked": {"emr": emr.get("emr", False)},
        "cluster_plan": {"exists": emr.get("exists", True)},
        **({"network_result": {"zone": zone}} if zone else {}),
    }
    templar = Templar(DataLoader(), variables | fail["vars"])
    assert templar.evaluate_conditional(trust_as_template(fail["when"])) is (problem is not None)
    if problem:
        assert templar.template(fail["ansible.builtin.fail"]["msg"]).startswith(problem)


@pytest.mark.parametrize(
    ("result", "action", "reason"),
    [
        (
            failed("UnauthorizedOperation", DENIED, "CreateVpc"),
            "amazon.aws.ec2_vpc_net",
            "AWS does not allow ec2:CreateVpc on arn:aws:ec2:us-east-1:1:vpc/* to arn:aws:iam::1:user/eve: give it "
            "this permission (see docs/iam.md).",
        ),
        # AWS may name neither the action nor who asks.
        (
            failed("UnauthorizedOperation", "You are not authorized to perform this operation.", "CreateVpc"),
            "amazon.aws.ec2_vpc_net",
            "AWS does not allow ec2:CreateVpc to these credentials: give it this permission (see docs/iam.md).",
        ),
        (
            failed("AccessDenied", "Access Denied", "HeadBucket"),
            "amazon.aws.s3_bucket",
            "AWS does not allow s3:ListBucket to these credentials: give it this permission (see docs/iam.md).",
        ),
        (
            failed("AddressLimitExceeded", "The maximum number of addresses has been reached.", "AllocateAddress"),
            "amazon.aws.ec2_eip",
            "ec2:AllocateAddress failed: The maximum number of addresses has been reached. (AddressLimitExceeded) "
            "Delete what is not needed, or request a higher limit in Service Quotas, and run the same command again.",
        ),
        ({"msg": "The subnet is full"}, "amazon.aws.ec2_vpc_subnet", "The subnet is full"),
        ({"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "no room"}]},
         "deeplearning.aws.launch_template", "no room"),
        ({}, "ansible.builtin.fail", "The task failed without a message: -v prints its result."),
    ],
)  # fmt: skip
def test_a_failure_is_one_sentence(result: dict[str, Any], action: str, reason: str) -> None:
    assert failure_reason(result, action) == reason
