# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Sessions and calls of AWS: retries, pagination, and errors as one sentence."""

from __future__ import annotations

import contextlib
import copy
import datetime
import difflib
import email.utils
import functools
import itertools
import os
import random
import re
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any, Callable

try:
    import boto3
    import botocore.config
    import botocore.credentials
    import botocore.exceptions
    import botocore.session
    import botocore.utils

    MISSING: ImportError | None = None
except ImportError as _error:
    MISSING = _error

from ..contract.errors import UserError
from ..messages import place

MAX_ATTEMPTS = 10
"""Attempts of a call that AWS throttles, unless AWS_MAX_ATTEMPTS sets another number. With a third of all calls
throttled, one in 60,000 fails."""
CONNECTION_ATTEMPTS = 3
LONGEST_PAUSE = 8.0
LOGIN, UNREACHABLE = "Login", "Unreachable"
"""Codes of errors that happen before AWS answers."""

_THROTTLED = (
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "SlowDown",
    "EC2ThrottledException",
)
_TIMED_OUT = "RequestTimeout"
"""S3's only code with the status 400 for what passes. Failures of AWS itself have a status from 500 on."""
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized", "403")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired")
_UNKNOWN_CALLER = (
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
"""Each service has its own code for a key that it does not know. Two codes have other meanings too (see `_is_unknown`):
EC2's AuthFailure also refuses resources of other accounts, and S3 answers HEAD with the number 400 alone."""
_CLOCK = re.compile(r"Signature (expired|not yet current)", re.IGNORECASE)
_CLOCK_CODES = ("RequestExpired", *_UNKNOWN_CALLER)
"""Codes that services also have for a request whose time is wrong. The answer's time tells which it is."""
MOST_SECONDS_APART = 240.0
"""AWS accepts requests of up to five minutes before or after its own time, and some services of up to 15 minutes."""

_IAM_PREFIX = {
    "efs": "elasticfilesystem",
    "emr": "elasticmapreduce",
    "service-quotas": "servicequotas",
}
"""IAM prefixes that differ from boto3's names of the services."""
_IAM_ACTION = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
}
_ACTION = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z0-9]+)")
_PRINCIPAL = re.compile(r"(?:User|user|principal):? (arn:\S+?)[\s,]")
_LIMIT = re.compile(
    r"with an explicit deny(?: in an? [\w -]+ policy(?:: arn:[^\s,]*[^\s,.])?)?"
    r"|because no (?!identity-based|resource-based)[\w -]+ allows the \S+ action"
)
"""Policies that limit what the caller's own policy allows: those of the organization, permissions boundaries, session
policies, VPC endpoints. https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html"""
_RESOURCE = re.compile(r"on resource:? \"?(arn:[^\s\"]+)")


_CREATION = threading.Lock()
"""Threads share a session, which creates one client at a time."""


class AwsError(UserError):
    """A call that AWS refused, or that failed before it reached AWS."""

    def __init__(self, message: str, code: str = "", action: str = "", is_fatal: bool = False, words: str = "") -> None:
        super().__init__(message)
        self.code = code
        """AWS's error code, or botocore's name of the exception."""
        self.action = action
        """The IAM action that the call needed."""
        self.is_fatal = is_fatal
        """It is about the credentials or the connection, so no other call would succeed."""
        self.words = words
        """AWS's own message, which is data. The message for people may leave it out."""

    @property
    def denied(self) -> bool:
        return is_denial(self.code)


def is_denial(code: str) -> bool:
    """Return whether AWS's error code means that the caller lacks permission for the call."""
    return code in _DENIED


def _parse_time(value: Any) -> datetime.datetime:
    """Do what botocore's parser does. It guesses the format, which takes a sixth of the time of a large inventory."""
    with contextlib.suppress(TypeError, ValueError):
        parsed = datetime.datetime.fromisoformat(value)
        if parsed.tzinfo:
            return parsed
    return botocore.utils.parse_timestamp(value)  # type: ignore[no-any-return]


def _session(session: Any, region: str) -> Any:
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_time)
    return boto3.Session(botocore_session=session, region_name=region)


class Aws:
    """A session in one region. Use `call` and `pages` for all requests."""

    def __init__(
        self,
        region: str,
        profile: str = "",
        role_arn: str = "",
        endpoint: str = "",
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if MISSING is not None:
            raise AwsError(
                "Python cannot import boto3: install it where Ansible runs (pip install boto3).", LOGIN, is_fatal=True
            )
        self.region = region
        self.endpoint = endpoint
        self._wait = wait
        self._clients: dict[str, Any] = {}
        try:
            self._session = _session(botocore.session.Session(profile=profile or None), region)
            self._profile = profile
            if role_arn:
                self._session = self._in_role(role_arn)
        except botocore.exceptions.BotoCoreError as error:
            raise problem(error, profile=profile) from error

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Aws:
        """Return the session of a module's options."""
        return cls(options["region"], options["profile"], options["role_arn"])

    def in_region(self, region: str) -> Aws:
        """Return this session in another region."""
        other = copy.copy(self)
        other.region, other._clients = region, {}
        return other

    def regions(self) -> list[str]:
        """Return all regions that the SDK knows, in all partitions, without a call."""
        partitions = self._session.get_available_partitions()
        return sorted(
            region
            for partition in partitions
            for region in self._session.get_available_regions("ec2", partition_name=partition)
        )

    def regions_like_this(self) -> list[str]:
        """Return up to three existing regions whose names are like that of this one."""
        return difflib.get_close_matches(self.region, self.regions(), 3, 0.6)

    @functools.cached_property
    def account(self) -> str:
        return str(self.call("sts", "get_caller_identity")["Account"])

    @property
    def place(self) -> str:
        """Return the region and the account, as messages name them."""
        return place(self.region, self.account)

    @property
    def partition(self) -> str:
        """Return the part of this region's ARNs after `arn:`."""
        return str(self._session.get_partition_for_region(self.region))

    def client(self, service: str) -> Any:
        """Return the boto3 client that `call` uses. It does not retry, and raises the SDK's own errors."""
        if service not in self._clients:
            with _CREATION:
                self._clients[service] = self._new_client(service, attempts=1)
        return self._clients[service]

    def retrying_client(self, service: str) -> Any:
        """Return a boto3 client for what `call` cannot do, such as transfers. It raises the SDK's own errors."""
        return self._new_client(service, attempts=max_attempts())

    def _new_client(self, service: str, attempts: int) -> Any:
        try:
            return self._session.client(service, **self._client_options(attempts))
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise problem(error, service, profile=self._profile) from error

    def _client_options(self, attempts: int) -> dict[str, Any]:
        config = botocore.config.Config(
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=32,
            retries={"mode": "standard", "total_max_attempts": attempts},
            # CloudTrail shows it beside each call.
            user_agent_extra="deeplearning.aws",
        )
        return {"region_name": self.region, "endpoint_url": self.endpoint or None, "config": config}

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        """Make one call by its boto3 name, such as ("ec2", "describe_vpcs"), and retry transient failures."""
        answer = self.whole_answer(service, operation, **params)
        answer.pop("ResponseMetadata", None)
        return answer

    def whole_answer(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        """Make one call as `call` does, and return its answer with ResponseMetadata, which has the HTTP headers."""
        method = getattr(self.client(service), operation)
        for attempt in itertools.count(1):
            try:
                answer: dict[str, Any] = method(**params)
                return answer
            except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
                if attempt >= _attempts_for(error):
                    raise self._problem(error, service, operation) from error
            self._wait(random.uniform(0, min(LONGEST_PAUSE, 0.125 * 2**attempt)))
        raise AssertionError("unreachable")

    def find(self, service: str, operation: str, missing: Collection[str], **params: Any) -> dict[str, Any]:
        """Return the answer of a call, or an empty one for an error code in `missing`."""
        try:
            return self.call(service, operation, **params)
        except AwsError as error:
            if error.code in missing:
                return {}
            raise

    def pages(self, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        """Return the items under `key` of all pages. Each page is retried on its own."""
        items: list[Any] = []
        tokens: Mapping[str, Any] = {}
        names = _tokens(self.client(service), operation)
        while True:
            answer = self.call(service, operation, **{**params, **tokens})
            items += answer.get(key) or []
            tokens = {param: answer[token] for token, param in names.items() if answer.get(token)}
            if not tokens:
                return items

    def instances(self, **params: Any) -> list[dict[str, Any]]:
        """Return the instances of DescribeInstances."""
        reservations = self.pages("ec2", "describe_instances", "Reservations", **params)
        return [instance for reservation in reservations for instance in reservation["Instances"]]

    def content(self, bucket: str, key: str, owner: str = "", most: int | None = None) -> bytes:
        """Return an object, up to `most` bytes. With `owner`, the bucket must be that account's."""
        owned = {"ExpectedBucketOwner": owner} if owner else {}
        return self.body(self.call("s3", "get_object", Bucket=bucket, Key=key, **owned), most)

    def body(self, answer: Mapping[str, Any], most: int | None = None) -> bytes:
        """Return the object in an answer of GetObject, up to `most` bytes."""
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
            client_creator=functools.partial(self._session.client, **self._client_options(max_attempts())),
            source_credentials=source,
            role_arn=role_arn,
            extra_args={"RoleSessionName": "deeplearning"},
        )
        session = botocore.session.Session()
        # botocore has no public way to give a session refreshable credentials.
        session._credentials = botocore.credentials.DeferredRefreshableCredentials(
            fetcher.fetch_credentials, "assume-role"
        )
        return _session(session, self.region)

    def _problem(self, error: Exception, service: str, operation: str) -> AwsError:
        # Any call may have to assume the role first.
        if getattr(error, "operation_name", "") == "AssumeRole":
            service, operation = "sts", "assume_role"
        name = self.client(service).meta.method_to_api_mapping.get(operation, operation)
        explained = problem(error, service, name, self._profile)
        unknown_region = self._unknown_region() if explained.code == UNREACHABLE else ""
        if unknown_region:
            return AwsError(unknown_region, UNREACHABLE, explained.action, is_fatal=True)
        return explained

    def _unknown_region(self) -> str:
        """Return a sentence if AWS cannot be reached because the region does not exist; else an empty text."""
        has_endpoint = bool(self.endpoint) or any(name.startswith("AWS_ENDPOINT_URL") for name in os.environ)
        if has_endpoint or self.region in self.regions():
            return ""
        near = self.regions_like_this()
        hint = f"Did you mean {' or '.join(near)}? Example: -e cluster_region={near[0]}" if near else "Check its name."
        return (
            f"AWS has no region {self.region}, as far as the SDK on this machine (boto3 {boto3.__version__}) knows, "
            f"and no server answers for it. {hint}"
        )


def _tokens(client: Any, operation: str) -> dict[str, str]:
    """Return the params of the next page's call by the keys of the answer; none if the call has no pages."""
    if not client.can_paginate(operation):
        # botocore knows no pages of some calls that have them, such as EMR's list_release_labels.
        model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation])
        members = [shape.members if shape else {} for shape in (model.input_shape, model.output_shape)]
        return {token: token for token in ("NextToken", "Marker") if all(token in names for names in members)}
    pager = client.get_paginator(operation)._pagination_cfg
    keys, params = pager["output_token"], pager["input_token"]
    if isinstance(keys, str):
        keys, params = [keys], [params]
    # Of two keys ("NextMarker || Contents[-1].Key") the first one is the token.
    return {str(key).split(" ", 1)[0]: str(param) for key, param in zip(keys, params)}


def max_attempts() -> int:
    """Return how often a call is attempted in all. AWS_MAX_ATTEMPTS is the SDK's own variable."""
    attempts = os.environ.get("AWS_MAX_ATTEMPTS", "")
    return max(1, int(attempts)) if attempts.isdecimal() else MAX_ATTEMPTS


def _attempts_for(error: Exception) -> int:
    """Return how often to attempt a call that fails like this."""
    if isinstance(error, botocore.exceptions.ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        is_transient = code in _THROTTLED or code == _TIMED_OUT or status in (500, 502, 503, 504)
        return max_attempts() if is_transient else 1
    connection_errors = (botocore.exceptions.ConnectionError, botocore.exceptions.HTTPClientError)
    return min(CONNECTION_ATTEMPTS, max_attempts()) if isinstance(error, connection_errors) else 1


def iam_action(service: str, operation: str) -> str:
    """Return the IAM action of a call."""
    action = f"{_IAM_PREFIX.get(service, service)}:{operation}"
    return _IAM_ACTION.get(action, action)


def problem(error: Exception, service: str = "", operation: str = "", profile: str = "") -> AwsError:
    """Return an exception of boto3 as a sentence or two: what is wrong, what to do."""
    action = iam_action(service, operation) if operation else ""
    if isinstance(error, botocore.exceptions.ClientError):
        answer = error.response.get("Error", {})
        code, words = str(answer.get("Code", "")), str(answer.get("Message", "")).strip()
        unknown = _is_unknown(error, code)
        has_wrong_time = (unknown or code in _CLOCK_CODES) and _has_wrong_clock(error)
        return refusal(code, words, action, profile, unknown, has_wrong_time)
    code, sentence = _explain_sdk(error, service, action, profile)
    return AwsError(sentence, code, action, is_fatal=code in (LOGIN, UNREACHABLE))


def refusal(
    code: str, words: str, action: str, profile: str = "", unknown: bool = False, has_wrong_clock: bool = False
) -> AwsError:
    """Explain an error code of AWS. `words` is AWS's message, `action` the IAM action of the call; `unknown` is true if
    AWS does not know the caller although the code has other meanings too; `has_wrong_clock` if the time of AWS's answer
    shows that the reason is this machine's clock."""
    fatal = _explain_caller(code, words, profile, unknown, has_wrong_clock)
    if fatal:
        return AwsError(fatal, code, action, is_fatal=True, words=words)
    named = _ACTION.search(words) if code in _DENIED else None
    action = named[1] if named else action
    return AwsError(_explain_refusal(code, words, action), code, action, words=words)


def _explain_caller(code: str, words: str, profile: str, unknown: bool, has_wrong_clock: bool) -> str:
    """Return what is wrong with the credentials or the clock, or an empty text if that is not the problem."""
    if has_wrong_clock or code == "RequestTimeTooSkewed" or _CLOCK.search(words):
        return (
            f"This machine's clock differs too much from AWS's ({code}): set the clock, and run the same command again."
        )
    if code in _EXPIRED:
        # EC2 has one code for both.
        clock = ", or this machine's clock is wrong" if code == "RequestExpired" else ""
        return f"The AWS credentials have expired{clock}: get new ones and run the same command again to resume it."
    if unknown or code in _UNKNOWN_CALLER:
        source = f" of the profile {profile}" if profile else ""
        return f"AWS does not accept the credentials{source} ({code}): check key, secret and this machine's clock."
    return ""


def limit_in(words: str) -> str:
    """Return what AWS's message, or ours, says about a policy that limits the caller's own; empty if nothing."""
    match = _LIMIT.search(words)
    return match[0] if match else ""


def _explain_refusal(code: str, words: str, action: str) -> str:
    if code in _DENIED:
        principal, resource = _PRINCIPAL.search(words), _RESOURCE.search(words)
        who = principal[1] if principal else "these credentials"
        where = f" on {resource[1]}" if resource else ""
        limit = limit_in(words)
        if limit:
            return (
                f"AWS does not allow {action}{where} to {who}, {limit}: a permission of its own does not help. Ask "
                "the administrators of this policy."
            )
        return f"AWS does not allow {action}{where} to {who}: give it this permission (see docs/iam.md)."
    if code == "OptInRequired":
        return f"This account may not use {action.split(':')[0]} in this region: enable the region."
    if code in _THROTTLED:
        return f"AWS still throttles {action} after all retries ({code}): try again in some minutes."
    if code.endswith("LimitExceeded"):
        return (
            f"{action} failed: {words} ({code}) Delete what is not needed, or request a higher limit in Service "
            "Quotas, and run the same command again."
        )
    return f"{action} failed: {words} ({code})." if words else f"{action} failed: {code}."


def _has_wrong_clock(error: Any) -> bool:
    """Return whether this machine's time differs from that of AWS's answer by more than AWS accepts."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders") or {}
    try:
        answered = email.utils.parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return False
    return abs(time.time() - answered) > MOST_SECONDS_APART


def _is_unknown(error: Any, code: str) -> bool:
    """Return whether AWS does not know the caller, for codes that have other meanings too."""
    if code == "AuthFailure":
        return bool(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 401)
    return code == "400" and bool(error.operation_name.startswith("Head"))


def _explain_sdk(error: Exception, service: str, action: str, profile: str) -> tuple[str, str]:
    """Return a code and a sentence for an error of the SDK itself."""
    kind, known = type(error).__name__, botocore.exceptions
    if isinstance(error, known.ProfileNotFound):
        return LOGIN, f"There is no AWS profile {profile}: `aws configure list-profiles` lists the existing ones."
    if isinstance(error, (known.NoCredentialsError, known.PartialCredentialsError)):
        source = f"the profile {profile} has none" if profile else "none were found"
        return LOGIN, (
            f"AWS credentials are missing ({source}): set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or run `aws configure`."
        )
    if "SSO" in kind or isinstance(error, known.TokenRetrievalError):
        option = f" --profile {profile}" if profile else ""
        return LOGIN, f"The AWS single sign-on session has ended: run `aws sso login{option}`."
    if isinstance(error, known.CredentialRetrievalError):
        return LOGIN, f"The AWS credentials could not be fetched: {_words(error)}"
    if isinstance(error, (known.HTTPClientError, known.EndpointConnectionError, known.ConnectionError)):
        endpoint = getattr(error, "kwargs", {}).get("endpoint_url", "")
        where = f" at {endpoint}" if endpoint else ""
        return UNREACHABLE, (
            f"AWS cannot be reached{where} ({kind}): check the network, the proxy settings, the region and "
            "AWS_ENDPOINT_URL."
        )
    if isinstance(error, (known.InvalidRegionError, known.NoRegionError)):
        return LOGIN, f"AWS has no such region: {_words(error)}"
    if isinstance(error, ValueError):
        return UNREACHABLE, f"AWS cannot be reached: {_words(error)} Check AWS_ENDPOINT_URL."
    return kind, f"{action or service or 'AWS'} failed: {_words(error)}"


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith((".", "!", "?")) else f"{text}."
