"""Host key discovery: which calls it makes, in which order, and how long it waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import polling
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.host_key_discovery import HostKeyDiscovery
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.membership import Cluster

from tests.unit.plugins.instances_kit import BLOCK, ECDSA, ED, MASTER, emr_instance, instance, key

WORKER = instance(2, rank="2")
GROUPS = [{"GroupName": f"red-{what}", "GroupId": f"sg-{what}", "VpcId": "vpc-1"} for what in ("members", "efs")]
TARGET = {"Description": "EFS mount target for fs-0abc (fsmt-0def)"}


class Fake:
    """Stands in for AWS. `consoles` gets the instance and how often its console was read before."""

    region, account = "us-east-1", "123456789012"

    def __init__(self, *instances: dict[str, Any], partition: str = "aws") -> None:
        self.machines = list(instances)
        self.partition = partition
        self.reports: dict[str, str] = {}
        self.consoles: Callable[[str, int, bool], str] = lambda _id, _before, _latest: BLOCK
        self.consoles_read: list[str] = []
        self.listed = {
            "describe_security_groups": GROUPS,
            "describe_vpcs": [{"CidrBlock": "10.0.0.0/16"}],
            "describe_network_interfaces": [TARGET],
        }

    def client(self, _service: str) -> None:
        """Made before threads are."""

    def pages(self, _service: str, operation: str, _key: str, **_params: Any) -> list[Any]:
        return list(self.listed.get(operation, ()))

    def instances(self, **_params: Any) -> list[dict[str, Any]]:
        return self.machines

    def call(self, _service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "get_role":
            return {"Role": {"RoleId": params["RoleName"].replace("red-us-east-1-", "AROA-")}}
        assert operation == "get_console_output"
        before = self.consoles_read.count(params["InstanceId"])
        self.consoles_read.append(params["InstanceId"])
        return {"Output": self.consoles(params["InstanceId"], before, "Latest" in params)}

    def content(self, bucket: str, name: str, owner: str, _most: int) -> bytes:
        assert (bucket, owner) == ("red-123456789012-us-east-1", "123456789012")
        if name not in self.reports:
            raise AwsError("There is none.", "NoSuchKey")
        return self.reports[name].encode()

    def add_report(self, machine: dict[str, Any], role: str, **other: Any) -> None:
        record = {"schema": 1, "instance_id": machine["InstanceId"], "host_keys": [key(seed=9)], "gpus": 8}
        record |= {"bundle": "", "step": "", "log": [], "state": "ready", "reported_at": "2026-11-21T10:00:00Z"}
        self.reports[f"members/AROA-{role}:{machine['InstanceId']}/report.json"] = json.dumps({**record, **other})


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waiting takes no time."""
    taken: list[float] = []
    monkeypatch.setattr(polling, "sleep", taken.append)
    return taken


def discover(fake: Fake, seconds: float = 0) -> tuple[Any, Any, HostKeyDiscovery, list[str]]:
    displayed: list[str] = []
    discovery = HostKeyDiscovery(fake, "red")
    cluster, reports = discovery.run(seconds, displayed.append)
    return cluster, reports, discovery, displayed


def test_a_report_counts_before_the_console() -> None:
    fake = Fake(MASTER, WORKER)
    fake.add_report(WORKER, "worker")
    _, reports, discovery, _ = discover(fake)
    assert reports[WORKER["InstanceId"]].host_keys == [key(seed=9)]
    assert reports[MASTER["InstanceId"]].host_keys == [ECDSA, ED]
    assert fake.consoles_read == [MASTER["InstanceId"]]
    assert not discovery.invalid_reports


def test_a_report_under_another_role_is_ignored() -> None:
    fake = Fake(MASTER, WORKER)
    fake.add_report(WORKER, "master")
    _, reports, _, _ = discover(fake)
    assert reports[WORKER["InstanceId"]].host_keys == [ECDSA, ED]


def test_an_invalid_report_is_listed_once() -> None:
    fake = Fake(MASTER, WORKER)
    fake.add_report(WORKER, "worker", instance_id=MASTER["InstanceId"])
    fake.consoles = lambda _id, before, _latest: BLOCK if before > 1 else ""
    _, reports, discovery, _ = discover(fake, 60)
    assert discovery.invalid_reports == [WORKER["InstanceId"]]
    assert reports[WORKER["InstanceId"]].host_keys == [ECDSA, ED]


def test_machines_that_boot_are_awaited_and_named(naps: list[float]) -> None:
    fake = Fake(MASTER, WORKER)
    fake.consoles = lambda which, before, _latest: BLOCK if which == MASTER["InstanceId"] or before == 3 else "booting"
    cluster, reports, discovery, displayed = discover(fake, 60)
    assert len(reports) == 2
    assert displayed == ["Waiting for the host keys of deeplearning-worker2."]
    assert len(naps) == 3
    # The console of a known machine is not read again.
    assert fake.consoles_read.count(MASTER["InstanceId"]) == 1
    assert discovery.without_keys(cluster) == []


def test_no_console_is_read_of_pending_machines() -> None:
    fake = Fake(MASTER, {**WORKER, "State": {"Name": "pending"}})
    cluster, _, discovery, displayed = discover(fake)
    assert [place.name for place in discovery.without_keys(cluster)] == ["deeplearning-worker2"]
    assert fake.consoles_read == [MASTER["InstanceId"]]
    assert displayed == []


def test_a_master_that_is_being_replaced_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(WORKER)
    monkeypatch.setattr(polling, "sleep", lambda _seconds: fake.machines.append(MASTER))
    cluster, reports, _, displayed = discover(fake, 60)
    assert displayed == ["Waiting for a master."]
    assert cluster.master["id"] == MASTER["InstanceId"]
    assert len(reports) == 2


def test_the_console_of_an_old_type_is_read_without_latest() -> None:
    def console(_id: str, _before: int, latest: bool) -> str:
        if latest:
            raise AwsError("Latest is for Nitro.", "UnsupportedOperation")
        return BLOCK

    fake = Fake(MASTER)
    fake.consoles = console
    _, reports, _, _ = discover(fake)
    assert reports[MASTER["InstanceId"]].host_keys == [ECDSA, ED]


def test_a_missing_permission_is_named() -> None:
    def console(*_given: Any) -> str:
        raise AwsError("AWS does not allow ec2:GetConsoleOutput to these credentials.", "UnauthorizedOperation")

    fake = Fake(MASTER)
    fake.consoles = console
    with pytest.raises(AwsError, match="ec2:GetConsoleOutput"):
        discover(fake, 60)


def test_a_machine_may_disappear_meanwhile() -> None:
    def console(*_given: Any) -> str:
        raise AwsError("It is gone.", "InvalidInstanceID.NotFound")

    fake = Fake(MASTER)
    fake.consoles = console
    _, reports, _, _ = discover(fake)
    assert not reports


def test_the_facts_for_members() -> None:
    facts = HostKeyDiscovery(Fake(MASTER), "red").facts(Cluster("red"))
    assert facts["cluster_id"] == "sg-members"
    assert (facts["file_system_id"], facts["domain"]) == ("fs-0abc", "amazonaws.com")
    in_china = HostKeyDiscovery(Fake(MASTER, partition="aws-cn"), "red").facts(Cluster("red"))
    assert in_china["domain"] == "amazonaws.com.cn"


def test_the_nodes_of_emr_have_one_role() -> None:
    primary, core = emr_instance(1, "MASTER"), emr_instance(2, "CORE", rank="2")
    fake = Fake(primary, core)
    for machine in (primary, core):
        fake.add_report(machine, "node")
    cluster, reports, discovery, _ = discover(fake)
    assert {node.role: reports[node.id].host_keys for node in cluster.nodes} == {
        "master": [key(seed=9)],
        "worker": [key(seed=9)],
    }
    facts = discovery.facts(cluster)
    assert (facts["master_role_id"], facts["job_flow"]) == ("AROA-node", "j-1")


def test_all_blocks_of_the_vpc_count() -> None:
    fake = Fake(MASTER)
    states = {"10.0.0.0/16": "associated", "10.1.0.0/16": "associated", "10.2.0.0/16": "disassociated"}
    blocks = [{"CidrBlock": block, "CidrBlockState": {"State": state}} for block, state in states.items()]
    fake.listed["describe_vpcs"] = [{"CidrBlock": "10.0.0.0/16", "CidrBlockAssociationSet": blocks}]
    assert HostKeyDiscovery(fake, "red").facts(Cluster("red"))["vpc_cidrs"] == ["10.0.0.0/16", "10.1.0.0/16"]


@pytest.mark.parametrize(
    ("operation", "answer", "message"),
    [
        ("describe_security_groups", GROUPS[1:], "no security group red-members: run ansible-playbook"),
        ("describe_network_interfaces", [], "has no mount target"),
        (
            "describe_network_interfaces",
            [TARGET, {"Description": "EFS mount target for fs-0123 (fsmt-1)"}],
            "has mount targets of fs-0123, fs-0abc, and should have that of one file system",
        ),
    ],
)
def test_missing_resources_are_named(operation: str, answer: list[dict[str, Any]], message: str) -> None:
    fake = Fake(MASTER)
    fake.listed[operation] = answer
    with pytest.raises(AwsError, match=message):
        HostKeyDiscovery(fake, "red").facts(Cluster("red"))


def test_a_wait_that_goes_on_is_printed_again_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    joining, seconds = instance(2), [0.0]

    def pass_time(_seconds: float) -> None:
        seconds[0] += 12
        if seconds[0] > 20:
            fake.machines[1] = WORKER

    monkeypatch.setattr(polling, "sleep", pass_time)
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])
    fake = Fake(MASTER, joining)
    displayed: list[str] = []
    HostKeyDiscovery(fake, "red").run(60, displayed.append, with_ranks=True)
    line = f"Waiting for the ranks of {WORKER['InstanceId']}"
    assert displayed == [f"{line}.", f"{line} (0:12 so far)."]


def test_ranks_are_awaited_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    joining = instance(2)

    def assign(_seconds: float) -> None:
        fake.machines[1] = WORKER

    monkeypatch.setattr(polling, "sleep", assign)
    for with_ranks, lines in ((False, []), (True, [f"Waiting for the ranks of {WORKER['InstanceId']}."])):
        fake = Fake(MASTER, joining)
        displayed: list[str] = []
        cluster, _reports = HostKeyDiscovery(fake, "red").run(60, displayed.append, with_ranks)
        assert displayed == lines
        assert [node.rank for node in cluster.nodes] == [1, 2 if with_ranks else 0]


def test_all_that_is_missing_is_in_one_line_and_nothing_without_time() -> None:
    fake = Fake(WORKER)
    fake.consoles = lambda *_words: ""
    _cluster, reports, _discovery, displayed = discover(fake, 0.001)
    assert displayed == ["Waiting for the host keys of deeplearning-worker2 and a master."] and reports == {}
    assert discover(fake, 0)[3] == []


def test_the_role_of_each_kind_of_node_is_read_once() -> None:
    fake = Fake(MASTER, WORKER, instance(3, rank="3"))
    calls: list[str] = []
    call = fake.call

    def counted(service: str, operation: str, **params: Any) -> dict[str, Any]:
        calls.append(params.get("RoleName", ""))
        return call(service, operation, **params)

    fake.call = counted  # type: ignore[method-assign]
    cluster, _reports, discovery, _displayed = discover(fake)
    discovery.facts(cluster)
    assert sorted(filter(None, calls)) == ["red-us-east-1-master", "red-us-east-1-worker"]


def test_a_bucket_that_may_not_be_read_is_no_missing_report() -> None:
    fake = Fake(MASTER)

    def refuse(*_words: Any) -> bytes:
        raise AwsError("AWS does not allow s3:GetObject.", "AccessDenied")

    fake.content = refuse  # type: ignore[method-assign]
    with pytest.raises(AwsError, match="s3:GetObject"):
        discover(fake)


def test_a_report_need_not_be_text() -> None:
    fake = Fake(MASTER)
    fake.content = lambda *_words: b"\xff\xfe"  # type: ignore[method-assign]
    _cluster, reports, discovery, _displayed = discover(fake)
    assert discovery.invalid_reports == [MASTER["InstanceId"]]
    assert reports[MASTER["InstanceId"]].host_keys == [ECDSA, ED]


def test_a_console_may_be_empty() -> None:
    fake = Fake(MASTER)
    fake.call = lambda _service, operation, **_params: (  # type: ignore[method-assign]
        {"Role": {"RoleId": "AROA"}} if operation == "get_role" else {"Output": None}
    )
    assert discover(fake)[1] == {}


def test_the_facts_have_all_that_members_need() -> None:
    assert HostKeyDiscovery(Fake(MASTER), "red").facts(Cluster("red")) == {
        "cluster_id": "sg-members",
        "bucket": "red-123456789012-us-east-1",
        "vpc_cidrs": ["10.0.0.0/16"],
        "master_role_id": "AROA-master",
        "job_flow": "",
        "file_system_id": "fs-0abc",
        "domain": "amazonaws.com",
    }
