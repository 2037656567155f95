"""Who calls: access keys, their secrets, and the signatures made with them."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from moto.backends import get_backend

from localcloud.clock import Clock
from localcloud.errors import AwsError
from localcloud.settings import ACCOUNT

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<key>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request,\s*"
    r"SignedHeaders=(?P<headers>[^,]+),\s*Signature=(?P<signature>[0-9a-f]{64})$"
)


@dataclass(frozen=True)
class Caller:
    """A principal. `name` is the user's or the role's; a service of AWS calls as itself and may do everything."""

    kind: str
    """user, role, service"""
    name: str
    arn: str
    userid: str
    tags: Mapping[str, str] = field(default_factory=dict)
    role_arn: str | None = None
    """with its path, for a role"""


def service_caller(name: str) -> Caller:
    """One of AWS's own services, such as autoscaling.amazonaws.com."""
    return Caller("service", name, name, name)


@dataclass
class Session:
    """Temporary credentials of a role."""

    access_key: str
    secret: str
    token: str
    role: str
    name: str
    issued: float
    expires: float

    @property
    def expiration(self) -> str:
        return datetime.fromtimestamp(self.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Credentials:
    """Sessions of roles are kept here; users and their keys are in moto's IAM."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def issue(self, role: str, name: str, seconds: float) -> Session:
        """New temporary credentials for a role, in a session of that name."""
        now = self._clock.time()
        self._sessions = {key: old for key, old in self._sessions.items() if old.expires > now - 3600}
        session = Session(
            access_key="ASIA" + "".join(secrets.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(16)),
            secret=secrets.token_urlsafe(30),
            token=secrets.token_urlsafe(200),
            role=role,
            name=name,
            issued=now,
            expires=now + seconds,
        )
        self._sessions[session.access_key] = session
        return session

    def for_instance(self, role: str, name: str, seconds: float) -> Session:
        """The newest credentials of an instance: the same each time it asks, until they have little time left."""
        now = self._clock.time()
        held = [session for session in self._sessions.values() if (session.role, session.name) == (role, name)]
        newest = max(held, key=lambda session: session.issued, default=None)
        if newest is not None and (
            newest.expires - now > seconds / 6 or newest.expires <= now < newest.issued + seconds
        ):
            return newest
        return self.issue(role, name, seconds)

    def expire(self, name: str) -> int:
        """End all sessions of that name (an instance's are named by its id), or of that role, now; says how many."""
        now = self._clock.time()
        found = [
            session
            for session in self._sessions.values()
            if name in (session.name, session.role) and session.expires > now
        ]
        for session in found:
            session.expires = now
        return len(found)

    def renew(self, name: str) -> None:
        """Forget what was made to expire: whoever asks for credentials gets new ones."""
        now = self._clock.time()
        kept = {
            key: held
            for key, held in self._sessions.items()
            if name not in (held.name, held.role) or held.expires > now
        }
        self._sessions = kept

    def resolve(self, access_key: str, token: str | None) -> tuple[Caller, str]:
        """The caller behind an access key, and the key's secret."""
        session = self._sessions.get(access_key)
        if session is not None:
            if not hmac.compare_digest(token or "", session.token):
                raise AwsError("InvalidClientTokenId", "The security token included in the request is invalid.", 403)
            if session.expires <= self._clock.time():
                raise AwsError("ExpiredToken", "The security token included in the request is expired", 403)
            return _role_caller(session), session.secret
        for user in get_backend("iam")[ACCOUNT]["aws"].users.values():
            for key in user.access_keys:
                if key.access_key_id == access_key:
                    if key.status != "Active":
                        break
                    tags = get_backend("iam")[ACCOUNT]["aws"].tagger.get_tag_dict_for_resource(user.arn)
                    return Caller("user", user.name, user.arn, user.id, tags), key.secret_access_key
        raise AwsError("InvalidClientTokenId", "The security token included in the request is invalid.", 403)


def _role_caller(session: Session) -> Caller:
    backend = get_backend("iam")[ACCOUNT]["aws"]
    role = next((role for role in backend.roles.values() if role.name == session.role), None)
    if role is None:
        raise AwsError("InvalidClientTokenId", "The security token included in the request is invalid.", 403)
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/{session.role}/{session.name}"
    tags = {tag["Key"]: tag["Value"] for tag in role.tags or []}
    return Caller("role", session.role, arn, f"{role.id}:{session.name}", tags, role.arn)


@dataclass(frozen=True)
class Signature:
    """What a request says of who signed it, and for what."""

    access_key: str
    region: str
    signing_name: str
    signed_headers: tuple[str, ...]
    value: str
    token: str | None
    timestamp: str
    presigned: bool
    expires: float | None = None


def read_signature(headers: Mapping[str, str], query: str) -> Signature | None:
    """The signature of a request (headers by lower-case name), or None where it bears none that can be read."""
    match = _AUTHORIZATION.match(headers.get("authorization", ""))
    if match:
        return Signature(
            access_key=match["key"],
            region=match["region"],
            signing_name=match["service"],
            signed_headers=tuple(match["headers"].split(";")),
            value=match["signature"],
            token=headers.get("x-amz-security-token"),
            timestamp=headers.get("x-amz-date", ""),
            presigned=False,
        )
    values = dict(parse_qsl(query, keep_blank_values=True))
    scope = values.get("X-Amz-Credential", "").split("/")
    if values.get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256" or len(scope) != 5:
        return None
    expires = values.get("X-Amz-Expires", "")
    return Signature(
        access_key=scope[0],
        region=scope[2],
        signing_name=scope[3],
        signed_headers=tuple(values.get("X-Amz-SignedHeaders", "").split(";")),
        value=values.get("X-Amz-Signature", ""),
        token=values.get("X-Amz-Security-Token"),
        timestamp=values.get("X-Amz-Date", ""),
        presigned=True,
        expires=float(expires) if expires.isdecimal() else 0.0,
    )


def check_signature(
    signature: Signature, secret: str, method: str, url: str, headers: Mapping[str, str], body: bytes, now: float
) -> None:
    """Sign the request again, with the secret that we know, and compare."""
    kind = S3SigV4Auth if signature.signing_name == "s3" else SigV4Auth
    signer = kind(BotoCredentials("unused", secret), signature.signing_name, signature.region)
    if signature.presigned:
        path, _, query = url.partition("?")
        url = path + "?" + "&".join(part for part in query.split("&") if not part.startswith("X-Amz-Signature="))
    request = AWSRequest(method=method, url=url)
    for name in signature.signed_headers:
        if name not in ("host",):
            request.headers[name] = headers.get(name, "")
    request.headers["host"] = headers.get("host", "")
    default = "UNSIGNED-PAYLOAD" if signature.presigned else hashlib.sha256(body).hexdigest()
    payload = headers.get("x-amz-content-sha256", default)
    if re.fullmatch(r"[0-9a-f]{64}", payload) and payload != hashlib.sha256(body).hexdigest():
        raise AwsError(
            "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed."
        )
    signer.payload = lambda _request: payload
    signer.headers_to_sign = lambda _request: _headers_of(request, signature.signed_headers)
    request.context["timestamp"] = signature.timestamp
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    if not hmac.compare_digest(expected, signature.value):
        raise AwsError(
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided. "
            "Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
            403,
        )
    _check_time(signature, now)


def _headers_of(request: AWSRequest, names: tuple[str, ...]) -> object:
    from botocore.compat import HTTPHeaders

    chosen = HTTPHeaders()
    for name in names:
        chosen[name] = request.headers[name]
    return chosen


def _check_time(signature: Signature, now: float) -> None:
    try:
        signed = datetime.strptime(signature.timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise AwsError("IncompleteSignature", "Date must be in ISO-8601 'basic format'.", 403) from error
    if signature.expires is not None and now > signed + signature.expires:
        raise AwsError("AccessDenied", "Request has expired", 403)
    if signature.expires is None and abs(now - signed) > 900:
        raise AwsError(
            "RequestExpired", f"Signature expired: {signature.timestamp} is not within 15 minutes of now.", 403
        )
