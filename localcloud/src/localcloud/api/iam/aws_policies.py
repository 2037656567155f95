"""The policies that AWS manages. moto has them all, but needs a second to load them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy

from localcloud.api.iam.history import backend
from localcloud.core.settings import ACCOUNT, DEFAULT_REGION

_OWNED_BY_AWS = "arn:aws:iam::aws:policy/"


@functools.cache
def _published() -> Mapping[str, dict[str, Any]]:
    published: Mapping[str, dict[str, Any]] = json.loads(aws_managed_policies_data)
    return published


def make_known(policy_arn: str) -> None:
    """Let moto know the policy of AWS that has this ARN; any other is none of our business."""
    existing = backend().managed_policies
    name = policy_arn.rpartition("/")[2]
    if policy_arn.startswith(_OWNED_BY_AWS) and policy_arn not in existing and name in _published():
        policy = AWSManagedPolicy.from_data(name, ACCOUNT, DEFAULT_REGION, _published()[name])
        if policy.arn == policy_arn:
            existing[policy_arn] = policy
