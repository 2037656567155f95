"""Meeting members: what AWS is asked, in which order, and how long for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils import _waiting
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.plugin_utils._meeting import Reader

from .test_inventory import MASTER, instance
from .test_trust import BLOCK, ECDSA, ED, key

WORKER = instance(2, rank="2")
GROUPS = [{"GroupName": f"red-{what}", "GroupId": f"sg-{what}", "VpcId": "vpc-1"} for what in ("members", "efs")]
TARGET = {"Description": "EFS mount target for fs-0abc (fsmt-0def)"}


class Fake:
    """In place of AWS. `consoles` is asked with the instance and how often it was asked before."""

    region = "us-east-1"

    def __init__(self, *instances: dict[str, Any], partition: str = "aws") -> None:
        self.instances = list(instances)
        self.partition = partition
        self.reports: dict[str, str] = {}
        self.consoles: Callable[[str, int, bool], str] = lambda _id, _before, _latest: BLOCK
        self.asked: list[str] = []
        self.listed = {
            "describe_security_groups": GROUPS,
            "describe_vpcs": [{"CidrBlock": "10.0.0.0/16"}],
            "describe_network_interfaces": [TARGET],
        }

    def client(self, _service: str) -> None:
        """Made before threads are."""

    def pages(self, _service: str, operation: str, _key: str, **_params: Any) -> list[Any]:
        if operation == "describe_instances":
            return [{"Instances": self.instances}]
        return list(self.listed.get(operation, ()))

    def call(self, _service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "get_caller_identity":
            return {"Account": "123456789012", "Arn": f"arn:{self.partition}:iam::123456789012:user/me"}
        if operation == "get_role":
            return {"Role": {"RoleId": params["RoleName"].replace("red-us-east-1-", "AROA-")}}
        assert operation == "get_console_output"
        before = self.asked.count(params["InstanceId"])
        self.asked.append(params["InstanceId"])
        return {"Output": self.consoles(params["InstanceId"], before, "Latest" in params)}

    def text(self, bucket: str, name: str, owner: str, _most: int) -> str:
        assert (bucket, owner) == ("red-123456789012-us-east-1", "123456789012")
        if name not in self.reports:
            raise AwsProblem("There is none.", "NoSuchKey")
        return self.reports[name]

    def reported(self, machine: dict[str, Any], role: str, **other: Any) -> None:
        told = {"schema": 1, "instance_id": machine["InstanceId"], "host_keys": [key(seed=9)], "gpus": 8}
        self.reports[f"members/AROA-{role}:{machine['InstanceId']}/report.json"] = json.dumps({**told, **other})


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waiting takes no time."""
    taken: list[float] = []
    monkeypatch.setattr(_waiting, "sleep", taken.append)
    return taken


def meet(fake: Fake, seconds: float = 0) -> tuple[Any, Any, Reader, list[str]]:
    told: list[str] = []
    reader = Reader(fake, "red")
    cluster, reports = reader.meet(seconds, told.append)
    return cluster, reports, reader, told


def test_a_report_counts_before_the_console() -> None:
    fake = Fake(MASTER, WORKER)
    fake.reported(WORKER, "worker")
    _, reports, reader, _ = meet(fake)
    assert reports[WORKER["InstanceId"]].host_keys == [key(seed=9)]
    assert reports[MASTER["InstanceId"]].host_keys == [ECDSA, ED]
    assert fake.asked == [MASTER["InstanceId"]]
    assert not reader.strange


def test_a_report_in_another_roles_place_is_nobodys() -> None:
    fake = Fake(MASTER, WORKER)
    fake.reported(WORKER, "master")
    _, reports, _, _ = meet(fake)
    assert reports[WORKER["InstanceId"]].host_keys == [ECDSA, ED]


def test_a_report_that_is_none_is_told_of_once() -> None:
    fake = Fake(MASTER, WORKER)
    fake.reported(WORKER, "worker", instance_id=MASTER["InstanceId"])
    fake.consoles = lambda _id, before, _latest: BLOCK if before > 1 else ""
    _, reports, reader, _ = meet(fake, 60)
    assert reader.strange == [WORKER["InstanceId"]]
    assert reports[WORKER["InstanceId"]].host_keys == [ECDSA, ED]


def test_who_boots_is_waited_for_and_named(naps: list[float]) -> None:
    fake = Fake(MASTER, WORKER)
    fake.consoles = lambda which, before, _latest: BLOCK if which == MASTER["InstanceId"] or before == 3 else "booting"
    cluster, reports, reader, told = meet(fake, 60)
    assert len(reports) == 2
    assert told == ["Waiting for the host keys of deeplearning-worker2."]
    assert len(naps) == 3
    # Who is known is not asked again.
    assert fake.asked.count(MASTER["InstanceId"]) == 1
    assert reader.silent(cluster) == []


def test_who_is_pending_is_not_asked_for_a_console() -> None:
    fake = Fake(MASTER, {**WORKER, "State": {"Name": "pending"}})
    cluster, _, reader, told = meet(fake)
    assert [place.name for place in reader.silent(cluster)] == ["deeplearning-worker2"]
    assert fake.asked == [MASTER["InstanceId"]]
    assert told == []


def test_a_master_that_is_being_replaced_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(WORKER)
    monkeypatch.setattr(_waiting, "sleep", lambda _seconds: fake.instances.append(MASTER))
    cluster, reports, _, told = meet(fake, 60)
    assert told == ["Waiting for a master."]
    assert cluster.master["id"] == MASTER["InstanceId"]
    assert len(reports) == 2


def test_a_machine_of_an_old_type_is_asked_for_what_it_has_shown() -> None:
    def console(_id: str, _before: int, latest: bool) -> str:
        if latest:
            raise AwsProblem("Latest is for Nitro.", "UnsupportedOperation")
        return BLOCK

    fake = Fake(MASTER)
    fake.consoles = console
    _, reports, _, _ = meet(fake)
    assert reports[MASTER["InstanceId"]].host_keys == [ECDSA, ED]


def test_what_is_not_allowed_is_said() -> None:
    def console(*_given: Any) -> str:
        raise AwsProblem("AWS does not allow ec2:GetConsoleOutput to these credentials.", "UnauthorizedOperation")

    fake = Fake(MASTER)
    fake.consoles = console
    with pytest.raises(AwsProblem, match="ec2:GetConsoleOutput"):
        meet(fake, 60)


def test_a_machine_that_goes_meanwhile_breaks_nothing() -> None:
    def console(*_given: Any) -> str:
        raise AwsProblem("It is gone.", "InvalidInstanceID.NotFound")

    fake = Fake(MASTER)
    fake.consoles = console
    _, reports, _, _ = meet(fake)
    assert not reports


def test_what_members_are_to_know() -> None:
    facts = Reader(Fake(MASTER), "red").facts()
    assert facts["cluster_id"] == "sg-members"
    assert facts["efs_name"] == "fs-0abc.efs.us-east-1.amazonaws.com"
    in_china = Reader(Fake(MASTER, partition="aws-cn"), "red").facts()
    assert in_china["efs_name"].endswith(".amazonaws.com.cn")


def test_all_blocks_of_the_vpc_count() -> None:
    fake = Fake(MASTER)
    states = {"10.0.0.0/16": "associated", "10.1.0.0/16": "associated", "10.2.0.0/16": "disassociated"}
    blocks = [{"CidrBlock": block, "CidrBlockState": {"State": state}} for block, state in states.items()]
    fake.listed["describe_vpcs"] = [{"CidrBlock": "10.0.0.0/16", "CidrBlockAssociationSet": blocks}]
    assert Reader(fake, "red").facts()["vpc_cidrs"] == ["10.0.0.0/16", "10.1.0.0/16"]


@pytest.mark.parametrize(
    ("what", "listed", "said"),
    [
        ("describe_security_groups", GROUPS[1:], "has no security group red-members: run ansible-playbook site.yml"),
        ("describe_network_interfaces", [], "has no mount target"),
        (
            "describe_network_interfaces",
            [TARGET, {"Description": "EFS mount target for fs-0123 (fsmt-1)"}],
            "has mount targets of fs-0123, fs-0abc, and should have that of one file system",
        ),
    ],
)
def test_what_is_missing_is_said(what: str, listed: list[dict[str, Any]], said: str) -> None:
    fake = Fake(MASTER)
    fake.listed[what] = listed
    with pytest.raises(AwsProblem, match=said):
        Reader(fake, "red").facts()
