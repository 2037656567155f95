"""What a cluster needs, end to end: a group of machines in a private subnet, reached through a public one."""

from __future__ import annotations

import base64
import json

from localcloud.testing.booted import Network, localcloud, user_data, wait_for

# Run by cloud-init in each machine: who am I, by the role's credentials from the metadata service.
WHO_AM_I = """
python3 - > /tmp/who.json <<'END'
import boto3, json
print(json.dumps({"arn": boto3.client("sts", region_name="us-east-1").get_caller_identity()["Arn"]}))
END
"""


def wait_for_user_data(network: Network, machine: str, result: str, via: str | None = None) -> str:
    """What the script has written."""
    return wait_for(
        lambda: network.ssh(machine, f"cat {result}", via=via).stdout, 120, f"user data has run in {machine}"
    )


def test_a_private_group_behind_a_bastion_keeps_its_size(network: Network) -> None:
    cloud = network.cloud
    network.add_nat()
    cloud.role(network.name)
    profile = {"Name": network.name}
    metadata = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    template = network.template(UserData=user_data(WHO_AM_I), IamInstanceProfile=profile, MetadataOptions=metadata)
    group = network.scaling_group(2, template)
    (bastion,) = network.launch()

    members = wait_for(lambda: ids if len(ids := cloud.in_service(group)) == 2 else None, 120, "two in service")
    for member in members:
        network.wait_for_ssh(member, via=bastion)
        who = wait_for_user_data(network, member, "/tmp/who.json", via=bastion)
        assert json.loads(who)["arn"].endswith(f":assumed-role/{network.name}/{member}")
        shown = cloud.instance(member)
        assert "PublicIpAddress" not in shown
        assert network.says(member, "hostname -I", via=bastion) == shown["PrivateIpAddress"]

    # The operator's machine has no way to a private address, and neither has the bastion's own address any but ssh.
    assert network.ssh(members[0], "true", timeout=30).returncode != 0

    assert localcloud("fault", "kill", members[0]).returncode == 0
    replaced = wait_for(
        lambda: (
            [name for name in cloud.in_service(group) if name not in members]
            if len(cloud.in_service(group)) == 2
            else []
        ),
        120,
        "a replacement in service",
    )
    assert cloud.instance(members[0])["State"]["Name"] == "terminated"
    network.wait_for_ssh(replaced[0], via=bastion)
    causes = [
        activity["Cause"]
        for activity in cloud.autoscaling.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    ]
    assert any("taken out of service in response to an EC2 health check" in cause for cause in causes)


def test_capacity_that_is_missing_is_said_and_filled_when_it_comes(network: Network) -> None:
    cloud = network.cloud
    # A type of its own: what other tests' machines give back when they end is not for this one.
    assert localcloud("fault", "capacity", "1", "--type", "t3.nano", "--zone", "us-east-1a").returncode == 0
    group = network.scaling_group(2, network.template(InstanceType="t3.nano"))
    wait_for(lambda: len(cloud.in_service(group)) == 1, 120, "one in service")

    def failed() -> list[str]:
        result = cloud.autoscaling.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
        return [activity["StatusMessage"] for activity in result if activity["StatusCode"] == "Failed"]

    messages = wait_for(failed, 120, "an activity that says why")
    assert "sufficient t3.nano capacity in the Availability Zone you requested (us-east-1a)" in messages[0]
    assert cloud.group(group)["DesiredCapacity"] == 2

    assert localcloud("fault", "clear").returncode == 0
    wait_for(lambda: len(cloud.in_service(group)) == 2, 120, "the second in service")


def test_a_launch_hook_holds_an_instance_until_somebody_answers(network: Network) -> None:
    cloud = network.cloud
    hook = {
        "LifecycleHookName": "ready",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
        "DefaultResult": "ABANDON",
        "HeartbeatTimeout": 300,
    }
    group = network.scaling_group(1, network.template(), LifecycleHookSpecificationList=[hook])

    def waiting(besides: str = "") -> str:
        members = cloud.group(group)["Instances"]
        result = [
            m["InstanceId"] for m in members if m["LifecycleState"] == "Pending:Wait" and m["InstanceId"] != besides
        ]
        return result[0] if result else ""

    def answer(name: str, result: str) -> None:
        cloud.autoscaling.complete_lifecycle_action(
            AutoScalingGroupName=group, LifecycleHookName="ready", InstanceId=name, LifecycleActionResult=result
        )

    first = wait_for(waiting, 120, "an instance in Pending:Wait")
    assert cloud.instance(first)["State"]["Name"] == "running"
    answer(first, "ABANDON")
    second = wait_for(lambda: waiting(besides=first), 120, "a replacement in Pending:Wait")
    wait_for(lambda: cloud.instance(first)["State"]["Name"] == "terminated", 120, "the abandoned one terminated")
    answer(second, "CONTINUE")
    wait_for(lambda: cloud.in_service(group) == [second], 120, "the second in service")


def test_type_user_data_console_and_disk_of_a_machine(network: Network) -> None:
    cloud = network.cloud
    script = base64.b64decode(user_data("nvidia-smi -L > /tmp/gpus")).decode()
    (machine,) = network.launch(InstanceType="p3.8xlarge", UserData=script)
    listed = wait_for_user_data(network, machine, "/tmp/gpus")
    assert [line.split(":")[0] for line in listed.splitlines()] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    query = "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader"
    assert len(network.says(machine, query).splitlines()) == 4
    assert "NVRM version: NVIDIA" in network.says(machine, "cat /proc/driver/nvidia/version")
    lose = "echo 3.lost 1 >> /etc/localcloud/gpus"
    assert localcloud("exec", machine, "--", "sh", "-c", lose).returncode == 0
    assert "handle for GPU3: GPU is lost" in network.says(machine, "nvidia-smi -L || true")

    # The console has the host keys that ssh meets.
    met = network.says(machine, "cat /etc/ssh/ssh_host_ed25519_key.pub").split()[1]

    def console_text() -> str:
        output = cloud.ec2.get_console_output(InstanceId=machine, Latest=True).get("Output", "")
        return str(output) if "END SSH HOST KEY KEYS" in output else ""

    console = wait_for(console_text, 120, "host keys on the console")
    assert met in console
    assert met in localcloud("console", machine).stdout
    done = localcloud("exec", machine, "--", "sh", "-c", "id -un; exit 3")
    assert (done.stdout.strip(), done.returncode) == ("root", 3)

    network.says(machine, "echo kept > kept && sync")
    before = _started(network, machine)
    cloud.ec2.reboot_instances(InstanceIds=[machine])
    wait_for(lambda: _started(network, machine) not in ("", before), 120, "the machine came up again")
    assert network.says(machine, "cat kept") == "kept"

    # A machine that is shut down from inside is an instance that is stopped.
    network.ssh(machine, "sudo systemctl poweroff")
    wait_for(lambda: cloud.instance(machine)["State"]["Name"] == "stopped", 120, "stopped from inside")


def _started(network: Network, machine: str) -> str:
    """When a machine's first process was started; nothing while it cannot be asked."""
    done = network.ssh(machine, "cut -d' ' -f22 /proc/1/stat")
    return done.stdout if done.returncode == 0 else ""
