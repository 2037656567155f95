"""What happens by itself: every cluster takes one step towards its desired state once a second, and after each change.

STARTING (instances are launched and boot) → BOOTSTRAPPING (all of them run their bootstrap actions) → WAITING →
TERMINATING → TERMINATED or TERMINATED_WITH_ERRORS.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from localcloud.api import enforcement
from localcloud.api.ec2.instance import ALIVE
from localcloud.api.ec2.lifecycle import machines_of, on_change
from localcloud.api.ec2.views import view_of
from localcloud.api.emr import ec2
from localcloud.api.emr.records import (
    CORE,
    ENDED,
    MASTER,
    READY,
    Cluster,
    Group,
    Node,
    Reason,
    new_id,
    reason,
    records_of,
)
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call, Cloud
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT

log = logging.getLogger(__name__)

PERIOD = 1.0
_RETRY = 5.0
_EMR = Caller.service("elasticmapreduce.amazonaws.com")


def watch(cloud: Cloud) -> None:
    """Take steps from now on."""
    records = records_of(cloud)
    if not records.watching:
        records.watching = True
        cloud.clock.every(PERIOD, lambda: step(cloud))
        on_change(cloud, lambda _instance: schedule(cloud))


def schedule(cloud: Cloud) -> None:
    """Take a step as soon as possible."""
    cloud.clock.later(0, lambda: step(cloud))


def step(cloud: Cloud) -> None:
    for cluster in records_of(cloud).clusters.values():
        if cluster.state not in ENDED:
            try:
                _step(cloud, cluster)
            except Exception:
                log.exception("a step of the EMR cluster %s failed", cluster.id)


def _step(cloud: Cloud, cluster: Cluster) -> None:
    if cluster.state == "TERMINATING":
        _end_when_gone(cloud, cluster)
        return
    if cluster.master is None:
        _launch_all(cloud, cluster)
        return
    for group in cluster.groups:
        for node in group.alive:
            _advance(cloud, cluster, group, node)
            if cluster.ending:
                return
    _fill(cloud, cluster)
    _follow(cloud, cluster)


# Launches -------------------------------------------------------------------------------------------------------------


def _launch_all(cloud: Cloud, cluster: Cluster) -> None:
    if cloud.clock.time() < cluster.created + cloud.latency.of("emr_launch"):
        return
    try:
        _assume_service_role(cloud, cluster)
    except AwsError:
        role = cluster.request["ServiceRole"]
        terminate(cloud, cluster, reason("VALIDATION_ERROR", role=role))
        return
    try:
        ec2.prepare_security_groups(cloud, cluster)
        for group in cluster.groups:
            _launch(cloud, cluster, group, group.requested)
    except AwsError as error:
        terminate(cloud, cluster, _refused(error))


def _assume_service_role(cloud: Cloud, cluster: Cluster) -> None:
    """Raise AwsError unless the service role exists and trusts EMR."""
    params = {"RoleArn": ec2.service_role(cluster).arn, "RoleSessionName": ec2.SESSION}
    call = Call(cloud, "sts", "AssumeRole", params, cluster.region, _EMR)
    needs = enforcement.required(call)
    # The trust policy may demand that EMR works for this account, and for a cluster of it.
    source = f"arn:aws:elasticmapreduce:{cluster.region}:{ACCOUNT}:cluster/{cluster.id}"
    keys = {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": source}
    each = tuple(replace(need, context={**need.context, **keys}) for need in needs.each)
    enforcement.enforce(call, replace(needs, each=each), "")


def _refused(error: AwsError) -> Reason:
    if error.code.startswith("Insufficient"):
        return Reason("INTERNAL_ERROR", f"Failed to provision ec2 instances because '{error.message}'")
    if error.code == "InvalidKeyPair.NotFound":
        return reason("VALIDATION_ERROR", "SSH key")
    return Reason("VALIDATION_ERROR", error.message)


def _launch(cloud: Cloud, cluster: Cluster, group: Group, count: int) -> None:
    for made in ec2.run(cloud, cluster, group, count):
        node = Node(new_id("ci"), made["InstanceId"], group.role, made, cloud.clock.time())
        group.nodes.append(node)


def _fill(cloud: Cloud, cluster: Cluster) -> None:
    """Launch what a group lacks: after a resize, or in place of a node that has died."""
    for group in cluster.groups:
        missing = group.requested - group.lost - len(group.alive)
        if missing > 0 and not group.arrested and cloud.clock.time() >= group.retry_at:
            try:
                _launch(cloud, cluster, group, missing)
            except AwsError as error:
                log.info("launching nodes of %s: %s", cluster.id, error)
                group.retry_at = cloud.clock.time() + _RETRY


# Nodes ----------------------------------------------------------------------------------------------------------------


def _advance(cloud: Cloud, cluster: Cluster, group: Group, node: Node) -> None:
    instance = ec2.instance(cloud, node.instance)
    if instance is None or instance.state not in ("pending", "running"):
        _lose(cloud, cluster, group, node)
    elif node.state == "PROVISIONING" and instance.state == "running" and not node.started:
        node.started = True
        settings = _settings(cluster, group, node, view_of(cloud, instance).public_key)
        machines_of(cloud, instance).provision(node.instance, settings, partial(_report, cloud, cluster, group, node))


def _settings(cluster: Cluster, group: Group, node: Node, public_key: str | None) -> dict[str, Any]:
    """Return what a node's program needs to know, see machines/emr_node.py."""
    master = cluster.master
    hadoop = {str(app.get("Name")).lower(): app.get("Version") for app in cluster.request.get("Applications") or ()}
    return {
        "region": cluster.region,
        "cluster": cluster.id,
        "instance": node.instance,
        "public_key": public_key or "",
        "log_uri": cluster.request.get("LogUri") or "",
        "actions": [{"path": action.path, "args": list(action.args)} for action in cluster.actions],
        "instance_info": {
            "isMaster": node.role == MASTER,
            "instanceGroupId": group.id,
            "isRunningNameNode": node.role == MASTER,
            "isRunningDataNode": node.role == CORE,
            "isRunningJobTracker": node.role == MASTER,
            "isRunningTaskTracker": node.role == CORE,
        },
        "job_flow_info": {
            "jobFlowId": cluster.id,
            "jobFlowCreationInstant": int(cluster.created * 1000),
            "instanceCount": sum(each.requested for each in cluster.groups),
            "masterInstanceId": master.instance if master else "",
            "masterPrivateDnsName": master.shown["PrivateDnsName"] if master else "",
            "masterInstanceType": cluster.groups[0].type,
            "slaveInstanceType": cluster.groups[-1].type,
            "hadoopVersion": hadoop.get("hadoop") or "",
            "instanceGroups": [
                {
                    "instanceGroupId": each.id,
                    "instanceGroupName": each.name,
                    "instanceRole": each.role.capitalize(),
                    "marketType": "OnDemand",
                    "instanceType": each.type,
                    "requestedInstanceCount": each.requested,
                }
                for each in cluster.groups
            ],
        },
    }


def _report(cloud: Cloud, cluster: Cluster, group: Group, node: Node, event: Mapping[str, Any]) -> None:
    """Note what a node has reported: its new state, or the exit status of its program."""
    if not node.alive or cluster.ending:
        return
    if "state" in event:
        node.state = event["state"]
    elif event["status"] == 0:
        cloud.clock.later(cloud.latency.of("emr_applications"), lambda: _become_running(cloud, node))
    else:
        _fail(cloud, cluster, group, node, event)
    schedule(cloud)


def _become_running(cloud: Cloud, node: Node) -> None:
    if node.state == "BOOTSTRAPPING":
        node.state, node.ready = "RUNNING", cloud.clock.time()
        schedule(cloud)


def _fail(cloud: Cloud, cluster: Cluster, group: Group, node: Node, event: Mapping[str, Any]) -> None:
    """End a node whose bootstrap action has failed, and with it a cluster that was not ready."""
    number = event.get("action", 1)
    of_master, of_core = f"aster instance ({node.instance})", f"1 slave instances (including {node.instance})"
    if event.get("downloaded", True):
        where = f"the m{of_master}" if node.role == MASTER else of_core
        message = f"On {where}, bootstrap action {number} returned a non-zero return code"
    else:
        where = f"M{of_master}" if node.role == MASTER else of_core
        message = f"{where} failed attempting to download bootstrap action {number} file from S3"
    reason = Reason("BOOTSTRAP_FAILURE", message)
    if cluster.state not in READY:
        terminate(cloud, cluster, reason)
        return
    # A group has no code of its own for this: InstanceGroupStateChangeReasonCode in EMR's model.
    group.arrested = Reason("INSTANCE_FAILURE", message)
    end_node(cloud, node, reason)


def _lose(cloud: Cloud, cluster: Cluster, group: Group, node: Node) -> None:
    """Note that an instance has ended without EMR."""
    message = f"Instance {node.instance} was terminated or stopped in EC2."
    _mark_ended(cloud, node, Reason("INSTANCE_FAILURE", message))
    if node.role == MASTER:
        terminate(cloud, cluster, Reason("INSTANCE_FAILURE", "The master node was terminated by user."))
        return
    if not cluster.replaces:
        group.lost += 1
        if not group.alive:
            message = "All slaves in the job flow were terminated."
            terminate(cloud, cluster, Reason("INSTANCE_FAILURE", message))


def end_node(cloud: Cloud, node: Node, reason: Reason) -> None:
    _mark_ended(cloud, node, reason)
    ec2.terminate(cloud, [node.instance])


def _mark_ended(cloud: Cloud, node: Node, reason: Reason) -> None:
    node.state, node.reason, node.ended = "TERMINATED", reason, cloud.clock.time()


# Clusters -------------------------------------------------------------------------------------------------------------


def _follow(cloud: Cloud, cluster: Cluster) -> None:
    """Set the state of a cluster from those of its nodes; end it when it is idle for too long."""
    states = {node.state for node in cluster.nodes if node.alive}
    now = cloud.clock.time()
    if cluster.state == "STARTING" and "PROVISIONING" not in states:
        cluster.state, cluster.reason = "BOOTSTRAPPING", Reason("", "Running bootstrap actions")
    if cluster.state == "BOOTSTRAPPING" and states == {"RUNNING"}:
        cluster.state, cluster.reason = "WAITING", Reason("", "Cluster ready to run steps.")
        cluster.ready = cluster.idle_since = now
    if cluster.state not in READY:
        return
    if not cluster.keep_alive and not cluster.protected:
        terminate(cloud, cluster, Reason("ALL_STEPS_COMPLETED", "Steps completed"))
    elif cluster.idle_timeout and not cluster.protected and now >= cluster.idle_since + cluster.idle_timeout:
        message = f"Cluster was idle for {cluster.idle_timeout} seconds: auto-termination policy"
        terminate(cloud, cluster, Reason("ALL_STEPS_COMPLETED", message))


def terminate(cloud: Cloud, cluster: Cluster, reason: Reason) -> None:
    """End a cluster; after an error its state says so."""
    cluster.reason, cluster.state = reason, "TERMINATING"
    without_error = ("USER_REQUEST", "ALL_STEPS_COMPLETED")
    cluster.ends_as = "TERMINATED" if reason.code in without_error else "TERMINATED_WITH_ERRORS"
    ec2.terminate(cloud, [node.instance for node in cluster.nodes if node.alive])
    schedule(cloud)


def _end_when_gone(cloud: Cloud, cluster: Cluster) -> None:
    instances = {node.instance: ec2.instance(cloud, node.instance) for node in cluster.nodes}
    for node in cluster.nodes:
        record = instances[node.instance]
        if node.alive and (record is None or record.state not in ALIVE):
            _mark_ended(cloud, node, Reason("CLUSTER_TERMINATED", "Job flow terminated"))
    if not any(node.alive for node in cluster.nodes):
        cluster.state, cluster.ended = cluster.ends_as, cloud.clock.time()
