"""Calls that an operator's policies and the boundary of a role must refuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from localcloud.testing.catalog import BASE
from tests.account.operators import (
    BOUNDARY,
    MINE,
    OTHERS,
    REFUSALS,
    S3_SERVICE,
    TYPE,
    ZONE,
    cluster_tag,
    tagged,
    with_names,
)

RED, BLUE = cluster_tag(MINE), cluster_tag(OTHERS)
ANYWHERE = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
ROUTE = {"RouteTableId": "{table}", "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "{gateway}"}
GROUP = {"AutoScalingGroupName": "{name}-workers"}
Refused = list[tuple[str, str, dict[str, Any]]]

ON_OTHERS: Refused = [
    # What another user owns is neither deleted …
    ("ec2", "delete_vpc", {"VpcId": "{vpc}"}),
    ("ec2", "create_image", {"InstanceId": "{instance}", "Name": "copy", "TagSpecifications": tagged("image", MINE)}),
    ("ec2", "deregister_image", {"ImageId": "{image}"}),
    ("ec2", "delete_snapshot", {"SnapshotId": "{snapshot}"}),
    ("ec2", "delete_subnet", {"SubnetId": "{subnet}"}),
    ("ec2", "delete_internet_gateway", {"InternetGatewayId": "{gateway}"}),
    ("ec2", "delete_route_table", {"RouteTableId": "{table}"}),
    ("ec2", "delete_vpc_endpoints", {"VpcEndpointIds": ["{endpoint}"]}),
    ("ec2", "delete_nat_gateway", {"NatGatewayId": "{nat}"}),
    ("ec2", "delete_security_group", {"GroupId": "{group}"}),
    ("ec2", "delete_network_interface", {"NetworkInterfaceId": "{interface}"}),
    ("ec2", "terminate_instances", {"InstanceIds": ["{instance}"]}),
    ("ec2", "release_address", {"AllocationId": "{address}"}),
    ("ec2", "delete_volume", {"VolumeId": "{volume}"}),
    ("ec2", "delete_launch_template", {"LaunchTemplateId": "{template}"}),
    ("ec2", "delete_key_pair", {"KeyPairId": "{key}"}),
    ("ec2", "delete_placement_group", {"GroupName": "{name}"}),
    ("autoscaling", "delete_auto_scaling_group", GROUP | {"ForceDelete": True}),
    (
        "autoscaling",
        "terminate_instance_in_auto_scaling_group",
        {"InstanceId": "{instance}", "ShouldDecrementDesiredCapacity": True},
    ),
    ("efs", "delete_file_system", {"FileSystemId": "{system}"}),
    ("efs", "delete_mount_target", {"MountTargetId": "{target}"}),
    ("iam", "delete_instance_profile", {"InstanceProfileName": "{role}"}),
    ("iam", "remove_role_from_instance_profile", {"InstanceProfileName": "{role}", "RoleName": "{role}"}),
    ("iam", "delete_role_policy", {"RoleName": "{role}", "PolicyName": "p"}),
    ("iam", "detach_role_policy", {"RoleName": "{role}", "PolicyArn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}),
    ("iam", "delete_role", {"RoleName": "{role}"}),
    ("s3", "delete_bucket", {"Bucket": "{bucket}"}),
    ("s3", "delete_object", {"Bucket": "{bucket}", "Key": "report"}),
    ("s3", "delete_object", {"Bucket": "{bucket}", "Key": "report", "VersionId": "null"}),
    # … nor changed or used.
    ("ec2", "modify_vpc_attribute", {"VpcId": "{vpc}", "EnableDnsHostnames": {"Value": True}}),
    ("ec2", "attach_internet_gateway", {"InternetGatewayId": "{gateway}", "VpcId": "{own_vpc}"}),
    ("ec2", "attach_internet_gateway", {"InternetGatewayId": "{own_gateway}", "VpcId": "{vpc}"}),
    ("ec2", "detach_internet_gateway", {"InternetGatewayId": "{gateway}", "VpcId": "{vpc}"}),
    ("ec2", "create_route", ROUTE | {"DestinationCidrBlock": "10.9.0.0/16"}),
    ("ec2", "replace_route", ROUTE),
    ("ec2", "associate_route_table", {"RouteTableId": "{own_table}", "SubnetId": "{subnet}"}),
    ("ec2", "disassociate_route_table", {"AssociationId": "{association}"}),
    (
        "ec2",
        "update_security_group_rule_descriptions_ingress",
        {"GroupId": "{group}", "IpPermissions": ANYWHERE},
    ),
    ("ec2", "authorize_security_group_ingress", {"GroupId": "{group}", "IpPermissions": ANYWHERE}),
    ("ec2", "authorize_security_group_egress", {"GroupId": "{group}", "IpPermissions": ANYWHERE}),
    ("ec2", "revoke_security_group_ingress", {"GroupId": "{group}", "IpPermissions": ANYWHERE}),
    ("ec2", "revoke_security_group_egress", {"GroupId": "{group}", "IpPermissions": ANYWHERE}),
    ("ec2", "modify_network_interface_attribute", {"NetworkInterfaceId": "{interface}", "Groups": ["{own_group}"]}),
    (
        "ec2",
        "modify_network_interface_attribute",
        {"NetworkInterfaceId": "{interface}", "SourceDestCheck": {"Value": False}},
    ),
    ("ec2", "get_console_output", {"InstanceId": "{instance}"}),
    (
        "ec2",
        "create_launch_template_version",
        {"LaunchTemplateId": "{template}", "LaunchTemplateData": {"ImageId": "ami-0"}},
    ),
    ("ec2", "modify_launch_template", {"LaunchTemplateId": "{template}", "DefaultVersion": "1"}),
    ("ec2", "associate_address", {"AllocationId": "{address}", "InstanceId": "{instance}"}),
    ("ec2", "disassociate_address", {"AssociationId": "{use}"}),
    (
        "ec2",
        "create_subnet",
        {"VpcId": "{vpc}", "CidrBlock": "10.1.9.0/24", "TagSpecifications": tagged("subnet", MINE)},
    ),
    ("ec2", "create_route_table", {"VpcId": "{vpc}", "TagSpecifications": tagged("route-table", MINE)}),
    (
        "ec2",
        "create_security_group",
        {
            "VpcId": "{vpc}",
            "GroupName": "h",
            "Description": "h",
            "TagSpecifications": tagged("security-group", MINE),
        },
    ),
    (
        "ec2",
        "create_vpc_endpoint",
        {"VpcId": "{vpc}", "ServiceName": S3_SERVICE, "TagSpecifications": tagged("vpc-endpoint", MINE)},
    ),
    (
        "ec2",
        "create_nat_gateway",
        {
            "SubnetId": "{subnet}",
            "AllocationId": "{own_address}",
            "TagSpecifications": tagged("natgateway", MINE),
        },
    ),
    ("ec2", "create_network_interface", {"SubnetId": "{subnet}"}),
    ("ec2", "create_network_interface", {"SubnetId": "{own_subnet}", "Groups": ["{group}"]}),
    (
        "ec2",
        "run_instances",
        {
            "ImageId": BASE.id,
            "InstanceType": TYPE,
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": "{subnet}",
            "IamInstanceProfile": {"Name": "{role}"},
            "TagSpecifications": tagged("instance", MINE),
        },
    ),
    ("autoscaling", "update_auto_scaling_group", GROUP | {"MaxSize": 9}),
    ("autoscaling", "set_desired_capacity", GROUP | {"DesiredCapacity": 0}),
    ("autoscaling", "suspend_processes", GROUP),
    ("autoscaling", "resume_processes", GROUP),
    ("autoscaling", "disable_metrics_collection", GROUP),
    ("autoscaling", "put_lifecycle_hook", GROUP | {"LifecycleHookName": "h"}),
    ("autoscaling", "put_scheduled_update_group_action", GROUP | {"ScheduledActionName": "end", "MinSize": 0}),
    ("autoscaling", "delete_scheduled_action", GROUP | {"ScheduledActionName": "end"}),
    (
        "autoscaling",
        "complete_lifecycle_action",
        GROUP | {"LifecycleHookName": "h", "LifecycleActionResult": "ABANDON", "InstanceId": "{instance}"},
    ),
    (
        "autoscaling",
        "create_or_update_tags",
        {
            "Tags": [
                {
                    "ResourceId": "{name}-workers",
                    "ResourceType": "auto-scaling-group",
                    "Key": "team",
                    "Value": "red",
                    "PropagateAtLaunch": True,
                }
            ]
        },
    ),
    ("efs", "create_mount_target", {"FileSystemId": "{system}", "SubnetId": "{own_subnet}"}),
    ("efs", "create_mount_target", {"FileSystemId": "{own_system}", "SubnetId": "{subnet}"}),
    ("efs", "modify_mount_target_security_groups", {"MountTargetId": "{target}", "SecurityGroups": ["{own_group}"]}),
    ("efs", "update_file_system", {"FileSystemId": "{system}", "ThroughputMode": "elastic"}),
    ("iam", "put_role_policy", {"RoleName": "{role}", "PolicyName": "p", "PolicyDocument": "{{}}"}),
    ("iam", "update_role", {"RoleName": "{role}", "Description": "d"}),
    ("iam", "put_role_permissions_boundary", {"RoleName": "{role}", "PermissionsBoundary": BOUNDARY}),
    ("iam", "delete_role_permissions_boundary", {"RoleName": "{role}"}),
    ("iam", "update_assume_role_policy", {"RoleName": "{role}", "PolicyDocument": "{{}}"}),
    ("iam", "add_role_to_instance_profile", {"InstanceProfileName": "{role}", "RoleName": "{role}"}),
    ("efs", "put_file_system_policy", {"FileSystemId": "{system}", "Policy": "{{}}"}),
    ("efs", "delete_file_system_policy", {"FileSystemId": "{system}"}),
    ("s3", "put_bucket_policy", {"Bucket": "{bucket}", "Policy": "{{}}"}),
    ("s3", "put_object", {"Bucket": "{bucket}", "Key": "report", "Body": b""}),
    ("s3", "get_object", {"Bucket": "{bucket}", "Key": "report"}),
    ("s3", "get_object_tagging", {"Bucket": "{bucket}", "Key": "report"}),
    ("s3", "abort_multipart_upload", {"Bucket": "{bucket}", "Key": "report", "UploadId": "u"}),
    ("s3", "put_bucket_tagging", {"Bucket": "{bucket}", "Tagging": {"TagSet": RED}}),
    ("s3", "put_bucket_encryption", {"Bucket": "{bucket}", "ServerSideEncryptionConfiguration": {"Rules": []}}),
    ("s3", "put_bucket_ownership_controls", {"Bucket": "{bucket}", "OwnershipControls": {"Rules": []}}),
    ("s3", "put_public_access_block", {"Bucket": "{bucket}", "PublicAccessBlockConfiguration": {}}),
    # It does not become one's own by a tag.
    ("ec2", "create_tags", {"Resources": ["{vpc}"], "Tags": RED}),
    ("ec2", "create_tags", {"Resources": ["{interface}"], "Tags": RED}),
    ("ec2", "create_tags", {"Resources": ["{instance}"], "Tags": RED}),
    ("ec2", "create_tags", {"Resources": ["{volume}"], "Tags": RED}),
    ("ec2", "create_tags", {"Resources": ["{key}"], "Tags": RED}),
    ("efs", "tag_resource", {"ResourceId": "{system}", "Tags": RED}),
    ("iam", "tag_role", {"RoleName": "{role}", "Tags": RED}),
    ("iam", "tag_instance_profile", {"InstanceProfileName": "{role}", "Tags": RED}),
]
ELSEWHERE: Refused = [
    # Nothing is created without the cluster's tag, or with another cluster's.
    ("ec2", "create_vpc", {"CidrBlock": "10.2.0.0/16"}),
    ("ec2", "create_vpc", {"CidrBlock": "10.2.0.0/16", "TagSpecifications": tagged("vpc", OTHERS)}),
    ("ec2", "create_volume", {"AvailabilityZone": ZONE, "Size": 1, "TagSpecifications": tagged("volume", MINE)}),
    ("ec2", "create_internet_gateway", {}),
    ("ec2", "create_launch_template", {"LaunchTemplateName": "t", "LaunchTemplateData": {"ImageId": BASE.id}}),
    ("ec2", "create_placement_group", {"GroupName": "p", "Strategy": "cluster"}),
    ("ec2", "import_key_pair", {"KeyName": "k", "PublicKeyMaterial": b"ssh-ed25519 AAAA"}),
    ("ec2", "allocate_address", {"Domain": "vpc"}),
    ("ec2", "run_instances", {"ImageId": BASE.id, "InstanceType": TYPE, "MinCount": 1, "MaxCount": 1}),
    (
        "autoscaling",
        "create_auto_scaling_group",
        {
            "AutoScalingGroupName": "extra",
            "MinSize": 0,
            "MaxSize": 0,
            "VPCZoneIdentifier": "{own_subnet}",
            "LaunchTemplate": {"LaunchTemplateId": "{own_template}"},
        },
    ),
    ("efs", "create_file_system", {"CreationToken": "t"}),
    ("iam", "create_role", {"RoleName": "admin", "AssumeRolePolicyDocument": "{{}}"}),
    ("iam", "create_instance_profile", {"InstanceProfileName": "admin"}),
    ("iam", "create_user", {"UserName": "admin"}),
    ("iam", "create_service_linked_role", {"AWSServiceName": "ecs.amazonaws.com"}),
    ("s3", "create_bucket", {"Bucket": "anything"}),
    # What belongs to the account stays unread, secrets first of all.
    ("ssm", "get_parameter", {"Name": "/prod/database/password"}),
    ("ssm", "get_parameters", {"Names": ["/prod/database/password"], "WithDecryption": True}),
    ("ssm", "get_parameters", {"Names": ["aws-service-password"]}),
    ("ssm", "get_parameters_by_path", {"Path": "/", "Recursive": True, "WithDecryption": True}),
    ("ssm", "get_parameters_by_path", {"Path": "/prod"}),
]


def allowed(person: Any, calls: Refused, names: Mapping[str, str]) -> list[str]:
    """The calls that were not refused, with what came of them."""
    came_through = []
    for service, operation, params in calls:
        try:
            getattr(person.client(service), operation)(**with_names(params, names))
        except ClientError as error:
            if error.response["Error"]["Code"] in REFUSALS:
                continue
            came_through.append(f"{service}.{operation} {params}: {error}")
        else:
            came_through.append(f"{service}.{operation} {params}: done")
    return came_through
