"""EMR clusters among the resources of a cluster: whose they are, their health, and how they are deleted."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import tag_list
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import (
    ResourceReader,
    emr_cluster_of,
    facts_of,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    ClusterResources,
    Resource,
    health_of,
    is_of_emr,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown.teardown import Deleting, ready

GROUPS = {"MASTER": {"RequestedInstanceCount": 1}, "CORE": {"RequestedInstanceCount": 2}}


def emr_cluster(state: str = "WAITING", running: int = 3, reason: str = "") -> Resource:
    status = {"State": state, "StateChangeReason": {"Message": reason}}
    instances = [{"Ec2InstanceId": f"i-{number}", "Status": {"State": "RUNNING"}} for number in range(running)]
    instances.append({"Ec2InstanceId": "i-old", "Status": {"State": "TERMINATED"}})
    return emr_cluster_of({"Id": "j-1", "Name": "red", "Status": status}, GROUPS, instances)


def owned(*resources: Resource) -> ClusterResources:
    return ClusterResources("red", "123456789012", "us-east-1", resources)


@pytest.mark.parametrize(
    ("resources", "state", "why"),
    [
        ([emr_cluster()], "ready", ""),
        ([emr_cluster("BOOTSTRAPPING", 1)], "creating", "2 of 3 machines are not in service yet"),
        ([emr_cluster("WAITING", 2)], "creating", "1 of 3 machines"),
        ([emr_cluster("TERMINATING", 0, "Steps completed")], "failed", "Steps completed"),
        ([Resource("role", "red-us-east-1-emr")], "failed", "there is no EMR cluster"),
    ],
)
def test_its_state_is_the_health(resources: list[Resource], state: str, why: str) -> None:
    health = health_of(owned(*resources))
    assert health.state == state and why in " ".join(health.why)
    assert is_of_emr(owned(*resources)) and not is_of_emr(owned(Resource("role", "red-us-east-1-master")))


class Aws:
    account, region = "123456789012", "us-east-1"

    def __init__(self, machines: list[Any]) -> None:
        self.machines = machines
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def instances(self, **_params: Any) -> list[Any]:
        return self.machines

    def find(self, _service: str, _operation: str, _missing: Any, ClusterId: str) -> dict[str, Any]:
        named = {"j-ended": "red", "j-other": "blue"}.get(ClusterId, "")
        return {"Cluster": {"Name": named, "Tags": tag_list({"deeplearning:cluster": "red"})}}

    def call(self, _service: str, operation: str, **params: Any) -> dict[str, Any]:
        self.calls.append((operation, params))
        return {}


def test_a_machine_is_ours_only_if_its_emr_cluster_is() -> None:
    """Others may put our tag on their machines, but not the id of an EMR cluster."""

    def instance(name: str, **tags: str) -> dict[str, Any]:
        own = {"deeplearning:cluster": "red", **{f"aws:elasticmapreduce:{key}": value for key, value in tags.items()}}
        return {"InstanceId": name, "State": {"Name": "running"}, "Tags": tag_list(own)}

    machines = [
        instance("i-ended", **{"job-flow-id": "j-ended"}),
        instance("i-other", **{"job-flow-id": "j-other"}),
        instance("i-plain"),
    ]
    reader = ResourceReader(Aws(machines), "red")  # type: ignore[arg-type]
    resources = reader.read_again(["instance"]).resources
    assert {resource.id: resource.ours for resource in resources} == {
        "i-ended": True,
        "i-other": False,
        "i-plain": False,
    }


def test_it_is_terminated_before_what_its_machines_use_even_if_protected() -> None:
    role, group = Resource("role", "red-us-east-1-emr"), Resource("security_group", "sg-1")
    assert ready([emr_cluster(), Resource("instance", "i-1", state="running"), role, group]) == [emr_cluster()]
    aws = Aws([])
    Deleting(aws).delete(emr_cluster())  # type: ignore[arg-type]
    assert [operation for operation, _params in aws.calls] == ["set_termination_protection", "terminate_job_flows"]


@pytest.mark.parametrize("ports", [(0, 65535), (9443, 9443)], ids=["a rule of EMR", "the service access group's"])
def test_security_groups_that_name_each_other_lose_these_rules_first(ports: tuple[int, int]) -> None:
    def group(name: str, other: str) -> Resource:
        rule = {"IpProtocol": "tcp", "FromPort": ports[0], "ToPort": ports[1]}
        pairs = [{"GroupId": name}, {"GroupId": other, "UserId": "1"}]
        listed = {"GroupId": name, "IpPermissions": [{**rule, "UserIdGroupPairs": pairs}, {**rule, "IpRanges": []}]}
        return Resource("security_group", name, facts=facts_of("security_group", listed))

    both = [group("sg-1", "sg-2"), group("sg-2", "sg-1")]
    assert ready(both) == both
    aws = Aws([])
    Deleting(aws).delete(both[0])  # type: ignore[arg-type]
    (revoked, params), (deleted, _params) = aws.calls
    assert (revoked, deleted) == ("revoke_security_group_ingress", "delete_security_group")
    (permission,) = params["IpPermissions"]
    assert permission["UserIdGroupPairs"] == [{"GroupId": "sg-2"}] and permission["FromPort"] == ports[0]
