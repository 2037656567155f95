"""Clusters, groups and nodes as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from localcloud.api.ec2.filters import tag_list
from localcloud.api.emr.records import ENDED, READY, Cluster, Group, Node, Reason


def _timeline(created: float, ready: float | None, ended: float | None) -> dict[str, datetime]:
    times = {"CreationDateTime": created, "ReadyDateTime": ready, "EndDateTime": ended}
    return {key: datetime.fromtimestamp(int(time), UTC) for key, time in times.items() if time is not None}


def _reason(reason: Reason) -> dict[str, str]:
    return {key: value for key, value in (("Code", reason.code), ("Message", reason.message)) if value}


def _status(cluster: Cluster) -> dict[str, Any]:
    return {
        "State": cluster.state,
        "StateChangeReason": _reason(cluster.reason),
        "Timeline": _timeline(cluster.created, cluster.ready, cluster.ended),
        "ErrorDetails": [],
    }


def summary(cluster: Cluster) -> dict[str, Any]:
    return {
        "Id": cluster.id,
        "Name": cluster.name,
        "Status": _status(cluster),
        "NormalizedInstanceHours": 0,
        "ClusterArn": cluster.arn,
    }


_FROM_REQUEST = (
    "LogUri", "ReleaseLabel", "ServiceRole", "Configurations", "CustomAmiId", "EbsRootVolumeSize", "OSReleaseLabel",
)  # fmt: skip
_FROM_INSTANCES = (
    "Ec2KeyName", "Ec2SubnetId", "EmrManagedMasterSecurityGroup", "EmrManagedSlaveSecurityGroup",
    "ServiceAccessSecurityGroup", "AdditionalMasterSecurityGroups", "AdditionalSlaveSecurityGroups",
)  # fmt: skip


def _present(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name)}


def cluster(record: Cluster) -> dict[str, Any]:
    request, master = record.request, record.master
    attributes = _present(record.instances, _FROM_INSTANCES) | {
        "RequestedEc2SubnetIds": [record.instances["Ec2SubnetId"]],
        "Ec2AvailabilityZone": record.zone,
        "RequestedEc2AvailabilityZones": [],
        "IamInstanceProfile": request["JobFlowRole"],
    }
    shown = (
        summary(record)
        | _present(request, _FROM_REQUEST)
        | {
            "Ec2InstanceAttributes": attributes,
            "InstanceCollectionType": "INSTANCE_GROUP",
            "AutoTerminate": not record.keep_alive,
            "TerminationProtected": record.protected,
            "UnhealthyNodeReplacement": record.replaces,
            "VisibleToAllUsers": True,
            "Applications": list(request.get("Applications") or ()),
            "Tags": tag_list(record.tags),
            "ScaleDownBehavior": request.get("ScaleDownBehavior") or "TERMINATE_AT_TASK_COMPLETION",
            "StepConcurrencyLevel": 1,
        }
    )
    if master:
        shown["MasterPublicDnsName"] = master.shown.get("PublicDnsName") or master.shown["PrivateDnsName"]
    return shown


def group(record: Group, owner: Cluster) -> dict[str, Any]:
    running = sum(node.state == "RUNNING" for node in record.nodes)
    reason = Reason()
    if owner.state in ENDED:
        state = "TERMINATED"
    elif owner.state == "TERMINATING":
        state = "TERMINATING"
    elif record.arrested:
        state, reason = "ARRESTED", record.arrested
    elif owner.state not in READY:
        state = "PROVISIONING" if owner.state == "STARTING" else "BOOTSTRAPPING"
    else:
        state = "RUNNING" if running == record.requested - record.lost else "RESIZING"
    return {
        "Id": record.id,
        "Name": record.name,
        "Market": "ON_DEMAND",
        "InstanceGroupType": record.role,
        "InstanceType": record.type,
        "RequestedInstanceCount": record.requested,
        "RunningInstanceCount": running,
        "Status": {
            "State": state,
            "StateChangeReason": _reason(reason),
            "Timeline": _timeline(record.created, owner.ready, owner.ended),
        },
        "Configurations": [],
        "EbsBlockDevices": [],
        "ShrinkPolicy": {},
    }


def node(record: Node, owner: Group, addresses: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Id": record.id,
        "Ec2InstanceId": record.instance,
        **{key: value for key, value in addresses.items() if value},
        "Status": {
            "State": record.state,
            "StateChangeReason": _reason(record.reason),
            "Timeline": _timeline(record.created, record.ready, record.ended),
        },
        "InstanceGroupId": owner.id,
        "Market": "ON_DEMAND",
        "InstanceType": owner.type,
        "EbsVolumes": [],
    }
