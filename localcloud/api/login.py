"""How each service words a refused login: a key that it does not know, a session that has ended, a wrong clock.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from localcloud.core.errors import AwsError
from localcloud.core.settings import DATA

_WORDINGS: Mapping[str, Mapping[str, tuple[str, int, str]]] = json.loads(
    (DATA / "logins.json").read_text(encoding="utf-8")
)
"""by wording and our own code: code, HTTP status and message of the service; an empty message is our own"""


def worded(wording: str, refusal: AwsError) -> AwsError:
    """Return a refusal of `check_signature` or `resolve` as a service words it."""
    code, status, message = _WORDINGS[wording].get(refusal.code, (refusal.code, refusal.status, ""))
    return AwsError(code, message or refusal.message, status)
