"""The resources of a cluster, read from an account that has more than these."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import tag_list
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.kinds import KINDS
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.membership import record_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import (
    ResourceReader,
    TaggedResource,
    clusters_in,
    emr_cluster_of,
    facts_of,
    file_system_of,
    file_systems_behind,
    group_of,
    groups_named_in,
    list_clusters,
    read_idle_minutes,
    resource_of,
    rules_naming,
    tagged_resources,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    DEAD,
    GOING,
    LIVE,
    ClusterResources,
    Resource,
)

from tests.unit.cluster_kit import REGION, TRUST, MadeCluster
from tests.unit.conftest import Account


def reader(cluster: str = "red") -> ResourceReader:
    return ResourceReader(Aws(REGION), cluster)


def counted(owned: ClusterResources) -> dict[str, int]:
    return dict(Counter(resource.kind for resource in owned.current))


def only(owned: ClusterResources, kind: str) -> Resource:
    (resource,) = owned.of_kind(kind)
    return resource


WHOLE = {
    "instance": 2,
    "launch_template": 2,
    "address": 1,
    "subnet": 1,
    "route_table": 1,
    "internet_gateway": 1,
    "security_group": 3,
    "vpc": 1,
    "auto_scaling_group": 2,
    "file_system": 1,
    "mount_target": 1,
    "instance_profile": 2,
    "role": 2,
    "bucket": 1,
}


def test_all_of_one_cluster_is_read_and_nothing_of_another(aws: Account) -> None:
    red = MadeCluster(aws).whole()
    MadeCluster(aws, "reddish").network()
    owned = reader().read()
    assert counted(owned) == WHOLE
    assert all(resource.ours for resource in owned.current)
    assert (owned.cluster, owned.account, owned.region) == ("red", "123456789012", "us-east-1")
    for kind in ("vpc", "subnet", "internet_gateway", "route_table", "file_system", "mount_target", "address"):
        assert only(owned, kind).id == red.ids[kind]
    assert only(owned, "bucket").facts == {"account": "123456789012"}
    assert {profile.id: profile.facts["roles"] for profile in owned.of_kind("instance_profile")} == {
        name: [name] for name in ("red-us-east-1-master", "red-us-east-1-worker")
    }
    assert {role.name: role.facts["id"] for role in owned.of_kind("role")} == {
        "red-us-east-1-master": red.role_id("master"),
        "red-us-east-1-worker": red.role_id("worker"),
    }
    assert {group.id: group.facts["in_service"] for group in owned.of_kind("auto_scaling_group")} == {
        "red-master": red.instances("master"),
        "red-workers": red.instances("workers"),
    }


def test_kinds_are_read_again_alone(aws: Account) -> None:
    red = MadeCluster(aws)
    red.network()
    red.bucket()
    read = reader()
    before = read.read()
    red.ec2.delete_security_group(GroupId=red.ids["ssh"])
    red.s3.delete_bucket(Bucket=red.names.bucket)
    calls = len(aws.calls())
    owned = read.read_again({"security_group"})
    assert aws.calls()[calls:] == ["ec2:DescribeSecurityGroups"]
    assert counted(owned) == {**counted(before), "security_group": 2}
    assert counted(read.read_again({"bucket"})) == {
        kind: number for kind, number in counted(owned).items() if kind != "bucket"
    }


def test_targets_are_read_again_by_both_of_their_kinds(aws: Account) -> None:
    red = MadeCluster(aws)
    red.network()
    red.file_system()
    read = reader()
    assert counted(read.read())["mount_target"] == 1
    red.efs.delete_mount_target(MountTargetId=red.ids["mount_target"])
    red.wait()
    assert "mount_target" not in counted(read.read_again({"mount_target_access"}))
    red.efs.delete_file_system(FileSystemId=red.ids["file_system"])
    red.wait()
    # Its targets are read by its id, which is known from before.
    assert "mount_target" not in counted(read.read_again({"mount_target"}))
    assert "file_system" not in counted(read.read_again({"file_system"}))


def test_other_refusals_of_the_list_of_targets_are_passed_on(aws: Account) -> None:
    red = MadeCluster(aws)
    red.network()
    red.file_system()
    red.fail("elasticfilesystem:DescribeMountTargets", "AccessDeniedException")
    red.fail("efs:DescribeMountTargets", "AccessDeniedException")
    with pytest.raises(AwsError, match="DescribeMountTargets"):
        reader().read()


def test_a_mount_target_of_others_is_ours_as_far_as_our_group_reaches(aws: Account) -> None:
    red = MadeCluster(aws)
    red.network()
    theirs = red.ec2.create_security_group(GroupName="theirs", Description="t", VpcId=red.ids["vpc"])["GroupId"]
    place = {"VpcId": red.ids["vpc"], "CidrBlock": "10.0.64.0/20", "AvailabilityZone": "us-east-1b"}
    subnet = red.ec2.create_subnet(**place)["Subnet"]["SubnetId"]
    systems = [red.efs.create_file_system(CreationToken=token)["FileSystemId"] for token in ("both", "none")]
    red.wait(1)
    both, _none = (
        red.efs.create_mount_target(FileSystemId=system, SubnetId=subnet, SecurityGroups=groups)["MountTargetId"]
        for system, groups in zip(systems, ([theirs, red.ids["efs"]], [theirs]), strict=True)
    )
    red.wait(1)
    owned = reader().read()
    target = only(owned, "mount_target_access")
    assert (target.id, target.ours, target.facts) == (both, True, {"file_system": systems[0], "others": [theirs]})
    assert not owned.of_kind("mount_target") and not owned.of_kind("file_system")


def test_identities_with_the_tag_of_another_cluster_are_not_ours(aws: Account) -> None:
    red = MadeCluster(aws)
    for role, tags in (("master", {"deeplearning:cluster": "blue"}), ("worker", {})):
        name = red.names.identity(role)
        red.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST), Tags=tag_list(tags))
        red.iam.create_instance_profile(InstanceProfileName=name, Tags=tag_list(tags))
    owned = reader().read()
    # A call that cannot tag has created the profile without tags.
    assert [resource.id for resource in owned.current] == ["red-us-east-1-worker"]
    assert counted(owned) == {"instance_profile": 1}


def test_a_bucket_of_another_account_is_no_problem_but_one_that_is_ours_and_closed_is(aws: Account) -> None:
    red = MadeCluster(aws)
    red.fail("s3:HeadBucket", "AccessDenied", status=403)
    assert reader().read().current == []
    red.bucket()
    with pytest.raises(AwsError, match="s3:"):
        reader().read()


def test_the_machine_of_an_image_counts_if_it_has_the_clusters_profile(aws: Account) -> None:
    red = MadeCluster(aws)
    red.identities("worker")
    red.network()
    image = red.ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]
    for profile in ({"IamInstanceProfile": {"Name": "red-us-east-1-worker"}}, {}):
        red.ec2.run_instances(
            ImageId=image["ImageId"],
            InstanceType="t3.micro",
            MinCount=1,
            MaxCount=1,
            SubnetId=red.ids["subnet"],
            **profile,
            **red.tagged("instance", "image"),
        )
    machines = reader().read().of_kind("instance")
    assert sorted((machine.facts["profile"], machine.ours) for machine in machines) == [
        ("", False),
        ("red-us-east-1-worker", True),
    ]


def test_scheduled_ends_are_the_groups(aws: Account) -> None:
    red = MadeCluster(aws)
    red.network()
    red.machines(master=1, workers=1)
    at = datetime.fromtimestamp(int(aws.cloud.clock.time()) + 7200, UTC)
    red.scaling.put_scheduled_update_group_action(
        AutoScalingGroupName="red-workers",
        ScheduledActionName="red-ttl",
        StartTime=at,
        MinSize=0,
        MaxSize=0,
        DesiredCapacity=0,
    )
    ends = {group.id: group.facts["ends"] for group in reader().read().of_kind("auto_scaling_group")}
    assert ends == {"red-master": {}, "red-workers": {"ttl": at.timestamp()}}


class Listing:
    """Stands in for AWS: what each operation lists."""

    region, account = "us-east-1", "123456789012"

    def __init__(self, **listed: list[dict[str, Any]]) -> None:
        self.listed = listed
        self.filters: list[Any] = []

    def pages(self, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        self.filters.append(params.get("Filters"))
        return self.listed.get(f"{service}_{operation}", self.listed.get(operation, []))


def test_resources_of_any_type_count_but_not_the_parts_of_others() -> None:
    types = ["natgateway", "security-group-rule", "capacity-reservation", "natgateway", "vpc"]
    tags = [{"ResourceType": type_, "ResourceId": f"id-{number}"} for number, type_ in enumerate(types)]
    listing = Listing(describe_tags=tags)
    assert tagged_resources(listing, "red") == {
        "nat_gateway": ["id-0", "id-3"],
        "capacity_reservation": ["id-2"],
        "vpc": ["id-4"],
    }
    assert listing.filters == [
        [{"Name": "key", "Values": ["deeplearning:cluster"]}, {"Name": "value", "Values": ["red"]}]
    ]


def test_file_systems_are_found_behind_their_interfaces() -> None:
    described = ["EFS mount target for fs-0b (fsmt-1)", "an EFS mount target of mine", "EFS mount target for fs-0a"]
    described += ["EFS mount target for fs-0b (fsmt-2)"]
    listing = Listing(describe_network_interfaces=[{"Description": text} for text in described] + [{}])
    assert file_systems_behind(listing, {"sg-2", "sg-1"}) == ["fs-0a", "fs-0b"]
    assert listing.filters == [[{"Name": "group-id", "Values": ["sg-1", "sg-2"]}]]


def test_clusters_are_known_by_any_of_their_resources(aws: Account) -> None:
    """Also by a role, a profile, a bucket or a file system alone, after all else has gone."""
    assert clusters_in(Aws(REGION)) == []
    MadeCluster(aws, "network").network()
    MadeCluster(aws, "bucket").bucket()
    for name, role in (("role", "worker"), ("service", "emr")):
        red = MadeCluster(aws, name)
        red.iam.create_role(RoleName=red.names.identity(role), AssumeRolePolicyDocument=json.dumps(TRUST))
    red.iam.create_instance_profile(InstanceProfileName="profile-us-east-1-node")
    red.iam.create_instance_profile(InstanceProfileName="elsewhere-eu-west-1-node")
    red.s3.create_bucket(Bucket="somebodys-123456789012")
    tags = tag_list({"deeplearning:cluster": "system"})
    red.efs.create_file_system(CreationToken="s", Tags=tags)
    red.efs.create_file_system(CreationToken="t")
    assert clusters_in(Aws(REGION)) == ["bucket", "network", "profile", "role", "service", "system"]


EVIL = ["evil red", "\x9b2J", "{{ lookup('pipe', 'id') }}", "../red", "Red", "a" * 60, ""]


def test_tags_that_name_no_cluster_are_told_apart_from_clusters(aws: Account) -> None:
    network = MadeCluster(aws, "red")
    network.network()
    expected = []
    for number, value in enumerate(EVIL):
        group = network.ec2.create_security_group(GroupName=f"g{number}", Description="theirs")["GroupId"]
        network.ec2.create_tags(Resources=[group], Tags=tag_list({"deeplearning:cluster": value}))
        expected.append(TaggedResource("deeplearning:cluster", value, "security_group", group))
    tags = tag_list({"deeplearning:cluster": "\x1b[2J"})
    system = network.efs.create_file_system(CreationToken="s", Tags=tags)["FileSystemId"]
    expected.append(TaggedResource("deeplearning:cluster", "\x1b[2J", "file_system", system))
    other_case = {"DeepLearning:Cluster": "red", "DeepLearning:Clusters": "x"}
    network.ec2.create_tags(Resources=[group], Tags=tag_list(other_case))
    expected.append(TaggedResource("DeepLearning:Cluster", "red", "security_group", group))
    listed = list_clusters(Aws(REGION))
    assert listed.names == ["red"]
    assert sorted(listed.strays, key=repr) == sorted(expected, key=repr)


def test_a_role_or_bucket_with_another_name_is_no_cluster() -> None:
    listing = Listing(
        list_roles=[{"RoleName": "A_b-us-east-1-master"}, {"RoleName": "a-us-east-1-master"}],
        list_buckets=[{"Name": "my.bucket-123456789012-us-east-1"}],
    )
    assert clusters_in(listing) == ["a"]


def test_a_name_that_is_only_an_ending_is_no_cluster() -> None:
    listing = Listing(
        list_roles=[{"RoleName": "-us-east-1-master"}, {"RoleName": "a-us-east-1-master"}],
        list_buckets=[{"Name": "-123456789012-us-east-1"}],
        ec2_describe_tags=[{"Value": "b"}, {"Value": ""}, {}],
        autoscaling_describe_tags=[{"Value": "c"}],
    )
    assert clusters_in(listing) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("kind", "listed", "state", "phase"),
    [
        ("instance", {"State": {"Name": "running"}}, "running", LIVE),
        ("instance", {"State": {"Name": "shutting-down"}}, "shutting-down", GOING),
        ("instance", {"State": {"Name": "terminated"}}, "terminated", DEAD),
        ("instance", {"State": {}}, "", LIVE),
        ("nat_gateway", {"State": "failed"}, "failed", DEAD),
        ("nat_gateway", {"State": "deleting"}, "deleting", GOING),
        ("nat_gateway", {"State": "deleted"}, "deleted", DEAD),
        ("image", {"State": "failed"}, "failed", LIVE),
        ("endpoint", {"State": "Available"}, "available", LIVE),
        ("network_interface", {"Status": "in-use", "State": "deleted"}, "in-use", LIVE),
        ("vpc", {}, "", LIVE),
    ],
)
def test_states_are_aws_words_and_phases_ours(kind: str, listed: dict[str, Any], state: str, phase: str) -> None:
    resource = resource_of(kind, {KINDS[kind].id: "id-1", **listed}, frozenset())
    assert (resource.kind, resource.id, resource.state, resource.phase) == (kind, "id-1", state, phase)


@pytest.mark.parametrize(
    ("kind", "listed", "name"),
    [
        ("vpc", {"Tags": [{"Key": "Name", "Value": "red-vpc"}]}, "red-vpc"),
        ("vpc", {}, ""),
        ("key_pair", {"KeyName": "red-key", "Tags": [{"Key": "Name", "Value": "other"}]}, "red-key"),
        ("image", {"Name": None, "Tags": [{"Key": "Name", "Value": "other"}]}, ""),
    ],
)
def test_names_are_tags_unless_the_type_has_names(kind: str, listed: dict[str, Any], name: str) -> None:
    resource = resource_of(kind, {KINDS[kind].id: "id-1", **listed}, frozenset())
    assert (resource.name, resource.ours) == (name, True)


NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "listed", "facts"),
    [
        ("nat_gateway", {"CreateTime": NOW}, {"created": NOW}),
        (
            *("volume", {"VolumeType": "gp3", "Size": 8, "Throughput": 500}),
            {"type": "gp3", "gib": 8, "throughput": 500},
        ),
        ("volume", {}, {"type": "", "gib": 0, "throughput": 0}),
        ("snapshot", {"VolumeSize": 8}, {"gib": 8}),
        ("snapshot", {}, {"gib": 0}),
        (
            "address",
            {"PublicIp": "198.51.100.1", "AssociationId": "eipassoc-1", "InstanceId": "i-1"},
            {"public_ip": "198.51.100.1", "association": "eipassoc-1", "instance": "i-1"},
        ),
        ("address", {"PublicIp": "198.51.100.1"}, {"public_ip": "198.51.100.1", "association": "", "instance": ""}),
        ("internet_gateway", {"Attachments": [{"VpcId": "vpc-1"}, {"VpcId": "vpc-2"}]}, {"vpcs": ["vpc-1", "vpc-2"]}),
        ("internet_gateway", {"Attachments": None}, {"vpcs": []}),
        ("route_table", {}, {"main": False, "associations": []}),
        (
            "route_table",
            {"Associations": [{"RouteTableAssociationId": "a-1", "Main": False}, {"RouteTableAssociationId": "a-2"}]},
            {"main": False, "associations": ["a-1", "a-2"]},
        ),
        ("subnet", {"CidrBlock": "10.0.0.0/20"}, {}),
    ],
)
def test_the_facts_of_each_kind(kind: str, listed: dict[str, Any], facts: dict[str, Any]) -> None:
    assert facts_of(kind, listed) == facts


def test_the_facts_of_an_instance() -> None:
    tags = {
        "deeplearning:user": "ubuntu",
        "aws:autoscaling:groupName": "red-workers",
        "aws:ec2launchtemplate:id": "lt-1",
        "aws:elasticmapreduce:job-flow-id": "j-1",
        "aws:elasticmapreduce:instance-group-role": "MASTER",
        "deeplearning:run": "lenet-1",
    }
    listed = {
        "InstanceId": "i-1",
        "PrivateIpAddress": "10.0.0.4",
        "PublicIpAddress": "198.51.100.4",
        "PublicDnsName": "ec2-198-51-100-4",
        "IamInstanceProfile": {"Arn": "arn:aws:iam::123456789012:instance-profile/path/red-us-east-1-worker"},
        "InstanceType": "g5.xlarge",
        "LaunchTime": NOW,
        "Tags": tag_list(tags),
    }
    facts = facts_of("instance", listed)
    assert facts == {
        **record_of(listed),
        "public_name": "ec2-198-51-100-4",
        "template": "lt-1",
        "run": "lenet-1",
        "profile": "red-us-east-1-worker",
        "launched_at": NOW,
    }
    bare = facts_of("instance", {"InstanceId": "i-1", "PublicIpAddress": None, "IamInstanceProfile": None})
    assert {name for name, value in bare.items() if value} == {"id"}


def pairs(*groups: str) -> dict[str, Any]:
    return {
        "IpProtocol": "tcp",
        "FromPort": 22,
        "ToPort": 22,
        "UserIdGroupPairs": [{"GroupId": group} for group in groups],
    }


def test_a_security_group_names_others_in_rules_of_both_ways() -> None:
    listed = {
        "GroupId": "sg-1",
        "VpcId": "vpc-1",
        "IpPermissions": [pairs("sg-1", "sg-3"), {"IpProtocol": "-1", "IpRanges": []}],
        "IpPermissionsEgress": [pairs("sg-2")],
    }
    assert groups_named_in(listed) == {"sg-1", "sg-2", "sg-3"}
    assert groups_named_in({"IpPermissions": None}) == set()
    facts = facts_of("security_group", listed)
    rules = {"ingress": [pairs("sg-3")], "egress": [pairs("sg-2")]}
    assert facts == {"vpc": "vpc-1", "names": ["sg-2", "sg-3"], "rules": rules}
    empty = {"vpc": "", "names": [], "rules": {"ingress": [], "egress": []}}
    assert facts_of("security_group", {"GroupId": "sg-1"}) == empty


def test_rules_that_name_a_group_keep_nothing_else() -> None:
    rule = {**pairs("sg-1", "sg-2"), "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
    rule["UserIdGroupPairs"][0] |= {"Description": "d", "UserId": "123456789012"}
    everything = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-1"}]}
    assert rules_naming([rule, pairs("sg-3"), everything, {"UserIdGroupPairs": None}], ["sg-1"]) == [
        pairs("sg-1"),
        everything,
    ]


def listed_emr(state: str, **more: Any) -> dict[str, Any]:
    return {"Id": "j-1", "Name": "red", "Status": {"State": state, **more}}


def test_an_emr_cluster_has_the_machines_of_its_groups() -> None:
    groups = {"MASTER": {"RequestedInstanceCount": 1}, "CORE": {"RequestedInstanceCount": 3}}
    states = {"i-1": "RUNNING", "i-2": "BOOTSTRAPPING"}
    machines = [{"Ec2InstanceId": name, "Status": {"State": state}} for name, state in states.items()]
    cluster = emr_cluster_of(listed_emr("RUNNING"), groups, machines)
    assert (cluster.kind, cluster.id, cluster.name, cluster.state) == ("emr_cluster", "j-1", "red", "running")
    assert cluster.phase == LIVE and cluster.ours
    assert cluster.facts == {"most": 4, "in_service": ["i-1"], "reason": ""}
    ending = emr_cluster_of(listed_emr("TERMINATING", StateChangeReason={"Message": "by request"}), {}, [])
    assert (ending.phase, ending.facts["reason"]) == (GOING, "by request")
    assert emr_cluster_of(listed_emr("WAITING", StateChangeReason={}), {}, []).facts["reason"] == ""


def test_the_idle_end_of_an_emr_cluster_is_read_while_it_lives() -> None:
    class Answers:
        def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
            assert (service, operation) == ("emr", "get_auto_termination_policy")
            return {"AutoTerminationPolicy": {"IdleTimeout": 3600}} if params == {"ClusterId": "j-1"} else {}

    def minutes(*clusters: Resource) -> int:
        owned = ClusterResources("red", "123456789012", REGION, clusters)
        return read_idle_minutes(cast(Aws, Answers()), owned)

    assert minutes() == 0
    assert minutes(Resource("emr_cluster", "j-1")) == 60
    assert minutes(Resource("emr_cluster", "j-2")) == 0
    assert minutes(Resource("emr_cluster", "j-1", phase=GOING)) == 0


def test_a_group_counts_machines_that_serve_and_those_that_come() -> None:
    lifecycles = {
        "i-1": ("InService", "Healthy"),
        "i-2": ("InService", "Unhealthy"),
        "i-3": ("Pending:Wait", "Healthy"),
        "i-4": ("Terminating", "Healthy"),
    }
    listed = {
        "AutoScalingGroupName": "red-workers",
        "MaxSize": 5,
        "DesiredCapacity": 3,
        "LaunchTemplate": {"Version": "4"},
        "Instances": [
            {"InstanceId": name, "LifecycleState": state, "HealthStatus": health, "LaunchTemplate": {"Version": "3"}}
            for name, (state, health) in lifecycles.items()
        ],
    }
    group = group_of(listed, {"ttl": {"red-workers": 7.0, "red-master": 8.0}, "idle": {"red-master": 9.0}}, ())
    assert (group.kind, group.id, group.name, group.state, group.phase) == (
        "auto_scaling_group",
        "red-workers",
        "red-workers",
        "",
        LIVE,
    )
    facts = dict(group.facts)
    machines = facts.pop("machines")
    assert facts == {
        "most": 5,
        "desired": 3,
        "in_service": ["i-1"],
        "template_version": "4",
        "coming": 1,
        "ends": {"ttl": 7.0},
        "foreign_actions": {},
    }
    assert machines["i-2"] == {"lifecycle": "InService", "is_healthy": False, "template_version": "3"}
    assert machines["i-3"] == {"lifecycle": "Pending:Wait", "is_healthy": True, "template_version": "3"}
    going = group_of({**listed, "Status": "Delete in progress", "Instances": None, "LaunchTemplate": None}, {}, ())
    assert (going.state, going.phase, going.facts["ends"]) == ("delete in progress", GOING, {})
    assert going.facts["template_version"] == ""


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ({"LifeCycleState": "available"}, ("", "available", LIVE, 0)),
        ({"LifeCycleState": "deleting", "SizeInBytes": {"Value": 7}}, ("", "deleting", GOING, 7)),
        ({"LifeCycleState": "deleted", "Tags": [{"Key": "Name", "Value": "red-efs"}]}, ("red-efs", "deleted", DEAD, 0)),
    ],
)
def test_a_file_system(listed: dict[str, Any], expected: tuple[str, str, str, int]) -> None:
    system = file_system_of({"FileSystemId": "fs-1", **listed})
    assert (system.kind, system.id) == ("file_system", "fs-1")
    assert (system.name, system.state, system.phase, system.facts["bytes"]) == expected
