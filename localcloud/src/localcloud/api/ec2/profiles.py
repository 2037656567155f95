"""Instance profiles as EC2 sees them: not in effect for a while after they were made, and bound to instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.backends import get_backend

from localcloud.api.iam.history import profile_in_effect
from localcloud.core.cloud import Cloud
from localcloud.core.settings import ACCOUNT
from localcloud.core.words import aws_error


def profile_for_launch(cloud: Cloud, request: Mapping[str, Any] | None) -> Any:
    """moto's record of the profile that a launch names, or AWS's refusal, also where the profile is too new."""
    if not request or not (request.get("Name") or request.get("Arn")):
        return None
    field = "name" if request.get("Name") else "arn"
    value = str(request.get("Name") or request.get("Arn"))
    profiles = get_backend("iam")[ACCOUNT]["aws"].instance_profiles.values()
    profile = next((profile for profile in profiles if getattr(profile, field) == value), None)
    if profile is None or not profile_in_effect(cloud, profile.name):
        named = {"value": value} if field == "name" else {"arn": value}
        raise aws_error("ec2:RunInstances", "InvalidParameterValue", "iamInstanceProfile", **named)
    if not profile.roles:
        raise aws_error("ec2:RunInstances", "InvalidParameterValue", profile=profile.arn)
    return profile
