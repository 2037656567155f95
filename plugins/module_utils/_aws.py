# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The way to AWS: sessions, calls that survive throttling, all pages, and what went wrong in one sentence.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import functools
import os
import random
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, TypeVar

try:
    import boto3
    import botocore.config
    import botocore.credentials
    import botocore.exceptions
    import botocore.session

    MISSING: ImportError | None = None
except ImportError as _error:
    MISSING = _error

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, dict[str, Any]] = {
    "region": {"type": "str", "required": True},
    "profile": {"type": "str", "default": ""},
    "role_arn": {"type": "str", "default": ""},
}
"""What each of our modules takes. Endpoint and keys come from where the SDK itself looks, its environment variables
included."""

Answer = TypeVar("Answer")

PATIENCE = 10
"""Attempts of ours for a call that is throttled, each of up to ATTEMPTS by botocore: a third of all calls being refused
costs time and nothing else."""
ATTEMPTS = 3
SLOWEST = 8.0

_THROTTLED = frozenset(
    (
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "SlowDown",
        "BandwidthLimitExceeded",
        "ProvisionedThroughputExceededException",
        "PriorRequestNotComplete",
        "EC2ThrottledException",
        "TransactionInProgressException",
    )
)
_PASSING = frozenset(
    (
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "Unavailable",
        "RequestTimeout",
    )
)
_DENIED = frozenset(
    (
        "AccessDenied",
        "AccessDeniedException",
        "UnauthorizedOperation",
        "UnauthorizedAccess",
        "NotAuthorized",
        "AuthorizationError",
        "Client.UnauthorizedOperation",
        "403",
        "Forbidden",
    )
)
_EXPIRED = frozenset(
    (
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "TokenRefreshRequired",
    )
)
_UNKNOWN_CALLER = frozenset(
    (
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "InvalidToken",
    )
)
"""Each service has its own word for a key that it does not know. EC2's is AuthFailure, which it also says of what is
somebody else's; S3 answers HEAD with nothing but the number 400."""
_CLOCK = re.compile(r"Signature (expired|not yet current)", re.IGNORECASE)

_IAM_PREFIX = {
    "efs": "elasticfilesystem",
    "service-quotas": "servicequotas",
    "emr": "elasticmapreduce",
    "resourcegroupstaggingapi": "tag",
}
"""Where actions begin otherwise than boto3 calls the service."""
_IAM_ACTION = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "tag:GetResources": "tag:GetResources",
}
_ACTION = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z0-9]+)")
_PERSON = re.compile(r"(?:User|user|principal):? (arn:\S+?)[\s,]")
_RESOURCE = re.compile(r"on resource:? \"?(arn:[^\s\"]+)")


class AwsProblem(Exception):
    """Something AWS refused or could not be asked, in one sentence for a person."""

    def __init__(self, message: str, code: str = "", action: str = "", of_login: bool = False) -> None:
        super().__init__(message)
        self.code = code
        """AWS's word for it, or botocore's name of the exception"""
        self.action = action
        """the IAM action that the call needed"""
        self.of_login = of_login
        """it concerns who asks or the way there, so that no other call would do better"""

    @property
    def denied(self) -> bool:
        return self.code in _DENIED


class Aws:
    """One login in one region. Clients are made once; `call` and `pages` are how everything is asked."""

    def __init__(
        self,
        region: str,
        profile: str = "",
        role_arn: str = "",
        endpoint: str = "",
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if MISSING is not None:
            raise AwsProblem(
                "Python finds no boto3: install it where Ansible runs (pip install boto3).", "Login", of_login=True
            )
        self.region = region
        self.endpoint = endpoint
        self._wait = wait
        self._clients: dict[str, Any] = {}
        try:
            self._session: Any = boto3.Session(profile_name=profile or None, region_name=region)
            self._profile = profile
            if role_arn:
                self._session = self._in_role(role_arn)
        except botocore.exceptions.BotoCoreError as error:
            raise problem(error, profile=profile) from error

    @classmethod
    def of(cls, module: AnsibleModule) -> Aws:
        """By a module's arguments (see ARGUMENTS)."""
        given = module.params
        return cls(given["region"], given.get("profile") or "", given.get("role_arn") or "")

    def regions(self) -> list[str]:
        """All that the SDK knows, in all partitions; nothing is asked."""
        partitions = self._session.get_available_partitions()
        found = [self._session.get_available_regions("ec2", partition_name=name) for name in partitions]
        return sorted(region for regions in found for region in regions)

    @property
    def partition(self) -> str:
        """What ARNs in this region begin with, after `arn:`."""
        return str(self._session.get_partition_for_region(self.region))

    def client(self, service: str) -> Any:
        """A boto3 client, for what `call` cannot do: its errors are the SDK's own."""
        if service not in self._clients:
            try:
                self._clients[service] = self._session.client(service, **self._client_options())
            except (botocore.exceptions.BotoCoreError, ValueError) as error:
                raise problem(error, service, profile=self._profile) from error
        return self._clients[service]

    def _client_options(self) -> dict[str, Any]:
        # What the person has set for the SDK counts; ours is meant for those who have not.
        settings: dict[str, Any] = {"connect_timeout": 10, "read_timeout": 60, "max_pool_connections": 32}
        if "AWS_RETRY_MODE" not in os.environ and "AWS_MAX_ATTEMPTS" not in os.environ:
            settings["retries"] = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        config = botocore.config.Config(**settings)
        return {"region_name": self.region, "endpoint_url": self.endpoint or None, "config": config}

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        """One call by its boto3 name, such as ("ec2", "describe_vpcs"). What fails in passing is tried again."""
        method = getattr(self.client(service), operation)
        answer: dict[str, Any] = self._retried(functools.partial(method, **params), service, operation)
        answer.pop("ResponseMetadata", None)
        return answer

    def _retried(self, request: Callable[[], Answer], service: str, operation: str) -> Answer:
        for attempt in range(PATIENCE):
            try:
                return request()
            except botocore.exceptions.ClientError as error:
                if attempt + 1 < PATIENCE and _passes(error):
                    self._wait(random.uniform(0, min(SLOWEST, 0.25 * 2**attempt)))
                    continue
                raise self._problem(error, service, operation) from error
            except botocore.exceptions.BotoCoreError as error:
                raise self._problem(error, service, operation) from error
        raise AssertionError("unreachable")

    def pages(self, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        """What stands under `key` in all pages of the answer. A page that is throttled is asked for again by itself."""
        found: list[Any] = []
        tokens: Mapping[str, Any] = {}
        names = _tokens(self.client(service), operation)
        while True:
            answer = self.call(service, operation, **{**params, **tokens})
            found += answer.get(key) or []
            tokens = {asked: answer[given] for given, asked in names.items() if answer.get(given)}
            if not tokens:
                return found

    def text(self, bucket: str, key: str, owner: str, most: int) -> str:
        """A file in a bucket of that account, up to so many bytes of it."""
        return self.content(bucket, key, owner, most).decode("utf-8", "replace")

    def content(self, bucket: str, key: str, owner: str = "", most: int | None = None) -> bytes:
        """A file in a bucket, which has to be that account's if one is named: all of it, or up to so many bytes."""
        owned = {"ExpectedBucketOwner": owner} if owner else {}
        answer = self.call("s3", "get_object", Bucket=bucket, Key=key, **owned)
        try:
            body: bytes = answer["Body"].read(most)
        except botocore.exceptions.BotoCoreError as error:
            raise self._problem(error, "s3", "get_object") from error
        return body

    def _in_role(self, role_arn: str) -> Any:
        """Return a session of the role. It replaces its credentials before they expire, so it outlives the hour that
        AWS gives to one set of them; with credentials that cannot renew themselves, it lasts as long as those."""
        source = self._session.get_credentials()
        if source is None:
            raise botocore.exceptions.NoCredentialsError()
        fetcher = botocore.credentials.AssumeRoleCredentialFetcher(
            client_creator=functools.partial(self._session.client, **self._client_options()),
            source_credentials=source,
            role_arn=role_arn,
            extra_args={"RoleSessionName": "deeplearning"},
        )
        session = botocore.session.Session()
        # botocore has no public way to give a session refreshable credentials.
        session._credentials = botocore.credentials.DeferredRefreshableCredentials(
            fetcher.fetch_credentials, "assume-role"
        )
        return boto3.Session(botocore_session=session, region_name=self.region)

    def _problem(self, error: Exception, service: str, operation: str) -> AwsProblem:
        # Any call may have to assume the role first.
        if getattr(error, "operation_name", "") == "AssumeRole":
            service, operation = "sts", "assume_role"
        name = self.client(service).meta.method_to_api_mapping.get(operation, operation)
        return problem(error, service, name, self._profile)


def _tokens(client: Any, operation: str) -> dict[str, str]:
    """What an answer calls its token, and what the next call takes it as; nothing where there are no pages."""
    if not client.can_paginate(operation):
        return {}
    pager = client.get_paginator(operation)._pagination_cfg
    given, asked = pager["output_token"], pager["input_token"]
    if isinstance(given, str):
        given, asked = [given], [asked]
    # Where a service has two words for it ("NextMarker || Contents[-1].Key") the first is the one.
    return {str(answer).split(" ", 1)[0]: str(param) for answer, param in zip(given, asked)}


def _passes(error: Any) -> bool:
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code in _THROTTLED or code in _PASSING or status in (500, 502, 503, 504)


def iam_action(service: str, operation: str) -> str:
    """What IAM calls the permission for a call."""
    action = f"{_IAM_PREFIX.get(service, service)}:{operation}"
    return _IAM_ACTION.get(action, action)


def problem(error: Exception, service: str = "", operation: str = "", profile: str = "") -> AwsProblem:
    """One sentence (or two: what is wrong, what to do) for whatever boto3 has raised."""
    action = iam_action(service, operation) if operation else ""
    if isinstance(error, botocore.exceptions.ClientError):
        return _of_answer(error, action, profile)
    return _of_sdk(error, service, action, profile)


def _of_answer(error: Any, action: str, profile: str) -> AwsProblem:
    answer = error.response.get("Error", {})
    code, words = str(answer.get("Code", "")), str(answer.get("Message", "")).strip()
    return refusal(code, words, action, profile, unknown=_is_unknown(error, code))


def refusal(code: str, words: str, action: str, profile: str = "", unknown: bool = False) -> AwsProblem:
    """Explain an error code of AWS. `words` is AWS's message, `action` the IAM action of the call; `unknown` says that
    AWS does not know the caller where the code alone does not."""
    if code in _DENIED:
        named = _ACTION.search(words)
        action = named[1] if named else action
        person, resource = _PERSON.search(words), _RESOURCE.search(words)
        who = person[1] if person else "these credentials"
        where = f" on {resource[1]}" if resource else ""
        return AwsProblem(
            f"AWS does not allow {action}{where} to {who}: give it this permission (see docs/iam.md).", code, action
        )
    if code == "RequestTimeTooSkewed" or _CLOCK.search(words):
        sentence = f"This machine's clock differs too much from AWS's ({code}): set it, and run the same command again."
        return AwsProblem(sentence, code, action, of_login=True)
    if code in _EXPIRED:
        # EC2 has one word for both.
        clock = ", or this machine's clock is wrong" if code == "RequestExpired" else ""
        return AwsProblem(
            f"The AWS credentials have expired{clock}: get new ones and run the same command again, it goes on from "
            "there.",
            code,
            action,
            of_login=True,
        )
    if unknown or code in _UNKNOWN_CALLER:
        source = f" of the profile {profile}" if profile else ""
        sentence = f"AWS does not accept the credentials{source} ({code}): check key, secret and this machine's clock."
        return AwsProblem(sentence, code, action, of_login=True)
    if code == "OptInRequired":
        return AwsProblem(
            f"This account may not use {action.split(':')[0]} in this region: enable the region.", code, action
        )
    if code in _THROTTLED:
        return AwsProblem(
            f"AWS kept refusing {action} as too many calls ({code}): try again in some minutes.", code, action
        )
    if code.endswith("LimitExceeded"):
        return AwsProblem(
            f"{action} failed: {words} ({code}) Delete what is not needed, or request a higher limit in Service "
            "Quotas, and run the same command again.",
            code,
            action,
        )
    return AwsProblem(
        f"{action} failed: {words or code} ({code})." if words else f"{action} failed: {code}.", code, action
    )


def _is_unknown(error: Any, code: str) -> bool:
    """Whether AWS does not know the caller, for codes that have other meanings too."""
    if code == "AuthFailure":
        return bool(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 401)
    return code == "400" and bool(error.operation_name.startswith("Head"))


def _of_sdk(error: Exception, service: str, action: str, profile: str) -> AwsProblem:
    kind = type(error).__name__
    known = botocore.exceptions
    if isinstance(error, known.ProfileNotFound):
        return AwsProblem(
            f"There is no AWS profile {profile}: `aws configure list-profiles` shows which there are.",
            "Login",
            of_login=True,
        )
    if isinstance(error, (known.NoCredentialsError, known.PartialCredentialsError)):
        source = f"the profile {profile} has none" if profile else "none were found"
        return AwsProblem(
            f"AWS credentials are missing ({source}): set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or run `aws configure`.",
            "Login",
            of_login=True,
        )
    if "SSO" in kind or isinstance(error, known.TokenRetrievalError):
        return AwsProblem(
            f"The AWS single sign-on session has ended: run `aws sso login{_option(profile)}`.", "Login", of_login=True
        )
    if isinstance(error, known.CredentialRetrievalError):
        return AwsProblem(f"The AWS credentials could not be fetched: {_words(error)}", "Login", of_login=True)
    if isinstance(error, (known.HTTPClientError, known.EndpointConnectionError, known.ConnectionError)):
        place = getattr(error, "kwargs", {}).get("endpoint_url", "")
        where = f" at {place}" if place else ""
        return AwsProblem(
            f"AWS cannot be reached{where} ({kind}): check the network, the proxy settings, the region and "
            "AWS_ENDPOINT_URL.",
            "Unreachable",
            action,
            of_login=True,
        )
    if isinstance(error, (known.InvalidRegionError, known.NoRegionError)):
        return AwsProblem(f"AWS has no such region: {_words(error)}", "Login", of_login=True)
    if isinstance(error, ValueError):
        return AwsProblem(
            f"AWS cannot be reached: {_words(error)} Check AWS_ENDPOINT_URL.", "Unreachable", of_login=True
        )
    return AwsProblem(f"{action or service or 'AWS'} failed: {_words(error)}", kind, action)


def _option(profile: str) -> str:
    return f" --profile {profile}" if profile else ""


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith((".", "!", "?")) else f"{text}."
