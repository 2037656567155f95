"""One machine in the local cloud, by plain boto3: machine.py make|end FOLDER

In FOLDER: `machine.json` says what it is, `ssh_config` how it is reached (its host key comes from its console), and
`ours` is there if the local cloud was started for it.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import boto3

T = TypeVar("T")
ZONE, REGION = "us-east-1a", "us-east-1"
OPERATOR = "198.51.100.1/32"
SECONDS = 60


def localcloud(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "localcloud", *words], capture_output=True, text=True, check=False)


def up(ours: Path) -> boto3.Session:
    """One that is up already is used, and stays."""
    if localcloud("status").returncode != 0:
        ours.touch()
        started = localcloud("up")
        assert started.returncode == 0, started.stderr
    lines = localcloud("env").stdout.splitlines()
    given = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    return boto3.Session(given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"], region_name=REGION)


def wait_for(look: Callable[[], T], what: str) -> T:
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {SECONDS} s"
        time.sleep(0.3)  # between two looks
    return found


def make(folder: Path) -> None:
    session = up(folder / "ours")
    clients = {name: session.client(name, endpoint_url="http://127.0.0.1:4599") for name in ("ec2", "efs")}
    ec2 = clients["ec2"]
    name = f"{folder.name}-{secrets.token_hex(4)}"
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/24")["Vpc"]["VpcId"]
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
    file_system = share(clients["efs"], name, subnet, group)
    machine = launch(ec2, folder, name, subnet, group)
    reach(ec2, folder, machine)
    (folder / "machine.json").write_text(
        json.dumps(
            {
                "instance_id": machine["InstanceId"],
                "private_name": machine["PrivateDnsName"],
                "efs_name": f"{file_system}.efs.{REGION}.amazonaws.com",
            }
        )
    )


def share(efs: Any, name: str, subnet: str, group: str) -> str:
    made: str = efs.create_file_system(CreationToken=name, Encrypted=True)["FileSystemId"]

    def available() -> bool:
        return bool(efs.describe_file_systems(FileSystemId=made)["FileSystems"][0]["LifeCycleState"] == "available")

    wait_for(available, "the file system")
    efs.create_mount_target(FileSystemId=made, SubnetId=subnet, SecurityGroups=[group])
    return made


def launch(ec2: Any, folder: Path, name: str, subnet: str, group: str) -> dict[str, Any]:
    key = folder / "key"
    key.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    ec2.import_key_pair(KeyName=name, PublicKeyMaterial=key.with_suffix(".pub").read_bytes())
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-debian-12"]}])["Images"][0]["ImageId"]
    interface = {"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group], "AssociatePublicIpAddress": True}
    made = ec2.run_instances(
        ImageId=image, InstanceType="t3.micro", KeyName=name, MinCount=1, MaxCount=1, NetworkInterfaces=[interface]
    )["Instances"][0]["InstanceId"]

    def running() -> dict[str, Any] | None:
        found: dict[str, Any] = ec2.describe_instances(InstanceIds=[made])["Reservations"][0]["Instances"][0]
        return found if found["State"]["Name"] == "running" else None

    return wait_for(running, "the machine")


def reach(ec2: Any, folder: Path, machine: dict[str, Any]) -> None:
    def key() -> str:
        console = ec2.get_console_output(InstanceId=machine["InstanceId"], Latest=True).get("Output", "")
        found = re.search(r"-----BEGIN SSH HOST KEY KEYS-----.*?(ssh-ed25519 \S+)", console, re.S)
        return found[1] if found else ""

    address = machine["PublicIpAddress"]
    (folder / "known_hosts").write_text(f"{address} {wait_for(key, 'its host key')}\n")
    settings = {
        "HostName": address,
        "User": "ubuntu",
        "IdentityFile": folder / "key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": folder / "known_hosts",
        "StrictHostKeyChecking": "yes",
    }
    lines = ["Host machine", *(f"    {name} {value}" for name, value in settings.items())]
    (folder / "ssh_config").write_text("\n".join(lines) + "\n")
    login = ["ssh", "-F", str(folder / "ssh_config"), "-o", "ConnectTimeout=5", "machine", "true"]
    wait_for(lambda: subprocess.run(login, capture_output=True, check=False).returncode == 0, "ssh")


def end(folder: Path) -> None:
    """Only the machine costs anything: the rest goes with the local cloud."""
    made, ours = folder / "machine.json", folder / "ours"
    if ours.exists():
        assert localcloud("down").returncode == 0
        ours.unlink()
    elif made.exists() and localcloud("status").returncode == 0:
        ec2 = up(ours).client("ec2", endpoint_url="http://127.0.0.1:4599")
        ec2.terminate_instances(InstanceIds=[json.loads(made.read_text())["instance_id"]])
    made.unlink(missing_ok=True)


if __name__ == "__main__":
    {"make": make, "end": end}[sys.argv[1]](Path(sys.argv[2]))
