"""A shortfall, from site.yml to status.yml; and that destroy.yml leaves alone what the cluster did not make."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.account.fleet import given_network, wait_for_file_system
from tests.account.kit import CLOUD_HALF

pytestmark = pytest.mark.gate

NAME, TYPE = "c-end", "t3.medium"


@pytest.fixture(autouse=True)
def settings(account: Any) -> None:
    account.wants(NAME, cluster_instance_type=TYPE, provision_settle_seconds=3)


def play(account: Any, playbooks: Any, *arguments: str, **extra: Any) -> Any:
    ran = account.play(playbooks, *arguments, **extra)
    assert ran.code == 0, ran.output[-6000:]
    return ran


def state_of(account: Any, **extra: Any) -> dict[str, Any]:
    """What status.yml says, as a machine reads it."""
    started = time.time()
    play(account, "status.yml", **extra)
    assert account.writes(started) == []
    result: dict[str, Any] = json.loads((account.folder / f".deeplearning/{NAME}.json").read_text())
    return result


@pytest.mark.long
def test_a_degraded_cluster_says_so_and_gets_the_rest_later(account: Any) -> None:
    assert state_of(account)["state"] == "absent"
    shortage = account.cloud.faults.add("capacity", {"type": TYPE}, value=4)
    settings = {"cluster_worker_count": 5, "cluster_worker_min": 2, "cluster_availability_zones": ["us-east-1a"]}
    ran = play(account, CLOUD_HALF, **settings)
    assert "has fewer machines than requested: 4 of 6 machines in service" in ran.output
    assert "We currently do not have sufficient t3.medium capacity" in ran.output
    result = state_of(account)
    assert (result["state"], result["machines"]) == ("degraded", {"desired": 6, "in_service": 4})
    assert "AWS has no capacity for 2 of c-end-workers" in result["reasons"][0]

    account.cloud.faults.remove(shortage)
    play(account, CLOUD_HALF, **settings)
    result = state_of(account)
    assert (result["state"], result["machines"], result["reasons"]) == ("ready", {"desired": 6, "in_service": 6}, [])
    assert result["ssh"].endswith(f"/{NAME}.ssh_config deeplearning-master")
    assert result["user"] == "ubuntu", "as site.yml has found it out"

    ran = account.play("destroy.yml")
    assert ran.code == 2
    assert f"type: ansible-playbook deeplearning.aws.destroy -e destroy={NAME}" in " ".join(ran.output.split())
    started = time.time()
    ran = account.play("destroy.yml", destroy="another")
    assert (ran.code, account.writes(started)) == (2, [])
    ran = play(account, "destroy.yml", destroy=NAME)
    assert "is kept and goes on costing" in ran.output
    ran = play(account, "destroy.yml", destroy=NAME)
    assert ran.changed == 0
    ran = account.play("destroy.yml", destroy="another")
    assert ran.code == 2, "another cluster still costs money"
    assert f"destroy is another and the cluster is {NAME}. Example: -e cluster_name=another" in " ".join(
        ran.output.split()
    )
    assert state_of(account)["state"] == "absent"


class Theirs:
    """A network and a file system that no cluster has made, and a user who may do nothing but assume a role."""

    def __init__(self, account: Any) -> None:
        self.ec2, self.efs = account.client("ec2"), account.client("efs")
        self.network = given_network(self.ec2)
        self.system = self.efs.create_file_system(CreationToken="theirs")["FileSystemId"]
        wait_for_file_system(self.efs, self.system)
        self.target = self.efs.create_mount_target(
            FileSystemId=self.system, SubnetId=self.network["private"], SecurityGroups=[self.network["group"]]
        )["MountTargetId"]
        self.person = in_a_role(account)
        self.person.settings |= {
            "cluster_vpc_id": self.network["vpc"],
            "cluster_public_subnet_ids": [self.network["public"]],
            "cluster_private_subnet_ids": [self.network["private"]],
            "cluster_efs_id": self.system,
            "cluster_security_group_ids": [self.network["group"]],
        }

    def groups_of_target(self) -> list[str]:
        groups: list[str] = self.efs.describe_mount_target_security_groups(MountTargetId=self.target)["SecurityGroups"]
        return groups


@pytest.mark.long
def test_two_clusters_share_a_network_and_a_file_system(account: Any) -> None:
    theirs = Theirs(account)
    play(theirs.person, CLOUD_HALF)
    play(theirs.person, CLOUD_HALF, cluster_name="c-beside")
    assert len(theirs.groups_of_target()) == 3
    assert state_of(theirs.person)["state"] == "ready"
    play(theirs.person, "destroy.yml", cluster_name="c-beside", destroy="c-beside", cluster_keep_efs=False)
    assert len(theirs.groups_of_target()) == 2
    assert state_of(theirs.person)["state"] == "ready"


def test_in_an_existing_network_foreign_resources_stay(account: Any) -> None:
    theirs = Theirs(account)
    ec2, existing, person = theirs.ec2, theirs.network, theirs.person
    before = network_of(ec2, existing["vpc"])
    ran = play(person, CLOUD_HALF, "-v")
    session = account.cloud.calls.since()[-1]
    assert session["caller"].endswith("assumed-role/worker/deeplearning"), session
    assert "SessionToken" not in ran.output and "secret_key" not in ran.output
    assert network_of(ec2, existing["vpc"]) == before
    assert len(theirs.groups_of_target()) == 2
    result = state_of(person)
    assert (result["state"], result["efs"]["file_system_id"]) == ("ready", theirs.system)
    (master,) = machines(ec2, NAME, "master")
    (worker,) = machines(ec2, NAME, "worker")
    assert (master["SubnetId"], worker["SubnetId"]) == (existing["public"], existing["private"])
    assert master["PublicIpAddress"] == result["master"]["public_ip"]
    for machine in (master, worker):
        assert existing["group"] in {group["GroupId"] for group in machine["SecurityGroups"]}

    play(person, "destroy.yml", destroy=NAME, cluster_keep_efs=False)
    assert theirs.groups_of_target() == [existing["group"]]
    (system,) = theirs.efs.describe_file_systems(FileSystemId=theirs.system)["FileSystems"]
    assert system["LifeCycleState"] == "available"
    assert network_of(ec2, existing["vpc"]) == before
    assert [group["GroupName"] for group in groups_in(ec2, existing["vpc"])] == ["default", "theirs"]

    # Another user has put the cluster's tag on a machine of theirs.
    tags = [{"Key": "deeplearning:cluster", "Value": NAME}]
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]["ImageId"]
    theirs = ec2.run_instances(
        ImageId=image,
        InstanceType=TYPE,
        MinCount=1,
        MaxCount=1,
        SubnetId=existing["private"],
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"][0]["InstanceId"]
    ran = person.play("destroy.yml", destroy=NAME)
    assert ran.code == 2
    assert theirs in ran.output and "the cluster did not make it" in " ".join(ran.output.split())
    assert ec2.describe_instances(InstanceIds=[theirs])["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"


def in_a_role(account: Any) -> Any:
    """A user with one permission: to assume a role that may do everything."""
    iam = account.client("iam")
    role = account.role("worker")
    iam.create_user(UserName="guest")
    may = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": role}
    iam.put_user_policy(
        UserName="guest", PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [may]})
    )
    key = iam.create_access_key(UserName="guest")["AccessKey"]
    account.settings["cluster_role_arn"] = role
    return account.as_user(key["AccessKeyId"], key["SecretAccessKey"])


def machines(ec2: Any, cluster: str, role: str) -> list[Any]:
    settings = {"deeplearning:cluster": cluster, "deeplearning:role": role}
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in settings.items()]
    result = ec2.describe_instances(Filters=[*filters, {"Name": "instance-state-name", "Values": ["running"]}])
    return [instance for reservation in result["Reservations"] for instance in reservation["Instances"]]


def network_of(ec2: Any, vpc: str) -> str:
    """Describe what another user has created in a VPC."""
    inside = [{"Name": "vpc-id", "Values": [vpc]}]
    things = [
        ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"],
        [{**subnet, "AvailableIpAddressCount": 0} for subnet in ec2.describe_subnets(Filters=inside)["Subnets"]],
        ec2.describe_route_tables(Filters=inside)["RouteTables"],
        ec2.describe_nat_gateways(Filter=inside)["NatGateways"],
        ec2.describe_vpc_endpoints(Filters=inside)["VpcEndpoints"],
        [group for group in groups_in(ec2, vpc) if group["GroupName"] in ("default", "theirs")],
    ]
    return json.dumps(things, default=str, sort_keys=True)


def groups_in(ec2: Any, vpc: str) -> list[Any]:
    result = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    return sorted(result, key=lambda group: str(group["GroupName"]))
