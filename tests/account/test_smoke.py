"""`make aws-smoke` on an account whose machines do not boot: what it leaves, however it ends, and what it records."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.account.booting import SILENT, nodes_of
from tests.account.census import census
from tests.account.kit import Account
from tests.account.smoke_kit import Command
from tests.processes import kill_marked

RUN = "SMOKE_TEST"
SETTINGS = {"provision_settle_seconds": 1, "emr_poll_seconds": 1, "destroy_stuck_seconds": 10}
LATER = 3 * 3600
"""Seconds after which the time to live of every cluster has passed."""
NETWORK, PRIVATE = "1", "3"


def start(account: Account, *, ahead: float = 0, **variables: str) -> Command:
    program = account.forking.ansible_playbook() if account.forking else ["ansible-playbook"]
    environment = {**account.environment, "SMOKE_USD": "3", RUN: str(account.folder), **variables}
    return Command(account.folder / "smoke", program, account.folder, environment, SETTINGS, ahead)


def record_of(command: Command) -> str:
    return max(command.folder.glob("*.jsonl")).read_text(encoding="utf-8")


def run(account: Account, stages: str, **variables: Any) -> tuple[int, str, str]:
    command = start(account, SMOKE_STAGES=stages, **variables)
    code, output = command.end()
    return code, output, record_of(command) if command.folder.exists() else ""


def plant(account: Account) -> list[str]:
    """Create resources of others with names that must not be in a record, and return these."""
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    account.client("iam").create_role(RoleName="carol-payroll", AssumeRolePolicyDocument=document)
    account.client("s3").create_bucket(Bucket="bluebird-ledger")
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "Name", "Value": "nightingale"}]}]
    vpc = account.client("ec2").create_vpc(CidrBlock="10.77.0.0/16", TagSpecifications=tags)["Vpc"]["VpcId"]
    account.client("efs").create_file_system(CreationToken="goldfinch")
    keys = [account.environment[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")]
    return ["carol", "payroll", "bluebird", "ledger", "nightingale", "goldfinch", "10.77.", vpc, "123456789012", *keys]


@contextmanager
def booting(account: Account, command: Command, what: str, *behaviours: str) -> Iterator[None]:
    """Let the machines of the command's cluster configure themselves, once its groups exist."""

    def clusters() -> list[str]:
        listed = account.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        names = [group["AutoScalingGroupName"].removesuffix("-workers") for group in listed]
        return [name for name in names if name.endswith(f"-{what}")]

    command.wait(clusters)
    nodes = nodes_of(account, clusters()[0])
    for group in nodes.roles:
        nodes.will(group, *behaviours)
    with nodes.boot():
        yield


def test_the_plan_and_the_policies_cost_nothing_and_names_are_not_recorded(account: Account) -> None:
    planted = plant(account)
    before = census(account)
    code, output, record = run(account, "0")
    assert code == 0 and "6 decisions as expected" in output, output
    assert "the three images are Debian under three names" in output
    assert census(account) == before
    assert not [word for word in planted if word.lower() in record.lower()]
    entries = [json.loads(line) for line in record.splitlines()]
    called = Counter(entry["call"] for entry in entries if "call" in entry)
    # Of a module, of an action, and of the command itself.
    for call in ("ec2:DescribeImages", "emr:ListReleaseLabels", "iam:SimulateCustomPolicy", "s3:ListBuckets"):
        assert called[call], (call, called)
    (buckets,) = [entry["answer"]["Buckets"] for entry in entries if entry.get("call") == "s3:ListBuckets"]
    assert buckets == ["<1 more>"]
    assert sum(entry.get("outcome") == "not seen" for entry in entries) == 12


def test_another_account_is_refused_before_anything_is_called(account: Account) -> None:
    started = time.time()
    code, output, record = run(account, "0", SMOKE_ACCOUNT="210987654321")
    assert (code, record) == (2, "") and len(output.splitlines()) == 1, output
    assert [call["operation"] for call in account.cloud.calls.since(started)] == ["GetCallerIdentity"]


@pytest.mark.long
def test_the_network_is_created_and_destroyed_and_settles_what_it_can(account: Account) -> None:
    planted = plant(account)
    before = census(account)
    for _time in range(2):
        code, output, record = run(account, NETWORK)
        assert code == 0 and "created, unchanged by a second run, and destroyed" in output, output
        assert census(account) == before
        assert "fields-of-scheduled-actions: settled: replaced" in output
        assert not [word for word in planted if word.lower() in record.lower()]
    fault = account.cloud.faults.add("keep-fields", {})
    _, output, _ = run(account, NETWORK)
    account.cloud.faults.remove(fault)
    assert "fields-of-scheduled-actions: settled: kept" in output


@pytest.mark.long
def test_machines_without_public_addresses_configure_themselves(account: Account) -> None:
    before = census(account)
    command = start(account, SMOKE_STAGES=PRIVATE)
    with booting(account, command, "private"):
        code, output = command.end()
    assert code == 0 and "machines without public addresses have configured themselves" in output, output
    assert census(account) == before


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_interrupted_at_a_random_call_it_leaves_nothing(account: Account, seed: int) -> None:
    chance = random.Random(seed)
    number, place = chance.choice([signal.SIGINT, signal.SIGTERM]), chance.randrange(1, 60)
    before = census(account)
    command = start(account, SMOKE_STAGES=NETWORK)
    writes = iter(range(1, place + 1))

    def tell(record: Any) -> None:
        if record.writes and record.caller.endswith("user/operator") and next(writes, 0) == place:
            command.process.send_signal(number)

    account.cloud.calls.tell = tell
    code, output = command.end()
    account.cloud.calls.tell = lambda _record: None
    assert code == 1 and f"interrupted by {number.name}" in output, (place, output)
    assert census(account) == before, output
    assert '"item"' in record_of(command)


@pytest.mark.long
def test_after_a_kill_the_machines_have_an_end_and_the_next_start_leaves_nothing(account: Account) -> None:
    before = census(account)
    command = start(account, SMOKE_STAGES=PRIVATE)
    with booting(account, command, "private", SILENT, SILENT):
        instances = account.client("ec2")
        command.wait(lambda: len(machines(instances)) >= 2)
        kill_marked(f"{RUN}={account.folder}")
        command.end()
    actions = account.client("autoscaling").describe_scheduled_actions()["ScheduledUpdateGroupActions"]
    ends = {action["AutoScalingGroupName"]: action["StartTime"] for action in actions if action["MaxSize"] == 0}
    assert len(ends) == 2 and all((end - datetime.now(UTC)).total_seconds() < 7200 for end in ends.values()), actions

    # Its time to live has not passed: it is named, and stays.
    code, output, _ = run(account, "0")
    (name,) = {group.removesuffix("-master") for group in ends if group.endswith("-master")}
    assert code == 0 and f"earlier cluster: {name}, whose time to live ends at " in output, output
    assert f"To destroy it now: SMOKE_DESTROY={name}" in output and machines(instances)

    code, output, _ = run(account, "0", ahead=LATER)
    assert code == 0 and f"{name} is destroyed" in output, output
    assert census(account) == before


def machines(ec2: Any) -> list[str]:
    alive = {"Name": "instance-state-name", "Values": ["pending", "running"]}
    reservations = ec2.describe_instances(Filters=[alive])["Reservations"]
    return [instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]]


@pytest.mark.long
def test_a_stage_that_fails_is_one_sentence_and_leaves_nothing(account: Account) -> None:
    before = census(account)
    refusal = {"code": "NatGatewayLimitExceeded", "message": "The maximum number is reached", "status": 400}
    account.cloud.faults.add("error", {"action": "ec2:CreateNatGateway"}, value=refusal)
    code, output, record = run(account, "1,0")
    lines = [line for line in output.splitlines() if "NatGatewayLimitExceeded" in line]
    assert code == 1 and len(lines) == 1 and lines[0].startswith("stage 1 "), output
    assert census(account) == before
    assert '"code": "NatGatewayLimitExceeded"' in record


@pytest.mark.long
def test_credentials_that_expire_leave_what_the_next_start_destroys_by_its_name(account: Account) -> None:
    before = census(account)
    role = account.role("visitor")
    issued = account.client("sts").assume_role(RoleArn=role, RoleSessionName="carol")["Credentials"]
    visitor = account.as_user(issued["AccessKeyId"], issued["SecretAccessKey"])
    visitor.environment["AWS_SESSION_TOKEN"] = issued["SessionToken"]
    command = start(visitor, SMOKE_STAGES=NETWORK)

    def tell(record: Any) -> None:
        if record.operation == "CreateSubnet":
            account.cloud.credentials.expire("visitor")

    account.cloud.calls.tell = tell
    code, output = command.end()
    account.cloud.calls.tell = lambda _record: None
    assert code == 1 and "is not destroyed: " in output and "SMOKE_DESTROY=smoke-" in output, output
    assert "expired" in output and '"item"' in record_of(command)
    name = output.split("SMOKE_DESTROY=")[1].split()[0]
    with pytest.raises(ClientError):
        visitor.client("ec2").describe_vpcs()
    code, output, _ = run(account, "", SMOKE_DESTROY=name)
    assert code == 0 and f"{name} is destroyed" in output, output
    account.client("iam").detach_role_policy(
        RoleName="visitor", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess"
    )
    account.client("iam").delete_role(RoleName="visitor")
    assert census(account) == before
