"""The request of RunJobFlow: validated, with AWS's errors where they are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from localcloud.api.ec2.moto_records import backend_of, subnet_named
from localcloud.api.ec2.profiles import profile_for_launch
from localcloud.api.ec2.views import route_table_of
from localcloud.api.emr import catalog
from localcloud.api.emr.records import CORE, MASTER, BootstrapAction, Cluster, Group, invalid, new_id
from localcloud.api.facts import bucket_named
from localcloud.api.iam.history import profile_in_effect
from localcloud.core.cloud import Call, Cloud
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error

_ABSENT = (
    "AmiVersion", "AutoScalingRole", "KerberosAttributes", "ManagedScalingPolicy", "PlacementGroupConfigs",
    "SecurityConfiguration", "StepExecutionRoleArn", "Steps",
)  # fmt: skip
_ABSENT_INSTANCES = ("InstanceFleets", "HadoopVersion", "Placement")
_ABSENT_GROUP = ("AutoScalingPolicy", "BidPrice", "CustomAmiId")
_FIRST_WITH_CUSTOM_AMI = (5, 7, 0)
_FIRST_WITH_AUTO_TERMINATION = (5, 30, 0)
_MOST_ROOT_GIB = 100
_S3 = re.compile(r"s3[an]?://([^/]+)(/.*)?", re.IGNORECASE)


def new_cluster(call: Call) -> Cluster:
    """Return the record of the requested cluster, or raise AWS's error."""
    params, instances = call.params, call.params["Instances"]
    _refuse_absent(params, _ABSENT)
    _refuse_absent(instances, _ABSENT_INSTANCES)
    release = _release(params)
    # The limit is in https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-custom-ami-root-volume-size.html, AWS's
    # message is not known.
    if int(params.get("EbsRootVolumeSize") or 0) > _MOST_ROOT_GIB:
        raise invalid(f"The EBS root volume size must be at most {_MOST_ROOT_GIB} GiB.")
    _check_names(call, release)
    subnet = _subnet(call.region, instances)
    _check_security_groups(call.region, instances, subnet)
    policy = params.get("AutoTerminationPolicy") or {}
    timeout = idle_timeout(policy, release) if policy else None
    now = call.cloud.clock.time()
    return Cluster(
        id=new_id("j"),
        region=call.region,
        name=str(params["Name"]),
        created=now,
        request=params,
        instances=dict(instances) | {"Ec2SubnetId": subnet.id},
        vpc=subnet.vpc_id,
        zone=subnet.availability_zone,
        groups=_groups(instances, release, now),
        actions=tuple(_actions(params)),
        tags=read_tags(params.get("Tags") or ()),
        protected=bool(instances.get("TerminationProtected")),
        replaces=bool(instances.get("UnhealthyNodeReplacement")),
        keep_alive=bool(instances.get("KeepJobFlowAliveWhenNoSteps")),
        idle_timeout=timeout,
    )


def _refuse_absent(params: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if params.get(name):
            raise invalid(f"The local cloud has no EMR clusters with {name}.")


def _release(params: Mapping[str, Any]) -> str:
    release = str(params.get("ReleaseLabel") or "")
    if not release:
        raise invalid("ReleaseLabel is required for creating cluster")
    if release not in catalog.releases():
        raise invalid(f"The supplied release label is invalid: {release}.")
    if params.get("CustomAmiId") and catalog.number(release) < _FIRST_WITH_CUSTOM_AMI:
        raise invalid(f"Custom AMI is not supported for release label {release}: it requires emr-5.7.0 or later.")
    for application in params.get("Applications") or ():
        known = [name.lower() for name in catalog.releases()[release]]
        if str(application.get("Name")).lower() not in known:
            raise invalid(f"Specified application: {application.get('Name')} is not supported for release {release}.")
    return release


def _check_names(call: Call, release: str) -> None:
    """Refuse a request whose profile does not exist, or whose log bucket does not; the role is checked later."""
    params = call.params
    profile = params.get("JobFlowRole")
    if not profile:
        raise aws_error("emr:RunJobFlow", "ValidationException", "is required")
    if not params.get("ServiceRole"):
        raise invalid("ServiceRole is required for creating cluster.")
    _check_profile(call.cloud, str(profile))
    if params.get("LogUri"):
        match = _S3.fullmatch(str(params["LogUri"]))
        if not match:
            raise invalid(f"Invalid log URI {params['LogUri']}: it must be an S3 URI.")
        if bucket_named(match[1]) is None:
            raise invalid(f"The S3 bucket of the log URI, {match[1]}, does not exist.")


def _check_profile(cloud: Cloud, profile: str) -> None:
    """Refuse a profile that does not exist or is not in effect. EMR learns of a new one in two steps, and has words of
    its own for each: those that https://github.com/hashicorp/terraform-provider-aws retries in
    internal/service/emr/cluster.go."""
    name = profile.rpartition("/")[2]
    if profile_in_effect(cloud, name) or not profile_in_effect(cloud, name, share=0.5):
        try:
            profile_for_launch(cloud, {"Name": name})
        except AwsError as error:
            raise aws_error("emr:RunJobFlow", "ValidationException", profile=profile) from error
    else:
        raise aws_error("emr:RunJobFlow", "AccessDeniedException", profile=profile)


def _subnet(region: str, instances: Mapping[str, Any]) -> Any:
    subnets = list(instances.get("Ec2SubnetIds") or ()) or [instances.get("Ec2SubnetId")]
    if len(subnets) != 1 or not subnets[0]:
        raise invalid("The local cloud's EMR clusters are in one subnet: give Ec2SubnetId.")
    try:
        return subnet_named(backend_of(region), str(subnets[0]))
    except AwsError as error:
        raise aws_error("emr:RunJobFlow", "ValidationException", "ecSubnetId") from error


def _is_private(region: str, subnet: Any) -> bool:
    """Return whether no route of a subnet leads to an internet gateway."""
    table = route_table_of(backend_of(region), subnet)
    gateways = [getattr(route.gateway, "id", "") for route in table._routes.values()] if table else []
    return not any(str(gateway).startswith("igw-") for gateway in gateways)


def _check_security_groups(region: str, instances: Mapping[str, Any], subnet: Any) -> None:
    managed = [instances.get("EmrManagedMasterSecurityGroup"), instances.get("EmrManagedSlaveSecurityGroup")]
    if any(managed) and not all(managed):
        raise invalid(
            "You must specify both EmrManagedMasterSecurityGroup and EmrManagedSlaveSecurityGroup, or neither."
        )
    service = instances.get("ServiceAccessSecurityGroup")
    if all(managed) and _is_private(region, subnet) and not service:
        raise aws_error("emr:RunJobFlow", "ValidationException", "ServiceAccessSecurityGroup")
    additional = [
        *(instances.get("AdditionalMasterSecurityGroups") or ()),
        *(instances.get("AdditionalSlaveSecurityGroups") or ()),
    ]
    of_vpc = backend_of(region).groups.get(subnet.vpc_id, {})
    for group in [*managed, service, *additional]:
        if group and group not in of_vpc:
            raise invalid(f"The security group '{group}' does not exist in VPC '{subnet.vpc_id}'")


def _groups(instances: Mapping[str, Any], release: str, now: float) -> list[Group]:
    """Return the primary group and, if there is one, the core group."""
    configs = instances.get("InstanceGroups") or ()
    if not configs:
        raise invalid("The local cloud's EMR clusters have InstanceGroups: give them.")
    for config in configs:
        _refuse_absent(config, _ABSENT_GROUP)
        if config.get("InstanceRole") not in (MASTER, CORE) or config.get("Market") == "SPOT":
            raise invalid("The local cloud's EMR clusters have on-demand groups with the roles MASTER and CORE only.")
        if config.get("InstanceType") not in catalog.supported_types(release):
            raise invalid(f"Instance type '{config.get('InstanceType')}' is not supported.")
        if int(config.get("InstanceCount") or 0) < 1:
            raise invalid("An instance group must have at least one instance.")
    roles = sorted(config["InstanceRole"] for config in configs)
    if roles not in ([MASTER], [CORE, MASTER]):
        raise invalid("Instance groups must have exactly one MASTER group and at most one CORE group.")
    masters = next(config for config in configs if config["InstanceRole"] == MASTER)
    if int(masters["InstanceCount"]) != 1:
        raise invalid("The local cloud's EMR clusters have one primary node.")
    return [
        Group(
            id=new_id("ig"),
            name=str(config.get("Name") or config["InstanceRole"].lower()),
            role=config["InstanceRole"],
            type=config["InstanceType"],
            requested=int(config["InstanceCount"]),
            created=now,
        )
        for config in sorted(configs, key=lambda config: config["InstanceRole"] != MASTER)
    ]


def _actions(params: Mapping[str, Any]) -> Iterable[BootstrapAction]:
    configs = params.get("BootstrapActions") or ()
    if len(configs) > 16:
        raise invalid("Maximum number of bootstrap actions is 16.")
    for config in configs:
        script = config["ScriptBootstrapAction"]
        if not _S3.fullmatch(str(script["Path"])):
            raise invalid(f"The local cloud runs bootstrap actions from S3 only: {script['Path']}")
        yield BootstrapAction(str(config["Name"]), str(script["Path"]), tuple(map(str, script.get("Args") or ())))


def read_tags(values: Iterable[Mapping[str, str]]) -> dict[str, str]:
    tags = {str(tag.get("Key") or ""): str(tag.get("Value") or "") for tag in values}
    if any(key.lower().startswith("aws:") for key in tags):
        raise invalid("Tag keys that start with 'aws:' are reserved for system use.")
    if any(not 1 <= len(key) <= 128 or len(value) > 256 for key, value in tags.items()) or len(tags) > 50:
        raise invalid("A tag key has 1 to 128 characters, a tag value at most 256; a cluster has at most 50 tags.")
    return tags


def idle_timeout(policy: Mapping[str, Any], release: str) -> int:
    seconds = policy.get("IdleTimeout")
    if catalog.number(release) < _FIRST_WITH_AUTO_TERMINATION:
        raise invalid(f"Auto-termination is not supported for release label {release}.")
    if seconds is None or not 60 <= int(seconds) <= 604800:
        raise invalid("Idle timeout must be between 60 seconds and 604800 seconds.")
    return int(seconds)
