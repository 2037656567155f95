"""Shared file systems, mounted by the command that AWS documents."""

from __future__ import annotations

import secrets
from typing import Any

from localcloud.tests.integration.kit import Clients, Network, localcloud, wait_for

OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"


def file_system(cloud: Clients) -> str:
    made = cloud.efs.create_file_system(CreationToken=secrets.token_hex(8), Encrypted=True, ThroughputMode="elastic")
    name: str = made["FileSystemId"]
    wait_for(lambda: _state(cloud, name) == "available", 20, "the file system is available")
    return name


def _state(cloud: Clients, name: str) -> str:
    return str(cloud.efs.describe_file_systems(FileSystemId=name)["FileSystems"][0]["LifeCycleState"])


def mount_target(network: Network, name: str) -> tuple[str, str]:
    """A mount target that lets members of the network's group in, and the security group that does it."""
    ec2 = network.cloud.ec2
    group = ec2.create_security_group(GroupName=f"{network.name}-efs", Description="efs", VpcId=network.vpc)["GroupId"]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[nfs_rule(network)])
    made = network.cloud.efs.create_mount_target(FileSystemId=name, SubnetId=network.private, SecurityGroups=[group])

    def available() -> bool:
        found = network.cloud.efs.describe_mount_targets(MountTargetId=made["MountTargetId"])["MountTargets"]
        return bool(found[0]["LifeCycleState"] == "available")

    wait_for(available, 20, "the mount target is available")
    return str(made["MountTargetId"]), str(group)


def nfs_rule(network: Network) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "UserIdGroupPairs": [{"GroupId": network.group}]}


def mount(name: str, more: str = "", place: str = "/efs") -> str:
    source = f"{name}.efs.us-east-1.amazonaws.com:/"
    return f"sudo mkdir -p {place} && sudo mount -t nfs4 -o {OPTIONS}{more} {source} {place}"


def test_two_machines_share_a_folder_as_long_as_the_rules_let_them(network: Network) -> None:
    cloud = network.cloud
    first, second = network.launch(2)
    name = file_system(cloud)

    # No mount target: the name leads nowhere.
    done = network.ssh(first, mount(name, ",retry=0"))
    assert done.returncode == 32, done
    assert "Failed to resolve server" in done.stderr

    _, group = mount_target(network, name)
    for machine in (first, second):
        network.says(machine, mount(name))
    assert name in network.says(first, "findmnt -n -o SOURCE /efs")
    network.says(first, "sudo chmod 1777 /efs && echo from the first > /efs/note && chmod 600 /efs/note")
    assert network.says(second, "cat /efs/note") == "from the first"
    assert network.says(second, "stat -c '%U %a' /efs/note") == "ubuntu 600"
    assert network.says(second, "sudo touch /efs/roots && stat -c %U /efs/roots") == "root"
    assert network.ssh(first, "rm -f /efs/roots").returncode != 0, "the folder is sticky"

    # It is in fstab, so it is there again after a reboot.
    line = f"{name}.efs.us-east-1.amazonaws.com:/ /efs nfs4 {OPTIONS},_netdev 0 0"
    network.says(second, f"echo '{line}' | sudo tee -a /etc/fstab")
    cloud.ec2.reboot_instances(InstanceIds=[second])
    wait_for(lambda: network.ssh(second, "cat /efs/note").stdout == "from the first\n", 60, "mounted after the reboot")

    # What is mounted stays; who comes now waits in vain.
    cloud.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=[nfs_rule(network)])
    done = network.ssh(first, mount(name, ",retry=0", "/again"))
    assert done.returncode == 32
    assert "Connection timed out" in done.stderr
    assert network.says(second, "cat /efs/note") == "from the first"


def test_a_stalled_file_system_makes_everybody_wait(network: Network) -> None:
    (machine,) = network.launch()
    name = file_system(network.cloud)
    mount_target(network, name)
    network.says(machine, mount(name))
    assert localcloud("fault", "stall", name).returncode == 0
    assert network.says(machine, "sudo timeout -s KILL 3 ls /efs || echo in vain").endswith("in vain")
    assert localcloud("fault", "clear", name).returncode == 0
    network.says(machine, "sudo timeout -s KILL 10 ls /efs")


def test_nothing_above_the_folder_can_be_mounted(network: Network) -> None:
    (machine,) = network.launch()
    name = file_system(network.cloud)
    mount_target(network, name)
    source = f"{name}.efs.us-east-1.amazonaws.com:/../.."
    done = network.ssh(machine, f"sudo mkdir -p /up && sudo mount -t nfs4 -o nfsvers=4.1,retry=0 {source} /up")
    assert done.returncode == 32
    assert "No such file or directory" in done.stderr
