"""When the things of IAM came to be what they are, so that they can take effect late, as they do in AWS.

Present values are moto's; here is only since when they hold, and what held before. What has no history was always so.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from moto.backends import get_backend

from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.settings import ACCOUNT

Key = tuple[str, ...]
"""("role", name, "inline", policy), ("user", name, "attached", arn), ("policy", arn),
("role", name, "trust"), ("role", name, "boundary"), ("profile", name), ("profile", name, "role")"""

_KEPT = 50
"""changes of one thing that are remembered"""


class History:
    def __init__(self) -> None:
        self._changes: dict[Key, list[tuple[float, Any]]] = {}

    def note(self, key: Key, time: float, value: Any, before: Any = None) -> None:
        """Record what it is from now on: None if it is gone. The same value again changes nothing. `before` is what it
        was if nothing is recorded yet."""
        changes = self._changes.setdefault(key, [] if before is None else [(-math.inf, before)])
        if not changes or changes[-1][1] != value:
            changes.append((time, value))
            del changes[:-_KEPT]

    def forget(self, *prefix: str) -> None:
        """Record that an object and all that belongs to it are deleted."""
        for key in [key for key in self._changes if key[: len(prefix)] == prefix]:
            del self._changes[key]

    def value_at(self, key: Key, time: float, present: Any) -> Any:
        """Return the value at a time; None if it did not exist."""
        changes = self._changes.get(key)
        if not changes:
            return present
        return next((value for since, value in reversed(changes) if since <= time), None)

    def names(self, *prefix: str) -> Iterator[str]:
        """Yield the last parts of the keys with this prefix."""
        return (key[-1] for key in self._changes if key[:-1] == prefix)

    def last_change(self, key: Key) -> float:
        changes = self._changes.get(key)
        return changes[-1][0] if changes else 0.0


def history(cloud: Cloud) -> History:
    result: History = cloud.records("iam", History)
    return result


def backend() -> Any:
    """moto's records of IAM."""
    return get_backend("iam")[ACCOUNT]["aws"]


def delay(cloud: Cloud) -> float:
    """Seconds until a change takes effect."""
    requested = cloud.faults.iam_delay()
    return cloud.latency.of("iam_in_effect") if requested is None else requested


def profile_in_effect(cloud: Cloud, name: str, share: float = 1.0) -> bool:
    """Return whether an instance profile exists, and it and its role are in effect, or were after this share of the
    delay.

    The first call of each service misses it: https://github.com/hashicorp/terraform-provider-aws/issues/838 (EC2),
    https://github.com/hashicorp/terraform-provider-aws/pull/5633 (Auto Scaling).
    """
    changed = max(map(history(cloud).last_change, (("profile", name), ("profile", name, "role"))))
    is_due = changed <= cloud.clock.time() - share * delay(cloud)
    return name in backend().instance_profiles and is_due and cloud.lateness.misses_profile(name, changed) <= 1 - share


def policies_in_effect(cloud: Cloud, caller: Caller) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the identity policies of a user or a role by name. The documents are shared and must not be changed."""
    if caller.kind == "user":
        user = backend().users.get(caller.name)
        owners = [(("user", caller.name), user)] if user else []
    elif caller.kind == "role":
        owners = [(("role", role.name), role) for role in backend().roles.values() if role.name == caller.name]
    else:
        return []
    return [policy for owner, record in owners for policy in _policies(cloud, owner, record)]


def boundary_in_effect(cloud: Cloud, caller: Caller) -> tuple[str, Mapping[str, Any]] | None:
    """Return a role's permissions boundary. (Users have none.)"""
    for role in backend().roles.values():
        if caller.kind == "role" and role.name == caller.name:
            policy_arn = boundary_arn_in_effect(cloud, role)
            # A boundary that does not exist allows nothing.
            return (_managed(cloud, policy_arn) or ("", {"Statement": []})) if policy_arn else None
    return None


def boundary_arn_in_effect(cloud: Cloud, role: Any) -> str:
    """Return the ARN of a role's permissions boundary, and nothing if the role has none."""
    key = ("role", role.name, "boundary")
    return history(cloud).value_at(key, _horizon(cloud), role.permissions_boundary_arn) or ""


def trust_policy(cloud: Cloud, role_arn: str) -> str | None:
    """Return the JSON of a role's trust policy; None if no such role is in effect."""
    for role in backend().roles.values():
        if role.arn == role_arn:
            present = role.assume_role_policy_document
            document: str | None = history(cloud).value_at(("role", role.name, "trust"), _horizon(cloud), present)
            return document
    return None


def _policies(cloud: Cloud, owner: Key, record: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    horizon = _horizon(cloud)
    changes = history(cloud)
    for name in dict.fromkeys((*record.policies, *changes.names(*owner, "inline"))):
        document = changes.value_at((*owner, "inline", name), horizon, record.policies.get(name))
        if document is not None:
            yield name, _parsed(document)
    for policy_arn in dict.fromkeys((*record.managed_policies, *changes.names(*owner, "attached"))):
        present = policy_arn in record.managed_policies
        attached = changes.value_at((*owner, "attached", policy_arn), horizon, present or None)
        if attached and (policy := _managed(cloud, policy_arn)):
            yield policy


def _managed(cloud: Cloud, policy_arn: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return the name and the document in effect of a managed policy; None if it does not exist."""
    policy = backend().managed_policies.get(policy_arn)
    present = _default_document(policy) if policy else None
    document = history(cloud).value_at(("policy", policy_arn), _horizon(cloud), present)
    return (policy_arn.rpartition("/")[2], _parsed(document)) if document else None


def _horizon(cloud: Cloud) -> float:
    """Return the time whose records are in effect now."""
    return cloud.clock.time() - delay(cloud)


def _default_document(policy: Any) -> str:
    return next(str(version.document) for version in policy.versions if version.version_id == policy.default_version_id)


@functools.lru_cache(maxsize=1024)
def _parsed(document: str) -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = json.loads(document)
    return parsed
