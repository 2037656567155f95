"""The calls of EC2 that EMR makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localcloud.api.ec2.filters import tag_list
from localcloud.api.ec2.images import BASE, images_of
from localcloud.api.ec2.instance import Instance
from localcloud.api.ec2.records import records_of
from localcloud.api.emr import catalog
from localcloud.api.emr.records import MASTER, Cluster, Group
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError

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
        _add_rules(cloud, cluster.region, pair["GroupId"], [*everything, *(_port(8443, service) if service else ())])
    if service:
        _prepare_service_group(cloud, cluster, str(service), managed["EmrManagedMasterSecurityGroup"])


def _prepare_service_group(cloud: Cloud, cluster: Cluster, service: str, primary: str) -> None:
    (group,) = ask(cloud, cluster.region, "DescribeSecurityGroups", GroupIds=[service])["SecurityGroups"]
    if group["GroupName"] == _DEFAULT_SERVICE_GROUP:
        _add_rules(cloud, cluster.region, service, _port(9443, primary))
        return
    is_checked = catalog.number(str(cluster.request["ReleaseLabel"])) >= _FIRST_WITH_SERVICE_PORT
    if is_checked and not any(_allows(rule, 9443, primary) for rule in group["IpPermissions"]):
        raise AwsError(
            "ValidationException",
            "ServiceAccessSecurityGroup is missing ingress rule from EmrManagedMasterSecurityGroup on port 9443",
        )


def _allows(rule: Mapping[str, Any], port: int, source: str) -> bool:
    is_named = any(pair.get("GroupId") == source for pair in rule.get("UserIdGroupPairs") or ())
    every = rule["IpProtocol"] == "-1"
    return is_named and (every or (rule["IpProtocol"] == "tcp" and rule["FromPort"] <= port <= rule["ToPort"]))


def _port(port: int, source: str) -> list[dict[str, Any]]:
    pairs = [{"GroupId": source}]
    return [{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "UserIdGroupPairs": pairs}]


def _default_group(cloud: Cloud, cluster: Cluster, name: str, description: str) -> str:
    filters = [{"Name": "group-name", "Values": [name]}, {"Name": "vpc-id", "Values": [cluster.vpc]}]
    existing = ask(cloud, cluster.region, "DescribeSecurityGroups", Filters=filters)["SecurityGroups"]
    if existing:
        return str(existing[0]["GroupId"])
    made = ask(cloud, cluster.region, "CreateSecurityGroup", GroupName=name, Description=description, VpcId=cluster.vpc)
    return str(made["GroupId"])


def _add_rules(cloud: Cloud, region: str, group: str, rules: Sequence[Mapping[str, Any]]) -> None:
    for rule in rules:
        try:
            ask(cloud, region, "AuthorizeSecurityGroupIngress", GroupId=group, IpPermissions=[rule])
        except AwsError as error:
            if error.code != "InvalidPermission.Duplicate":
                raise


def run(cloud: Cloud, cluster: Cluster, group: Group, count: int) -> list[dict[str, Any]]:
    """Launch instances of a group. EC2's errors are raised as AwsError."""
    instances, request = cluster.instances, cluster.request
    which = "Master" if group.role == MASTER else "Slave"
    tags = {**cluster.tags, JOB_FLOW_TAG: cluster.id, GROUP_ROLE_TAG: group.role}
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
        "TagSpecifications": [{"ResourceType": "instance", "Tags": tag_list(tags)}],
    }
    if instances.get("Ec2KeyName"):
        params["KeyName"] = instances["Ec2KeyName"]
    return list(ask(cloud, cluster.region, "RunInstances", **params)["Instances"])


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
