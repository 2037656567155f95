# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A bucket that is nobody else's business: what to make of what exists.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._launch import same
from ansible_collections.deeplearning.aws.plugins.module_utils._names import tag_list, tags_of
from ansible_collections.deeplearning.aws.plugins.module_utils._waiting import until

if TYPE_CHECKING:
    from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws

_HOME = "us-east-1"
"""Where S3 wants no place to be named."""
_SEEN_SECONDS = 60
"""What was just made is not known everywhere at once."""
_TLS_SID = "DenyWithoutTls"


@dataclass(frozen=True)
class Aspect:
    name: str
    """as S3 calls it, in what it answers and in what it takes"""
    operation: str
    unset: str
    """S3's word where there is none"""
    wanted: Mapping[str, Any]


ASPECTS = (
    Aspect(
        "ServerSideEncryptionConfiguration",
        "bucket_encryption",
        "ServerSideEncryptionConfigurationNotFoundError",
        {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]},
    ),
    Aspect(
        "PublicAccessBlockConfiguration",
        "public_access_block",
        "NoSuchPublicAccessBlockConfiguration",
        dict.fromkeys(("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True),
    ),
    Aspect(
        "OwnershipControls",
        "bucket_ownership_controls",
        "OwnershipControlsNotFoundError",
        {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
    ),
)


class Bucket:
    """Encrypted, with all public access blocked and without access lists: AWS makes it so by itself, and what somebody
    has changed is put right. Its policy refuses requests without TLS. It must belong to `account`: its name can be
    foreseen, and somebody else may have taken it."""

    def __init__(self, aws: Aws, name: str, account: str, check: bool = False) -> None:
        self._aws = aws
        self._name = name
        self._account = account
        self._check = check
        self.changed = False
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}

    def present(self, tags: Mapping[str, str]) -> None:
        if not self._exists():
            self._create()
            if self._check:
                self.after = {aspect.name: dict(aspect.wanted) for aspect in ASPECTS}
                self.after |= {"policy": [self._tls_statement()], "tags": dict(tags)}
                return
        for aspect in ASPECTS:
            self._see_to(aspect)
        self._require_tls()
        self._see_to_tags(tags)

    def _exists(self) -> bool:
        try:
            self._call("head_bucket")
        except AwsProblem as problem:
            if problem.code in ("404", "NoSuchBucket", "NotFound"):
                return False
            if problem.denied:
                raise AwsProblem(
                    f"The bucket {self._name} is somebody else's, or s3:ListBucket on it is not allowed: take another "
                    "name for the cluster, or ask for this permission.",
                    problem.code,
                    problem.action,
                ) from problem
            raise
        return True

    def _create(self) -> None:
        place = {} if self._aws.region == _HOME else {"LocationConstraint": self._aws.region}
        given = {"CreateBucketConfiguration": place} if place else {}
        self.changed = True
        if self._check:
            return
        # The one call that cannot name the owner: S3 refuses a name that anybody has.
        self._aws.call("s3", "create_bucket", Bucket=self._name, ObjectOwnership="BucketOwnerEnforced", **given)
        if until(lambda: self._exists() or None, _SEEN_SECONDS) is None:
            raise AwsProblem(
                f"The bucket {self._name} cannot be seen {_SEEN_SECONDS} s after it was made: run it again."
            )

    def _change(self, operation: str, **params: Any) -> None:
        self.changed = True
        if not self._check:
            self._call(operation, **params)

    def _call(self, operation: str, **params: Any) -> dict[str, Any]:
        return self._aws.call("s3", operation, Bucket=self._name, ExpectedBucketOwner=self._account, **params)

    def _asked(self, operation: str, key: str, unset: str) -> Any:
        try:
            return self._call(operation)[key]
        except AwsProblem as problem:
            if problem.code == unset:
                return {}
            raise

    def _see_to(self, aspect: Aspect) -> None:
        have = self._asked(f"get_{aspect.operation}", aspect.name, aspect.unset)
        right = same(aspect.wanted, have)
        self.before[aspect.name] = have
        self.after[aspect.name] = have if right else dict(aspect.wanted)
        if not right:
            self._change(f"put_{aspect.operation}", **{aspect.name: aspect.wanted})

    def _require_tls(self) -> None:
        """S3 takes all of a policy at once: statements that somebody has added stay."""
        policy = json.loads(self._asked("get_bucket_policy", "Policy", "NoSuchBucketPolicy") or "{}")
        current = policy.get("Statement", [])
        current = current if isinstance(current, list) else [current]
        others = [one for one in current if one.get("Sid") != _TLS_SID]
        desired = [*others, self._tls_statement()]
        self.before["policy"], self.after["policy"] = current, desired
        if current != desired:
            document = {"Version": "2012-10-17", **policy, "Statement": desired}
            self._change("put_bucket_policy", Policy=json.dumps(document))

    def _tls_statement(self) -> dict[str, Any]:
        arn = f"arn:{self._aws.partition}:s3:::{self._name}"
        return {
            "Sid": _TLS_SID,
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [arn, f"{arn}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }

    def _see_to_tags(self, tags: Mapping[str, str]) -> None:
        """S3 takes all tags at once: those that somebody has added stay."""
        have = tags_of(self._asked("get_bucket_tagging", "TagSet", "NoSuchTagSet"))
        self.before["tags"], self.after["tags"] = have, {**have, **tags}
        if self.after["tags"] != have:
            self._change("put_bucket_tagging", Tagging={"TagSet": tag_list(self.after["tags"])})
