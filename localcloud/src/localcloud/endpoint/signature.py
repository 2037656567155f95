"""Signatures of requests: AWS's version 4, in headers and in presigned URLs."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials as BotoCredentials

from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error, sentence

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<key>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request,\s*"
    r"SignedHeaders=(?P<headers>[^,]+),\s*Signature=(?P<signature>[0-9a-f]{64})$"
)
_TIME = "%Y%m%dT%H%M%SZ"
_MINUTES = 15
"""The longest time between a signature and its request."""


@dataclass(frozen=True)
class Signature:
    """The signer of a request and the scope of its signature."""

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
    """Return the signature of a request, or None without a valid one. The names of headers are in lower case."""
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
    signature: Signature, secret: str, method: str, url: str, headers: Mapping[str, str], digest: str, now: float
) -> None:
    """Sign the request again with the known secret, and compare. `digest` is the SHA-256 of the body."""
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
    default = "UNSIGNED-PAYLOAD" if signature.presigned else digest
    payload = headers.get("x-amz-content-sha256", default)
    if re.fullmatch(r"[0-9a-f]{64}", payload) and payload != digest:
        raise AwsError(
            "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed."
        )
    signer.payload = lambda _request: payload
    signer.headers_to_sign = lambda _request: _headers_of(request, signature.signed_headers)
    request.context["timestamp"] = signature.timestamp
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    if not hmac.compare_digest(expected, signature.value):
        raise aws_error("sts:*", "SignatureDoesNotMatch")
    _check_time(signature, now)


def _headers_of(request: AWSRequest, names: tuple[str, ...]) -> object:
    chosen = HTTPHeaders()
    for name in names:
        chosen[name] = request.headers[name]
    return chosen


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(_TIME)


def _check_time(signature: Signature, now: float) -> None:
    try:
        signed = datetime.strptime(signature.timestamp, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise aws_error("sts:*", "IncompleteSignature") from error
    if signature.expires is not None and now > signed + signature.expires:
        raise AwsError("AccessDenied", "Request has expired", 403)
    if signature.expires is None and abs(now - signed) > _MINUTES * 60:
        part, limit = ("earlier", now - _MINUTES * 60) if signed < now else ("later", now + _MINUTES * 60)
        values = {"date": signature.timestamp, "limit": _stamp(limit), "now": _stamp(now), "minutes": _MINUTES}
        raise AwsError("RequestExpired", sentence("sts:*", "SignatureDoesNotMatch", part, **values), 403)
