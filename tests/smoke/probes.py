"""What playbooks do not do: calls whose answers are not known, and machines that are killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import CLUSTER_TAG, Names, tag_filter
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import HOUR, IDLE, once
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import images

from tests.smoke import recording
from tests.smoke.policies import FAMILIES, SMALL
from tests.smoke.session import TAG, Cluster, Session
from tests.steps import Failed

REPLACED_SECONDS = 40 * 60
"""A killed machine is replaced, and the other one configured, well within this."""
MOVED_SECONDS = 5 * 60
HEALED_SECONDS = 10 * 60
POLL_SECONDS = 15.0


def scheduled_action(session: Session, name: str) -> None:
    """Put an action on a group without machines twice, the second time without its recurrence and end, and read it."""
    group = _empty_group(session, name)
    action = {"AutoScalingGroupName": group, "ScheduledActionName": Names(name).of(IDLE)}
    sizes = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
    whole = once(IDLE, session.clock() + 3 * HOUR)
    session.aws.call("autoscaling", "put_scheduled_update_group_action", **action, **whole)
    later = datetime.fromtimestamp(session.clock() + 5 * HOUR, UTC)
    try:
        session.aws.call("autoscaling", "put_scheduled_update_group_action", **action, **sizes, StartTime=later)
    except AwsError as error:
        # A kept EndTime lies before the new StartTime. The record has the answer.
        if error.is_fatal or error.code != "ValidationError":
            raise
    session.aws.call("autoscaling", "describe_scheduled_actions", AutoScalingGroupName=group)


def _empty_group(session: Session, name: str) -> str:
    aws, group = session.aws, Names(name).workers_group
    path = f"{images.PATH}/x86_64/{FAMILIES['ubuntu2204']}/latest/ami-id"
    (parameter,) = aws.call("ssm", "get_parameters", Names=[path])["Parameters"]
    (subnet, *_) = aws.pages("ec2", "describe_subnets", "Subnets", Filters=[tag_filter(CLUSTER_TAG, name)])
    tags = {CLUSTER_TAG: name, TAG: _end_of(session, name)}
    aws.call(
        "ec2",
        "create_launch_template",
        LaunchTemplateName=group,
        LaunchTemplateData={"ImageId": parameter["Value"], "InstanceType": SMALL},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": _pairs(tags)}],
    )
    aws.call(
        "autoscaling",
        "create_auto_scaling_group",
        AutoScalingGroupName=group,
        MinSize=0,
        MaxSize=0,
        DesiredCapacity=0,
        VPCZoneIdentifier=subnet["SubnetId"],
        LaunchTemplate={"LaunchTemplateName": group, "Version": "1"},
        Tags=[{**tag, "PropagateAtLaunch": False} for tag in _pairs(tags)],
    )
    return group


def _end_of(session: Session, name: str) -> str:
    (cluster,) = [cluster for cluster in session.clusters if cluster.name == name]
    return str(cluster.settings["cluster_tags"][TAG])


def _pairs(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def interface_of_mount_target(session: Session, name: str) -> None:
    """Ask whether the caller itself may delete the mount target's interface, without doing it."""
    aws = session.aws
    for system in aws.pages("efs", "describe_file_systems", "FileSystems", CreationToken=name):
        for target in aws.pages("efs", "describe_mount_targets", "MountTargets", FileSystemId=system["FileSystemId"]):
            interface = target["NetworkInterfaceId"]
            try:
                aws.call("ec2", "delete_network_interface", NetworkInterfaceId=interface, DryRun=True)
            except AwsError as error:
                if error.is_fatal:
                    raise


def kill(session: Session, cluster: Cluster, group: str) -> None:
    """End the machine of a group by EC2, and wait until another one is in service in its place. The master's address
    has to follow it: if it does not, that is recorded."""
    name = f"{cluster.name}-{group}"
    before = in_service(session, name)
    session.aws.call("ec2", "terminate_instances", InstanceIds=sorted(before))
    if not wait_until(lambda: bool(in_service(session, name) - before), REPLACED_SECONDS):
        raise Failed(f"{name} has no other machine in service after {REPLACED_SECONDS // 60} minutes")
    if group == "master":
        moved = wait_until(lambda: bool(addressed(session, cluster.name) - before), MOVED_SECONDS)
        recording.add(session.record, {"killed": group, "has_address": moved})


def heal(session: Session, cluster: Cluster) -> None:
    """Check the cluster's health until it is good: the new machines become members within minutes."""
    play_until_it_passes(session, cluster, "health.yml", HEALED_SECONDS)


def play_until_it_passes(session: Session, cluster: Cluster, playbook: str, seconds: float) -> None:
    problems: list[str] = []

    def passes() -> bool:
        try:
            session.play(playbook, cluster.settings)
        except Failed as failure:
            problems.append(str(failure))
            return False
        return True

    if not wait_until(passes, seconds):
        raise Failed(problems[-1])


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def addressed(session: Session, name: str) -> set[str]:
    """Return the machine that has the master's Elastic IP."""
    ours = [tag_filter(CLUSTER_TAG, name)]
    addresses = session.aws.pages("ec2", "describe_addresses", "Addresses", Filters=ours)
    return {address["InstanceId"] for address in addresses if address.get("InstanceId")}


def in_service(session: Session, group: str) -> set[str]:
    groups = session.aws.pages(
        "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", AutoScalingGroupNames=[group]
    )
    instances: list[Any] = [instance for group in groups for instance in group["Instances"]]
    return {instance["InstanceId"] for instance in instances if instance["LifecycleState"] == "InService"}
