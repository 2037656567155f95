"""The modules emr_cluster and emr_cluster_info against the local cloud's EMR, whose machines do not boot."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import polling

from localcloud.testing.latency import Latency
from tests.unit.conftest import Account
from tests.unit.modules import run_module

Run = Callable[..., dict[str, Any]]
BUCKET = "c-123456789012-us-east-1"
TAGS = {"deeplearning:cluster": "c"}


class Emr:
    """What an EMR cluster needs, and what plain boto3 reads of it."""

    def __init__(self, aws: Account) -> None:
        self.aws, self.emr, self.ec2 = aws, aws.client("emr"), aws.client("ec2")
        aws.client("s3").create_bucket(Bucket=BUCKET)
        iam = aws.client("iam")
        for name, service in (("service", "elasticmapreduce"), ("nodes", "ec2")):
            principal = {"Effect": "Allow", "Principal": {"Service": f"{service}.amazonaws.com"}}
            trust = {"Version": "2012-10-17", "Statement": [{**principal, "Action": "sts:AssumeRole"}]}
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
        launch = {"Effect": "Allow", "Action": ["ec2:*", "iam:PassRole"], "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [launch]})
        iam.put_role_policy(RoleName="service", PolicyName="launch", PolicyDocument=policy)
        iam.create_instance_profile(InstanceProfileName="nodes")
        iam.add_role_to_instance_profile(InstanceProfileName="nodes", RoleName="nodes")
        self.ec2.create_key_pair(KeyName="my-key")
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnet = self.ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
        self.groups = [
            self.ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"]
            for name in ("primary", "core", "service", "more-primary", "more-core")
        ]
        pairs = [{"GroupId": self.groups[0]}]
        rule = {"IpProtocol": "tcp", "FromPort": 9443, "ToPort": 9443, "UserIdGroupPairs": pairs}
        self.ec2.authorize_security_group_ingress(GroupId=self.groups[2], IpPermissions=[rule])
        aws.cloud.settle()

    def options(self, **more: Any) -> dict[str, Any]:
        primary, core, service, more_primary, more_core = self.groups
        return {
            "name": "c",
            "release": "emr-7.14.0",
            "primary_type": "m5.xlarge",
            "core_type": "m5.2xlarge",
            "worker_count": 2,
            "root_volume_gib": 60,
            "subnet_id": self.subnet,
            "key_name": "my-key",
            "service_role": "service",
            "instance_profile": "nodes",
            "primary_security_group": primary,
            "core_security_group": core,
            "service_security_group": service,
            "primary_security_groups": [more_primary],
            "core_security_groups": [more_core],
            "log_uri": f"s3://{BUCKET}/emr-logs/",
            "bootstrap_path": f"s3://{BUCKET}/bundles/1.py",
            "bootstrap_sha256": "1",
            "memory_mib": 16384,
            "vcpus": 8,
            "tags": TAGS,
        } | more

    def passes(self, seconds: float = 60) -> None:
        with self.aws.cloud.lock:
            self.aws.cloud.clock.advance(seconds)  # type: ignore[attr-defined]

    def clusters(self) -> list[dict[str, Any]]:
        listed = self.emr.list_clusters()["Clusters"]
        return [self.emr.describe_cluster(ClusterId=item["Id"])["Cluster"] for item in listed]

    def group(self, cluster_id: str, role: str = "CORE") -> dict[str, Any]:
        listed = self.emr.list_instance_groups(ClusterId=cluster_id)["InstanceGroups"]
        return next(dict(group) for group in listed if group["InstanceGroupType"] == role)

    def core_nodes(self, cluster_id: str) -> list[str]:
        answer = self.emr.list_instances(ClusterId=cluster_id, InstanceGroupTypes=["CORE"], InstanceStates=["RUNNING"])
        return sorted(instance["Ec2InstanceId"] for instance in answer["Instances"])

    def rank(self, ranks: dict[str, int]) -> None:
        for instance, rank in ranks.items():
            self.ec2.create_tags(Resources=[instance], Tags=[{"Key": "deeplearning:rank", "Value": str(rank)}])

    def writes(self) -> list[str]:
        return [
            record["operation"]
            for record in self.aws.cloud.calls.since()
            if record["writes"] and record["service"] in ("emr", "elasticmapreduce")
        ]


@pytest.fixture
def emr(aws: Account) -> Emr:
    return Emr(aws)


@pytest.fixture
def run(emr: Emr, capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda check=False, **options: run_module(capsys, "emr_cluster", check, **emr.options(**options))


@pytest.fixture
def info(emr: Emr, capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda **options: run_module(capsys, "emr_cluster_info", **{"name": "c", **options})


def test_check_create_and_again(emr: Emr, run: Run) -> None:
    planned = run(check=True)
    assert (planned["changed"], planned["created"], planned["id"]) == (True, True, "") and emr.clusters() == []

    created = run()
    (cluster,) = emr.clusters()
    assert (created["changed"], created["created"], created["id"]) == (True, True, cluster["Id"])
    emr.passes()
    before = emr.writes()
    for check in (False, True):
        again = run(check)
        assert (again["changed"], again["created"], again["id"]) == (False, False, cluster["Id"])
    assert emr.writes() == before == ["RunJobFlow"]


def test_all_options_reach_the_cluster(emr: Emr, run: Run) -> None:
    run(
        tags={**TAGS, "size": 2}, termination_protection=True, replace_unhealthy=False, idle_minutes=30, yarn_percent=50
    )
    (cluster,) = emr.clusters()
    assert {tag["Key"]: tag["Value"] for tag in cluster["Tags"]} == {**TAGS, "size": "2"}
    assert (cluster["Name"], cluster["ReleaseLabel"], cluster["EbsRootVolumeSize"]) == ("c", "emr-7.14.0", 60)
    assert [item["Name"] for item in cluster["Applications"]] == ["Hadoop"]
    assert (cluster["TerminationProtected"], cluster["UnhealthyNodeReplacement"]) == (True, False)
    assert cluster["LogUri"].startswith(f"s3://{BUCKET}/emr-logs") and cluster["ServiceRole"].endswith("service")
    attributes = cluster["Ec2InstanceAttributes"]
    primary, core, service, more_primary, more_core = emr.groups
    assert (attributes["Ec2SubnetId"], attributes["Ec2KeyName"]) == (emr.subnet, "my-key")
    assert attributes["IamInstanceProfile"].endswith("nodes")
    assert attributes["EmrManagedMasterSecurityGroup"] == primary
    assert attributes["EmrManagedSlaveSecurityGroup"] == core
    assert attributes["ServiceAccessSecurityGroup"] == service
    assert attributes["AdditionalMasterSecurityGroups"] == [more_primary]
    assert attributes["AdditionalSlaveSecurityGroups"] == [more_core]
    (site,) = cluster["Configurations"]
    assert site["Classification"] == "yarn-site"
    assert site["Properties"]["yarn.nodemanager.resource.memory-mb"] == "8192"
    assert site["Properties"]["yarn.nodemanager.resource.cpu-vcores"] == "4"
    policy = emr.emr.get_auto_termination_policy(ClusterId=cluster["Id"])["AutoTerminationPolicy"]
    assert policy == {"IdleTimeout": 1800}
    (action,) = emr.emr.list_bootstrap_actions(ClusterId=cluster["Id"])["BootstrapActions"]
    assert (action["ScriptPath"], action["Args"]) == (f"s3://{BUCKET}/bundles/1.py", ["1"])
    assert (emr.group(cluster["Id"], "MASTER")["InstanceType"], emr.group(cluster["Id"])["InstanceType"]) == (
        "m5.xlarge",
        "m5.2xlarge",
    )
    assert emr.group(cluster["Id"], "MASTER")["RequestedInstanceCount"] == 1
    assert emr.group(cluster["Id"])["RequestedInstanceCount"] == 2
    assert (emr.group(cluster["Id"], "MASTER")["Name"], emr.group(cluster["Id"])["Name"]) == ("Primary", "Core")
    assert action["Name"] == "deeplearning"
    # It waits for runs, not for EMR's own steps.
    emr.passes()
    assert emr.clusters()[0]["Status"]["State"] == "WAITING"


def test_the_defaults(emr: Emr, run: Run) -> None:
    run()
    (cluster,) = emr.clusters()
    assert (cluster["TerminationProtected"], cluster["UnhealthyNodeReplacement"]) == (False, True)
    assert not cluster.get("CustomAmiId")
    policy = emr.emr.get_auto_termination_policy(ClusterId=cluster["Id"])["AutoTerminationPolicy"]
    assert policy == {"IdleTimeout": 3600}
    (site,) = cluster["Configurations"]
    assert site["Properties"]["yarn.scheduler.maximum-allocation-mb"] == "4096"
    assert site["Properties"]["yarn.scheduler.maximum-allocation-vcores"] == "2"


def test_settings_that_emr_can_change_are_changed(emr: Emr, run: Run) -> None:
    cluster_id = run()["id"]
    emr.passes()
    changes = {
        "termination_protection": True,
        "replace_unhealthy": False,
        "idle_minutes": 30,
        "tags": {**TAGS, "team": "a"},
        "worker_count": 3,
    }
    before = emr.writes()
    assert run(check=True, **changes)["changed"] and emr.writes() == before
    changed = run(**changes)
    assert (changed["changed"], changed["created"], changed["id"]) == (True, False, cluster_id)
    (cluster,) = emr.clusters()
    assert (cluster["TerminationProtected"], cluster["UnhealthyNodeReplacement"]) == (True, False)
    assert {tag["Key"]: tag["Value"] for tag in cluster["Tags"]} == {**TAGS, "team": "a"}
    policy = emr.emr.get_auto_termination_policy(ClusterId=cluster_id)["AutoTerminationPolicy"]
    assert policy == {"IdleTimeout": 1800} and emr.group(cluster_id)["RequestedInstanceCount"] == 3
    emr.passes()
    before = emr.writes()
    assert not run(**changes)["changed"] and emr.writes() == before


def test_an_idle_end_is_removed_and_one_that_a_run_has_suspended_is_left_to_the_master(emr: Emr, run: Run) -> None:
    cluster_id = run()["id"]
    emr.passes()
    assert run(idle_minutes=0)["changed"]
    assert not emr.emr.get_auto_termination_policy(ClusterId=cluster_id).get("AutoTerminationPolicy")
    before = emr.writes()
    # Without a policy, it may be that runs are active: then the master puts it back.
    assert not run(idle_minutes=60)["changed"] and not run(idle_minutes=0)["changed"]
    refused = run(idle_minutes=60, worker_count=1)
    assert refused["failed"] and refused["msg"].startswith("1 of the 2 core nodes would be removed while runs are")
    assert emr.writes() == before
    # It grows all the same, and shrinks where no end is wanted.
    assert run(idle_minutes=60, worker_count=3)["changed"]
    emr.passes()
    assert run(idle_minutes=0, worker_count=2)["changed"]


@pytest.mark.parametrize(
    ("ranks", "stay"),
    [
        ([3, 4, 2], [2]),
        ([4, 0, 2], [2]),
        ([2, 3, 4], [0]),
        ([0, 0, 3], [2]),
    ],
)
def test_a_smaller_cluster_keeps_the_nodes_of_the_lowest_ranks(
    emr: Emr, run: Run, ranks: list[int], stay: list[int]
) -> None:
    cluster_id = run(worker_count=3)["id"]
    emr.passes()
    nodes = emr.core_nodes(cluster_id)
    emr.rank({node: rank for node, rank in zip(nodes, ranks, strict=True) if rank})
    assert run(worker_count=1)["changed"]
    emr.passes()
    assert emr.core_nodes(cluster_id) == [nodes[number] for number in stay]
    assert emr.group(cluster_id)["RequestedInstanceCount"] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"release": "emr-7.12.0"}, "its release is emr-7.14.0 and not emr-7.12.0"),
        ({"applications": ["Hadoop", "Spark"]}, "its applications is Hadoop and not Hadoop, Spark"),
        ({"image_id": "ami-0123456789abcdef0"}, "its image is EMR's own and not ami-0123456789abcdef0"),
        ({"root_volume_gib": 61}, "its root volume is 60 and not 61"),
        ({"yarn_percent": 50}, "its memory for YARN in MiB (cluster_emr_yarn_percent) is 4096 and not 8192"),
        ({"subnet_id": "subnet-1"}, "and not subnet-1"),
        ({"primary_type": "m5.2xlarge"}, "its primary node's type is m5.xlarge and not m5.2xlarge"),
        ({"core_type": "m5.xlarge"}, "its core nodes' type is m5.2xlarge and not m5.xlarge"),
    ],
)
def test_what_emr_cannot_change_is_refused(emr: Emr, run: Run, change: dict[str, Any], words: str) -> None:
    cluster_id = run()["id"]
    before = emr.writes()
    refused = run(**change)
    assert refused["failed"] and words in refused["msg"] and f"The EMR cluster c ({cluster_id})" in refused["msg"]
    assert ";" not in refused["msg"] and emr.writes() == before


def test_what_emr_refuses_is_one_sentence(emr: Emr, run: Run) -> None:
    refused = run(release="emr-1.0.0")
    assert refused["failed"] and "The supplied release label is invalid" in refused["msg"]


def test_a_profile_that_reaches_emr_late_is_awaited(emr: Emr, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    iam = emr.aws.client("iam")
    emr.aws.cloud.faults.add("late-iam", {}, 60.0)
    iam.create_instance_profile(InstanceProfileName="new")
    iam.add_role_to_instance_profile(InstanceProfileName="new", RoleName="nodes")
    monkeypatch.setattr(polling, "sleep", lambda _seconds: emr.passes(20))
    created = run(instance_profile="new")
    assert created["created"] and emr.clusters()[0]["Id"] == created["id"]
    attempts = [record for record in emr.aws.cloud.calls.since() if record["operation"] == "RunJobFlow"]
    assert len(attempts) == 4


def test_what_emr_refuses_for_another_reason_is_not_retried(
    emr: Emr, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "sleep", pytest.fail)
    assert "is not supported for release" in run(applications=["Pig"])["msg"]
    assert emr.writes() == ["RunJobFlow"]


def test_a_profile_that_does_not_exist_is_one_sentence(run: Run, info: Run) -> None:
    for refused in (run(profile="missing"), info(profile="missing")):
        assert refused["failed"] and refused["msg"].startswith("There is no AWS profile missing")


def test_info_of_no_cluster(emr: Emr, run: Run, info: Run) -> None:
    run(name="d", tags={"deeplearning:cluster": "d"})
    run(name="c", tags={"deeplearning:cluster": "d"})
    answer = info()
    assert answer["exists"] is False and not answer["changed"]
    assert (answer["id"], answer["cluster"], answer["instance_groups"], answer["instances"]) == ("", {}, [], [])


def test_info_of_a_living_cluster_has_its_nodes_that_have_not_ended(emr: Emr, run: Run, info: Run) -> None:
    cluster_id = run(worker_count=3)["id"]
    emr.passes()
    gone = emr.core_nodes(cluster_id)[0]
    emr.rank({node: rank for rank, node in enumerate(reversed(emr.core_nodes(cluster_id)), 2)})
    run(worker_count=2)
    emr.passes()
    answer = info()
    assert answer["exists"] and not answer["changed"] and (answer["id"], answer["cluster"]["Id"]) == (cluster_id,) * 2
    assert sorted(group["InstanceGroupType"] for group in answer["instance_groups"]) == ["CORE", "MASTER"]
    ids = [instance["Ec2InstanceId"] for instance in answer["instances"]]
    assert len(ids) == 3 and gone not in ids


def test_info_of_a_cluster_that_has_ended(emr: Emr, run: Run, info: Run) -> None:
    cluster_id = run()["id"]
    emr.passes()
    emr.emr.terminate_job_flows(JobFlowIds=[cluster_id])
    emr.passes()
    assert info()["exists"] is False


def test_two_of_one_name_are_refused(emr: Emr, run: Run, info: Run) -> None:
    run()
    (first,) = emr.clusters()
    more = {"Name": "c", "ReleaseLabel": "emr-7.14.0", "JobFlowRole": "nodes", "ServiceRole": "service"}
    groups = [{"InstanceRole": "MASTER", "InstanceType": "m5.xlarge", "InstanceCount": 1}]
    second = emr.emr.run_job_flow(
        **more,
        Instances={"InstanceGroups": groups, "Ec2SubnetId": emr.subnet, "KeepJobFlowAliveWhenNoSteps": True},
        Tags=[{"Key": "deeplearning:cluster", "Value": "c"}],
    )["JobFlowId"]
    ids = sorted([first["Id"], second])
    for refused in (info(), run()):
        assert refused["failed"] and refused["msg"].startswith(f"{ids[0]} and {ids[1]} are all named c, with")
        assert refused["msg"].endswith(f"terminate-clusters --region us-east-1 --cluster-ids {ids[1]}")


def test_info_of_nodes_that_start(emr: Emr, run: Run, info: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    latency = {"emr_launch": 10, "instance_running": 10, "emr_bootstrapped": 10, "emr_applications": 10}
    monkeypatch.setattr(emr.aws.cloud, "latency", Latency("test", latency))
    run(worker_count=1)
    states = []
    for _step in range(7):
        states.append({instance["Status"]["State"] for instance in info()["instances"]})
        emr.passes(9)
    assert states[-1] == {"RUNNING"}, states
    assert {state for some in states[1:] for state in some} >= {"PROVISIONING", "BOOTSTRAPPING"}, states
