"""How each service words a refused login: a key that it does not know, a session that has ended, a wrong clock.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

from collections.abc import Mapping

from localcloud.core.errors import AwsError

Wording = Mapping[str, tuple[str, int, str]]
"""by our own code: the service's code, the HTTP status, and the message, which is our own where it is empty"""

QUERY: Wording = {
    "InvalidToken": ("InvalidClientTokenId", 403, ""),
    "RequestExpired": ("SignatureDoesNotMatch", 403, ""),
}
_UNKNOWN_TO_EC2 = ("AuthFailure", 401, "AWS was not able to validate the provided access credentials")
_EXPIRED_IN_EC2 = ("RequestExpired", 400, "Request has expired.")
EC2: Wording = {
    "InvalidClientTokenId": _UNKNOWN_TO_EC2,
    "InvalidToken": _UNKNOWN_TO_EC2,
    "SignatureDoesNotMatch": _UNKNOWN_TO_EC2,
    "ExpiredToken": _EXPIRED_IN_EC2,
    "RequestExpired": _EXPIRED_IN_EC2,
}
S3: Wording = {
    "InvalidClientTokenId": (
        "InvalidAccessKeyId",
        403,
        "The AWS Access Key Id you provided does not exist in our records.",
    ),
    "InvalidToken": ("InvalidToken", 400, "The provided token is malformed or otherwise invalid."),
    "ExpiredToken": ("ExpiredToken", 400, "The provided token has expired."),
    "RequestExpired": (
        "RequestTimeTooSkewed",
        403,
        "The difference between the request time and the current time is too large.",
    ),
}


def json(status: int) -> Wording:
    return {
        "InvalidClientTokenId": ("UnrecognizedClientException", status, ""),
        "InvalidToken": ("UnrecognizedClientException", status, ""),
        "ExpiredToken": ("ExpiredTokenException", status, ""),
        "SignatureDoesNotMatch": ("InvalidSignatureException", status, ""),
        "RequestExpired": ("InvalidSignatureException", status, ""),
    }


def worded(wording: Wording, refusal: AwsError) -> AwsError:
    """Return a refusal of `check_signature` or `resolve` as a service words it."""
    code, status, message = wording.get(refusal.code, (refusal.code, refusal.status, ""))
    return AwsError(code, message or refusal.message, status)
