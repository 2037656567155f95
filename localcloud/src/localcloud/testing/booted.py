"""The local cloud as a service with booted machines: the command, clients, networks, ssh, and waiting.

with running() as cloud:
    with new_network(cloud, key) as network:
        (instance,) = network.launch()
        network.says(instance, "uname", "-a")
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import boto3

from localcloud import state
from localcloud.core.settings import IMAGE_NAME
from localcloud.machines import namespaces
from localcloud.machines.network import namespace_of
from localcloud.testing.clients import observer_config
from localcloud.testing.facts import OPERATOR, QUOTA_CODES

T = TypeVar("T")

LEAST_SECONDS = 120
"""A busy machine gets this time in any case."""

TRUST_EC2 = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


def command(*words: str | Path, timeout: float = 120, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and capture what it prints. `more` are arguments of `subprocess.run`."""
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, **more)


def localcloud(*words: str, timeout: float = 300, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the command `localcloud`, as a person does."""
    return command(sys.executable, "-m", "localcloud", *words, timeout=timeout, **more)


def environment() -> dict[str, str]:
    """Return what `eval "$(localcloud env)"` sets."""
    lines = localcloud("env").stdout.splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def status() -> dict[str, Any]:
    """Return what `localcloud status --json` prints."""
    answer: dict[str, Any] = state.ask("status")
    return answer


def calls(since: float = 0.0) -> list[dict[str, Any]]:
    """Return the API calls since a time."""
    answer: list[dict[str, Any]] = state.ask("calls", since=since)
    return answer


def add_fault(kind: str, target: dict[str, str], value: Any = None, left: int | None = None, seed: int = 0) -> str:
    """Cause a failure, and return its id. See `localcloud.core.faults` for the kinds."""
    fault = state.ask("fault", kind=kind, target=target, value=value, left=left, seed=seed)
    return str(fault.get("id", ""))


def clear_fault(fault: str) -> None:
    """Clear the faults with this id, kind or target."""
    state.ask("clear", which=fault)


def clear_faults() -> None:
    """Clear all faults."""
    state.ask("clear", which=None, kind=None)


def raise_quotas() -> None:
    """Let the networks of many tests exist: AWS's defaults are five of each."""
    for code in QUOTA_CODES:
        add_fault("quota", {"code": code}, 500)


def file_system_folder(file_system: str) -> Path:
    """Return the folder on this machine that has the contents of a file system."""
    (folder,) = (state.RUN / "efs" / file_system).glob("data*")
    return folder


def run_in_network_of(instance: str, *argv: str) -> None:
    """Run a program of this machine in the network namespace of an instance."""
    namespaces.run(namespace_of(state.RUN, instance), argv)


def wait_for(condition: Callable[[], T], seconds: float, what: str) -> T:
    """Return the value of the condition as soon as it is true. Raise AssertionError if the time is over, after at least
    120 seconds."""
    deadline = time.monotonic() + max(seconds, LEAST_SECONDS)
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not in time (last: {value!r})")
        time.sleep(0.2)  # between two looks at the condition
    return value


class Clients:
    """boto3 clients for a set of credentials, by service: `clients.ec2`, `clients.service_quotas`. Nothing is late for
    them."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self._session = boto3.Session(
            variables["AWS_ACCESS_KEY_ID"],
            variables["AWS_SECRET_ACCESS_KEY"],
            variables.get("AWS_SESSION_TOKEN"),
            region_name=variables.get("AWS_DEFAULT_REGION", "us-east-1"),
        )

    def __getattr__(self, service: str) -> Any:
        config = observer_config(retries={"total_max_attempts": 1})
        client = self._session.client(
            service.replace("_", "-"), endpoint_url=self.variables["AWS_ENDPOINT_URL"], config=config
        )
        setattr(self, service, client)
        return client

    def as_role(self, role_arn: str, name: str = "tester") -> Clients:
        """Return clients in a new session of a role."""
        credentials = self.sts.assume_role(RoleArn=role_arn, RoleSessionName=name)["Credentials"]
        variables = {
            **self.variables,
            "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
            "AWS_SESSION_TOKEN": credentials["SessionToken"],
        }
        return Clients(variables)

    def instances(self, *ids: str, **filters: str) -> list[dict[str, Any]]:
        """Return instances by their ids and filters, such as `vpc_id`."""
        parameters = [{"Name": name.replace("_", "-"), "Values": [value]} for name, value in filters.items()]
        answer = self.ec2.describe_instances(InstanceIds=list(ids), Filters=parameters)["Reservations"]
        return [instance for reservation in answer for instance in reservation["Instances"]]

    def instance(self, name: str) -> dict[str, Any]:
        """Return an instance."""
        return self.instances(name)[0]

    def group(self, name: str) -> dict[str, Any]:
        """Return an Auto Scaling group."""
        answer: dict[str, Any] = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
            "AutoScalingGroups"
        ][0]
        return answer

    def in_service(self, name: str) -> list[str]:
        """Return the instances of an Auto Scaling group that are in service."""
        return [
            member["InstanceId"] for member in self.group(name)["Instances"] if member["LifecycleState"] == "InService"
        ]

    def image(self, name: str = IMAGE_NAME) -> str:
        """Return the id of an image."""
        answer = self.ec2.describe_images(Filters=[{"Name": "name", "Values": [name]}])["Images"]
        return str(answer[0]["ImageId"])

    def role(self, name: str, *statements: dict[str, Any]) -> str:
        """Create a role for instances and an instance profile of the same name. Return the ARN of the role."""
        trust = json.dumps(TRUST_EC2)
        arn: str = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        if statements:
            self.allow(name, *statements)
        self.iam.create_instance_profile(InstanceProfileName=name)
        self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        return arn

    def allow(self, role: str, *statements: dict[str, Any]) -> None:
        """Replace the policy of a role."""
        document = {"Version": "2012-10-17", "Statement": list(statements)}
        self.iam.put_role_policy(RoleName=role, PolicyName="test", PolicyDocument=json.dumps(document))


def up(*options: str, strict: bool = True) -> Clients:
    """Start the local cloud with options of `localcloud up`, and return clients of it."""
    _succeed(localcloud("up", *(["--strict"] if strict else []), *options))
    return Clients(environment())


def down() -> None:
    """Stop the local cloud."""
    _succeed(localcloud("down"))


def is_up() -> bool:
    """Return whether a local cloud is up on this machine."""
    return localcloud("status").returncode == 0


@contextmanager
def running(*options: str, strict: bool = True) -> Iterator[Clients]:
    """Use the local cloud that is up, or start one that ends with this."""
    if is_up():
        yield Clients(environment())
        return
    try:
        yield up(*options, strict=strict)
    finally:
        down()


def _succeed(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, done.args))}: {done.returncode}\n{done.stderr}")


@dataclass
class Network:
    """A VPC with a public and a private subnet, whose instances let the operator in by ssh."""

    cloud: Clients
    key: Path
    name: str
    vpc: str
    public: str
    private: str
    group: str
    """lets the operator in by ssh, and its members talk to each other"""
    nat: str = ""
    known: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def create(cloud: Clients, key: Path) -> Network:
        """Create a network. `key` is the private key that logs in to its instances."""
        name = f"t-{secrets.token_hex(3)}"
        ec2 = cloud.ec2
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})  # or file systems have no names
        zone = "us-east-1a"
        public, private = (
            ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"]
            for cidr in ("10.0.0.0/24", "10.0.1.0/24")
        )
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        _route(ec2, vpc, public, GatewayId=gateway)
        group = ec2.create_security_group(GroupName=name, Description="test", VpcId=vpc)["GroupId"]
        ec2.authorize_security_group_ingress(
            GroupId=group,
            IpPermissions=[
                {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": OPERATOR}]},
                {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]},
            ],
        )
        if not ec2.describe_key_pairs(Filters=[{"Name": "key-name", "Values": ["tester"]}])["KeyPairs"]:
            public_half = key.with_suffix(".pub").read_bytes()
            ec2.import_key_pair(KeyName="tester", PublicKeyMaterial=public_half)
        return Network(cloud, key, name, vpc, public, private, group)

    def remove(self) -> None:
        """Delete what slows down the next test: the Auto Scaling group and the instances."""
        scaling = self.cloud.autoscaling
        if scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[self.name])["AutoScalingGroups"]:
            scaling.delete_auto_scaling_group(AutoScalingGroupName=self.name, ForceDelete=True)
        instances = self.cloud.instances(vpc_id=self.vpc)
        alive = [i["InstanceId"] for i in instances if i["State"]["Name"] not in ("terminated", "shutting-down")]
        if alive:
            self.cloud.ec2.terminate_instances(InstanceIds=alive)

    def add_nat(self) -> str:
        """Create a NAT gateway for the private subnet, and return its public address."""
        ec2 = self.cloud.ec2
        address = ec2.allocate_address(Domain="vpc")
        made = ec2.create_nat_gateway(SubnetId=self.public, AllocationId=address["AllocationId"])["NatGateway"]
        self.nat = made["NatGatewayId"]
        _route(ec2, self.vpc, self.private, NatGatewayId=self.nat)
        return str(address["PublicIp"])

    def launch(
        self, count: int = 1, *, public: bool = True, subnet: str = "", wait: bool = True, **more: Any
    ) -> list[str]:
        """Launch instances, wait for ssh, and return their ids. `more` are parameters of RunInstances."""
        interface = {
            "DeviceIndex": 0,
            "SubnetId": subnet or (self.public if public else self.private),
            "Groups": [self.group],
            "AssociatePublicIpAddress": public,
        }
        parameters = {"ImageId": self.cloud.image(), "InstanceType": "t3.micro", "KeyName": "tester", **more}
        made = self.cloud.ec2.run_instances(MinCount=count, MaxCount=count, NetworkInterfaces=[interface], **parameters)
        ids = [instance["InstanceId"] for instance in made["Instances"]]
        if wait:
            for name in ids:
                self.wait_for_ssh(name)
        return ids

    def template(self, **more: Any) -> str:
        """Create a launch template, and return its id."""
        data = {
            "ImageId": self.cloud.image(),
            "InstanceType": "t3.micro",
            "KeyName": "tester",
            "SecurityGroupIds": [self.group],
            **more,
        }
        made = self.cloud.ec2.create_launch_template(LaunchTemplateName=self.name, LaunchTemplateData=data)
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def scaling_group(self, size: int, template: str, **more: Any) -> str:
        """Create an Auto Scaling group in the private subnet, and return its name."""
        self.cloud.autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=self.name,
            MinSize=0,
            MaxSize=size,
            DesiredCapacity=size,
            VPCZoneIdentifier=self.private,
            LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"},
            **more,
        )
        return self.name

    def address(self, name: str) -> str:
        """Return the public address of an instance, or its private one if it has no other."""
        instance = self.cloud.instance(name)
        return str(instance.get("PublicIpAddress") or instance.get("PrivateIpAddress"))

    def ssh(
        self,
        name: str,
        *words: str,
        via: str | None = None,
        user: str = "ubuntu",
        timeout: float = 60,
        **more: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in an instance by ssh, through another one if `via` is given. Host keys are not compared."""
        options = [
            "-i", str(self.key), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR",
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
        ]  # fmt: skip
        if via is not None:
            hop = " ".join(["ssh", *options, "-W", "%h:%p", f"ubuntu@{self.address(via)}"])
            options += ["-o", f"ProxyCommand={hop}"]
        return command("ssh", *options, f"{user}@{self.address(name)}", *words, timeout=timeout, **more)

    def wait_for_ssh(self, name: str, via: str | None = None, seconds: float = 120) -> None:
        """Wait until an instance accepts a login."""
        wait_for(lambda: self.ssh(name, "true", via=via).returncode == 0, seconds, f"ssh to {name}")

    def says(self, name: str, *words: str, via: str | None = None, user: str = "ubuntu") -> str:
        """Return what a command prints in an instance. It must succeed."""
        done = self.ssh(name, *words, via=via, user=user)
        if done.returncode:
            raise AssertionError(f"{words} in {name}: {done.returncode} {done.stdout} {done.stderr}")
        return done.stdout.strip()


@contextmanager
def new_network(cloud: Clients, key: Path) -> Iterator[Network]:
    """Create a network. Afterwards no fault is in force, and its instances are gone."""
    raise_quotas()
    network = Network.create(cloud, key)
    try:
        yield network
    finally:
        clear_faults()
        network.remove()


def _route(ec2: Any, vpc: str, subnet: str, **target: str) -> None:
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)


def user_data(script: str) -> str:
    """Return a shell script as user data of launch templates."""
    return base64.b64encode(f"#!/bin/sh\n{script}\n".encode()).decode()


def traces() -> dict[str, Sequence[str]]:
    """Return all that a local cloud leaves visible on this machine: processes, mounts, links, routes, tables, groups.

    Compare what it returns before `up` and after `down`.
    """
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if any(name in words for name in ("systemd-nspawn", "bindfs", "localcloud.serve")):
                processes.append(words)
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    # Images may be built meanwhile.
    mounts = [mount for mount in mounts if "/.building-" not in mount]
    return {
        "processes": processes,
        "mounts": sorted(mounts),
        "links": command("ip", "-o", "link").stdout.splitlines(),
        "routes": command("ip", "route", "show", "table", "all").stdout.splitlines(),
        "tables": command("nft", "list", "tables").stdout.splitlines(),
        "groups": [path for path in _below("/sys/fs/cgroup") if "localcloud" in path.rpartition("/")[2]],
        "forwarding": [Path("/proc/sys/net/ipv4/ip_forward").read_text(encoding="ascii")],
        "nspawn": [path for path in _below("/run/systemd/nspawn") if path.count("/") > 4],
        "namespaces": sorted(os.listdir("/run/netns")) if Path("/run/netns").exists() else [],
    }


def _below(folder: str) -> list[str]:
    """Return all folders and files below one. Unlike rglob, os.walk passes over folders that disappear meanwhile."""
    return sorted(f"{root}/{name}" for root, folders, files in os.walk(folder) for name in (*folders, *files))
