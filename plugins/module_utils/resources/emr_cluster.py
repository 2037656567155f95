# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""EMR clusters: find one by name and tag, the request that creates it, and how one differs from its settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..aws import polling
from ..aws.client import Aws, AwsError
from ..contract.names import CLUSTER_TAG, CORE, PRIMARY, RANK_TAG, tag_list, tags_of

LIVING = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING")
ENDING = "TERMINATING"
SMALLEST_MIB = 1024
"""The least memory that YARN can work with."""
ROLE_SECONDS = 180.0
"""How long a new role or instance profile may take to reach EMR."""
_OWN = "EMR's own"
_YARN_MEMORY = "yarn.nodemanager.resource.memory-mb"
_LATE_ROLE = {
    "ValidationException": re.compile("Invalid InstanceProfile"),
    "AccessDeniedException": re.compile("Failed to authorize instance profile"),
}
"""EMR's refusals of an instance profile that it does not know yet, or whose role it does not know yet."""

Listed = Mapping[str, Any]
Options = Mapping[str, Any]
"""The options of the module `emr_cluster`, as it documents them."""


def yarn_site(options: Options) -> dict[str, str]:
    """Return YARN's properties for its share of a core node. What it may give to one container is the whole share."""
    percent = options["yarn_percent"]
    memory = str(max(SMALLEST_MIB, options["memory_mib"] * percent // 100 // 256 * 256))
    processors = str(max(1, options["vcpus"] * percent // 100))
    return {
        _YARN_MEMORY: memory,
        "yarn.nodemanager.resource.cpu-vcores": processors,
        "yarn.scheduler.maximum-allocation-mb": memory,
        "yarn.scheduler.maximum-allocation-vcores": processors,
    }


def request(options: Options) -> dict[str, Any]:
    """Return the parameters of RunJobFlow."""
    groups = [
        ("Primary", PRIMARY, options["primary_type"], 1),
        ("Core", CORE, options["core_type"], options["worker_count"]),
    ]
    instances: dict[str, Any] = {
        "InstanceGroups": [
            {"Name": name, "InstanceRole": role, "InstanceType": kind, "InstanceCount": count, "Market": "ON_DEMAND"}
            for name, role, kind, count in groups
        ],
        "Ec2KeyName": options["key_name"],
        "Ec2SubnetId": options["subnet_id"],
        "EmrManagedMasterSecurityGroup": options["primary_security_group"],
        "EmrManagedSlaveSecurityGroup": options["core_security_group"],
        "AdditionalMasterSecurityGroups": list(options["primary_security_groups"]),
        "AdditionalSlaveSecurityGroups": list(options["core_security_groups"]),
        "KeepJobFlowAliveWhenNoSteps": True,
        "TerminationProtected": options["termination_protection"],
        "UnhealthyNodeReplacement": options["replace_unhealthy"],
    }
    if options["service_security_group"]:
        instances["ServiceAccessSecurityGroup"] = options["service_security_group"]
    bootstrap = {"Path": options["bootstrap_path"], "Args": [options["bootstrap_sha256"]]}
    parameters: dict[str, Any] = {
        "Name": options["name"],
        "ReleaseLabel": options["release"],
        "Applications": [{"Name": name} for name in options["applications"]],
        "Instances": instances,
        "BootstrapActions": [{"Name": "deeplearning", "ScriptBootstrapAction": bootstrap}],
        "Configurations": [{"Classification": "yarn-site", "Properties": yarn_site(options)}],
        "LogUri": options["log_uri"],
        "ServiceRole": options["service_role"],
        "JobFlowRole": options["instance_profile"],
        "EbsRootVolumeSize": options["root_volume_gib"],
        "VisibleToAllUsers": True,
        "Tags": tag_list(options["tags"]),
    }
    if options["root_volume_throughput"]:
        parameters["EbsRootVolumeThroughput"] = options["root_volume_throughput"]
    if options["image_id"]:
        parameters["CustomAmiId"] = options["image_id"]
    if options["idle_minutes"]:
        parameters["AutoTerminationPolicy"] = {"IdleTimeout": options["idle_minutes"] * 60}
    return parameters


def create(aws: Aws, options: Options) -> str:
    """Create the cluster and return its id. Retry while a new role or instance profile has not reached EMR."""
    refusals: list[AwsError] = []

    def attempt() -> str | None:
        try:
            return str(aws.call("emr", "run_job_flow", **request(options))["JobFlowId"])
        except AwsError as error:
            if not _is_late_role(error):
                raise
            refusals.append(error)
            return None

    cluster_id = polling.until(attempt, ROLE_SECONDS)
    if cluster_id is None:
        last = refusals[-1]
        raise AwsError(
            f"EMR still refuses the instance profile {options['instance_profile']} "
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


def fixed_differences(options: Options, cluster: Listed, groups: Mapping[str, Listed]) -> list[str]:
    """Return what EMR cannot change on a living cluster, in words."""
    places = cluster.get("Ec2InstanceAttributes") or {}
    applications = [str(item["Name"]) for item in cluster.get("Applications") or ()]
    configurations = {item.get("Classification"): item for item in cluster.get("Configurations") or ()}
    yarn = configurations.get("yarn-site", {}).get("Properties") or yarn_site(options)
    compared = [
        ("release", cluster.get("ReleaseLabel", ""), options["release"]),
        ("applications", ", ".join(sorted(applications)), ", ".join(sorted(options["applications"]))),
        ("image", cluster.get("CustomAmiId") or "", options["image_id"]),
        ("root volume", cluster.get("EbsRootVolumeSize") or options["root_volume_gib"], options["root_volume_gib"]),
        ("memory for YARN in MiB (cluster_emr_yarn_percent)", yarn.get(_YARN_MEMORY), yarn_site(options)[_YARN_MEMORY]),
        ("subnet", places.get("Ec2SubnetId", ""), options["subnet_id"]),
        ("primary node's type", groups.get(PRIMARY, {}).get("InstanceType", ""), options["primary_type"]),
        ("core nodes' type", groups.get(CORE, {}).get("InstanceType", ""), options["core_type"]),
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
