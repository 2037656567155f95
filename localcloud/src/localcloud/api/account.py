"""The World of the table of permissions: facts about the account, which each service looks up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.autoscaling import regions as scaling
from localcloud.api.ec2.launch_data import version_of
from localcloud.api.ec2.moto_records import regions
from localcloud.api.iam.linked_roles import has_service_linked_role
from localcloud.api.services import SERVICES
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT
from localcloud.iam import Lookup
from localcloud.iam.patterns import Value
from localcloud.iam.rules import text_of

_BY_ARN = {service.arns: service for service in SERVICES if service.arns}
_LOOKUPS = {kind: find for service in SERVICES for kind, find in service.lookups.items()}


class Account:
    """A localcloud.iam.World."""

    account = ACCOUNT
    partition = "aws"

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def lookup(self, kind: Lookup, key: str, region: str) -> str | None:
        result = _LOOKUPS[kind](self._cloud, key, region) if kind in _LOOKUPS else None
        return str(result) if result else None

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags that count for policies."""
        service, region, resource = _parts(arn)
        find = _BY_ARN[service].tags if service in _BY_ARN else None
        return find(self._cloud, arn, region, resource) if find else {}

    def facts(self, arn: str) -> Mapping[str, Value]:
        service, region, resource = _parts(arn)
        find = _BY_ARN[service].facts if service in _BY_ARN else None
        facts = find(self._cloud, region, resource) if find else {}
        return {key: text_of(value) for key, value in facts.items() if value not in (None, "")}

    def launch_template(self, name_or_id: str, version: str, region: str) -> Mapping[str, Any] | None:
        key = "LaunchTemplateId" if name_or_id.startswith("lt-") else "LaunchTemplateName"
        if region not in regions():
            return None
        try:
            data: Mapping[str, Any] = version_of(region, {key: name_or_id, "Version": version}).data
        except AwsError:
            return None
        return data

    def auto_scaling_group(self, name: str, region: str) -> Mapping[str, Any] | None:
        return scaling.described_group(self._cloud, region, name)

    def has_service_linked_role(self, service: str) -> bool:
        return has_service_linked_role(self._cloud, service)


def _parts(arn: str) -> tuple[str, str, str]:
    """Service, region, and the resource."""
    parts = arn.split(":", 5)
    return (parts[2], parts[3], parts[5]) if len(parts) == 6 else ("", "", "")
