# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""EMR clusters: find one by name and tag, the request that creates it, and how one differs from its settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws import polling
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import (
    CLUSTER_TAG,
    CORE,
    PRIMARY,
    RANK_TAG,
    tag_list,
    tags_of,
)

LIVING = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING")
ENDING = "TERMINATING"
SMALLEST_MIB = 1024
"""The least memory that YARN can work with."""
ROLE_SECONDS = 180.0
"""How long a new role or instance profile may take to reach EMR."""
_OWN = "EMR's own"
_LATE_ROLE = {
    "ValidationException": re.compile("Invalid InstanceProfile"),
    "AccessDeniedException": re.compile("Failed to authorize instance profile"),
}
"""EMR's refusals of an instance profile that it does not know yet, or whose role it does not know yet."""

Listed = Mapping[str, Any]


@dataclass(frozen=True)
class EmrSpec:
    """What an EMR cluster is to be."""

    name: str
    release: str
    applications: Sequence[str]
    primary_type: str
    core_type: str
    worker_count: int
    root_volume_gib: int
    subnet_id: str
    key_name: str
    service_role: str
    instance_profile: str
    primary_security_group: str
    core_security_group: str
    log_uri: str
    bootstrap_path: str
    bootstrap_sha256: str
    root_volume_throughput: int = 0
    image_id: str = ""
    service_security_group: str = ""
    primary_security_groups: Sequence[str] = ()
    core_security_groups: Sequence[str] = ()
    yarn: Mapping[str, str] = field(default_factory=dict)
    idle_minutes: int = 60
    termination_protection: bool = False
    replace_unhealthy: bool = True
    tags: Mapping[str, str] = field(default_factory=dict)


def yarn_site(memory_mib: int, vcpus: int, percent: int) -> dict[str, str]:
    """Return YARN's properties for its share of a core node. What it may give to one container is the whole share."""
    memory = str(max(SMALLEST_MIB, memory_mib * percent // 100 // 256 * 256))
    processors = str(max(1, vcpus * percent // 100))
    return {
        "yarn.nodemanager.resource.memory-mb": memory,
        "yarn.nodemanager.resource.cpu-vcores": processors,
        "yarn.scheduler.maximum-allocation-mb": memory,
        "yarn.scheduler.maximum-allocation-vcores": processors,
    }


def request(spec: EmrSpec) -> dict[str, Any]:
    """Return the parameters of RunJobFlow."""
    groups = [("Primary", PRIMARY, spec.primary_type, 1), ("Core", CORE, spec.core_type, spec.worker_count)]
    instances: dict[str, Any] = {
        "InstanceGroups": [
            {"Name": name, "InstanceRole": role, "InstanceType": kind, "InstanceCount": count, "Market": "ON_DEMAND"}
            for name, role, kind, count in groups
        ],
        "Ec2KeyName": spec.key_name,
        "Ec2SubnetId": spec.subnet_id,
        "EmrManagedMasterSecurityGroup": spec.primary_security_group,
        "EmrManagedSlaveSecurityGroup": spec.core_security_group,
        "AdditionalMasterSecurityGroups": list(spec.primary_security_groups),
        "AdditionalSlaveSecurityGroups": list(spec.core_security_groups),
        "KeepJobFlowAliveWhenNoSteps": True,
        "TerminationProtected": spec.termination_protection,
        "UnhealthyNodeReplacement": spec.replace_unhealthy,
    }
    if spec.service_security_group:
        instances["ServiceAccessSecurityGroup"] = spec.service_security_group
    bootstrap = {"Path": spec.bootstrap_path, "Args": [spec.bootstrap_sha256]}
    parameters: dict[str, Any] = {
        "Name": spec.name,
        "ReleaseLabel": spec.release,
        "Applications": [{"Name": name} for name in spec.applications],
        "Instances": instances,
        "BootstrapActions": [{"Name": "deeplearning", "ScriptBootstrapAction": bootstrap}],
        "Configurations": [{"Classification": "yarn-site", "Properties": dict(spec.yarn)}],
        "LogUri": spec.log_uri,
        "ServiceRole": spec.service_role,
        "JobFlowRole": spec.instance_profile,
        "EbsRootVolumeSize": spec.root_volume_gib,
        "VisibleToAllUsers": True,
        "Tags": tag_list(spec.tags),
    }
    if spec.root_volume_throughput:
        parameters["EbsRootVolumeThroughput"] = spec.root_volume_throughput
    if spec.image_id:
        parameters["CustomAmiId"] = spec.image_id
    if spec.idle_minutes:
        parameters["AutoTerminationPolicy"] = {"IdleTimeout": spec.idle_minutes * 60}
    return parameters


def create(aws: Aws, spec: EmrSpec) -> str:
    """Create the cluster and return its id. Retry while a new role or instance profile has not reached EMR."""
    refusals: list[AwsError] = []

    def attempt() -> str | None:
        try:
            return str(aws.call("emr", "run_job_flow", **request(spec))["JobFlowId"])
        except AwsError as error:
            if not _is_late_role(error):
                raise
            refusals.append(error)
            return None

    cluster_id = polling.until(attempt, ROLE_SECONDS)
    if cluster_id is None:
        last = refusals[-1]
        raise AwsError(
            f"EMR still refuses the instance profile {spec.instance_profile} "
            f"after {ROLE_SECONDS:.0f} seconds: {last.words} ({last.code}) Run the same command again; if that does "
            "not help, remove the cluster (destroy.yml keeps the file system), which makes new ones.",
            last.code,
            last.action,
            words=last.words,
        )
    return cluster_id


def _is_late_role(error: AwsError) -> bool:
    pattern = _LATE_ROLE.get(error.code)
    return bool(pattern and pattern.search(error.words))


def find_clusters(aws: Aws, name: str, states: Sequence[str] = LIVING) -> list[dict[str, Any]]:
    """Return the descriptions of the EMR clusters with this name and this tag."""
    listed = aws.pages("emr", "list_clusters", "Clusters", ClusterStates=list(states))
    described = [
        aws.call("emr", "describe_cluster", ClusterId=item["Id"])["Cluster"] for item in listed if item["Name"] == name
    ]
    return [cluster for cluster in described if is_named(cluster, name)]


def is_named(cluster: Listed, name: str) -> bool:
    """Return whether an EMR cluster is the one of our name: it has the name and the tag."""
    return cluster.get("Name") == name and tags_of(cluster.get("Tags")).get(CLUSTER_TAG) == name


def terminate(aws: Aws, cluster_id: str) -> None:
    """Begin to terminate a cluster, also a protected one."""
    aws.call("emr", "set_termination_protection", JobFlowIds=[cluster_id], TerminationProtected=False)
    aws.call("emr", "terminate_job_flows", JobFlowIds=[cluster_id])


def find_cluster(aws: Aws, name: str) -> dict[str, Any]:
    """Return the living one; empty if there is none."""
    clusters = find_clusters(aws, name)
    if len(clusters) > 1:
        ids = sorted(str(cluster["Id"]) for cluster in clusters)
        raise AwsError(
            f"{' and '.join(ids)} are all named {name}, with this cluster's tag. Terminate those that are not needed. "
            f"Example: aws emr terminate-clusters --region {aws.region} --cluster-ids {ids[-1]}"
        )
    return clusters[0] if clusters else {}


def groups_of(aws: Aws, cluster_id: str) -> dict[str, Listed]:
    """Return the instance groups by their roles."""
    listed = aws.pages("emr", "list_instance_groups", "InstanceGroups", ClusterId=cluster_id)
    return {str(group["InstanceGroupType"]): group for group in listed}


def idle_seconds_of(aws: Aws, cluster_id: str) -> int:
    """Return after how many idle seconds EMR ends a cluster; 0 for never, and while runs are active."""
    answer = aws.call("emr", "get_auto_termination_policy", ClusterId=cluster_id)
    return int((answer.get("AutoTerminationPolicy") or {}).get("IdleTimeout") or 0)


def fixed_differences(spec: EmrSpec, cluster: Listed, groups: Mapping[str, Listed]) -> list[str]:
    """Return what EMR cannot change on a living cluster, in words."""
    places = cluster.get("Ec2InstanceAttributes") or {}
    applications = [str(item["Name"]) for item in cluster.get("Applications") or ()]
    compared = [
        ("release", cluster.get("ReleaseLabel", ""), spec.release),
        ("applications", ", ".join(sorted(applications)), ", ".join(sorted(spec.applications))),
        ("image", cluster.get("CustomAmiId") or "", spec.image_id),
        ("root volume", cluster.get("EbsRootVolumeSize") or spec.root_volume_gib, spec.root_volume_gib),
        ("subnet", places.get("Ec2SubnetId", ""), spec.subnet_id),
        ("primary node's type", groups.get(PRIMARY, {}).get("InstanceType", ""), spec.primary_type),
        ("core nodes' type", groups.get(CORE, {}).get("InstanceType", ""), spec.core_type),
    ]
    return [
        f"its {what} is {actual or _OWN} and not {desired or _OWN}"
        for what, actual, desired in compared
        if actual != desired
    ]


def ranks_of(instances: Iterable[Listed]) -> dict[str, int]:
    """Return the ranks of machines by their tags, 0 for one without."""
    tags = {str(instance["InstanceId"]): tags_of(instance.get("Tags")) for instance in instances}
    return {machine: int(rank) if (rank := tags[machine].get(RANK_TAG, "")).isdecimal() else 0 for machine in tags}


def surplus(ranks: Mapping[str, int], count: int) -> list[str]:
    """Return the core nodes to remove: those without a rank first, then those with the highest ranks."""
    order = sorted(ranks, key=lambda instance: (ranks[instance] == 0, ranks[instance], instance))
    return order[count:]
