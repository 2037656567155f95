"""EMR: clusters come up, change and end by the clock; requests that AWS refuses are refused."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from localcloud.api.ec2 import images
from localcloud.api.ec2.lifecycle import machine_exited, machine_started
from localcloud.core.cloud import Cloud
from localcloud.core.latency import Latency
from localcloud.testing.clock import ManualClock
from localcloud_kits.ec2_kit import REGION, Ec2, Recorder
from localcloud_kits.rules_kit import Aws, allow, deny, document, refused, when

LATENCY = {"emr_launch": 30, "instance_running": 20, "emr_bootstrapped": 10, "emr_applications": 60}
BUCKET = "logs-and-scripts"


@pytest.fixture
def clock() -> ManualClock:
    """Clients over HTTP sign with the time that it really is."""
    return ManualClock(time.time())


@pytest.fixture
def latency() -> Latency:
    return Latency("test", LATENCY)


@dataclass
class Emr:
    """`emr("DescribeCluster", …)` asks as a user would."""

    ec2: Ec2
    clock: ManualClock
    vpc: str
    subnet: str

    def __call__(self, operation: str, **params: Any) -> dict[str, Any]:
        return self.ec2(operation, service="emr", **params)

    def request(self, cores: int = 2, **changes: Any) -> dict[str, Any]:
        groups = [
            {"InstanceRole": "MASTER", "InstanceType": "m5.xlarge", "InstanceCount": 1},
            {"InstanceRole": "CORE", "InstanceType": "m5.xlarge", "InstanceCount": cores},
        ]
        instances = {"InstanceGroups": groups, "Ec2SubnetId": self.subnet, "KeepJobFlowAliveWhenNoSteps": True}
        instances |= changes.pop("Instances", {})
        return {
            "Name": "one",
            "ReleaseLabel": "emr-7.14.0",
            "Applications": [{"Name": "Hadoop"}],
            "Instances": instances,
            "LogUri": f"s3://{BUCKET}/emr-logs/",
            "JobFlowRole": "nodes",
            "ServiceRole": "emr",
            "CustomAmiId": images.API_ONLY.id,
            "Tags": [{"Key": "deeplearning:cluster", "Value": "one"}],
            **changes,
        }

    def run(self, cores: int = 2, **changes: Any) -> str:
        return str(self("RunJobFlow", **self.request(cores, **changes))["JobFlowId"])

    def ready(self, cores: int = 2, **changes: Any) -> str:
        cluster = self.run(cores, **changes)
        self.clock.advance(200)
        assert self.state(cluster) == "WAITING"
        return cluster

    def status(self, cluster: str) -> dict[str, Any]:
        status: dict[str, Any] = self("DescribeCluster", ClusterId=cluster)["Cluster"]["Status"]
        return status

    def state(self, cluster: str) -> str:
        return str(self.status(cluster)["State"])

    def nodes(self, cluster: str, *states: str, **more: Any) -> list[dict[str, Any]]:
        answer = self("ListInstances", ClusterId=cluster, InstanceStates=list(states), **more)
        nodes: list[dict[str, Any]] = answer["Instances"]
        return nodes

    def ids(self, cluster: str, role: str, *states: str) -> list[str]:
        return [node["Ec2InstanceId"] for node in self.nodes(cluster, *states, InstanceGroupTypes=[role])]

    def group(self, cluster: str, role: str = "CORE") -> dict[str, Any]:
        groups = self("ListInstanceGroups", ClusterId=cluster)["InstanceGroups"]
        return next(group for group in groups if group["InstanceGroupType"] == role)

    def resize(self, cluster: str, **change: Any) -> None:
        self("ModifyInstanceGroups", InstanceGroups=[{"InstanceGroupId": self.group(cluster)["Id"], **change}])


def role(ec2: Ec2, name: str, service: str, **condition: Any) -> None:
    trust = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole",
         **condition}]}  # fmt: skip
    ec2("CreateRole", service="iam", RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))


@pytest.fixture
def emr(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> Emr:
    ours = {"StringEquals": {"aws:SourceAccount": "123456789012"},
            "ArnLike": {"aws:SourceArn": "arn:aws:elasticmapreduce:us-east-1:123456789012:*"}}  # fmt: skip
    role(ec2, "emr", "elasticmapreduce.amazonaws.com", Condition=ours)
    launch = document(allow(["ec2:*", "iam:PassRole"]))
    ec2("PutRolePolicy", service="iam", RoleName="emr", PolicyName="launch", PolicyDocument=launch)
    role(ec2, "nodes", "ec2.amazonaws.com")
    ec2("CreateInstanceProfile", service="iam", InstanceProfileName="nodes")
    ec2("AddRoleToInstanceProfile", service="iam", InstanceProfileName="nodes", RoleName="nodes")
    ec2("CreateBucket", service="s3", Bucket=BUCKET)
    vpc, subnet = ec2.subnet()
    gateway = ec2("CreateInternetGateway")["InternetGateway"]["InternetGatewayId"]
    ec2("AttachInternetGateway", InternetGatewayId=gateway, VpcId=vpc)
    table = ec2("DescribeRouteTables", Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"][0]
    ec2("CreateRoute", RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    return Emr(ec2, clock, vpc, subnet)


# Starting


def test_a_cluster_goes_through_its_states(emr: Emr, clock: ManualClock) -> None:
    cluster = emr.run()
    assert emr.state(cluster) == "STARTING"
    assert emr.nodes(cluster) == []
    clock.advance(31)
    assert [node["Status"]["State"] for node in emr.nodes(cluster)] == ["PROVISIONING"] * 3
    assert emr.state(cluster) == "STARTING"
    clock.advance(21)
    assert emr.state(cluster) == "BOOTSTRAPPING"
    assert emr.group(cluster)["Status"]["State"] == "BOOTSTRAPPING"
    clock.advance(71)
    described = emr("DescribeCluster", ClusterId=cluster)["Cluster"]
    assert described["Status"]["State"] == "WAITING"
    assert set(described["Status"]["Timeline"]) == {"CreationDateTime", "ReadyDateTime"}
    assert described["Name"] == "one"
    assert described["Tags"] == [{"Key": "deeplearning:cluster", "Value": "one"}]
    assert described["Ec2InstanceAttributes"]["IamInstanceProfile"] == "nodes"
    assert emr.group(cluster)["RunningInstanceCount"] == 2


def test_nodes_are_instances_with_tags_that_only_emr_can_set(emr: Emr) -> None:
    cluster = emr.ready(EbsRootVolumeSize=60)
    for node in emr.nodes(cluster, "RUNNING"):
        instance = emr.ec2.describe({"InstanceId": node["Ec2InstanceId"]})
        role = "MASTER" if node["Ec2InstanceId"] in emr.ids(cluster, "MASTER") else "CORE"
        assert emr.ec2.tags_of(node["Ec2InstanceId"]) == {
            "deeplearning:cluster": "one",
            "aws:elasticmapreduce:job-flow-id": cluster,
            "aws:elasticmapreduce:instance-group-role": role,
        }
        assert instance["SubnetId"] == emr.subnet
        assert instance["PrivateIpAddress"] == node["PrivateIpAddress"]
        [volume] = emr.ec2("DescribeVolumes", Filters=[
            {"Name": "attachment.instance-id", "Values": [node["Ec2InstanceId"]]}])["Volumes"]  # fmt: skip
        assert volume["Size"] == 60
    forged = [{"Key": "aws:elasticmapreduce:job-flow-id", "Value": cluster}]
    with emr.ec2.refused("InvalidParameterValue", "reserved"):
        emr.ec2("CreateTags", Resources=emr.ids(cluster, "CORE"), Tags=forged)
    with emr.ec2.refused("InvalidParameterValue", "reserved"):
        emr.ec2.run(True, SubnetId=emr.subnet, TagSpecifications=[{"ResourceType": "instance", "Tags": forged}])


def test_nodes_have_public_addresses_where_the_subnet_gives_them(emr: Emr) -> None:
    assert "PublicIpAddress" not in emr.nodes(emr.ready())[0]
    emr.ec2("ModifySubnetAttribute", SubnetId=emr.subnet, MapPublicIpOnLaunch={"Value": True})
    assert emr.nodes(emr.ready())[0]["PublicIpAddress"]


def test_emr_adds_its_rules_to_the_managed_security_groups(emr: Emr) -> None:
    cluster = emr.ready()
    attributes = emr("DescribeCluster", ClusterId=cluster)["Cluster"]["Ec2InstanceAttributes"]
    master, core = attributes["EmrManagedMasterSecurityGroup"], attributes["EmrManagedSlaveSecurityGroup"]
    for group in emr.ec2("DescribeSecurityGroups", GroupIds=[master, core])["SecurityGroups"]:
        sources = {
            (rule["IpProtocol"], pair["GroupId"])
            for rule in group["IpPermissions"]
            for pair in rule["UserIdGroupPairs"]
        }
        assert sources == {(protocol, each) for protocol in ("tcp", "udp", "icmp") for each in (master, core)}
    again = emr("DescribeCluster", ClusterId=emr.ready())["Cluster"]["Ec2InstanceAttributes"]
    assert again["EmrManagedMasterSecurityGroup"] == master


def test_a_private_subnet_needs_a_service_access_group_with_own_groups(emr: Emr) -> None:
    _, private = emr.ec2.subnet("10.0.1.0/24", vpc=emr.vpc)
    table = emr.ec2("CreateRouteTable", VpcId=emr.vpc)["RouteTable"]["RouteTableId"]
    emr.ec2("AssociateRouteTable", RouteTableId=table, SubnetId=private)
    groups = [
        emr.ec2("CreateSecurityGroup", GroupName=name, Description="x", VpcId=emr.vpc)["GroupId"] for name in "abc"
    ]
    own = {
        "Ec2SubnetId": private,
        "EmrManagedMasterSecurityGroup": groups[0],
        "EmrManagedSlaveSecurityGroup": groups[1],
    }
    with emr.ec2.refused("ValidationException", "ServiceAccessSecurityGroup"):
        emr.run(Instances=own)
    own["ServiceAccessSecurityGroup"] = groups[2]
    refused_later = emr.run(Instances=own)
    emr.clock.advance(60)
    assert emr.status(refused_later)["StateChangeReason"] == {
        "Code": "VALIDATION_ERROR",
        "Message": "ServiceAccessSecurityGroup is missing ingress rule from EmrManagedMasterSecurityGroup on port 9443",
    }
    rule = {"IpProtocol": "tcp", "FromPort": 9443, "ToPort": 9443, "UserIdGroupPairs": [{"GroupId": groups[0]}]}
    emr.ec2("AuthorizeSecurityGroupIngress", GroupId=groups[2], IpPermissions=[rule])
    cluster = emr.ready(Instances=own)
    assert {
        group["GroupId"]
        for node in emr.nodes(cluster)
        for group in emr.ec2.describe({"InstanceId": node["Ec2InstanceId"]})["SecurityGroups"]
    } == set(groups[:2])


def test_emr_adds_the_rule_for_the_primary_node_to_its_own_service_group_only(emr: Emr) -> None:
    names = ("a", "b", "ElasticMapReduce-ServiceAccess")
    groups = [
        emr.ec2("CreateSecurityGroup", GroupName=name, Description="x", VpcId=emr.vpc)["GroupId"] for name in names
    ]
    members = ("EmrManagedMasterSecurityGroup", "EmrManagedSlaveSecurityGroup", "ServiceAccessSecurityGroup")
    emr.ready(Instances=dict(zip(members, groups, strict=True)))
    (rule,) = emr.ec2("DescribeSecurityGroups", GroupIds=[groups[2]])["SecurityGroups"][0]["IpPermissions"]
    assert (rule["FromPort"], rule["UserIdGroupPairs"][0]["GroupId"]) == (9443, groups[0])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ReleaseLabel": "emr-9.9.9"}, "release label is invalid: emr-9.9.9"),
    ({"ReleaseLabel": "emr-5.6.0"}, "Custom AMI is not supported"),
    ({"LogUri": "s3://nobodys-bucket/x"}, "nobodys-bucket, does not exist"),
    ({"LogUri": "https://x"}, "Invalid log URI"),
    ({"JobFlowRole": "missing"}, "Invalid InstanceProfile: missing."),
    ({"JobFlowRole": ""}, "InstanceProfile is required"),
    ({"ServiceRole": ""}, "ServiceRole is required"),
    ({"Applications": [{"Name": "Pig"}]}, "Specified application: Pig"),
    ({"Instances": {"Ec2SubnetId": "subnet-1"}}, "The supplied ecSubnetId is not valid."),
    ({"Instances": {"InstanceGroups": [{"InstanceRole": "MASTER", "InstanceType": "t3.micro", "InstanceCount": 1}]}},
     "Instance type 't3.micro' is not supported."),
    ({"Instances": {"InstanceGroups": [{"InstanceRole": "CORE", "InstanceType": "m5.xlarge", "InstanceCount": 1}]}},
     "exactly one MASTER"),
    ({"Instances": {"AdditionalMasterSecurityGroups": ["sg-1"]}}, "'sg-1' does not exist"),
    ({"Instances": {"EmrManagedMasterSecurityGroup": "sg-1"}}, "both EmrManaged"),
    ({"Tags": [{"Key": "aws:elasticmapreduce:job-flow-id", "Value": "j-1"}]}, "reserved"),
    ({"AutoTerminationPolicy": {"IdleTimeout": 59}}, "between 60"),
    ({"EbsRootVolumeSize": 101}, "at most 100 GiB"),
    ({"Steps": [{"Name": "x"}]}, "no EMR clusters with Steps"),
    ({"BootstrapActions": [{"Name": "x", "ScriptBootstrapAction": {"Path": "file:/bin/true"}}]}, "from S3 only"),
]  # fmt: skip


def test_what_aws_refuses_is_refused(emr: Emr) -> None:
    for change, words in REFUSED:
        with emr.ec2.refused("ValidationException", words):
            emr.run(**change)
    assert emr("ListClusters")["Clusters"] == []


def test_a_new_instance_profile_is_refused_in_two_ways_before_it_is_known(emr: Emr, cloud: Cloud) -> None:
    cloud.faults.add("late-iam", {}, 60.0)
    emr.ec2("CreateInstanceProfile", service="iam", InstanceProfileName="new")
    emr.ec2("AddRoleToInstanceProfile", service="iam", InstanceProfileName="new", RoleName="nodes")
    with emr.ec2.refused("ValidationException", "Invalid InstanceProfile: new."):
        emr.run(JobFlowRole="new")
    emr.clock.advance(40)
    with emr.ec2.refused("AccessDeniedException", "Failed to authorize instance profile new."):
        emr.run(JobFlowRole="new")
    emr.clock.advance(25)
    emr.run(JobFlowRole="new")


LATE: list[tuple[dict[str, Any], str]] = [
    ({"ServiceRole": "nodes"}, "EMR service role nodes is invalid"),
    ({"ServiceRole": "missing"}, "EMR service role missing is invalid"),
    ({"ServiceRole": "of-another-account"}, "EMR service role of-another-account is invalid"),
    ({"Instances": {"Ec2KeyName": "missing"}}, "The given SSH key name was invalid"),
    ({"EbsRootVolumeSize": 5}, "smaller than snapshot"),
]


def test_what_aws_finds_out_later_ends_the_cluster(emr: Emr) -> None:
    elsewhere = when("StringEquals", "aws:SourceAccount", "210987654321")
    role(emr.ec2, "of-another-account", "elasticmapreduce.amazonaws.com", **elsewhere)
    clusters = [(emr.run(**change), message) for change, message in LATE]
    emr.clock.advance(60)
    for cluster, message in clusters:
        status = emr.status(cluster)
        assert (status["State"], status["StateChangeReason"]["Code"]) == ("TERMINATED_WITH_ERRORS", "VALIDATION_ERROR")
        assert message in status["StateChangeReason"]["Message"]


@pytest.mark.parametrize("missing", ["ec2:RunInstances", "ec2:AuthorizeSecurityGroupIngress", "iam:PassRole"])
def test_a_cluster_ends_where_its_service_role_may_not_launch(emr: Emr, missing: str) -> None:
    """https://github.com/terraform-aws-modules/terraform-aws-emr/issues/3 has the message."""
    rest = [action for action in ("ec2:*", "iam:PassRole") if action != missing]
    text = document(allow(rest), deny(missing))
    emr.ec2("PutRolePolicy", service="iam", RoleName="emr", PolicyName="launch", PolicyDocument=text)
    cluster = emr.run()
    emr.clock.advance(100)
    role_arn = "arn:aws:iam::123456789012:role/emr"
    status = emr.status(cluster)
    assert status["State"] == "TERMINATED_WITH_ERRORS" and emr.nodes(cluster) == []
    message = f"Service role {role_arn} has insufficient EC2 permissions"
    assert status["StateChangeReason"] == {"Code": "VALIDATION_ERROR", "Message": message}


@pytest.mark.parametrize(("value", "ends"), [("red", False), ("blue", True)])
def test_the_tags_of_the_service_role_count(emr: Emr, value: str, ends: bool) -> None:
    emr.ec2("TagRole", service="iam", RoleName="emr", Tags=[{"Key": "team", "Value": value}])
    of_team = when("StringEquals", "aws:PrincipalTag/team", "red")
    text = document(allow(["ec2:*", "iam:PassRole"], **of_team))
    emr.ec2("PutRolePolicy", service="iam", RoleName="emr", PolicyName="launch", PolicyDocument=text)
    cluster = emr.run()
    emr.clock.advance(100)
    assert (emr.status(cluster)["State"] == "TERMINATED_WITH_ERRORS") is ends


def test_a_cluster_ends_where_its_service_role_may_set_tags_in_the_launching_call_alone(emr: Emr) -> None:
    later = deny("ec2:CreateTags", **when("Null", "ec2:CreateAction", "true"))
    text = document(allow(["ec2:*", "iam:PassRole"]), later)
    emr.ec2("PutRolePolicy", service="iam", RoleName="emr", PolicyName="launch", PolicyDocument=text)
    cluster = emr.run()
    emr.clock.advance(100)
    status = emr.status(cluster)
    assert (status["State"], status["StateChangeReason"]["Code"]) == ("TERMINATED_WITH_ERRORS", "VALIDATION_ERROR")
    launched = [instance for each in emr.ec2("DescribeInstances")["Reservations"] for instance in each["Instances"]]
    assert launched
    assert {instance["State"]["Name"] for instance in launched} <= {"shutting-down", "terminated"}


def test_without_capacity_a_cluster_ends_with_an_error(emr: Emr, cloud: Cloud) -> None:
    cloud.faults.add("capacity", {}, 1)
    cluster = emr.run()
    emr.clock.advance(100)
    status = emr.status(cluster)
    assert status["State"] == "TERMINATED_WITH_ERRORS"
    assert status["StateChangeReason"]["Code"] == "INTERNAL_ERROR"
    assert [node["Status"]["State"] for node in emr.nodes(cluster)] == ["TERMINATED"]


# Machines and their bootstrap actions


ACTION = {"Name": "boot", "ScriptBootstrapAction": {"Path": f"s3://{BUCKET}/boot.py", "Args": ["a b"]}}


@pytest.fixture
def booting(emr: Emr, machines: Recorder, cloud: Cloud) -> str:
    """A cluster of one primary and one core node whose machines have just come up."""
    cluster = emr.run(1, CustomAmiId=images.BASE.id, BootstrapActions=[ACTION], Instances={"Ec2KeyName": ""})
    emr.clock.advance(31)
    for view in list(machines.views):
        machine_started(cloud, view.id)
    emr.clock.advance(21)
    return cluster


def test_a_machine_is_told_what_it_is_and_what_to_run(emr: Emr, machines: Recorder, booting: str) -> None:
    assert emr.state(booting) == "STARTING"
    [master], [core] = emr.ids(booting, "MASTER"), emr.ids(booting, "CORE")
    settings = machines.settings[core]
    assert settings["cluster"] == settings["job_flow_info"]["jobFlowId"] == booting
    assert settings["instance_info"]["isMaster"] is False
    assert settings["instance_info"]["instanceGroupId"] == emr.group(booting)["Id"]
    assert settings["job_flow_info"]["masterInstanceId"] == master
    assert settings["actions"] == [{"path": f"s3://{BUCKET}/boot.py", "args": ["a b"]}]
    assert machines.settings[master]["instance_info"]["isMaster"] is True
    listed = emr("ListBootstrapActions", ClusterId=booting)["BootstrapActions"]
    assert listed == [{"Name": "boot", "ScriptPath": f"s3://{BUCKET}/boot.py", "Args": ["a b"]}]


def test_a_node_runs_when_its_actions_have_succeeded(emr: Emr, machines: Recorder, booting: str) -> None:
    for report in machines.reports.values():
        report({"state": "BOOTSTRAPPING"})
    emr.clock.advance(1)
    assert emr.state(booting) == "BOOTSTRAPPING"
    [master], [core] = emr.ids(booting, "MASTER"), emr.ids(booting, "CORE")
    machines.reports[master]({"status": 0})
    emr.clock.advance(61)
    assert emr.ids(booting, "MASTER", "RUNNING") == [master]
    assert emr.state(booting) == "BOOTSTRAPPING"
    machines.reports[core]({"status": 0})
    emr.clock.advance(61)
    assert emr.state(booting) == "WAITING"


@pytest.mark.parametrize(
    ("role", "event", "message"),
    [
        ("MASTER", {"downloaded": True},
         "On the master instance (ID), bootstrap action 1 returned a non-zero return code"),
        ("CORE", {"downloaded": True},
         "On 1 slave instances (including ID), bootstrap action 1 returned a non-zero return code"),
        ("MASTER", {"downloaded": False},
         "Master instance (ID) failed attempting to download bootstrap action 1 file from S3"),
    ],
)  # fmt: skip
def test_a_failed_action_ends_the_cluster(
    emr: Emr, machines: Recorder, cloud: Cloud, booting: str, role: str, event: dict[str, Any], message: str
) -> None:
    [failed] = emr.ids(booting, role)
    machines.reports[failed]({"state": "BOOTSTRAPPING"})
    machines.reports[failed]({"status": 1, "action": 1, **event})
    status = emr.status(booting)
    assert status["State"] == "TERMINATING"
    assert status["StateChangeReason"] == {"Code": "BOOTSTRAP_FAILURE", "Message": message.replace("ID", failed)}
    for view in machines.views:
        machine_exited(cloud, view.id, "destroyed")
    emr.clock.advance(60)
    assert emr.state(booting) == "TERMINATED_WITH_ERRORS"


def test_a_core_node_whose_action_fails_later_ends_alone(
    emr: Emr, machines: Recorder, cloud: Cloud, booting: str
) -> None:
    for report in list(machines.reports.values()):
        report({"state": "BOOTSTRAPPING"})
        report({"status": 0})
    emr.clock.advance(61)
    emr.resize(booting, InstanceCount=2)
    emr.clock.advance(1)
    late = machines.views[-1].id
    machine_started(cloud, late)
    emr.clock.advance(21)
    machines.reports[late]({"status": 1, "action": 1, "downloaded": True})
    emr.clock.advance(10)
    assert emr.state(booting) == "WAITING"
    status = emr.group(booting)["Status"]
    assert (status["State"], status["StateChangeReason"]["Code"]) == ("ARRESTED", "INSTANCE_FAILURE")
    [node] = [node for node in emr.nodes(booting) if node["Ec2InstanceId"] == late]
    assert node["Status"]["StateChangeReason"]["Code"] == "BOOTSTRAP_FAILURE"
    assert len(emr.nodes(booting)) == 3


# Changes


def test_a_group_grows_and_shrinks(emr: Emr) -> None:
    cluster = emr.ready()
    emr.resize(cluster, InstanceCount=3)
    emr.clock.advance(1)
    assert emr.group(cluster)["Status"]["State"] == "RESIZING"
    emr.clock.advance(100)
    assert len(emr.ids(cluster, "CORE", "RUNNING")) == 3
    one, *others = emr.ids(cluster, "CORE", "RUNNING")
    emr.resize(cluster, EC2InstanceIdsToTerminate=[others[0]])
    emr.clock.advance(100)
    assert emr.ids(cluster, "CORE", "RUNNING") == [one, others[1]]
    assert emr.group(cluster)["RequestedInstanceCount"] == 2
    emr.resize(cluster, InstanceCount=1, EC2InstanceIdsToTerminate=[others[1]])
    emr.clock.advance(100)
    assert emr.ids(cluster, "CORE", "RUNNING") == [one]
    assert len(emr.ids(cluster, "CORE", "RUNNING")) == 1
    assert emr.group(cluster)["Status"]["State"] == "RUNNING"


def test_impossible_sizes_are_refused(emr: Emr) -> None:
    cluster = emr.ready()
    for change, words in (
        ({"InstanceCount": 0}, "at least one"),
        ({}, "Either InstanceCount"),
        ({"EC2InstanceIdsToTerminate": ["i-1"]}, "i-1 are not in"),
    ):
        with emr.ec2.refused("ValidationException", words):
            emr.resize(cluster, **change)


def test_a_cluster_that_starts_cannot_be_resized(emr: Emr) -> None:
    cluster = emr.run()
    with emr.ec2.refused("ValidationException", "running or waiting"):
        emr.resize(cluster, InstanceCount=3)


def test_a_dead_core_node_is_replaced_where_that_was_asked_for(emr: Emr) -> None:
    cluster = emr.ready(Instances={"UnhealthyNodeReplacement": True})
    [dead, other] = emr.ids(cluster, "CORE")
    emr.ec2("TerminateInstances", InstanceIds=[dead])
    emr.clock.advance(100)
    alive = emr.ids(cluster, "CORE", "RUNNING")
    assert len(alive) == 2
    assert other in alive
    assert dead not in alive
    emr("SetUnhealthyNodeReplacement", JobFlowIds=[cluster], UnhealthyNodeReplacement=False)
    emr.ec2("TerminateInstances", InstanceIds=[other])
    emr.clock.advance(100)
    assert len(emr.ids(cluster, "CORE", "RUNNING")) == 1
    assert emr.state(cluster) == "WAITING"


@pytest.mark.parametrize(
    ("role", "message"),
    [
        ("MASTER", "The master node was terminated by user."),
        ("CORE", "All slaves in the job flow were terminated."),
    ],
)
def test_the_death_of_the_primary_or_of_all_core_nodes_ends_the_cluster(emr: Emr, role: str, message: str) -> None:
    cluster = emr.ready()
    emr.ec2("TerminateInstances", InstanceIds=emr.ids(cluster, role))
    emr.clock.advance(10)
    status = emr.status(cluster)
    assert status["State"] == "TERMINATED_WITH_ERRORS"
    assert status["StateChangeReason"] == {"Code": "INSTANCE_FAILURE", "Message": message}


def test_tags_of_a_cluster_reach_its_instances(emr: Emr) -> None:
    cluster = emr.ready()
    emr("AddTags", ResourceId=cluster, Tags=[{"Key": "colour", "Value": "red"}])
    [master] = emr.ids(cluster, "MASTER")
    assert emr.ec2.tags_of(master)["colour"] == "red"


# Ends


def test_a_cluster_is_terminated_unless_it_is_protected(emr: Emr) -> None:
    cluster = emr.ready(Instances={"TerminationProtected": True})
    with emr.ec2.refused("ValidationException", "termination protected"):
        emr("TerminateJobFlows", JobFlowIds=[cluster])
    with emr.ec2.refused("OperationNotPermitted"):
        emr.ec2("TerminateInstances", InstanceIds=emr.ids(cluster, "MASTER"))
    emr("SetTerminationProtection", JobFlowIds=[cluster], TerminationProtected=False)
    emr("TerminateJobFlows", JobFlowIds=[cluster])
    assert emr.state(cluster) == "TERMINATING"
    emr.clock.advance(60)
    status = emr.status(cluster)
    assert (status["State"], status["StateChangeReason"]["Code"]) == ("TERMINATED", "USER_REQUEST")
    assert "EndDateTime" in status["Timeline"]
    assert emr.nodes(cluster, "RUNNING") == []
    assert all(emr.ec2.state({"InstanceId": node["Ec2InstanceId"]}) == "terminated" for node in emr.nodes(cluster))


def test_an_idle_cluster_ends_by_its_policy(emr: Emr) -> None:
    cluster = emr.ready(AutoTerminationPolicy={"IdleTimeout": 3600})
    policy = emr("GetAutoTerminationPolicy", ClusterId=cluster)["AutoTerminationPolicy"]
    assert policy == {"IdleTimeout": 3600}
    emr.clock.advance(3000)
    emr("RemoveAutoTerminationPolicy", ClusterId=cluster)
    assert emr("GetAutoTerminationPolicy", ClusterId=cluster) == {}
    emr.clock.advance(4000)
    assert emr.state(cluster) == "WAITING"
    emr("PutAutoTerminationPolicy", ClusterId=cluster, AutoTerminationPolicy={"IdleTimeout": 600})
    emr.clock.advance(599)
    assert emr.state(cluster) == "WAITING"
    emr.clock.advance(60)
    assert emr.state(cluster) == "TERMINATED"


def test_a_cluster_without_steps_ends_unless_it_is_kept(emr: Emr) -> None:
    cluster = emr.run(Instances={"KeepJobFlowAliveWhenNoSteps": False})
    emr.clock.advance(300)
    assert emr.status(cluster)["StateChangeReason"]["Code"] == "ALL_STEPS_COMPLETED"


# Reading


def test_clusters_are_listed_newest_first_and_by_state(emr: Emr) -> None:
    first = emr.ready()
    second = emr.run(Name="two")
    assert [cluster["Id"] for cluster in emr("ListClusters")["Clusters"]] == [second, first]
    waiting = emr("ListClusters", ClusterStates=["WAITING"])["Clusters"]
    assert [(cluster["Id"], cluster["Name"]) for cluster in waiting] == [(first, "one")]
    with emr.ec2.refused("InvalidRequestException", "Cluster id 'j-1' is not valid."):
        emr("DescribeCluster", ClusterId="j-1")
    assert emr.ec2("ListClusters", region="eu-west-1", service="emr")["Clusters"] == []


def test_long_lists_have_pages(emr: Emr) -> None:
    clusters = [emr.run(Name=str(number)) for number in range(51)]
    first = emr("ListClusters")
    second = emr("ListClusters", Marker=first["Marker"])
    listed = [cluster["Id"] for answer in (first, second) for cluster in answer["Clusters"]]
    assert listed == clusters[::-1]
    assert "Marker" not in second


def test_releases_are_listed_in_pages(emr: Emr) -> None:
    first = emr("ListReleaseLabels", Filters={"Prefix": "emr-7."}, MaxResults=2)
    rest = emr("ListReleaseLabels", Filters={"Prefix": "emr-7."}, NextToken=first["NextToken"])
    labels = [*first["ReleaseLabels"], *rest["ReleaseLabels"]]
    assert "NextToken" not in rest and {"emr-7.0.0", "emr-7.14.0"} <= set(labels)
    assert all(label.startswith("emr-7.") for label in labels) and len(first["ReleaseLabels"]) == 2


def test_releases_and_their_types(emr: Emr) -> None:
    latest = emr("DescribeReleaseLabel", ReleaseLabel="emr-7.14.0")
    assert "hadoop" in [application["Name"] for application in latest["Applications"]]
    types: list[dict[str, Any]] = []
    answer: dict[str, Any] = {"Marker": "0"}
    while "Marker" in answer:
        answer = emr("ListSupportedInstanceTypes", ReleaseLabel="emr-7.14.0", Marker=answer["Marker"])
        types += answer["SupportedInstanceTypes"]
    by_name = {each["Type"]: each for each in types}
    assert by_name["m5.xlarge"]["VCPU"] == 4
    assert by_name["m5.xlarge"]["MemoryGB"] == 16
    assert "p2.xlarge" not in by_name
    with emr.ec2.refused("InvalidRequestException"):
        emr("DescribeReleaseLabel", ReleaseLabel="emr-1")


def test_a_cluster_has_an_arn(emr: Emr) -> None:
    arn = emr("RunJobFlow", **emr.request())["ClusterArn"]
    assert arn.startswith(f"arn:aws:elasticmapreduce:{REGION}:123456789012:cluster/j-")


# Permissions


def test_a_caller_needs_the_cluster_and_the_roles_that_it_passes(emr: Emr, aws: Aws) -> None:
    ours = when("StringEquals", "elasticmapreduce:RequestTag/deeplearning:cluster", "one")
    own = when("StringEquals", "aws:ResourceTag/deeplearning:cluster", "one")
    roles = "arn:aws:iam::123456789012:role/"
    linked = allow("iam:CreateServiceLinkedRole")
    start = allow("elasticmapreduce:RunJobFlow", **ours)
    new = f"arn:aws:elasticmapreduce:{REGION}:123456789012:cluster/${{*}}"
    tag, end = allow("elasticmapreduce:AddTags", new, **ours), allow("elasticmapreduce:PutAutoTerminationPolicy", new)
    passes = [
        allow(
            "iam:PassRole", f"{roles}{name}", **when("StringEquals", "iam:PassedToService", f"{service}.amazonaws.com")
        )
        for name, service in (("emr", "elasticmapreduce"), ("nodes", "ec2"))
    ]
    reads = [allow("elasticmapreduce:DescribeCluster", **own), allow("elasticmapreduce:TerminateJobFlows", **own)]
    client = aws("emr", aws.role("person", start, tag, *passes, *reads))
    with refused("AccessDeniedException", "iam:CreateServiceLinkedRole"):
        client.run_job_flow(**emr.request())
    for missing in (start, tag, *passes):
        aws.policy("person", linked, *(each for each in (start, tag, *passes) if each is not missing))
        with refused("AccessDeniedException", missing["Action"]):
            client.run_job_flow(**emr.request())
    aws.policy("person", linked, start, tag, *passes, *reads)
    with refused("AccessDeniedException", "elasticmapreduce:RunJobFlow"):
        client.run_job_flow(**emr.request(Tags=[{"Key": "deeplearning:cluster", "Value": "two"}]))
    mine = client.run_job_flow(**emr.request())["JobFlowId"]
    # The permission for new clusters is none for existing ones.
    with refused("AccessDeniedException", "elasticmapreduce:AddTags"):
        client.add_tags(ResourceId=mine, Tags=[{"Key": "deeplearning:cluster", "Value": "one"}])
    emr.ec2.cloud.faults.add("emr-end-checked", {})
    with_end = emr.request(AutoTerminationPolicy={"IdleTimeout": 60})
    with refused("AccessDeniedException", "elasticmapreduce:PutAutoTerminationPolicy"):
        client.run_job_flow(**with_end)
    aws.policy("person", linked, start, tag, end, *passes, *reads)
    assert client.run_job_flow(**with_end)["JobFlowId"]
    other = emr.run(Tags=[])
    assert client.describe_cluster(ClusterId=mine)["Cluster"]["Status"]["State"] == "STARTING"
    with refused(
        "AccessDeniedException", f"elasticmapreduce:TerminateJobFlows on resource: arn:aws:elasticmapreduce:{REGION}"
    ):
        client.terminate_job_flows(JobFlowIds=[other])
    client.terminate_job_flows(JobFlowIds=[mine])
    emr.clock.advance(1)
    assert emr.state(mine) == "TERMINATED"
