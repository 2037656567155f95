"""The services of AWS that the local cloud has: a record of each, and all that is known of it.

Importing this registers what the modules of the services answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType

from localcloud.api import facts, login, quotas, s3, ssm, sts
from localcloud.api.autoscaling import groups, refreshes
from localcloud.api.autoscaling import instances as scaling_instances
from localcloud.api.autoscaling import tags as scaling_tags
from localcloud.api.ec2 import (
    addresses,
    deletions,
    images,
    instance_types,
    instances,
    interfaces,
    lifecycle,
    nat,
    networks,
    placement,
    run,
    security_groups,
    tags,
    templates,
)
from localcloud.api.efs import file_systems, mount_targets, policies
from localcloud.api.efs import tags as efs_tags
from localcloud.api.facts import Find, FindFacts, FindTags
from localcloud.api.iam import identities, linked_roles
from localcloud.api.login import Wording
from localcloud.core.errors import AwsError
from localcloud.iam import Lookup, Refusal

_JSON_REFUSAL = Refusal("AccessDeniedException", status=400)
_XML_REFUSAL = Refusal("AccessDenied")
_THROTTLING = ("Throttling", "Rate exceeded", 400)
_THROTTLING_EXCEPTION = ("ThrottlingException", "Rate exceeded", 400)


@dataclass(frozen=True)
class Service:
    name: str
    """botocore's"""
    signing_name: str
    """the one that signatures bear"""
    modules: tuple[ModuleType, ...]
    """those that answer operations"""
    refusal: Refusal = _JSON_REFUSAL
    """how it words that a caller is not allowed something"""
    throttling: tuple[str, str, int] = _THROTTLING_EXCEPTION
    """code, message and status of its error for too many calls"""
    login: Wording = field(default_factory=lambda: login.json(400))
    """how it words that it does not accept the caller's credentials"""
    uses_moto: bool = True
    """Whether moto answers operations that no module answers. False where the records are all our own."""
    arns: str = ""
    """the service in ARNs of its resources, if they have facts or tags"""
    tags: FindTags | None = None
    """the tags of a resource"""
    facts: FindFacts | None = None
    """condition keys that describe a resource"""
    lookups: Mapping[Lookup, Find] = field(default_factory=dict)
    """what the names and connections of its resources mean"""

    def throttled(self) -> AwsError:
        return AwsError(*self.throttling)


SERVICES = (
    Service(
        "autoscaling",
        "autoscaling",
        (groups, scaling_instances, refreshes, scaling_tags),
        refusal=_XML_REFUSAL,
        login=login.QUERY,
        throttling=_THROTTLING,
        uses_moto=False,
        arns="autoscaling",
        tags=facts.tags_in_autoscaling,
        lookups=facts.AUTOSCALING_LOOKUPS,
    ),
    Service(
        "ec2",
        "ec2",
        (
            addresses,
            deletions,
            images,
            instance_types,
            instances,
            interfaces,
            lifecycle,
            nat,
            networks,
            placement,
            run,
            security_groups,
            tags,
            templates,
        ),
        refusal=Refusal("UnauthorizedOperation", "You are not authorized to perform this operation. "),
        login=login.EC2,
        throttling=("RequestLimitExceeded", "Request limit exceeded.", 503),
        arns="ec2",
        tags=facts.tags_in_ec2,
        facts=facts.facts_in_ec2,
        lookups=facts.EC2_LOOKUPS,
    ),
    Service(
        "efs",
        "elasticfilesystem",
        (file_systems, mount_targets, policies, efs_tags),
        refusal=Refusal("AccessDeniedException"),
        login=login.json(403),
        uses_moto=False,
        arns="elasticfilesystem",
        tags=facts.tags_in_efs,
        lookups=facts.EFS_LOOKUPS,
    ),
    Service(
        "iam",
        "iam",
        (identities, linked_roles),
        refusal=_XML_REFUSAL,
        login=login.QUERY,
        throttling=_THROTTLING,
        arns="iam",
        tags=facts.tags_in_iam,
        facts=facts.facts_in_iam,
        lookups=facts.IAM_LOOKUPS,
    ),
    Service(
        "s3",
        "s3",
        (s3,),
        refusal=_XML_REFUSAL,
        login=login.S3,
        throttling=("SlowDown", "Please reduce your request rate.", 503),
        arns="s3",
        tags=facts.tags_in_s3,
        facts=facts.facts_in_s3,
    ),
    Service("service-quotas", "servicequotas", (quotas,)),
    Service("ssm", "ssm", (ssm,), arns="ssm", tags=facts.tags_in_ssm),
    Service("sts", "sts", (sts,), refusal=_XML_REFUSAL, login=login.QUERY, throttling=_THROTTLING),
)

BY_NAME: Mapping[str, Service] = {service.name: service for service in SERVICES}
BY_SIGNING_NAME: Mapping[str, Service] = {service.signing_name: service for service in SERVICES}
