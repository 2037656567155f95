"""Instance profiles as EC2 sees them: not in effect for a while after they were made, and bound to instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.backends import get_backend

from localcloud.api.ec2.errors import invalid
from localcloud.api.iam.history import profile_in_effect
from localcloud.core.cloud import Cloud
from localcloud.core.settings import ACCOUNT


def profile_for_launch(cloud: Cloud, request: Mapping[str, Any] | None) -> Any:
    """moto's record of the profile that a launch names, or AWS's refusal, also where the profile is too new."""
    if not request or not (request.get("Name") or request.get("Arn")):
        return None
    field = "name" if request.get("Name") else "arn"
    value = str(request.get("Name") or request.get("Arn"))
    profiles = get_backend("iam")[ACCOUNT]["aws"].instance_profiles.values()
    profile = next((profile for profile in profiles if getattr(profile, field) == value), None)
    if profile is None or not profile.roles or not profile_in_effect(cloud, profile.name):
        called = "name" if field == "name" else "ARN"
        raise invalid(
            f"Value ({value}) for parameter iamInstanceProfile.{field} is invalid. Invalid IAM Instance "
            f"Profile {called}"
        )
    return profile
