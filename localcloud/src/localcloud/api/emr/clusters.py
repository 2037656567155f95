"""Elastic MapReduce: the operations on clusters, their groups and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.emr import ec2, engine, request, responses
from localcloud.api.emr.records import (
    CORE,
    READY,
    Cluster,
    Group,
    Reason,
    clusters_in,
    find,
    invalid,
    invalid_request,
    page,
    reason,
    records_of,
)
from localcloud.api.iam.linked_roles import ensure_service_linked_role
from localcloud.core.cloud import Call, Result, answers

_ADDRESSES = ("PublicDnsName", "PublicIpAddress", "PrivateDnsName", "PrivateIpAddress")


@answers("emr", "RunJobFlow")
def run_job_flow(call: Call) -> Result:
    cluster = request.new_cluster(call)
    records_of(call.cloud).clusters[cluster.id] = cluster
    cluster.reason = Reason("", "Provisioning Amazon EC2 capacity")
    ensure_service_linked_role(call.cloud, "elasticmapreduce.amazonaws.com")
    engine.watch(call.cloud)
    engine.schedule(call.cloud)
    return {"JobFlowId": cluster.id, "ClusterArn": cluster.arn}


def _cluster(call: Call) -> Cluster:
    return find(call.cloud, call.region, call.params["ClusterId"])


def _named(call: Call) -> list[Cluster]:
    return [find(call.cloud, call.region, name, invalid) for name in call.params["JobFlowIds"]]


@answers("emr", "DescribeCluster")
def describe_cluster(call: Call) -> Result:
    return {"Cluster": responses.cluster(_cluster(call))}


@answers("emr", "ListClusters")
def list_clusters(call: Call) -> Result:
    params = call.params
    matches = [
        cluster
        for cluster in reversed(list(clusters_in(call.cloud, call.region)))
        if (not params.get("ClusterStates") or cluster.state in params["ClusterStates"])
        and (not params.get("CreatedAfter") or cluster.created >= params["CreatedAfter"].timestamp())
        and (not params.get("CreatedBefore") or cluster.created <= params["CreatedBefore"].timestamp())
    ]
    items, marker = page(matches, params, 50)
    return {"Clusters": [responses.summary(cluster) for cluster in items]} | marker


@answers("emr", "ListInstances")
def list_instances(call: Call) -> Result:
    params = call.params
    matches = [
        (node, group)
        for group in _cluster(call).groups
        for node in group.nodes
        if params.get("InstanceGroupId") in (None, group.id)
        and (not params.get("InstanceGroupTypes") or group.role in params["InstanceGroupTypes"])
        and (not params.get("InstanceStates") or node.state in params["InstanceStates"])
    ]
    items, marker = page(matches, params, 500)
    ids = [node.instance for node, _ in items if ec2.instance(call.cloud, node.instance)]
    live = _described(call, ids)
    shown = [
        responses.node(node, group, {key: live.get(node.instance, node.shown).get(key) for key in _ADDRESSES})
        for node, group in items
    ]
    return {"Instances": shown} | marker


def _described(call: Call, ids: list[str]) -> dict[str, Mapping[str, Any]]:
    """Return instances as EC2 shows them now, by id."""
    if not ids:
        return {}
    reservations = ec2.ask(call.cloud, call.region, "DescribeInstances", InstanceIds=ids)["Reservations"]
    return {instance["InstanceId"]: instance for reservation in reservations for instance in reservation["Instances"]}


@answers("emr", "ListInstanceGroups")
def list_instance_groups(call: Call) -> Result:
    cluster = _cluster(call)
    items, marker = page(cluster.groups, call.params, 50)
    return {"InstanceGroups": [responses.group(group, cluster) for group in items]} | marker


@answers("emr", "ListBootstrapActions")
def list_bootstrap_actions(call: Call) -> Result:
    items, marker = page(list(_cluster(call).actions), call.params, 50)
    shown = [{"Name": action.name, "ScriptPath": action.path, "Args": list(action.args)} for action in items]
    return {"BootstrapActions": shown} | marker


@answers("emr", "ModifyInstanceGroups")
def modify_instance_groups(call: Call) -> Result:
    configs = call.params.get("InstanceGroups") or ()
    pairs = [(config, *_group(call, config["InstanceGroupId"])) for config in configs]
    for config, cluster, group in pairs:
        _check_change(config, cluster, group)
    for config, _, group in pairs:
        group.arrested, group.lost = None, 0
        # Of the codes that EMR has for instances, none says so.
        reason = Reason("", "Terminated by a resize of the instance group")
        for node in group.alive:
            if node.instance in (config.get("EC2InstanceIdsToTerminate") or ()):
                engine.end_node(call.cloud, node, reason)
        group.requested = int(config.get("InstanceCount") or len(group.alive))
        # EMR chooses which other nodes go; here the oldest, so that no caller relies on it.
        for node in group.alive[: max(0, len(group.alive) - group.requested)]:
            engine.end_node(call.cloud, node, reason)
    engine.schedule(call.cloud)
    return {}


def _group(call: Call, group_id: str) -> tuple[Cluster, Group]:
    for cluster in clusters_in(call.cloud, call.region):
        if call.params.get("ClusterId") in (None, cluster.id):
            for group in cluster.groups:
                if group.id == group_id:
                    return cluster, group
    raise invalid_request(f"Instance group id '{group_id}' is not valid.")


def _check_change(config: Mapping[str, Any], cluster: Cluster, group: Group) -> None:
    count, ids = config.get("InstanceCount"), config.get("EC2InstanceIdsToTerminate") or ()
    if config.get("Configurations") or (config.get("ShrinkPolicy") or {}):
        raise invalid("The local cloud changes the size of instance groups only.")
    if count is None and not ids:
        raise invalid("Either InstanceCount or EC2InstanceIdsToTerminate must be specified.")
    if cluster.state not in READY:
        raise invalid("An instance group may only be modified when the cluster is running or waiting.")
    if group.role != CORE:
        raise invalid("The master instance group can not be resized.")
    unknown = set(ids) - {node.instance for node in group.alive}
    if unknown:
        raise invalid(f"Instances {', '.join(sorted(unknown))} are not in instance group {group.id}.")
    if (int(count) if count is not None else len(group.alive) - len(set(ids))) < 1:
        raise invalid("An instance group must have at least one instance.")


@answers("emr", "PutAutoTerminationPolicy")
def put_auto_termination_policy(call: Call) -> Result:
    cluster = _cluster(call)
    if cluster.ending:
        raise invalid_request(f"Cluster {cluster.id} is being terminated or has been terminated.")
    release = str(cluster.request["ReleaseLabel"])
    cluster.idle_timeout = request.idle_timeout(call.params.get("AutoTerminationPolicy") or {}, release)
    cluster.idle_since = call.cloud.clock.time()
    return {}


@answers("emr", "GetAutoTerminationPolicy")
def get_auto_termination_policy(call: Call) -> Result:
    timeout = _cluster(call).idle_timeout
    return {"AutoTerminationPolicy": {"IdleTimeout": timeout}} if timeout else {}


@answers("emr", "RemoveAutoTerminationPolicy")
def remove_auto_termination_policy(call: Call) -> Result:
    _cluster(call).idle_timeout = None
    return {}


@answers("emr", "SetTerminationProtection")
def set_termination_protection(call: Call) -> Result:
    for cluster in _named(call):
        cluster.protected = call.params["TerminationProtected"]
        for node in cluster.nodes:
            instance = ec2.instance(call.cloud, node.instance)
            if instance is not None:
                instance.disable_api_termination = cluster.protected
    return None


@answers("emr", "SetUnhealthyNodeReplacement")
def set_unhealthy_node_replacement(call: Call) -> Result:
    for cluster in _named(call):
        cluster.replaces = call.params["UnhealthyNodeReplacement"]
    return None


@answers("emr", "AddTags")
def add_tags(call: Call) -> Result:
    cluster = find(call.cloud, call.region, call.params["ResourceId"])
    tags = request.read_tags(call.params["Tags"])
    cluster.tags.update(tags)
    ec2.set_tags(call.cloud, call.region, [node.instance for node in cluster.nodes if node.alive], tags)
    return {}


@answers("emr", "TerminateJobFlows")
def terminate_job_flows(call: Call) -> Result:
    clusters = _named(call)
    if any(cluster.protected and not cluster.ending for cluster in clusters):
        raise invalid("Could not shut down one or more job flows since they are termination protected.")
    for cluster in clusters:
        if not cluster.ending:
            engine.terminate(call.cloud, cluster, reason("USER_REQUEST"))
    return None
