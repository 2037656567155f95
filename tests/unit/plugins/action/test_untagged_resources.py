"""Resources without the cluster's tag in its network: `cluster_info` counts and lists them, `teardown` deletes those
that the operator names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import CLUSTER_TAG, tag_list

from tests.unit.actions import run_action
from tests.unit.cluster_kit import REGION, MadeCluster, let_time_pass
from tests.unit.conftest import Account

Act = Callable[..., dict[str, Any]]


@pytest.fixture
def red(aws: Account, monkeypatch: pytest.MonkeyPatch) -> MadeCluster:
    let_time_pass(aws, monkeypatch)
    red = MadeCluster(aws)
    red.whole()
    return red


@pytest.fixture
def act(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Act:
    """Run an action. What it prints is returned as `printed`."""

    def call(action: str, check: bool = False, **options: Any) -> dict[str, Any]:
        capsys.readouterr()
        task_vars = {"deeplearning_folder": str(tmp_path)}
        result = run_action(action, check, task_vars, region=REGION, cluster="red", **options)
        return {**result, "printed": capsys.readouterr().out}

    return call


@pytest.fixture
def remove(act: Act) -> Act:
    def call(*also: str, check: bool = False, consent: str = "red") -> dict[str, Any]:
        return act("teardown", check, consent=consent, also=list(also), keep_file_system=False, stuck_seconds=0.5)

    return call


@dataclass(frozen=True)
class Strangers:
    worker: str
    gateway: str
    address: str
    interface: str

    @property
    def ids(self) -> list[str]:
        return [self.worker, self.gateway, self.address, self.interface]


@pytest.fixture
def strangers(red: MadeCluster) -> Strangers:
    """Detach the worker from its group and take its tag off; add a NAT gateway and an interface without a tag."""
    (worker,) = red.instances("workers")
    red.scaling.detach_instances(
        InstanceIds=[worker], AutoScalingGroupName="red-workers", ShouldDecrementDesiredCapacity=True
    )
    red.ec2.delete_tags(Resources=[worker], Tags=[{"Key": CLUSTER_TAG}])
    address = red.ec2.allocate_address(Domain="vpc")["AllocationId"]
    created = red.ec2.create_nat_gateway(SubnetId=red.ids["subnet"], AllocationId=address)
    interface = red.ec2.create_network_interface(SubnetId=red.ids["subnet"])["NetworkInterface"]
    red.wait(300)
    gateway = created["NatGateway"]["NatGatewayId"]
    return Strangers(worker, gateway, address, interface["NetworkInterfaceId"])


def writes(red: MadeCluster) -> int:
    return sum(bool(call["writes"]) for call in red.aws.cloud.calls.since())


def test_an_ordinary_cluster_has_none_and_two_calls_show_that(red: MadeCluster, act: Act) -> None:
    before = len(red.aws.calls())
    result = act("cluster_info", show="resources")
    calls = red.aws.calls()[before:]
    assert "cluster's tag" not in result["printed"]
    assert result["clusters"]["red"]["untagged"] == []
    # The other one looks for mount targets in file systems of others.
    assert calls.count("ec2:DescribeNetworkInterfaces") == 2
    # And one looks for addresses that nothing uses and that have only a name.
    assert calls.count("ec2:DescribeAddresses") == 2
    assert calls.count("ec2:DescribeInstances") == 1
    assert calls.count("ec2:DescribeNatGateways") == 0


def test_audit_lists_them_and_the_costs_include_them(red: MadeCluster, strangers: Strangers, act: Act) -> None:
    result = act("cluster_info", show="resources")
    printed = result["printed"]
    assert f"instance {strangers.worker}" in printed and "launched from the cluster's launch template" in printed
    assert f"aws ec2 terminate-instances --region us-east-1 --instance-ids {strangers.worker}" in printed
    assert f"aws ec2 delete-nat-gateway --region us-east-1 --nat-gateway-id {strangers.gateway}" in printed
    assert f"aws ec2 release-address --region us-east-1 --allocation-id {strangers.address}" in printed
    (last,) = [line for line in printed.splitlines() if "-e destroy_also=" in line]
    assert set(last.partition("destroy_also=")[2].split(",")) >= set(strangers.ids)
    assert "2 instances" in printed and "1 NAT gateway" in printed and "2 Elastic IP addresses" in printed
    billed = {item["kind"]: item["what"] for item in act("cluster_info", show="status")["clusters"]["red"]["billed"]}
    assert billed["instance"] == "2 instances" and billed["nat_gateway"] == "1 NAT gateway"


def test_a_member_that_has_lost_the_tag_costs_and_goes_with_its_group(
    red: MadeCluster, act: Act, remove: Act
) -> None:
    (worker,) = red.instances("workers")
    red.ec2.delete_tags(Resources=[worker], Tags=[{"Key": CLUSTER_TAG}])
    result = act("cluster_info", show="resources")
    assert "2 instances" in result["printed"] and "destroy_also" not in result["printed"]
    assert "failed" not in remove()


def test_they_stay_unless_they_are_named(red: MadeCluster, strangers: Strangers, remove: Act) -> None:
    planned = remove(consent="")
    assert planned["failed"] and f"NAT gateway {strangers.gateway}" in planned["printed"]
    assert "These do not have the cluster's tag" in planned["printed"]
    kept = remove()
    assert kept["failed"] and "-e destroy_also=" in kept["printed"]
    assert f"aws ec2 terminate-instances --region us-east-1 --instance-ids {strangers.worker}" in kept["printed"]
    listed = red.ec2.describe_instances(InstanceIds=[strangers.worker])["Reservations"][0]["Instances"]
    assert listed[0]["State"]["Name"] == "running"


def test_those_that_are_named_go_and_a_second_time_there_is_nothing_to_do(
    red: MadeCluster, strangers: Strangers, remove: Act
) -> None:
    before = writes(red)
    planned = remove(*strangers.ids, check=True)
    assert {item["id"] for item in planned["removed"]} >= set(strangers.ids) and writes(red) == before
    removed = remove(*strangers.ids)
    assert "failed" not in removed, removed["msg"]
    assert not [vpc for vpc in red.ec2.describe_vpcs()["Vpcs"] if not vpc.get("IsDefault")]
    assert red.ec2.describe_addresses()["Addresses"] == []
    again = remove(*strangers.ids)
    assert "failed" not in again and not again["changed"]


def test_an_interrupted_teardown_is_resumed(red: MadeCluster, strangers: Strangers, remove: Act) -> None:
    fault = red.fail("ec2:ReleaseAddress", "UnauthorizedOperation", status=403)
    assert remove(*strangers.ids)["failed"]
    red.aws.cloud.faults.remove(fault)
    gateways = red.ec2.describe_nat_gateways()["NatGateways"]
    assert [gateway["State"] for gateway in gateways] == ["deleted"]
    assert "failed" not in remove(*strangers.ids)
    assert red.ec2.describe_addresses()["Addresses"] == []


def test_other_ids_are_refused_before_anything_is_removed(
    red: MadeCluster, strangers: Strangers, remove: Act
) -> None:
    ec2 = red.ec2
    theirs = ec2.allocate_address(Domain="vpc")["AllocationId"]
    ec2.create_tags(Resources=[strangers.gateway], Tags=tag_list({CLUSTER_TAG: "blue"}))
    before = writes(red)
    for refused in (theirs, strangers.gateway):
        result = remove(strangers.worker, refused)
        assert result["failed"]
        assert result["msg"].startswith(f"destroy_also names {refused}, so nothing of the cluster was removed. Only ")
        assert strangers.worker in result["msg"]
    assert writes(red) == before
    assert "belongs to the cluster blue" in remove(consent="")["printed"]


def test_in_a_vpc_that_the_cluster_did_not_create_nothing_is_removed(
    red: MadeCluster, strangers: Strangers, remove: Act, act: Act
) -> None:
    red.ec2.delete_tags(Resources=[red.ids["vpc"]], Tags=[{"Key": CLUSTER_TAG}])
    result = remove(strangers.worker)
    assert result["failed"] and "in the VPC that the cluster created can be removed with it: there are none" in (
        result["msg"]
    )
    printed = act("cluster_info", show="resources")["printed"]
    assert f"instance {strangers.worker}" in printed and "which the cluster did not create" in printed
    assert strangers.gateway not in printed and "1 instance (" in printed and "destroy_also" not in printed


def test_without_the_permission_the_sentence_says_whose_it_takes(
    red: MadeCluster, strangers: Strangers, remove: Act
) -> None:
    red.fail("ec2:CreateTags", "UnauthorizedOperation", status=403)
    start = len(red.aws.cloud.calls.since())
    result = remove(strangers.worker)
    assert result["failed"] and "run destroy.yml with an administrator's credentials" in result["msg"]
    written = [call["operation"] for call in red.aws.cloud.calls.since()[start:] if call["writes"]]
    # The lock is taken, the call is refused, and the lock is released.
    assert written == ["PutObject", "CreateTags", "PutObject"]


def test_a_volume_that_outlives_its_instance_is_named_at_the_end(
    red: MadeCluster, strangers: Strangers, remove: Act
) -> None:
    image = red.ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]
    disk = {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 10, "VolumeType": "gp3", "DeleteOnTermination": False}}
    (machine,) = red.ec2.run_instances(
        ImageId=image["ImageId"],
        InstanceType="t3.medium",
        MinCount=1,
        MaxCount=1,
        SubnetId=red.ids["subnet"],
        BlockDeviceMappings=[disk],
    )["Instances"]
    red.wait(60)
    attached = red.ec2.describe_instances(InstanceIds=[machine["InstanceId"]])["Reservations"][0]["Instances"][0]
    volumes = {mapping["DeviceName"]: mapping["Ebs"]["VolumeId"] for mapping in attached["BlockDeviceMappings"]}
    volume = volumes["/dev/sdf"]
    result = remove(machine["InstanceId"], *strangers.ids)
    assert "failed" not in result, result["msg"]
    assert f"aws ec2 delete-volume --region us-east-1 --volume-id {volume}" in result["printed"]
