"""Launch a machine for this scenario in the local cloud, unless it runs: machine.py [--file-system]

In its folder in MOLECULE_EPHEMERAL_DIRECTORY, ssh_config says how to log in, with the host key from the console, and
machine.json what the machine is.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import boto3

from localcloud.testing.clients import observer_config
from localcloud.testing.facts import OPERATOR

T = TypeVar("T")
SCENARIO = os.environ["MOLECULE_SCENARIO_NAME"]
FOLDER = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "machines", SCENARIO)
ZONE, REGION = "us-east-1a", "us-east-1"
SECONDS = 120

ec2, efs = (boto3.client(service, REGION, config=observer_config()) for service in ("ec2", "efs"))


def wait_for(condition: Callable[[], T], what: str) -> T:
    """Return what the condition returns when that is true."""
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {SECONDS} s"
        time.sleep(0.3)  # between two checks
    return value


def running(instance_id: str) -> dict[str, Any] | None:
    reservations = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    (instance,) = (instance for reservation in reservations for instance in reservation["Instances"])
    return dict(instance) if instance["State"]["Name"] == "running" else None


def main() -> None:
    record = FOLDER / "machine.json"
    if record.exists():
        print("runs already")
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = f"{SCENARIO}-{secrets.token_hex(4)}"
    subnet, group = create_network(name)
    file_system = create_file_system(name, subnet, group) if "--file-system" in sys.argv else None
    instance = launch(name, subnet, group)
    write_ssh_config(instance)
    about = {"instance_id": instance["InstanceId"], "private_name": instance["PrivateDnsName"]}
    if file_system:
        about["efs_name"] = f"{file_system}.efs.{REGION}.amazonaws.com"
    record.write_text(json.dumps(about))
    print("launched")


def create_network(name: str) -> tuple[str, str]:
    """Create a public subnet, and a security group that lets the operator in by ssh."""
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/24")["Vpc"]["VpcId"]
    # Without this, file systems have no names.
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone=ZONE)["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"][0]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    group = ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"]
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": OPERATOR}]}
    inside = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[ssh, inside])
    return subnet, group


def create_file_system(name: str, subnet: str, group: str) -> str:
    created: str = efs.create_file_system(CreationToken=name, Encrypted=True)["FileSystemId"]

    def available() -> bool:
        (file_system,) = efs.describe_file_systems(FileSystemId=created)["FileSystems"]
        return bool(file_system["LifeCycleState"] == "available")

    wait_for(available, "the file system")
    efs.create_mount_target(FileSystemId=created, SubnetId=subnet, SecurityGroups=[group])
    return created


def launch(name: str, subnet: str, group: str) -> dict[str, Any]:
    key = FOLDER / "key"
    key.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    ec2.import_key_pair(KeyName=name, PublicKeyMaterial=key.with_suffix(".pub").read_bytes())
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-debian-12"]}])["Images"][0]["ImageId"]
    interface = {"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group], "AssociatePublicIpAddress": True}
    (launched,) = ec2.run_instances(
        ImageId=image, InstanceType="t3.micro", KeyName=name, MinCount=1, MaxCount=1, NetworkInterfaces=[interface]
    )["Instances"]
    return wait_for(lambda: running(launched["InstanceId"]), "the machine") or {}


def write_ssh_config(instance: dict[str, Any]) -> None:
    """Write how to log in, and wait until that works."""

    def host_key() -> str:
        console = ec2.get_console_output(InstanceId=instance["InstanceId"], Latest=True).get("Output", "")
        match = re.search(r"-----BEGIN SSH HOST KEY KEYS-----.*?(ssh-ed25519 \S+)", console, re.S)
        return match[1] if match else ""

    address = instance["PublicIpAddress"]
    (FOLDER / "known_hosts").write_text(f"{address} {wait_for(host_key, 'its host key')}\n")
    options = {
        "HostName": address,
        "User": "ubuntu",
        "IdentityFile": f'"{FOLDER}/key"',
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": f'"{FOLDER}/known_hosts"',
        "StrictHostKeyChecking": "yes",
    }
    lines = ["Host machine", *(f"    {name} {value}" for name, value in options.items())]
    (FOLDER / "ssh_config").write_text("\n".join(lines) + "\n")
    login = ["ssh", "-F", str(FOLDER / "ssh_config"), "-o", "ConnectTimeout=5", "machine", "true"]
    wait_for(lambda: subprocess.run(login, capture_output=True, check=False).returncode == 0, "ssh")


if __name__ == "__main__":
    main()
