"""Whatever happens to a group: left alone, it becomes what was asked for, and nothing of it is lost or left behind."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.testing.clock import ManualClock
from localcloud_kits.autoscaling_kit import Kit, kit_for

HOOKS = [
    {"LifecycleHookName": "ready", "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "HeartbeatTimeout": 30},
    {"LifecycleHookName": "bye", "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "HeartbeatTimeout": 30},
]


@pytest.fixture
def kit(cloud: Cloud, clock: ManualClock) -> Kit:
    return kit_for(cloud, clock)


def steps(kit: Kit, chance: random.Random) -> list[Callable[[], object]]:
    """What may happen next. What is refused does no harm."""

    def one() -> str:
        return chance.choice(kit.ids or ["i-none"])

    def zone() -> tuple[str, str]:
        return "t3.micro", chance.choice(["us-east-1a", "us-east-1b"])

    def die() -> None:
        name = one()
        if kit.ec2.instances[name].state == "running":
            kit.ec2.become(name, chance.choice(["terminated", "stopped"]))

    def complete(result: str) -> object:
        hook = chance.choice(["ready", "bye"])
        return kit.on("CompleteLifecycleAction", LifecycleHookName=hook, InstanceId=one(), LifecycleActionResult=result)

    def detach() -> None:
        name = one()
        kit.on("DetachInstances", InstanceIds=[name], ShouldDecrementDesiredCapacity=chance.random() < 0.5)
        kit.ec2.terminate(name)

    return [
        die,
        lambda: kit.on("SetDesiredCapacity", DesiredCapacity=chance.randint(0, 8)),
        lambda: kit.on("UpdateAutoScalingGroup", MinSize=chance.randint(0, 3), MaxSize=chance.randint(3, 8)),
        lambda: kit.on("SuspendProcesses", ScalingProcesses=[chance.choice(["Launch", "Terminate", "HealthCheck"])]),
        lambda: kit.on("ResumeProcesses"),
        lambda: kit.ec2.capacity.update({zone(): chance.randint(0, 2)}),
        lambda: kit.ec2.capacity.clear(),
        lambda: kit.ask(
            "TerminateInstanceInAutoScalingGroup",
            InstanceId=one(),
            ShouldDecrementDesiredCapacity=chance.random() < 0.5,
        ),
        lambda: complete("CONTINUE"),
        lambda: complete("ABANDON"),
        detach,
        lambda: kit.wait(chance.choice([0, 1, 5, 40])),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_a_group_left_alone_becomes_what_was_asked_for(kit: Kit, seed: int) -> None:
    chance = random.Random(seed)
    kit.scaling.launch_takes = lambda: chance.choice([0.0, 3.0])
    kit.create(2, VPCZoneIdentifier="subnet-a,subnet-b", LifecycleHookSpecificationList=HOOKS if seed % 2 else [])
    for _ in range(60):
        try:
            chance.choice(steps(kit, chance))()
        except (AwsError, KeyError):
            continue
        group = kit.scaling.groups["g"]
        assert group.min_size <= group.desired <= group.max_size
    kit.on("ResumeProcesses")
    kit.ec2.capacity.clear()
    for hook in HOOKS:
        kit.on("PutLifecycleHook", **{**hook, "DefaultResult": "CONTINUE"})
    kit.wait(2000)

    desired, zones = kit.group["DesiredCapacity"], [instance["AvailabilityZone"] for instance in kit.group["Instances"]]
    assert list(kit.states.values()) == ["InService"] * desired
    running = {name for name, seen in kit.ec2.instances.items() if seen.state != "terminated"}
    assert running == set(kit.ids)
    assert all("EndTime" in activity for activity in kit.activities)
    assert abs(zones.count("us-east-1a") - zones.count("us-east-1b")) <= 1

    kit.on("DeleteAutoScalingGroup", ForceDelete=True)
    kit.wait(2)
    assert {seen.state for seen in kit.ec2.instances.values()} <= {"terminated"}
    assert kit.scaling.groups == {}
