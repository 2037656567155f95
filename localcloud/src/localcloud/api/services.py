"""The services of AWS that the local cloud has, with a record of each.

Importing this module imports all others of the package: each registers the operations that it answers.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from localcloud import api
from localcloud.api import facts
from localcloud.api.facts import Find, FindFacts, FindTags
from localcloud.core.errors import AwsError
from localcloud.core.settings import DATA
from localcloud.core.words import aws_error
from localcloud.iam import Lookup, Refusal

_JSON_REFUSAL = Refusal("AccessDeniedException", status=400)
_XML_REFUSAL = Refusal("AccessDenied")
_LOGINS = json.loads((DATA / "logins.json").read_text(encoding="utf-8"))
"""by wording and our own code: code, HTTP status and message of the service; an empty message is our own"""


@dataclass(frozen=True)
class Service:
    name: str
    """botocore's"""
    signing_name: str
    """the name in signatures"""
    refusal: Refusal = _JSON_REFUSAL
    """its error for a caller without the permission"""
    throttling: str = "ThrottlingException"
    """the code of its error for too many calls"""
    login: str = "json"
    """the wording of its error for invalid credentials, in data/logins.json"""
    uses_moto: bool = True
    """Whether moto answers operations that no module answers. False if moto has none of the records."""
    arns: str = ""
    """the service in ARNs of its resources, if they have facts or tags"""
    tags: FindTags | None = None
    """the tags of a resource"""
    facts: FindFacts | None = None
    """condition keys that describe a resource"""
    lookups: Mapping[Lookup, Find] = field(default_factory=dict)
    """the resources of names and associations"""

    def throttled(self) -> AwsError:
        return aws_error(f"{self.name}:*", self.throttling)

    def refused_login(self, refusal: AwsError) -> AwsError:
        """Return a refusal of `check_signature` or `resolve` as the service words it.

        https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
        https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
        https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
        """
        code, status, message = _LOGINS[self.login].get(refusal.code, (refusal.code, refusal.status, ""))
        return AwsError(code, message or refusal.message, status)


SERVICES = (
    Service(
        "accessanalyzer",
        "access-analyzer",
        refusal=Refusal("AccessDeniedException"),
        login="efs",
        uses_moto=False,
    ),
    Service(
        "autoscaling",
        "autoscaling",
        refusal=_XML_REFUSAL,
        login="query",
        throttling="Throttling",
        uses_moto=False,
        arns="autoscaling",
        tags=facts.tags_in_autoscaling,
        lookups=facts.AUTOSCALING_LOOKUPS,
    ),
    Service(
        "ec2",
        "ec2",
        refusal=Refusal("UnauthorizedOperation", "You are not authorized to perform this operation. "),
        login="ec2",
        throttling="RequestLimitExceeded",
        arns="ec2",
        tags=facts.tags_in_ec2,
        facts=facts.facts_in_ec2,
        lookups=facts.EC2_LOOKUPS,
    ),
    Service(
        "efs",
        "elasticfilesystem",
        refusal=Refusal("AccessDeniedException"),
        login="efs",
        uses_moto=False,
        arns="elasticfilesystem",
        tags=facts.tags_in_efs,
        lookups=facts.EFS_LOOKUPS,
    ),
    Service(
        "emr",
        "elasticmapreduce",
        uses_moto=False,
        arns="elasticmapreduce",
        tags=facts.tags_in_emr,
    ),
    Service(
        "iam",
        "iam",
        refusal=_XML_REFUSAL,
        login="query",
        throttling="Throttling",
        arns="iam",
        tags=facts.tags_in_iam,
        facts=facts.facts_in_iam,
        lookups=facts.IAM_LOOKUPS,
    ),
    Service("pricing", "pricing", uses_moto=False),
    Service(
        "s3",
        "s3",
        refusal=_XML_REFUSAL,
        login="s3",
        throttling="SlowDown",
        arns="s3",
        tags=facts.tags_in_s3,
        facts=facts.facts_in_s3,
    ),
    Service("service-quotas", "servicequotas", throttling="TooManyRequestsException"),
    Service("ssm", "ssm", arns="ssm", tags=facts.tags_in_ssm),
    Service("sts", "sts", refusal=_XML_REFUSAL, login="query", throttling="Throttling"),
)

BY_NAME: Mapping[str, Service] = {service.name: service for service in SERVICES}
BY_SIGNING_NAME: Mapping[str, Service] = {service.signing_name: service for service in SERVICES}

for module in pkgutil.walk_packages(api.__path__, f"{api.__name__}."):
    importlib.import_module(module.name)
