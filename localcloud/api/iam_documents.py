"""Policy documents on their way in and out of IAM's API: checked, and encoded as it does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from localcloud.errors import AwsError
from localcloud.iam.conditions import MalformedPolicy
from localcloud.iam.policy import Kind, parse_policy
from localcloud.settings import ACCOUNT

_DOCUMENTS = ("AssumeRolePolicyDocument", "Document", "PolicyDocument")
_PRINCIPAL = re.compile(
    r"\*|\d{12}|arn:aws:(?:iam|sts)::(\d{12}):(root|(?:user|role|assumed-role)/\S+)|A[A-Z]{3}\w+",
)


def encoded(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as IAM sends it: documents as percent-encoded JSON (boto3 has decoded them)."""
    return {
        key: quote(json.dumps(value)) if key in _DOCUMENTS and isinstance(value, Mapping) else _encoded(value)
        for key, value in answer.items()
    }


def _encoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    return encoded(value) if isinstance(value, Mapping) else value


def check_document(document: str, kind: Kind = "identity") -> None:
    try:
        parse_policy(document, kind=kind)
    except MalformedPolicy as error:
        raise AwsError("MalformedPolicyDocument", str(error), 400) from error


def check_trust(document: str, known_arns: set[str]) -> None:
    """Those whom a role trusts must exist when it says so, if they are of this account."""
    check_document(document, "trust")
    statements = json.loads(document)["Statement"]
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal", {})
        named = principal.get("AWS", []) if isinstance(principal, Mapping) else []
        for name in [named] if isinstance(named, str) else named:
            match = _PRINCIPAL.fullmatch(name)
            ours = match and match[1] == ACCOUNT and match[2].startswith(("user/", "role/"))
            if not match or (ours and name not in known_arns):
                raise AwsError("MalformedPolicyDocument", f'Invalid principal in policy: "AWS":"{name}"', 400)


def size(document: str) -> int:
    """Characters that count against a quota: white space does not."""
    return len(re.sub(r"\s", "", document))
