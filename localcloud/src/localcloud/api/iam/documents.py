"""Policy documents on their way in and out of IAM's API: checked, and encoded as it does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from localcloud.api.iam.history import backend
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT
from localcloud.iam.conditions import MalformedPolicy
from localcloud.iam.policy import Kind, parse_policy

_DOCUMENTS = ("AssumeRolePolicyDocument", "Document", "PolicyDocument")
_PRINCIPAL = re.compile(
    r"\*|\d{12}|arn:aws:(?:iam|sts)::(\d{12}):(root|(?:user|role|assumed-role)/\S+)|A[A-Z]{3}\w+",
)


def encoded(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer in IAM's encoding: documents as percent-encoded JSON (boto3 decodes them)."""
    return {
        key: quote(json.dumps(value)) if key in _DOCUMENTS and isinstance(value, Mapping) else _encoded(value)
        for key, value in answer.items()
    }


def _encoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    return encoded(value) if isinstance(value, Mapping) else value


def check_document(document: str, kind: Kind = "identity", code: str = "MalformedPolicyDocument") -> None:
    """Validate a policy document. Its principals in this account must exist, as on AWS."""
    try:
        parse_policy(document, kind=kind)
    except MalformedPolicy as error:
        raise AwsError(code, str(error), 400) from error
    existing = {record.arn for kind in ("users", "roles") for record in getattr(backend(), kind).values()}
    for statement in statements(document):
        for name in _principals(statement):
            match = _PRINCIPAL.fullmatch(name)
            ours = match and match[1] == ACCOUNT and match[2].startswith(("user/", "role/"))
            if not match or (ours and name not in existing):
                raise AwsError(code, f'Invalid principal in policy: "AWS":"{name}"', 400)


def statements(document: str) -> list[dict[str, Any]]:
    result = json.loads(document)["Statement"]
    return result if isinstance(result, list) else [result]


def is_public(document: str) -> bool:
    """Everybody is allowed something, on no condition."""
    return any(
        statement.get("Effect") == "Allow"
        and not statement.get("Condition")
        and (statement.get("Principal") == "*" or "*" in _principals(statement))
        for statement in statements(document)
    )


def _principals(statement: Mapping[str, Any]) -> list[str]:
    principal = statement.get("Principal", {})
    named = principal.get("AWS", []) if isinstance(principal, Mapping) else []
    return [named] if isinstance(named, str) else named


def size(document: str) -> int:
    """Characters that count against a quota: white space does not."""
    return len(re.sub(r"\s", "", document))
