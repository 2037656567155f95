"""The documented policies allow what all playbooks need, from a plan to a destroyed cluster, and no more."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.backends import get_backend

from localcloud.testing.catalog import BASE
from tests.account.booting import GIVES_UP, nodes_of
from tests.account.documented import DOCUMENTED, Log, Roles, listed_in_readme, person_of, play
from tests.account.fleet import meeting
from tests.account.kit import CLOUD_HALF, Account, account_in
from tests.account.operators import ACCOUNT, MINE, REGION, TYPE, ZONE, second_nat_gateway, tagged
from tests.forking import ForkingPython

pytestmark = pytest.mark.gate

BY_VERSION = {"s3:GetBucketLogging": 11}
"""Actions that are needed from a major version of amazon.aws on."""


class Way:
    """One cluster's, from fixture to fixture."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.person = person_of(account)
        self.log = Log(account)
        self.roles = Roles(self.log)


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory, forking: ForkingPython) -> Iterator[Way]:
    with account_in(tmp_path_factory.mktemp("way"), forking=forking) as account:
        yield Way(account)


@pytest.fixture(scope="module")
def created(way: Way) -> Way:
    """Its cluster was created with one worker of three, and repaired."""
    account, person, roles = way.account, way.person, way.roles
    # A new account has no quotas of its own.
    account.cloud.faults.add("default-quotas", {})
    account.cloud.faults.add("ebs-key", {}, f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1")
    play(person, "plan.yml", code=2, cluster_image="base-oss-nvidia-driver-gpu-ubuntu-21.04")

    # One of three workers comes.
    shortage = account.cloud.faults.add("capacity", {"type": TYPE}, value=2)
    roles.add(play(person, CLOUD_HALF))

    # All are wanted or none, and one more comes.
    another_user_changes_resources(account)
    shortage.value = 1
    person.settings.update(
        cluster_spot=False,
        cluster_efs_tls=False,
        cluster_efs_throughput="bursting",
        cluster_ttl_hours=0,
        remove_end=True,
        cluster_capacity_policy="all_or_nothing",
        cluster_worker_min=3,
        cluster_image=BASE.id,
        cluster_ssh_allowed_cidrs=["203.0.113.0/24", "192.0.2.7/32"],
        cluster_public_key_file=f"{account.folder / 'another'}.pub",
        cluster_tags={"team": "research"},
    )
    roles.add(play(person, CLOUD_HALF, code=2))
    account.cloud.faults.remove(shortage)
    return way


@pytest.fixture(scope="module")
def changed(created: Way) -> Way:
    """It has grown and shrunk, and duplicates were deleted."""
    account, person, roles = created.account, created.person, created.roles
    # Another one comes, and cannot configure itself.
    nodes = nodes_of(account, MINE)
    nodes.will(f"{MINE}-workers", GIVES_UP)
    with nodes.boot():
        roles.add(play(person, CLOUD_HALF, code=2, cluster_worker_count=2, cluster_worker_min=2))
    # The worker in service is terminated, and so are the machines that the launch hooks hold. The network has what two
    # runs at the same time would have left.
    duplicates = ",".join(second_nat_gateway(account, MINE))
    removals = {"remove_workers": 1, "remove_duplicates": duplicates}
    roles.add(play(person, CLOUD_HALF, cluster_worker_count=0, cluster_worker_min=0, **removals))
    del person.settings["remove_end"]
    return created


@pytest.fixture(scope="module")
def operated(changed: Way) -> Way:
    """Every other playbook was played."""
    account, person = changed.account, changed.person
    assert "cannot be read" not in play(person, "playbooks/logs.yml").output

    with nodes_of(account, MINE, "0" * 64).bake(MINE):
        play(person, "playbooks/image.yml", image_frameworks=["pytorch"])
    play(person, "playbooks/audit.yml")
    play(person, "playbooks/image.yml", image_state="absent")

    # Machines that do not boot show no host keys.
    play(person, meeting(account.folder), code=2)
    play(person, "status.yml")
    play(person, "playbooks/audit.yml")
    play(person, "playbooks/audit.yml", audit="all")
    photos = account.folder / "photos"
    photos.mkdir()
    # Sent in parts, which are taken back when one of them fails.
    (photos / "photos.bin").write_bytes(bytes(9 << 20))
    broken = {"code": "InternalError", "message": "We encountered an internal error.", "status": 500}
    fault = account.cloud.faults.add("error", {"action": "s3:UploadPart"}, value=broken)
    # An administrator creates the bucket that all operators share.
    plain = account.folder / "plain"
    plain.mkdir()
    (plain / "plain.bin").write_bytes(b"plain")
    play(account, "stage.yml", dataset="plain", source_dir=str(plain))
    play(person, "stage.yml", code=2, dataset="photos", source_dir=str(photos))
    account.cloud.faults.remove(fault)
    play(person, "stage.yml", dataset="photos", source_dir=str(photos))
    return changed


@pytest.fixture(scope="module")
def removed(operated: Way) -> Way:
    account, person = operated.account, operated.person
    another_user_adds_resources(account)
    play(person, "destroy.yml", code=2, destroy=MINE)
    another_user_releases_the_network(account)
    play(person, "destroy.yml", destroy=MINE)
    play(person, "destroy.yml", destroy=MINE, cluster_keep_efs=False)
    # Without a record of the place, all regions of the account are searched.
    (account.folder / f".deeplearning/{MINE}.json").unlink()
    (account.folder / f".deeplearning/{MINE}.ssh_config").unlink(missing_ok=True)
    play(person, "destroy.yml", destroy=MINE)
    play(account, "destroy.yml", destroy_data=f"{ACCOUNT}-{REGION}-deeplearning-data")
    return operated


def test_a_cluster_is_created_with_it(created: Way) -> None:
    assert created.log.refused() == []


def test_a_cluster_is_changed_with_it(changed: Way) -> None:
    assert changed.log.refused() == []


def test_a_cluster_is_operated_with_it(operated: Way) -> None:
    assert operated.log.refused() == []


def test_all_playbooks_run_with_it_and_need_all_of_it(removed: Way) -> None:
    log, roles = removed.log, removed.roles
    later = {action for action, version in BY_VERSION.items() if amazon_aws() < version}
    needed = log.needed()
    problems = [f"refused: {call}" for call in log.refused()]
    problems += [
        f"needed, and not in docs/iam: {action} ({needed[action]})" for action in sorted(needed.keys() - DOCUMENTED)
    ]
    problems += [f"in docs/iam, and never needed: {action}" for action in sorted(DOCUMENTED - needed.keys() - later)]
    for role, actions in sorted(roles.needed.items()):
        listed = listed_in_readme(role)
        problems += [f"needed by {role}, and not in its README: {action}" for action in sorted(actions - listed)]
        problems += [
            f"in the README of {role}, and never needed: {action}" for action in sorted(listed - actions - later)
        ]
    assert not problems, "\n" + "\n".join(problems)


def amazon_aws() -> int:
    """Return the major version of the collection."""
    (collection,) = (Path(folder) for folder in sys.path if (Path(folder) / "ansible_collections/amazon/aws").is_dir())
    manifest = json.loads((collection / "ansible_collections/amazon/aws/MANIFEST.json").read_text(encoding="utf-8"))
    return int(manifest["collection_info"]["version"].split(".")[0])


def the_vpc(account: Any) -> Any:
    ours = [{"Name": "tag:deeplearning:cluster", "Values": [MINE]}]
    return account.client("ec2").describe_vpcs(Filters=ours)["Vpcs"][0]["VpcId"]


def one(account: Any, operation: str, key: str, name: str) -> Any:
    (result,) = getattr(account.client("ec2"), operation)(Filters=[{"Name": "tag:Name", "Values": [name]}])[key]
    return result


def another_user_changes_resources(account: Any) -> None:
    """Whatever site.yml repairs."""
    ec2, iam, s3, efs = (account.client(service) for service in ("ec2", "iam", "s3", "efs"))
    ssh = one(account, "describe_security_groups", "SecurityGroups", f"{MINE}-ssh")["GroupId"]
    iam.update_role(RoleName=f"{MINE}-{REGION}-worker", Description="Another user's")
    iam.delete_role_permissions_boundary(RoleName=f"{MINE}-{REGION}-worker")
    # The same as one that the settings will have, but for its description.
    by_hand = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.7/32"}]}
    ec2.authorize_security_group_ingress(GroupId=ssh, IpPermissions=[by_hand])

    bucket = f"{MINE}-{ACCOUNT}-{REGION}"
    s3.delete_public_access_block(Bucket=bucket)
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": "ObjectWriter"}]})
    encryption = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=encryption)

    (system,) = efs.describe_file_systems()["FileSystems"]
    (target,) = efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]
    efs.modify_mount_target_security_groups(MountTargetId=target["MountTargetId"], SecurityGroups=[ssh])

    table = one(account, "describe_route_tables", "RouteTables", f"{MINE}-private")
    other = one(account, "describe_route_tables", "RouteTables", f"{MINE}-public")["RouteTableId"]
    gateway = one(account, "describe_internet_gateways", "InternetGateways", f"{MINE}-igw")["InternetGatewayId"]
    endpoint = one(account, "describe_vpc_endpoints", "VpcEndpoints", f"{MINE}-s3")["VpcEndpointId"]
    ec2.replace_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    association = table["Associations"][0]["RouteTableAssociationId"]
    ec2.replace_route_table_association(AssociationId=association, RouteTableId=other)
    ec2.modify_vpc_endpoint(VpcEndpointId=endpoint, RemoveRouteTableIds=[table["RouteTableId"]])
    account.client("autoscaling").suspend_processes(
        AutoScalingGroupName=f"{MINE}-workers", ScalingProcesses=["ReplaceUnhealthy"]
    )


def another_user_adds_resources(account: Any) -> None:
    """What bears the cluster's tag or is in what it owns, and goes with it."""
    ec2, iam, s3 = (account.client(service) for service in ("ec2", "iam", "s3"))
    subnet = one(account, "describe_subnets", "Subnets", f"{MINE}-private")

    ec2.create_volume(AvailabilityZone=ZONE, Size=1, TagSpecifications=tagged("volume", MINE))
    ec2.create_network_interface(SubnetId=subnet["SubnetId"], TagSpecifications=tagged("network-interface", MINE))
    left_behind = ec2.run_instances(
        ImageId=BASE.id, InstanceType="t3.medium", MinCount=1, MaxCount=1, TagSpecifications=tagged("instance", MINE)
    )["Instances"][0]["InstanceId"]
    # A person cannot say so, but Auto Scaling's machines outlive their group for a moment.
    get_backend("ec2")[ACCOUNT][REGION].tags[left_behind]["aws:autoscaling:groupName"] = f"{MINE}-workers"

    elsewhere = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"][0]
    interface = ec2.create_network_interface(SubnetId=elsewhere["SubnetId"])["NetworkInterface"]["NetworkInterfaceId"]
    address = one(account, "describe_addresses", "Addresses", f"{MINE}-master")
    ec2.associate_address(AllocationId=address["AllocationId"], NetworkInterfaceId=interface, AllowReassociation=True)

    ec2.associate_vpc_cidr_block(VpcId=subnet["VpcId"], CidrBlock="10.9.0.0/24")
    foreign = ec2.create_subnet(VpcId=subnet["VpcId"], CidrBlock="10.9.0.0/24", AvailabilityZone=ZONE)["Subnet"]
    table = one(account, "describe_route_tables", "RouteTables", f"{MINE}-private")
    ec2.associate_route_table(RouteTableId=table["RouteTableId"], SubnetId=foreign["SubnetId"])

    bucket = f"{MINE}-{ACCOUNT}-{REGION}"
    s3.put_object(Bucket=bucket, Key="report", Body=b"")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=bucket, Key="report", Body=b"")
    iam.attach_role_policy(
        RoleName=f"{MINE}-{REGION}-worker", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    )


def another_user_releases_the_network(account: Any) -> None:
    ec2 = account.client("ec2")
    (subnet,) = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [the_vpc(account)]}])["Subnets"]
    ec2.delete_subnet(SubnetId=subnet["SubnetId"])
