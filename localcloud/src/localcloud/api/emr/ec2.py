"""The calls of EC2 that EMR makes.

Launches, and what prepares their security groups, need the permissions of the cluster's service role. EMR reads, tags
and ends instances as itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from localcloud.api import enforcement
from localcloud.api.ec2.filters import tag_list
from localcloud.api.ec2.images import BASE, images_of
from localcloud.api.ec2.instance import Instance
from localcloud.api.ec2.records import records_of
from localcloud.api.emr import catalog
from localcloud.api.emr.records import MASTER, Cluster, Group
from localcloud.api.iam.history import backend as iam_backend
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call, Cloud
from localcloud.core.errors import AwsError
from localcloud.core.identity import caller_in_role
from localcloud.core.words import aws_error

log = logging.getLogger(__name__)

SESSION = "CCSSession"
"""the name of EMR's sessions of a service role"""
JOB_FLOW_TAG = "aws:elasticmapreduce:job-flow-id"
GROUP_ROLE_TAG = "aws:elasticmapreduce:instance-group-role"
_EMR = Caller.service("elasticmapreduce.amazonaws.com")
_DEFAULT_ROOT_GIB = 15
_DEFAULT_SERVICE_GROUP = "ElasticMapReduce-ServiceAccess"
_FIRST_WITH_SERVICE_PORT = (5, 30, 0)
_DEFAULT_GROUPS = {
    "EmrManagedMasterSecurityGroup": ("ElasticMapReduce-master", "Master group for Elastic MapReduce"),
    "EmrManagedSlaveSecurityGroup": ("ElasticMapReduce-slave", "Slave group for Elastic MapReduce"),
}


def ask(cloud: Cloud, region: str, operation: str, **params: Any) -> dict[str, Any]:
    return cloud.ask("ec2", operation, region, params, _EMR)


def ask_in_role(cloud: Cloud, cluster: Cluster, operation: str, **params: Any) -> dict[str, Any]:
    """Call EC2 in the service role of a cluster. What its policies do not allow is refused with EMR's own words."""
    role = service_role(cluster)
    call = Call(cloud, "ec2", operation, params, cluster.region, caller_in_role(role, SESSION))
    try:
        enforcement.enforce(call, enforcement.required(call), "")
    except AwsError as error:
        log.info("EMR in the role %s: %s", role.arn, error.message)
        raise aws_error("emr:DescribeCluster", "VALIDATION_ERROR", arn=role.arn) from error
    # Only EMR itself may set its tags.
    return ask(cloud, cluster.region, operation, **params)


def service_role(cluster: Cluster) -> Any:
    """Return moto's record of the service role, or raise AwsError."""
    name = str(cluster.request["ServiceRole"])
    match = next((role for role in iam_backend().roles.values() if name in (role.name, role.arn)), None)
    if match is None:
        raise aws_error("iam:*", "NoSuchEntity", kind="role", name=name)
    return match


def instance(cloud: Cloud, instance_id: str) -> Instance | None:
    return records_of(cloud).instances.get(instance_id)


def prepare_security_groups(cloud: Cloud, cluster: Cluster) -> None:
    """Create missing managed groups, and add EMR's rules, which AWS never removes.

    EMR does not add the rule of the service access group that the primary node needs, except to its own default group:
    raise AwsError if the caller's group lacks it, as AWS does since emr-5.30.0.
    https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-man-sec-groups.html
    https://github.com/hashicorp/terraform/issues/25673 has AWS's message.
    """
    managed = {
        member: cluster.instances.get(member) or _default_group(cloud, cluster, *named)
        for member, named in _DEFAULT_GROUPS.items()
    }
    cluster.instances = {**cluster.instances, **managed}
    pairs = [{"GroupId": group} for group in dict.fromkeys(managed.values())]
    everything = [
        {"IpProtocol": protocol, "FromPort": first, "ToPort": last, "UserIdGroupPairs": [pair]}
        for protocol, first, last in (("tcp", 0, 65535), ("udp", 0, 65535), ("icmp", -1, -1))
        for pair in pairs
    ]
    service = cluster.instances.get("ServiceAccessSecurityGroup")
    for pair in pairs:
        _add_rules(cloud, cluster, pair["GroupId"], [*everything, *(_port(8443, service) if service else ())])
    if service:
        _prepare_service_group(cloud, cluster, str(service), managed["EmrManagedMasterSecurityGroup"])


def _prepare_service_group(cloud: Cloud, cluster: Cluster, service: str, primary: str) -> None:
    (group,) = ask_in_role(cloud, cluster, "DescribeSecurityGroups", GroupIds=[service])["SecurityGroups"]
    if group["GroupName"] == _DEFAULT_SERVICE_GROUP:
        _add_rules(cloud, cluster, service, _port(9443, primary))
        return
    is_checked = catalog.number(str(cluster.request["ReleaseLabel"])) >= _FIRST_WITH_SERVICE_PORT
    if is_checked and not any(_allows(rule, 9443, primary) for rule in group["IpPermissions"]):
        raise aws_error("emr:DescribeCluster", "VALIDATION_ERROR", "port 9443")


def _allows(rule: Mapping[str, Any], port: int, source: str) -> bool:
    is_named = any(pair.get("GroupId") == source for pair in rule.get("UserIdGroupPairs") or ())
    every = rule["IpProtocol"] == "-1"
    return is_named and (every or (rule["IpProtocol"] == "tcp" and rule["FromPort"] <= port <= rule["ToPort"]))


def _port(port: int, source: str) -> list[dict[str, Any]]:
    pairs = [{"GroupId": source}]
    return [{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "UserIdGroupPairs": pairs}]


def _default_group(cloud: Cloud, cluster: Cluster, name: str, description: str) -> str:
    filters = [{"Name": "group-name", "Values": [name]}, {"Name": "vpc-id", "Values": [cluster.vpc]}]
    existing = ask_in_role(cloud, cluster, "DescribeSecurityGroups", Filters=filters)["SecurityGroups"]
    if existing:
        return str(existing[0]["GroupId"])
    params = {"GroupName": name, "Description": description, "VpcId": cluster.vpc}
    made = ask_in_role(cloud, cluster, "CreateSecurityGroup", **params)
    return str(made["GroupId"])


def _add_rules(cloud: Cloud, cluster: Cluster, group: str, rules: Sequence[Mapping[str, Any]]) -> None:
    for rule in rules:
        try:
            ask_in_role(cloud, cluster, "AuthorizeSecurityGroupIngress", GroupId=group, IpPermissions=[rule])
        except AwsError as error:
            if error.code != "InvalidPermission.Duplicate":
                raise


def run(cloud: Cloud, cluster: Cluster, group: Group, count: int) -> list[dict[str, Any]]:
    """Launch instances of a group. EC2's errors are raised as AwsError.

    They bear the cluster's tags from the launching call on, and EMR's own by a second one: which of them EMR needs is
    written nowhere, so the service role needs both.
    """
    instances, request = cluster.instances, cluster.request
    which = "Master" if group.role == MASTER else "Slave"
    tags = tag_list(cluster.tags)
    image = images_of(cloud).get(str(request.get("CustomAmiId") or BASE.id))
    root = {
        "DeviceName": image.root_device if image else BASE.root_device,
        "Ebs": {"VolumeSize": int(request.get("EbsRootVolumeSize") or _DEFAULT_ROOT_GIB), "VolumeType": "gp3"},
    }
    params: dict[str, Any] = {
        "ImageId": request.get("CustomAmiId") or BASE.id,
        "InstanceType": group.type,
        "MinCount": count,
        "MaxCount": count,
        "SubnetId": instances["Ec2SubnetId"],
        "SecurityGroupIds": [
            instances[f"EmrManaged{which}SecurityGroup"],
            *(instances.get(f"Additional{which}SecurityGroups") or ()),
        ],
        "IamInstanceProfile": {"Name": str(request["JobFlowRole"]).rpartition("/")[2]},
        "BlockDeviceMappings": [root],
        "DisableApiTermination": cluster.protected,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    if instances.get("Ec2KeyName"):
        params["KeyName"] = instances["Ec2KeyName"]
    launched = list(ask_in_role(cloud, cluster, "RunInstances", **params)["Instances"])
    ids = [str(instance["InstanceId"]) for instance in launched]
    try:
        own = tag_list({JOB_FLOW_TAG: cluster.id, GROUP_ROLE_TAG: group.role})
        ask_in_role(cloud, cluster, "CreateTags", Resources=ids, Tags=own)
    except AwsError:
        terminate(cloud, ids)
        raise
    return launched


def set_tags(cloud: Cloud, region: str, ids: Sequence[str], tags: Mapping[str, str]) -> None:
    if ids and tags:
        ask(cloud, region, "CreateTags", Resources=list(ids), Tags=tag_list(tags))


def terminate(cloud: Cloud, ids: Sequence[str]) -> None:
    """Terminate instances; protection against termination does not stop EMR."""
    for name in ids:
        record = instance(cloud, name)
        if record is not None:
            record.disable_api_termination = False
            ask(cloud, record.region_name, "TerminateInstances", InstanceIds=[name])
