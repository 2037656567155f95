"""Roles that AWS's services make for themselves in an account.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_aws-services-that-work-with-iam.html
"""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.iam.aws_policies import make_known
from localcloud.api.iam.documents import encoded
from localcloud.api.iam.history import backend
from localcloud.core.cloud import Call, Cloud, Result, answers
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error
from localcloud.iam.rules import LINKED_ROLES

_POLICIES = {
    "autoscaling.amazonaws.com": "AutoScalingServiceRolePolicy",
    "ec2fleet.amazonaws.com": "AWSEC2FleetServiceRolePolicy",
    "elasticfilesystem.amazonaws.com": "AmazonElasticFileSystemServiceRolePolicy",
    "elasticmapreduce.amazonaws.com": "AmazonEMRCleanupPolicy",
    "spot.amazonaws.com": "AWSEC2SpotServiceRolePolicy",
}
"""The policies of AWS that the roles have."""
_PATH = "/aws-service-role/"


def has_service_linked_role(cloud: Cloud, service: str) -> bool:
    """Return whether the account has the role linked to a service such as autoscaling.amazonaws.com."""
    return service in LINKED_ROLES and _find(LINKED_ROLES[service]) is not None


def ensure_service_linked_role(cloud: Cloud, service: str) -> None:
    """Create the role that a service needs. (The IAM table checks the caller's permission.)"""
    if not has_service_linked_role(cloud, service):
        _create(service, "")


def is_linked(role_name: str) -> bool:
    role = _find(role_name)
    return role is not None and str(role.path).startswith(_PATH)


def _find(role_name: str) -> Any:
    return next((role for role in backend().roles.values() if role.name == role_name), None)


def _create(service: str, description: str) -> None:
    name, policy = LINKED_ROLES[service], _POLICIES[service]
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
    }
    role = backend().create_role(
        name, json.dumps(trust), f"{_PATH}{service}/", None, description, [], "3600", linked_service=service
    )
    policy_arn = f"arn:aws:iam::aws:policy{_PATH}{policy}"
    make_known(policy_arn)
    backend().managed_policies[policy_arn].attach_to(role)


@answers("iam", "CreateServiceLinkedRole")
def create_service_linked_role(call: Call) -> Result:
    service = call.params["AWSServiceName"]
    if service not in LINKED_ROLES:
        raise AwsError("InvalidInput", f"The local cloud has no service {service} that a role can be linked to.", 400)
    if call.params.get("CustomSuffix"):
        raise aws_error("iam:CreateServiceLinkedRole", "InvalidInput", service=service)
    name = LINKED_ROLES[service]
    if _find(name) is not None:
        raise aws_error("iam:CreateServiceLinkedRole", "InvalidInput", name=name)
    _create(service, call.params.get("Description") or "")
    answer = call.cloud.moto("iam", "GetRole", call.region, {"RoleName": name})
    return encoded({"Role": answer["Role"]})
