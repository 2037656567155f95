"""When the things of IAM came to be what they are, so that they can take effect late, as they do in AWS.

Present values are moto's; here is only since when they hold, and what held before. What has no history was always so.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from moto.backends import get_backend

from localcloud.api.auth import Caller
from localcloud.cloud import Cloud
from localcloud.settings import ACCOUNT

Key = tuple[str, ...]
"""("role", name, "inline", policy), ("user", name, "attached", arn), ("user", name, "member", group), ("policy", arn),
("profile", name), ("profile", name, "role")"""

_KEPT = 50
"""changes of one thing that are remembered"""


class History:
    def __init__(self) -> None:
        self._changes: dict[Key, list[tuple[float, Any]]] = {}

    def note(self, key: Key, time: float, value: Any) -> None:
        """It is this from now on. The same value again changes nothing."""
        changes = self._changes.setdefault(key, [])
        if not changes or changes[-1][1] != value:
            changes.append((time, value))
            del changes[:-_KEPT]

    def forget(self, *prefix: str) -> None:
        """It is gone, with all that belonged to it."""
        for key in [key for key in self._changes if key[: len(prefix)] == prefix]:
            del self._changes[key]

    def value_at(self, key: Key, time: float, present: Any) -> Any:
        """What it was at that time: None if it was not there yet."""
        changes = self._changes.get(key)
        if not changes:
            return present
        return next((value for since, value in reversed(changes) if since <= time), None)

    def last_change(self, key: Key) -> float:
        changes = self._changes.get(key)
        return changes[-1][0] if changes else 0.0


def history(cloud: Cloud) -> History:
    found: History = cloud.records("iam", History)
    return found


def backend() -> Any:
    """moto's records of IAM."""
    return get_backend("iam")[ACCOUNT]["aws"]


def delay(cloud: Cloud) -> float:
    """Seconds until a change takes effect."""
    asked = cloud.faults.iam_delay()
    return cloud.latency.of("iam_in_effect") if asked is None else asked


def effective_since(cloud: Cloud, profile_name: str) -> float | None:
    """When an instance profile, with the role in it, takes or took effect; None if there is no such profile."""
    if profile_name not in backend().instance_profiles:
        return None
    known = history(cloud)
    changed = max(known.last_change(("profile", profile_name)), known.last_change(("profile", profile_name, "role")))
    return changed + delay(cloud)


def profile_in_effect(cloud: Cloud, profile_name: str) -> bool:
    """Whether EC2 knows an instance profile and the role in it already."""
    since = effective_since(cloud, profile_name)
    return since is not None and since <= cloud.clock.time()


def policies_in_effect(cloud: Cloud, caller: Caller) -> list[tuple[str, Mapping[str, Any]]]:
    """The identity policies of a user or a role by name; the documents are shared, not to be changed."""
    if caller.kind == "user":
        owners = _user_and_groups(cloud, caller.name)
    elif caller.kind == "role":
        owners = ((("role", role.name), role) for role in backend().roles.values() if role.name == caller.name)
    else:
        return []
    return [policy for owner, record in owners for policy in _policies(cloud, owner, record)]


def boundary_in_effect(cloud: Cloud, caller: Caller) -> tuple[str, Mapping[str, Any]] | None:
    """A role's permissions boundary. (moto keeps none for users.)"""
    for role in backend().roles.values():
        if caller.kind == "role" and role.name == caller.name and role.permissions_boundary_arn:
            policy = backend().managed_policies.get(role.permissions_boundary_arn)
            # A boundary that does not exist allows nothing.
            return (policy.name, _parsed(_default_document(policy))) if policy else ("", {"Statement": []})
    return None


def trust_policy(role_arn: str) -> str | None:
    """The JSON of a role's trust policy; None if there is no such role."""
    found = (role.assume_role_policy_document for role in backend().roles.values() if role.arn == role_arn)
    return next(found, None)


def _user_and_groups(cloud: Cloud, name: str) -> Iterator[tuple[Key, Any]]:
    user = backend().users.get(name)
    if user is None:
        return
    yield ("user", name), user
    horizon = cloud.clock.time() - delay(cloud)
    for group in backend().groups.values():
        if user in group.users and history(cloud).value_at(("user", name, "member", group.name), horizon, True):
            yield ("group", group.name), group


def _policies(cloud: Cloud, owner: Key, record: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    horizon = cloud.clock.time() - delay(cloud)
    known = history(cloud)
    for name, present in record.policies.items():
        document = known.value_at((*owner, "inline", name), horizon, present)
        if document is not None:
            yield name, _parsed(document)
    for policy in record.managed_policies.values():
        if known.value_at((*owner, "attached", policy.arn), horizon, True):
            document = known.value_at(("policy", policy.arn), horizon, _default_document(policy))
            if document is not None:
                yield policy.name, _parsed(document)


def _default_document(policy: Any) -> str:
    return next(str(version.document) for version in policy.versions if version.version_id == policy.default_version_id)


@functools.lru_cache(maxsize=1024)
def _parsed(document: str) -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = json.loads(document)
    return parsed
