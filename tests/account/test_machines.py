"""The role machines, played alone: launch templates with and without EFA, and groups of others."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot

from localcloud.testing.catalog import API_ONLY
from tests.account.fleet import wait_until
from tests.account.kit import ROLE_PLAY

CLUSTER = "red"
USER_DATA = {"master": "#!/bin/sh\necho master\n", "worker": "#!/bin/sh\necho worker\n"}
PLAY = (
    ROLE_PLAY
    + """\
    - name: Create the machines
      ansible.builtin.include_role:
        name: deeplearning.aws.machines
"""
)


def settings(account: Any, worker_count: int = 0, efa: bool = True, public: bool = False) -> dict[str, Any]:
    """A worker type with EFA; the master is of another type."""
    ec2, iam = account.client("ec2"), account.client("iam")
    subnet = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1a"]}])["Subnets"][0]
    (group,) = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [subnet["VpcId"]]}])["SecurityGroups"]
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName="node", AssumeRolePolicyDocument=document)
    profile = iam.create_instance_profile(InstanceProfileName="node")["InstanceProfile"]["Arn"]
    iam.add_role_to_instance_profile(InstanceProfileName="node", RoleName="node")
    ec2.import_key_pair(KeyName="shared-key", PublicKeyMaterial=account.key().with_suffix(".pub").read_bytes())
    master = {
        "name": f"{CLUSTER}-master",
        "role": "master",
        "desired_capacity": 1,
        "instance_type": "t3.medium",
        "gpus": 0,
        "efa_cards": [],
        "instance_profile": profile,
        "subnet_id": subnet["SubnetId"],
        "security_groups": [group["GroupId"]],
        "spot": False,
        "public": public,
        "user_data": USER_DATA["master"],
    }
    workers = master | {
        "name": f"{CLUSTER}-workers",
        "role": "worker",
        "desired_capacity": worker_count,
        "public": False,
        "user_data": USER_DATA["worker"],
    }
    if efa:
        workers |= {"instance_type": "p4d.24xlarge", "efa_cards": [0, 1, 2, 3]}
    return {
        "machines_cluster": CLUSTER,
        "machines_groups": [master, workers],
        "machines_image": "localcloud-api-only",
        "machines_image_id": API_ONLY.id,
        "machines_root_volume_gib": 30,
        "machines_key_name": "shared-key",
    }


def test_each_type_gets_its_launch_template_and_what_others_have_is_refused(account: Any) -> None:
    play = account.folder / "machines.yml"
    play.write_text(PLAY, encoding="utf-8")
    account.settings = settings(account)
    ran = account.play(str(play))
    assert ran.code == 0, ran.output[-4000:]
    ec2 = account.client("ec2")
    data = {
        kind: ec2.describe_launch_template_versions(LaunchTemplateName=f"{CLUSTER}-{kind}", Versions=["$Default"])[
            "LaunchTemplateVersions"
        ][0]["LaunchTemplateData"]
        for kind in ("master", "workers")
    }
    cards = [
        (interface["NetworkCardIndex"], interface["InterfaceType"])
        for interface in data["workers"]["NetworkInterfaces"]
    ]
    assert cards == [(0, "interface"), *((card, "efa-only") for card in range(4))]
    assert "NetworkInterfaces" not in data["master"]
    assert data["workers"]["MetadataOptions"].items() <= data["master"]["MetadataOptions"].items()
    same = ("BlockDeviceMappings", "ImageId", "KeyName")
    assert [data["master"][key] for key in same] == [data["workers"][key] for key in same]

    started = time.time()
    ran = account.play(str(play))
    assert (ran.code, ran.changed) == (0, 0), ran.output[-4000:]
    assert account.writes(started) == []

    tag = {"ResourceId": f"{CLUSTER}-workers", "ResourceType": "auto-scaling-group", "Key": "deeplearning:cluster"}
    account.client("autoscaling").delete_tags(Tags=[tag])
    ran = account.play(str(play))
    assert ran.code == 2
    assert f"The Auto Scaling group {CLUSTER}-workers exists but does not have the tag" in " ".join(ran.output.split())

    (template,) = ec2.describe_launch_templates(LaunchTemplateNames=[f"{CLUSTER}-workers"])["LaunchTemplates"]
    ec2.delete_tags(Resources=[template["LaunchTemplateId"]], Tags=[{"Key": "deeplearning:cluster"}])
    started = time.time()
    ran = account.play(str(play))
    assert ran.code == 2
    assert f"The launch template {CLUSTER}-workers exists but does not have the tag" in " ".join(ran.output.split())
    assert account.writes(started) == []


def test_fewer_workers_are_the_first_by_rank_and_one_that_a_run_uses_is_not_removed(account: Any) -> None:
    play = account.folder / "machines.yml"
    play.write_text(PLAY, encoding="utf-8")
    account.settings = settings(account, worker_count=3, efa=False)
    ran = account.play(str(play))
    assert ran.code == 0, ran.output[-4000:]
    groups, ec2, name = account.client("autoscaling"), account.client("ec2"), f"{CLUSTER}-workers"

    def workers() -> list[str]:
        (group,) = groups.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return sorted(item["InstanceId"] for item in group["Instances"] if item["LifecycleState"] == "InService")

    wait_until(lambda: len(workers()) == 3)
    ids = workers()
    for rank, instance in zip((4, 2, 3), ids, strict=True):
        ec2.create_tags(Resources=[instance], Tags=[{"Key": "deeplearning:rank", "Value": str(rank)}])
    for instance, run in ((ids[0], ""), (ids[2], "lenet-1")):
        ec2.create_tags(Resources=[instance], Tags=[{"Key": "deeplearning:run", "Value": run}])

    started = time.time()
    account.settings["machines_groups"][1]["desired_capacity"] = 1
    ran = account.play(str(play))
    assert ran.code == 2
    output = " ".join(ran.output.split())
    assert "of the workers to remove deeplearning-worker3 is in use by a run." in output
    assert account.writes(started) == []

    # A hostile master never removes the tag.
    assert f"ansible-playbook deeplearning.aws.site -e remove_in_use={ids[2]} removes them all the same" in output
    ran = account.play(str(play), machines_remove_in_use=[ids[2]])
    assert ran.code == 0, ran.output[-4000:]
    wait_until(lambda: workers() == [ids[1]])
    ran = account.play(str(play))
    assert (ran.code, ran.changed) == (0, 0), ran.output[-4000:]


@pytest.mark.long
def test_machines_are_held_by_a_hook_from_the_first_one_on(account: Any) -> None:
    account.hold_machines()
    play = account.folder / "machines.yml"
    play.write_text(PLAY, encoding="utf-8")
    account.settings = settings(account, worker_count=2, public=True)
    # One each with and without EFA: two modules write their templates.
    ran = account.play(str(play))
    assert ran.code == 0, ran.output[-4000:]
    groups, ec2 = account.client("autoscaling"), account.client("ec2")

    def machines(state: str) -> list[str]:
        shown = groups.describe_auto_scaling_groups()["AutoScalingGroups"]
        members = [item for group in shown for item in group["Instances"] if item["LifecycleState"] == state]
        return sorted(item["InstanceId"] for item in members)

    wait_until(lambda: len(machines("Pending:Wait")) == 3)
    held = machines("Pending:Wait")
    shown = ec2.describe_instances(InstanceIds=held)["Reservations"]
    instances = [
        instance for reservation in shown for instance in reservation["Instances"] if instance.get("PublicIpAddress")
    ]
    public = [tag["Value"] for instance in instances for tag in instance["Tags"] if tag["Key"] == "Name"]
    assert public == [f"{CLUSTER}-master"]
    for kind, role in (("master", "master"), ("workers", "worker")):
        (hook,) = groups.describe_lifecycle_hooks(AutoScalingGroupName=f"{CLUSTER}-{kind}")["LifecycleHooks"]
        assert (hook["LifecycleHookName"], hook["HeartbeatTimeout"]) == (boot.HOOK, boot.HOOK_SECONDS)
        assert (hook["DefaultResult"], hook["LifecycleTransition"]) == (
            "ABANDON",
            "autoscaling:EC2_INSTANCE_LAUNCHING",
        )
        versions = ec2.describe_launch_template_versions(LaunchTemplateName=f"{CLUSTER}-{kind}", Versions=["$Default"])
        data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        assert base64.b64decode(data["UserData"]).decode() == USER_DATA[role]

    started = time.time()
    ran = account.play(str(play))
    assert (ran.code, ran.changed) == (0, 0), ran.output[-4000:]
    assert account.writes(started) == []

    for machine in held:
        (shown,) = groups.describe_auto_scaling_instances(InstanceIds=[machine])["AutoScalingInstances"]
        groups.complete_lifecycle_action(
            AutoScalingGroupName=shown["AutoScalingGroupName"],
            LifecycleHookName=boot.HOOK,
            InstanceId=machine,
            LifecycleActionResult="CONTINUE",
        )
    wait_until(lambda: machines("InService") == held)
