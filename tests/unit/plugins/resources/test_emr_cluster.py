"""EMR clusters: YARN's share, the request, and what a second run changes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import polling
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError, refusal
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import tag_list
from ansible_collections.deeplearning.aws.plugins.module_utils.resources import emr_cluster
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.emr_cluster import (
    request,
    surplus,
    yarn_site,
)
from ansible_collections.deeplearning.aws.plugins.modules.emr_cluster import EmrCluster

from tests.unit.modules import defaults_of

OPTIONS: dict[str, Any] = {
    **defaults_of("emr_cluster"),
    "name": "red",
    "release": "emr-7.14.0",
    "primary_type": "m5.xlarge",
    "core_type": "g5.xlarge",
    "worker_count": 2,
    "root_volume_gib": 100,
    "subnet_id": "subnet-1",
    "key_name": "key",
    "service_role": "red-us-east-1-emr",
    "instance_profile": "red-us-east-1-node",
    "primary_security_group": "sg-1",
    "core_security_group": "sg-2",
    "log_uri": "s3://bucket/emr-logs/",
    "bootstrap_path": "s3://bucket/bundles/1.py",
    "bootstrap_sha256": "1",
    "memory_mib": 16384,
    "vcpus": 4,
    "tags": {"deeplearning:cluster": "red"},
}
CLUSTER: dict[str, Any] = {
    "Id": "j-1",
    "Name": "red",
    "ReleaseLabel": "emr-7.14.0",
    "Applications": [{"Name": "Hadoop", "Version": "3"}],
    "EbsRootVolumeSize": 100,
    "Ec2InstanceAttributes": {"Ec2SubnetId": "subnet-1"},
    "TerminationProtected": False,
    "UnhealthyNodeReplacement": True,
    "Status": {"State": "WAITING"},
    "Tags": tag_list({"deeplearning:cluster": "red"}),
}


class Emr:
    """EMR with a cluster, or without."""

    region = "us-east-1"

    def __init__(self, cluster: dict[str, Any] | None = None, idle: int = 3600, core: int = 2) -> None:
        self.cluster, self.idle, self.core = cluster, idle, core
        self.writes: list[tuple[str, dict[str, Any]]] = []

    def pages(self, _service: str, operation: str, _key: str, **_params: Any) -> list[Any]:
        groups = [("MASTER", "m5.xlarge", 1), ("CORE", "g5.xlarge", self.core)]
        return {
            "list_clusters": [self.cluster] if self.cluster else [],
            "list_instance_groups": [
                {"Id": f"ig-{role}", "InstanceGroupType": role, "InstanceType": kind, "RequestedInstanceCount": count}
                for role, kind, count in groups
            ],
            "list_instances": [{"Ec2InstanceId": f"i-{number}"} for number in range(self.core)],
        }[operation]

    def instances(self, **_params: Any) -> list[Any]:
        return [
            {"InstanceId": f"i-{number}", "Tags": tag_list({"deeplearning:rank": str(9 - number)})}
            for number in range(self.core)
        ]

    def call(self, _service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "describe_cluster":
            return {"Cluster": self.cluster}
        if operation == "get_auto_termination_policy":
            return {"AutoTerminationPolicy": {"IdleTimeout": self.idle}} if self.idle else {}
        self.writes.append((operation, params))
        return {"JobFlowId": "j-2"}


def converge(emr: Emr, check: bool = False, **changes: Any) -> tuple[str, bool, list[str]]:
    cluster = EmrCluster(emr, {**OPTIONS, **changes}, check)  # type: ignore[arg-type]
    cluster_id = cluster.converge()
    return cluster_id, cluster.changed, [operation for operation, _params in emr.writes]


@pytest.mark.parametrize(
    ("memory_mib", "vcpus", "percent", "memory", "processors"),
    [
        (16384, 4, 25, "4096", "1"),
        (16384, 4, 100, "16384", "4"),
        (4096, 2, 10, "1024", "1"),
        (61440, 8, 50, "30720", "4"),
        (62000, 8, 25, "15360", "2"),
    ],
)
def test_yarn_has_its_share(memory_mib: int, vcpus: int, percent: int, memory: str, processors: str) -> None:
    site = yarn_site({"memory_mib": memory_mib, "vcpus": vcpus, "yarn_percent": percent})
    assert site["yarn.nodemanager.resource.memory-mb"] == site["yarn.scheduler.maximum-allocation-mb"] == memory
    assert site["yarn.nodemanager.resource.cpu-vcores"] == processors
    assert site["yarn.scheduler.maximum-allocation-vcores"] == processors


def test_the_highest_ranks_go_and_those_without_a_rank_first() -> None:
    assert surplus({"i-3": 4, "i-1": 2, "i-9": 0, "i-2": 3}, 2) == ["i-3", "i-9"]


def test_the_request_has_uniform_groups_and_nothing_that_was_not_asked_for() -> None:
    plain = request({**OPTIONS, "idle_minutes": 0})
    assert {"AutoTerminationPolicy", "CustomAmiId", "EbsRootVolumeThroughput"} & set(plain) == set()
    assert "ServiceAccessSecurityGroup" not in plain["Instances"]
    roles = [(group["InstanceRole"], group["InstanceCount"]) for group in plain["Instances"]["InstanceGroups"]]
    assert roles == [("MASTER", 1), ("CORE", 2)]
    (action,) = plain["BootstrapActions"]
    assert action["ScriptBootstrapAction"] == {"Path": "s3://bucket/bundles/1.py", "Args": ["1"]}
    full = request({**OPTIONS, "image_id": "ami-1", "service_security_group": "sg-3"})
    assert full["CustomAmiId"] == "ami-1" and full["AutoTerminationPolicy"] == {"IdleTimeout": 3600}
    assert full["Instances"]["ServiceAccessSecurityGroup"] == "sg-3"


def test_it_is_created_once_and_a_second_run_writes_nothing() -> None:
    assert converge(Emr()) == ("j-2", True, ["run_job_flow"])
    assert converge(Emr(), check=True) == ("", True, [])
    assert converge(Emr(CLUSTER)) == ("j-1", False, [])


INVALID = "Invalid InstanceProfile: arn:aws:iam::1:instance-profile/red."


@pytest.mark.parametrize(
    ("code", "words", "is_retried"),
    [
        ("ValidationException", INVALID, True),
        ("ValidationException", "EMR service role arn:aws:iam::1:role/red is invalid", False),
        ("AccessDeniedException", "Failed to authorize instance profile arn:aws:iam::1:instance-profile/red.", True),
        ("ValidationException", "InstanceProfile is required for creating cluster", False),
        ("ValidationException", "The supplied release label is invalid: emr-1.", False),
        ("AccessDeniedException", "User: arn:aws:iam::1:user/eve is not authorized to perform: iam:PassRole", False),
        ("InternalServerException", INVALID, False),
    ],
)
def test_only_a_role_that_emr_does_not_know_yet_is_retried(
    monkeypatch: pytest.MonkeyPatch, code: str, words: str, is_retried: bool
) -> None:
    refusals = [refusal(code, words, "elasticmapreduce:RunJobFlow")]

    class Refusing(Emr):
        def call(self, _service: str, operation: str, **params: Any) -> dict[str, Any]:
            if operation == "run_job_flow" and refusals:
                raise refusals.pop()
            return super().call(_service, operation, **params)

    monkeypatch.setattr(polling, "sleep", lambda _seconds: None)
    emr = Refusing()
    if is_retried:
        assert converge(emr) == ("j-2", True, ["run_job_flow"])
    else:
        with pytest.raises(AwsError) as raised:
            converge(emr)
        assert (raised.value.code, raised.value.words, emr.writes) == (code, words, [])


def test_a_role_that_stays_unknown_is_a_failure_with_the_words_of_emr(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Emr):
        def call(self, _service: str, operation: str, **params: Any) -> dict[str, Any]:
            if operation == "run_job_flow":
                raise refusal("ValidationException", INVALID, "elasticmapreduce:RunJobFlow")
            return super().call(_service, operation, **params)

    monkeypatch.setattr(emr_cluster, "ROLE_SECONDS", 0.0)
    with pytest.raises(AwsError, match=f"red-us-east-1-node after 0 seconds: {INVALID} .ValidationException. Run"):
        converge(Refusing())


@pytest.mark.parametrize("change", [{"Name": "blue"}, {"Tags": []}])
def test_a_cluster_of_another_name_or_without_the_tag_is_not_ours(change: dict[str, Any]) -> None:
    assert converge(Emr({**CLUSTER, **change}))[2] == ["run_job_flow"]


@pytest.mark.parametrize(
    ("changes", "writes"),
    [
        ({"worker_count": 3}, ["modify_instance_groups"]),
        ({"idle_minutes": 30}, ["put_auto_termination_policy"]),
        ({"idle_minutes": 0}, ["remove_auto_termination_policy"]),
        ({"termination_protection": True}, ["set_termination_protection"]),
        ({"replace_unhealthy": False}, ["set_unhealthy_node_replacement"]),
        ({"tags": {"deeplearning:cluster": "red", "team": "a"}}, ["add_tags"]),
    ],
)
def test_what_differs_is_changed_and_nothing_in_check_mode(changes: dict[str, Any], writes: list[str]) -> None:
    assert converge(Emr(CLUSTER), **changes) == ("j-1", True, writes)
    assert converge(Emr(CLUSTER), check=True, **changes) == ("j-1", True, [])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"release": "emr-7.12.0"}, "its release is emr-7.14.0 and not emr-7.12.0"),
        ({"applications": ["Hadoop", "Spark"]}, "its applications is Hadoop and not Hadoop, Spark"),
        ({"core_type": "g5.2xlarge"}, "its core nodes' type is g5.xlarge and not g5.2xlarge"),
        ({"image_id": "ami-1"}, "its image is EMR's own and not ami-1"),
    ],
)
def test_what_emr_cannot_change_is_refused(changes: dict[str, Any], words: str) -> None:
    emr = Emr(CLUSTER)
    with pytest.raises(AwsError, match=words):
        converge(emr, **changes)
    assert emr.writes == []


def test_a_smaller_cluster_loses_its_highest_ranks_and_none_while_runs_are_active() -> None:
    emr = Emr(CLUSTER)
    converge(emr, worker_count=1)
    ((_operation, params),) = emr.writes
    (change,) = params["InstanceGroups"]
    assert change == {"InstanceGroupId": "ig-CORE", "EC2InstanceIdsToTerminate": ["i-0"]}

    # The master has removed the policy. It puts it back itself.
    running = Emr(CLUSTER, idle=0)
    with pytest.raises(AwsError, match="while runs are active"):
        converge(running, worker_count=1)
    assert running.writes == [] and converge(Emr(CLUSTER, idle=0))[1] is False


def test_two_of_one_name_are_not_chosen_between() -> None:
    class Two(Emr):
        def pages(self, _service: str, operation: str, _key: str, **params: Any) -> list[Any]:
            listed = super().pages(_service, operation, _key, **params)
            return [*listed, *deepcopy(listed)] if operation == "list_clusters" else listed

    with pytest.raises(AwsError, match="Terminate those that are not needed"):
        converge(Two(CLUSTER))


def test_the_request_has_what_the_cluster_is_to_be() -> None:
    full = request(
        {
            **OPTIONS,
            "root_volume_throughput": 500,
            "termination_protection": True,
            "replace_unhealthy": False,
            "primary_security_groups": ["sg-4"],
            "core_security_groups": ["sg-5"],
            "idle_minutes": 30,
        }
    )
    instances = full.pop("Instances")
    assert full == {
        "Name": "red",
        "ReleaseLabel": "emr-7.14.0",
        "Applications": [{"Name": "Hadoop"}],
        "BootstrapActions": full["BootstrapActions"],
        "Configurations": [{"Classification": "yarn-site", "Properties": yarn_site(OPTIONS)}],
        "LogUri": "s3://bucket/emr-logs/",
        "ServiceRole": "red-us-east-1-emr",
        "JobFlowRole": "red-us-east-1-node",
        "EbsRootVolumeSize": 100,
        "EbsRootVolumeThroughput": 500,
        # Otherwise only the user who created it would see it.
        "VisibleToAllUsers": True,
        "Tags": [{"Key": "deeplearning:cluster", "Value": "red"}],
        "AutoTerminationPolicy": {"IdleTimeout": 1800},
    }
    # Spot instances are not supported, and an idle cluster ends by its policy alone.
    assert {group["Market"] for group in instances.pop("InstanceGroups")} == {"ON_DEMAND"}
    assert instances == {
        "Ec2KeyName": "key",
        "Ec2SubnetId": "subnet-1",
        "EmrManagedMasterSecurityGroup": "sg-1",
        "EmrManagedSlaveSecurityGroup": "sg-2",
        "AdditionalMasterSecurityGroups": ["sg-4"],
        "AdditionalSlaveSecurityGroups": ["sg-5"],
        "KeepJobFlowAliveWhenNoSteps": True,
        "TerminationProtected": True,
        "UnhealthyNodeReplacement": False,
    }


def test_yarns_share_is_compared_beside_other_configurations() -> None:
    def cluster(percent: int) -> dict[str, Any]:
        created = request({**OPTIONS, "yarn_percent": percent})["Configurations"]
        return {**CLUSTER, "Configurations": [{"Classification": "core-site"}, *created]}

    converge(Emr(cluster(25)))
    with pytest.raises(AwsError, match=r"its memory for YARN in MiB \(cluster_emr_yarn_percent\) is 8192 and not 4096"):
        converge(Emr(cluster(50)))
