"""The action `teardown`: what it removes from an account, what it leaves there, and what it says about both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import tag_list

from tests.unit.actions import run_action
from tests.unit.cluster_kit import ACCOUNT, REGION, MadeCluster, let_time_pass
from tests.unit.conftest import Account

Remove = Callable[..., dict[str, Any]]
PLACE = f"{REGION} (account {ACCOUNT})"
ABROAD = "eu-west-1"


@pytest.fixture
def red(aws: Account, monkeypatch: pytest.MonkeyPatch) -> MadeCluster:
    let_time_pass(aws, monkeypatch)
    return MadeCluster(aws)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the project's files."""
    return tmp_path / "state"


@pytest.fixture
def remove(folder: Path, capsys: pytest.CaptureFixture[str]) -> Remove:
    """Run the action with consent. What it prints is returned as `printed`."""

    def call(check: bool = False, consent: str = "red", **options: Any) -> dict[str, Any]:
        capsys.readouterr()
        task_vars = {"deeplearning_folder": str(folder)}
        # This machine may be busy.
        arguments = {"region": REGION, "cluster": "red", "consent": consent, "scan_seconds": 120, **options}
        result = run_action("teardown", check, task_vars, **arguments)
        return {**result, "printed": capsys.readouterr().out}

    return call


def kinds(resources: list[dict[str, Any]]) -> dict[str, int]:
    return dict(Counter(resource["kind"] for resource in resources))


def writes(aws: Account, since: float = 0) -> list[str]:
    return [f"{call['service']}:{call['operation']}" for call in aws.cloud.calls.since(since) if call["writes"]]


WHOLE = {
    "address": 1,
    "auto_scaling_group": 2,
    "bucket": 1,
    "instance_profile": 2,
    "internet_gateway": 1,
    "launch_template": 2,
    "mount_target": 1,
    "role": 2,
    "route_table": 1,
    "security_group": 3,
    "subnet": 1,
    "vpc": 1,
}


def test_a_whole_cluster_goes_but_its_file_system_and_the_next_run_finds_nothing(
    aws: Account, red: MadeCluster, remove: Remove
) -> None:
    red.whole()
    red.put("bundles/1", b"x")
    planned = remove(check=True)
    assert planned["changed"] and kinds(planned["removed"]) == {**WHOLE, "instance": 2}
    assert "Of the cluster red (us-east-1, account 123456789012) these would be removed:" in planned["printed"]
    assert red.instances("workers")

    removed = remove()
    assert removed["changed"] and "failed" not in removed
    assert kinds(removed["removed"]) == WHOLE
    assert [resource["id"] for resource in removed["retained"]] == [red.ids["file_system"]]
    assert (
        f"The file system {red.ids['file_system']} (red-efs) is kept and goes on costing: the next"
        in (removed["printed"])
    )
    assert f"The cluster red is gone from {PLACE}: 2 Auto Scaling groups, 2 launch templates, " in removed["printed"]
    assert red.ids["vpc"] not in [vpc["VpcId"] for vpc in red.ec2.describe_vpcs()["Vpcs"]]
    assert not red.s3.list_buckets()["Buckets"]

    before = len(aws.cloud.calls.since())
    again = remove()
    assert not again["changed"] and again["removed"] == []
    assert f"The cluster red is gone from {PLACE}: there was nothing left to remove." in again["printed"]
    assert not [call for call in aws.cloud.calls.since()[before:] if call["writes"]]

    last = remove(keep_file_system=False)
    assert kinds(last["removed"]) == {"file_system": 1} and last["retained"] == []
    assert not red.efs.describe_file_systems()["FileSystems"]


def test_without_consent_nothing_goes(aws: Account, red: MadeCluster, remove: Remove) -> None:
    nothing = remove(consent="")
    assert (nothing["changed"], nothing["removed"], "failed" in nothing) == (False, [], False)
    assert "There is no cluster red (us-east-1, account 123456789012)." in nothing["printed"]
    other = remove(consent="blue")
    assert other["failed"]
    assert other["msg"] == "destroy is blue and the cluster is red. Example: -e cluster_name=blue"
    red.bucket()
    before = len(writes(aws))
    for consent, problem in (
        ("", "Nothing was removed, since that takes consent by name."),
        ("blue", "destroy is blue and the cluster is red, so nothing was removed."),
    ):
        refused = remove(consent=consent)
        command = "ansible-playbook deeplearning.aws.destroy -e destroy=red"
        assert refused["failed"] and refused["msg"] == f"{problem} To remove what is listed, type: {command}"
        assert f"  bucket {red.names.bucket}\n" in refused["printed"]
    assert len(writes(aws)) == before


def test_a_plan_is_in_the_order_of_messages_and_names_what_stays(red: MadeCluster, remove: Remove) -> None:
    red.network()
    red.file_system()
    image = red.ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]
    own = red.tagged("instance", "mine")
    red.ec2.run_instances(
        ImageId=image["ImageId"], InstanceType="t3.micro", MinCount=1, MaxCount=1, SubnetId=red.ids["subnet"], **own
    )
    place = {"VpcId": red.ids["vpc"], "CidrBlock": "10.0.64.0/20", "AvailabilityZone": "us-east-1b"}
    subnet = red.ec2.create_subnet(**place)["Subnet"]["SubnetId"]
    theirs = red.ec2.create_security_group(GroupName="t", Description="t", VpcId=red.ids["vpc"])["GroupId"]
    plan = remove(consent="")["printed"].splitlines()
    without_tag = plan.index("These do not have the cluster's tag, and are in its VPC or use its security groups:")
    listed = [line.split()[0] for line in plan[:without_tag] if line.startswith("  ")]
    assert listed == ["mount", "subnet", "route", "internet", "security", "security", "security", "VPC"]
    kept = f"The file system {red.ids['file_system']} (red-efs) is kept: the next site.yml finds it. To remove it too: "
    assert f"{kept}-e cluster_keep_efs=false" in plan
    assert [line for line in plan if line.startswith("The instance i-")][0].endswith(
        "(red-mine) stays, as the cluster did not make it."
    )
    assert not [line for line in plan if "as others have mount targets on it" in line]
    red.efs.create_mount_target(FileSystemId=red.ids["file_system"], SubnetId=subnet, SecurityGroups=[theirs])
    red.wait()
    plan = remove(consent="", keep_file_system=False)["printed"].splitlines()
    assert f"The file system {red.ids['file_system']} (red-efs) stays, as others have mount targets on it." in plan


def test_only_what_lies_in_the_zone_goes_to_try_another_one(red: MadeCluster, remove: Remove) -> None:
    red.whole()
    removed = remove(scope="zone")
    assert "failed" not in removed and "retained" not in removed
    assert kinds(removed["removed"]) == {"auto_scaling_group": 2, "mount_target": 1, "subnet": 1}
    assert red.ec2.describe_vpcs(VpcIds=[red.ids["vpc"]])["Vpcs"]
    assert "is gone" not in removed["printed"]


def test_images_go_only_when_they_are_what_is_to_go(red: MadeCluster, remove: Remove) -> None:
    red.network()
    red.bucket()
    base = red.ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]
    machine = red.ec2.run_instances(
        ImageId=base["ImageId"], InstanceType="t3.micro", MinCount=1, MaxCount=1, SubnetId=red.ids["subnet"]
    )["Instances"][0]["InstanceId"]
    red.wait()
    red.ec2.stop_instances(InstanceIds=[machine])
    red.wait()
    own = tag_list(red.tags("image"))
    image = red.ec2.create_image(
        InstanceId=machine,
        Name="red-image",
        TagSpecifications=[{"ResourceType": kind, "Tags": own} for kind in ("image", "snapshot")],
    )["ImageId"]
    red.wait(60)
    red.ec2.terminate_instances(InstanceIds=[machine])
    red.wait(60)
    removed = remove()
    assert {resource["kind"] for resource in removed["retained"]} >= {"image"}
    assert f"The image {image} (red-image) is kept. To delete it: " in removed["printed"]
    assert "ansible-playbook deeplearning.aws.image -e image_state=absent" in removed["printed"]
    assert red.ec2.describe_images(ImageIds=[image])["Images"]
    removed = remove(scope="images")
    assert "failed" not in removed and removed["removed"][0]["id"] == image
    assert not red.ec2.describe_images(Filters=[{"Name": "name", "Values": ["red-image"]}])["Images"]
    assert remove(scope="images")["removed"] == []


def test_the_bucket_of_data_sets_goes_by_its_own_name_alone(red: MadeCluster, remove: Remove) -> None:
    name = f"{ACCOUNT}-{REGION}-deeplearning-data"
    wrong = remove(consent="", data_bucket="mine")
    assert wrong["failed"] and f"Example: -e destroy_data={name}" in wrong["msg"]
    none = remove(consent="", data_bucket=name)
    assert (none["changed"], none["removed"]) == (False, [])
    assert f"There is no bucket of data sets in {PLACE}." in none["printed"]

    red.bucket()
    red.s3.create_bucket(Bucket=name)
    red.s3.put_object(Bucket=name, Key="cifar/manifest.json", Body=b"{}")
    planned = remove(check=True, consent="", data_bucket=name)
    assert planned["changed"] and [resource["id"] for resource in planned["removed"]] == [name]
    assert f"The bucket {name} would be removed." in planned["printed"]
    removed = remove(consent="", data_bucket=name)
    assert removed["changed"] and [resource["id"] for resource in removed["removed"]] == [name]
    assert f"The bucket {name} is removed." in removed["printed"]
    assert [bucket["Name"] for bucket in red.s3.list_buckets()["Buckets"]] == [red.names.bucket]
    # With consent, the cluster goes as well.
    both = remove(data_bucket=name)
    assert [resource["id"] for resource in both["removed"]] == [red.names.bucket]


def test_a_bucket_of_data_sets_that_stays_is_named_at_the_end(red: MadeCluster, remove: Remove) -> None:
    name = f"{ACCOUNT}-{REGION}-deeplearning-data"
    red.s3.create_bucket(Bucket=name)
    red.s3.put_object(Bucket=name, Key="cifar/manifest.json", Body=b"{}")
    assert f"The bucket {name} has 1 data set, 0.0 GiB, " in remove()["printed"]


def test_versions_of_objects_go_with_their_bucket(red: MadeCluster, remove: Remove) -> None:
    red.bucket()
    red.s3.put_bucket_versioning(Bucket=red.names.bucket, VersioningConfiguration={"Status": "Enabled"})
    for text in ("1", "2"):
        red.put("a", text)
    red.s3.delete_object(Bucket=red.names.bucket, Key="a")
    assert kinds(remove()["removed"]) == {"bucket": 1}
    assert not red.s3.list_buckets()["Buckets"]


def test_what_holds_a_vpc_is_named(aws: Account, red: MadeCluster, remove: Remove) -> None:
    red.network()
    place = {"VpcId": red.ids["vpc"], "CidrBlock": "10.0.64.0/20", "AvailabilityZone": "us-east-1b"}
    subnet = red.ec2.create_subnet(**place)["Subnet"]["SubnetId"]
    theirs = red.ec2.create_security_group(GroupName="theirs", Description="t", VpcId=red.ids["vpc"])["GroupId"]
    rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": red.ids["members"]}]}
    red.ec2.authorize_security_group_ingress(GroupId=theirs, IpPermissions=[rule])
    held = red.ec2.create_network_interface(SubnetId=subnet, Groups=[red.ids["ssh"]], Description="a tunnel")
    # The cluster's table serves this subnet as well, and goes all the same.
    red.ec2.associate_route_table(RouteTableId=red.ids["route_table"], SubnetId=subnet)
    interface = f"network interface {held['NetworkInterface']['NetworkInterfaceId']} of a tunnel"
    result = remove(stuck_seconds=0)
    assert result["failed"] and result["changed"]
    assert kinds(result["leftovers"]) == {"security_group": 2, "vpc": 1}
    assert kinds(result["removed"]) == {"internet_gateway": 1, "route_table": 1, "security_group": 1, "subnet": 1}
    first, *others = result["msg"].splitlines()
    assert first.startswith(f"The cluster red in {PLACE} still has: ")
    lines = {resource["id"]: line for resource, line in zip(result["leftovers"], [first, *others], strict=True)}
    vpc, members, ssh = (lines[red.ids[what]] for what in ("vpc", "members", "ssh"))
    assert f"It is held by {interface}, subnet {subnet}, security group " in vpc
    assert f"security group {theirs}" in vpc and "default" not in vpc
    assert members.endswith(f"It is held by a rule of security group {theirs}.")
    assert ssh.endswith(f"It is held by {interface}.")
    assert "is gone" not in result["printed"]


def test_a_subnet_with_an_interface_of_others_is_left(red: MadeCluster, remove: Remove) -> None:
    red.network()
    held = red.ec2.create_network_interface(SubnetId=red.ids["subnet"])["NetworkInterface"]["NetworkInterfaceId"]
    result = remove(scope="zone", stuck_seconds=0)
    assert result["failed"] and kinds(result["leftovers"]) == {"subnet": 1}
    assert f"It is held by network interface {held}." in result["msg"]


def test_what_others_made_is_left_and_is_a_reason_to_fail(red: MadeCluster, remove: Remove) -> None:
    red.network()
    red.machines(workers=1)
    (machine,) = red.instances("workers")
    red.scaling.detach_instances(
        InstanceIds=[machine], AutoScalingGroupName="red-workers", ShouldDecrementDesiredCapacity=True
    )
    foreign = red.ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    red.ec2.create_tags(Resources=[foreign], Tags=tag_list({"deeplearning:cluster": "red"}))
    result = remove()
    # The machine was detached from its group and is the cluster's by its template; the volume by its tag.
    assert "failed" not in result and kinds(result["removed"])["instance"] == 1
    assert kinds(result["removed"])["volume"] == 1


def test_a_machine_that_others_launched_is_left(red: MadeCluster, remove: Remove) -> None:
    red.network()
    image = red.ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]
    place = red.ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    zone = {"VpcId": place, "CidrBlock": "10.1.0.0/20"}
    machine = red.ec2.run_instances(
        ImageId=image["ImageId"],
        InstanceType="t3.micro",
        MinCount=1,
        MaxCount=1,
        SubnetId=red.ec2.create_subnet(**zone)["Subnet"]["SubnetId"],
        **red.tagged("instance", "mine"),
    )["Instances"][0]["InstanceId"]
    red.wait()
    result = remove()
    assert result["failed"] and [resource["id"] for resource in result["leftovers"]] == [machine]
    assert result["msg"] == (
        f"The cluster red in {PLACE} still has: instance {machine} (red-mine): the cluster did not make it, so it is "
        "left alone."
    )


def test_a_refusal_that_no_wait_ends_is_not_repeated_and_the_rest_goes(
    aws: Account, red: MadeCluster, remove: Remove
) -> None:
    red.network()
    red.fail("ec2:DeleteSubnet", "UnauthorizedOperation", status=403)
    result = remove()
    assert result["failed"] and kinds(result["leftovers"]) == {"subnet": 1, "route_table": 1, "vpc": 1}
    assert "AWS does not allow ec2:DeleteSubnet" in result["msg"]
    assert aws.calls().count("ec2:DeleteSubnet") == 1


def test_what_is_held_for_a_while_is_tried_again(aws: Account, red: MadeCluster, remove: Remove) -> None:
    red.network()
    red.fail("ec2:DeleteSubnet", "DependencyViolation", 2)
    result = remove()
    assert "failed" not in result and aws.calls().count("ec2:DeleteSubnet") == 3
    assert kinds(result["removed"])["subnet"] == 1


def test_what_stays_held_is_given_up_with_awss_message(red: MadeCluster, remove: Remove) -> None:
    red.network()
    red.fail("ec2:DeleteSubnet", "DependencyViolation")
    result = remove(stuck_seconds=0)
    assert result["failed"] and "so it is" in result["msg"]


def test_what_has_gone_meanwhile_is_not_counted(red: MadeCluster, remove: Remove) -> None:
    red.network()
    red.fail("ec2:DeleteSubnet", "InvalidSubnetID.NotFound", 1)
    assert "failed" not in remove()


def test_credentials_that_expire_end_it_at_once(aws: Account, red: MadeCluster, remove: Remove) -> None:
    red.network()
    red.fail("ec2:DeleteSubnet", "ExpiredToken")
    result = remove()
    assert result["failed"] and result["msg"].startswith("The AWS credentials have expired")
    assert aws.calls().count("ec2:DeleteSubnet") == 1


def test_security_groups_that_name_each_other_lose_these_rules_first(red: MadeCluster, remove: Remove) -> None:
    red.network()
    back = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "UserIdGroupPairs": [{"GroupId": red.ids["efs"]}]}
    red.ec2.authorize_security_group_egress(GroupId=red.ids["members"], IpPermissions=[back])
    assert "failed" not in remove()


def test_a_mount_target_of_others_loses_our_group_and_stays(red: MadeCluster, remove: Remove) -> None:
    red.network()
    vpc = red.ids["vpc"]
    theirs = red.ec2.create_security_group(GroupName="theirs", Description="t", VpcId=vpc)["GroupId"]
    place = {"VpcId": vpc, "CidrBlock": "10.0.64.0/20", "AvailabilityZone": "us-east-1b"}
    subnet = red.ec2.create_subnet(**place)["Subnet"]["SubnetId"]
    system = red.efs.create_file_system(CreationToken="theirs")["FileSystemId"]
    red.wait(1)
    target = red.efs.create_mount_target(FileSystemId=system, SubnetId=subnet, SecurityGroups=[theirs, red.ids["efs"]])[
        "MountTargetId"
    ]
    red.wait(1)
    result = remove(stuck_seconds=0)
    assert red.efs.describe_mount_target_security_groups(MountTargetId=target)["SecurityGroups"] == [theirs]
    assert kinds(result["removed"])["mount_target_access"] == 1
    assert kinds(result["removed"])["security_group"] == 3
    assert [resource["id"] for resource in result["leftovers"]] == [vpc]


# The place


def record(folder: Path, region: str, account: str = ACCOUNT) -> None:
    """Write the summary of a cluster."""
    folder.mkdir(exist_ok=True)
    summary = {"cluster": "red", "region": region, "account": account}
    (folder / "red.json").write_text(json.dumps(summary), encoding="utf-8")


def test_a_cluster_is_not_called_gone_in_another_region_than_the_files_record(
    red: MadeCluster, remove: Remove, folder: Path
) -> None:
    red.bucket()
    record(folder, REGION)
    for check in (False, True):
        refused = remove(check=check, region=ABROAD)
        assert refused["failed"] and "is gone" not in refused["printed"]
        first, command, confirmation = refused["msg"].splitlines()
        assert first == (
            f"There is no cluster red in {ABROAD} (account {ACCOUNT}), but {folder}/red.json records it in {PLACE}: "
            "nothing was removed."
        )
        assert command == (
            f"To remove it there: ansible-playbook deeplearning.aws.destroy -e destroy=red -e cluster_region={REGION}"
        )
        assert confirmation.endswith(f" -e destroy=red@{ABROAD} -e cluster_region={ABROAD}")
    for _time in range(2):
        confirmed = remove(region=ABROAD, consent=f"red@{ABROAD}")
        assert "failed" not in confirmed and not confirmed["changed"]
        assert f"The cluster red is gone from {ABROAD} (account {ACCOUNT}): there was nothing" in confirmed["printed"]
        note = f"{folder}/red.json records the cluster in {PLACE}, where nothing was looked for."
        assert note in confirmed["printed"]
    removed = remove()
    assert kinds(removed["removed"]) == {"bucket": 1} and "failed" not in removed
    # The record stays, so the place stays the right one.
    again = remove()
    assert "failed" not in again and "there was nothing left to remove" in again["printed"]
    assert remove(region=ABROAD)["failed"]


def test_a_cluster_is_not_called_gone_in_another_account_than_the_files_record(
    aws: Account, remove: Remove, folder: Path
) -> None:
    record(folder, REGION, account="210987654321")
    refused = remove()
    assert refused["failed"] and "is gone" not in refused["printed"]
    first, command, _confirmation = refused["msg"].splitlines()
    assert first.startswith(f"There is no cluster red in {PLACE}, but ")
    assert first.endswith("records it in us-east-1 (account 210987654321): nothing was removed.")
    assert command == (
        "With credentials of the account 210987654321 (AWS_PROFILE, or -e cluster_profile=NAME), type: "
        f"ansible-playbook deeplearning.aws.destroy -e destroy=red -e cluster_region={REGION}"
    )
    assert "failed" not in remove(consent=f"red@{REGION}")


def test_without_files_the_other_regions_are_searched(aws: Account, red: MadeCluster, remove: Remove) -> None:
    red.network()
    refused = remove(region=ABROAD)
    assert refused["failed"] and "is gone" not in refused["printed"]
    first, command, confirmation = refused["msg"].splitlines()
    assert f"in {ABROAD} (account {ACCOUNT}), but the account has one in {REGION} (1 subnet, " in first
    assert command.endswith(f"-e destroy=red -e cluster_region={REGION}") and f"red@{ABROAD}" in confirmation
    before = len(aws.calls())
    assert "failed" not in remove(region=ABROAD, consent=f"red@{ABROAD}")
    assert "ec2:DescribeRegions" not in aws.calls()[before:]


def test_an_operator_who_may_not_list_regions_can_destroy(red: MadeCluster, remove: Remove) -> None:
    red.fail("ec2:DescribeRegions", "UnauthorizedOperation", status=403)
    gone = remove()
    assert "failed" not in gone and f"The cluster red is gone from {PLACE}" in gone["printed"]
    (line,) = [line for line in gone["printed"].splitlines() if "DescribeRegions" in line]
    assert line.startswith("All known regions were tried, as the account's cannot be listed: AWS does not allow ")
    red.bucket()
    assert remove(region=ABROAD)["failed"]


@pytest.mark.parametrize("consent", ["red@eu-west-1", "red@", "red@us-east-1@x"])
def test_the_confirmed_region_is_the_one_of_the_playbook(red: MadeCluster, remove: Remove, consent: str) -> None:
    red.bucket()
    refused = remove(consent=consent)
    assert refused["failed"] and refused["msg"].startswith(
        f"destroy is {consent}, and the region of this playbook is us-east-1 (account {ACCOUNT}): nothing was removed."
    )
    right = f"ansible-playbook deeplearning.aws.destroy -e destroy=red@{REGION} -e cluster_region={REGION}"
    assert refused["msg"].endswith(f"To remove red in {REGION}: {right}")
    assert ("-e destroy=red@eu-west-1 -e cluster_region=eu-west-1" in refused["msg"]) is (consent == "red@eu-west-1")
    assert kinds(remove(consent=f"red@{REGION}")["removed"]) == {"bucket": 1}


def test_a_kept_file_system_shows_that_the_place_is_right(aws: Account, red: MadeCluster, remove: Remove) -> None:
    red.network()
    red.file_system()
    remove()
    before = len(aws.calls())
    assert "failed" not in remove() and "ec2:DescribeRegions" not in aws.calls()[before:]
