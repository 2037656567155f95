"""Instance profiles as EC2 sees them: not in effect for a while after they were made, and bound to instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moto.backends import get_backend

from localcloud.api.ec2_filters import Values, chosen, page
from localcloud.api.ec2_instance import Instance
from localcloud.api.ec2_records import instance_of, instances_in, new_id
from localcloud.api.iam_history import profile_in_effect
from localcloud.api.registry import Call, answers
from localcloud.cloud import Cloud
from localcloud.errors import AwsError
from localcloud.settings import ACCOUNT


def profile_for_launch(cloud: Cloud, given: Mapping[str, Any] | None) -> Any:
    """moto's record of the profile that a launch names, or AWS's refusal, also where the profile is too new."""
    if not given or not (given.get("Name") or given.get("Arn")):
        return None
    field = "name" if given.get("Name") else "arn"
    value = str(given.get("Name") or given.get("Arn"))
    profiles = get_backend("iam")[ACCOUNT]["aws"].instance_profiles.values()
    profile = next((profile for profile in profiles if getattr(profile, field) == value), None)
    if profile is None or not profile.roles or not profile_in_effect(cloud, profile.name):
        called = "name" if field == "name" else "ARN"
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({value}) for parameter iamInstanceProfile.{field} is invalid. Invalid IAM Instance "
            f"Profile {called}",
        )
    return profile


def _association(instance: Instance, state: str = "associated") -> dict[str, Any]:
    return {
        "AssociationId": instance.association_id,
        "IamInstanceProfile": instance.iam_instance_profile,
        "InstanceId": instance.id,
        "State": state,
    }


def _associated(call: Call, association_id: str) -> Instance:
    for instance in instances_in(call.cloud, call.region):
        if instance.profile and instance.association_id == association_id:
            return instance
    raise AwsError("InvalidAssociationID.NotFound", f"An invalid association-id of '{association_id}' was given")


@answers("ec2", "AssociateIamInstanceProfile")
def associate(call: Call) -> dict[str, Any]:
    instance = instance_of(call.cloud, call.region, str(call.params.get("InstanceId")))
    if instance.profile:
        raise AwsError("IncorrectState", f"There is an existing association for instance {instance.id}")
    instance.profile = profile_for_launch(call.cloud, call.params.get("IamInstanceProfile"))
    instance.association_id = new_id("iip-assoc")
    return {"IamInstanceProfileAssociation": _association(instance)}


@answers("ec2", "DisassociateIamInstanceProfile")
def disassociate(call: Call) -> dict[str, Any]:
    instance = _associated(call, str(call.params.get("AssociationId")))
    described = _association(instance, "disassociating")
    instance.profile = None
    return {"IamInstanceProfileAssociation": described}


@answers("ec2", "ReplaceIamInstanceProfileAssociation")
def replace(call: Call) -> dict[str, Any]:
    instance = _associated(call, str(call.params.get("AssociationId")))
    instance.profile = profile_for_launch(call.cloud, call.params.get("IamInstanceProfile"))
    instance.association_id = new_id("iip-assoc")
    return {"IamInstanceProfileAssociation": _association(instance)}


_FILTERS: Mapping[str, Callable[[Instance], Values]] = {
    "instance-id": lambda instance: (instance.id,),
    "state": lambda _instance: ("associated",),
}


@answers("ec2", "DescribeIamInstanceProfileAssociations")
def describe(call: Call) -> dict[str, Any]:
    found = [
        instance
        for instance in instances_in(call.cloud, call.region)
        if instance.profile and instance.state != "terminated"
    ]
    asked = set(call.params.get("AssociationIds") or ())
    found = [instance for instance in found if not asked or instance.association_id in asked]
    shown, token = page(chosen(found, call.params.get("Filters"), _FILTERS), call.params)
    answer: dict[str, Any] = {"IamInstanceProfileAssociations": [_association(instance) for instance in shown]}
    return answer | ({"NextToken": token} if token else {})
