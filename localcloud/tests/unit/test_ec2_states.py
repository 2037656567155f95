"""Instances follow machines."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.api.ec2.lifecycle import machine_exited, machine_started
from localcloud.core.cloud import Cloud
from localcloud.core.latency import Latency
from localcloud.testing.clock import ManualClock
from localcloud_kits.ec2_kit import REGION, Ec2, Recorder


@pytest.fixture
def latency() -> Latency:
    waits = {"instance_running": 20.0, "instance_stopped": 15.0, "instance_terminated": 30.0}
    return Latency("test", waits)


def test_an_instance_runs_when_its_machine_does_and_not_before_its_time(
    ec2: Ec2, cloud: Cloud, clock: ManualClock, machines: Recorder
) -> None:
    instance = ec2.run()["Instances"][0]
    assert instance["State"] == {"Code": 0, "Name": "pending"}
    assert machines.calls == [("start", instance["InstanceId"])]
    machine_started(cloud, instance["InstanceId"])
    assert ec2.state(instance) == "pending"
    clock.advance(19.9)
    assert ec2.state(instance) == "pending"
    clock.advance(0.1)
    assert ec2.state(instance) == "running"


def test_a_slow_machine_holds_its_instance_pending(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> None:
    instance = ec2.run()["Instances"][0]
    clock.advance(300)
    assert ec2.state(instance) == "pending"
    machine_started(cloud, instance["InstanceId"])
    assert ec2.state(instance) == "running"


@pytest.mark.parametrize(
    ("how", "behavior", "state", "reason", "calls"),
    [
        ("poweroff", "stop", "stopped", "Client.InstanceInitiatedShutdown", []),
        ("stopped", "stop", "stopped", "Client.InstanceInitiatedShutdown", []),
        ("poweroff", "terminate", "shutting-down", "Client.InstanceInitiatedShutdown", ["destroy"]),
        ("killed", "stop", "terminated", "Server.InternalError", ["destroy"]),
        ("failed", "stop", "terminated", "Server.InternalError", ["destroy"]),
    ],
)
def test_a_running_machine_that_exits(
    ec2: Ec2,
    cloud: Cloud,
    clock: ManualClock,
    machines: Recorder,
    how: str,
    behavior: str,
    state: str,
    reason: str,
    calls: list[str],
) -> None:
    instance = ec2.running(InstanceInitiatedShutdownBehavior=behavior)
    machines.calls.clear()
    machine_exited(cloud, instance["InstanceId"], how)
    shown = ec2.describe(instance)
    assert (shown["State"]["Name"], shown["StateReason"]["Code"]) == (state, reason)
    assert machines.names() == calls


def test_terminating_takes_as_long_as_its_machine_and_the_profile_say(
    ec2: Ec2, cloud: Cloud, clock: ManualClock, machines: Recorder
) -> None:
    instance = ec2.running()
    key = instance["InstanceId"]
    machines.calls.clear()
    [change] = ec2("TerminateInstances", InstanceIds=[key])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    assert machines.calls == [("destroy", key)]
    [again] = ec2("TerminateInstances", InstanceIds=[key])["TerminatingInstances"]
    assert (again["PreviousState"]["Name"], again["CurrentState"]["Name"]) == ("shutting-down", "shutting-down")
    assert machines.calls == [("destroy", key)]
    clock.advance(10)
    machine_exited(cloud, key, "destroyed")
    assert ec2.state(instance) == "shutting-down"
    clock.advance(20)
    assert ec2.state(instance) == "terminated"
    [last] = ec2("TerminateInstances", InstanceIds=[key])["TerminatingInstances"]
    assert last["CurrentState"] == {"Code": 48, "Name": "terminated"}


def test_a_terminated_instance_is_shown_with_its_tags_for_an_hour_and_has_let_go_of_the_rest(
    ec2: Ec2, cloud: Cloud, clock: ManualClock, machines: Recorder
) -> None:
    tags = [{"ResourceType": kind, "Tags": [{"Key": "k", "Value": kind}]} for kind in ("instance", "volume")]
    instance = ec2.running(TagSpecifications=tags)
    address = instance["PrivateIpAddress"]
    ec2.terminated(instance)
    shown = ec2.describe(instance)
    assert shown["Tags"] == [{"Key": "k", "Value": "instance"}]
    assert "PrivateIpAddress" not in shown and "VpcId" not in shown
    assert (shown["NetworkInterfaces"], shown["BlockDeviceMappings"]) == ([], [])
    assert shown["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert ec2("DescribeVolumes")["Volumes"] == [] == ec2("DescribeNetworkInterfaces")["NetworkInterfaces"]
    assert ec2.tags_of(instance["InstanceId"]) == {"k": "instance"}
    assert ec2.run()["Instances"][0]["PrivateIpAddress"] == address
    clock.advance(3600)
    with ec2.refused("InvalidInstanceID.NotFound"):
        ec2.describe(instance)
    assert ec2.tags_of(instance["InstanceId"]) == {}


def test_stop_and_start(ec2: Ec2, cloud: Cloud, clock: ManualClock, machines: Recorder) -> None:
    instance = ec2.running(NetworkInterfaces=[{"DeviceIndex": 0, "AssociatePublicIpAddress": True}])
    key = instance["InstanceId"]
    machines.calls.clear()
    [change] = ec2("StopInstances", InstanceIds=[key])["StoppingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "stopping")
    machine_exited(cloud, key, "stopped")
    assert ec2.state(instance) == "stopping"
    clock.advance(15)
    stopped = ec2.describe(instance)
    assert stopped["State"]["Name"] == "stopped"
    assert "PublicIpAddress" not in stopped
    assert stopped["PrivateIpAddress"] == instance["PrivateIpAddress"]
    assert machines.calls == [("stop", key)]


@pytest.mark.parametrize(
    ("operation", "attribute"), [("TerminateInstances", "DisableApiTermination"), ("StopInstances", "DisableApiStop")]
)
def test_protection(ec2: Ec2, operation: str, attribute: str) -> None:
    instance = ec2.running(**{attribute: True})
    with ec2.refused("OperationNotPermitted"):
        ec2(operation, InstanceIds=[instance["InstanceId"]])


@pytest.mark.parametrize("operation", ["StopInstances", "RebootInstances"])
def test_what_is_terminated_stays_so(ec2: Ec2, operation: str) -> None:
    instance = ec2.running()
    ec2.terminated(instance)
    with ec2.refused("IncorrectInstanceState"):
        ec2(operation, InstanceIds=[instance["InstanceId"]])


def test_rebooting_leaves_the_instance_running(ec2: Ec2, machines: Recorder) -> None:
    instance = ec2.running()
    ec2("RebootInstances", InstanceIds=[instance["InstanceId"]])
    assert machines.names()[-1] == "reboot"
    assert ec2.state(instance) == "running"


def test_an_api_only_instance_goes_the_same_way_by_the_clock_alone(
    ec2: Ec2, clock: ManualClock, machines: Recorder
) -> None:
    instance = ec2.run(boots_nothing=True)["Instances"][0]
    ids = [instance["InstanceId"]]
    states = [ec2.state(instance)]
    clock.advance(20)
    states.append(ec2.state(instance))
    for operation, seconds in (("StopInstances", 15), ("TerminateInstances", 30)):
        ec2(operation, InstanceIds=ids)
        states.append(ec2.state(instance))
        clock.advance(seconds)
        states.append(ec2.state(instance))
    assert states == ["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]
    assert machines.calls == []


def test_the_wires_are_there_before_the_machine(ec2: Ec2, cloud: Cloud, machines: Recorder) -> None:
    order: list[str] = machines.order

    class Network:
        def changed(self) -> None:
            order.append("network")

    cloud.network = Network()
    ec2.run()
    assert order == ["network", "start"]


def test_listeners_hear_of_each_state(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> None:
    from localcloud.api.ec2.lifecycle import on_change

    heard: list[tuple[str, str]] = []
    on_change(cloud, lambda instance: heard.append((instance.region_name, instance.state)))
    ec2.terminated(ec2.running())
    assert heard == [(REGION, state) for state in ("running", "shutting-down", "terminated")]


def test_capacity_is_given_back(ec2: Ec2, cloud: Cloud) -> None:
    fault: Any = cloud.faults.add("capacity", {"type": "t3.micro", "zone": f"{REGION}a"}, 2)
    instance = ec2.running()
    other = ec2.running()
    assert fault.value == 0
    with ec2.refused("InsufficientInstanceCapacity"):
        ec2.run()
    ec2.terminated(instance)
    assert fault.value == 1
    ec2.stopped(other)
    assert fault.value == 2
    ec2.terminated(other)
    assert fault.value == 2
