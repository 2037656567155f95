# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The lock object in S3: it is read with its age, and written only if nobody else has written it since."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.names import Names
from .record import CLUSTER, LARGEST, LockKind, LockName, LockRecord, ObservedLock, parse

_NO_OBJECT = ("NoSuchKey", "404")
_NO_BUCKET = "NoSuchBucket"
_WRITTEN_BY_OTHERS = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409")
"""The object is not the one that was read: it has another ETag, is being written, or is gone."""
_UNKNOWN_OPTION = "ParamValidationError"
"""of botocore, if it does not know the conditions of PutObject"""


class NoBucket(UserError):
    """The cluster's bucket does not exist, so nothing can be locked."""


class NoLocking(UserError):
    """The lock cannot be read or written. The message says why."""


class LockStore:
    """One lock of one cluster."""

    def __init__(self, aws: Aws, cluster: str, kind: LockKind = CLUSTER) -> None:
        self._aws = aws
        self.name = LockName(cluster, kind)
        self.bucket = Names(cluster, aws.account, aws.region).bucket

    def read(self) -> ObservedLock:
        try:
            answer = self._aws.whole_answer("s3", "get_object", **self._place())
            content = self._aws.body(answer, LARGEST + 1)
        except AwsError as error:
            if error.code in _NO_OBJECT:
                return ObservedLock()
            raise self._problem(error) from error
        age = _age(answer)
        return ObservedLock(etag=str(answer["ETag"]), record=parse(content), age_seconds=age)

    def create(self, record: LockRecord) -> str:
        """Write the first lock object, and return its ETag; empty if there is one meanwhile."""
        return self._write(record, IfNoneMatch="*")

    def replace(self, record: LockRecord, etag: str) -> str:
        """Replace the lock object that has this ETag, and return the new one; empty if it has changed meanwhile."""
        return self._write(record, IfMatch=etag)

    def _write(self, record: LockRecord, **condition: str) -> str:
        body = record.to_json()
        try:
            answer = self._aws.call(
                "s3", "put_object", **self._place(), Body=body, ContentType="application/json", **condition
            )
        except AwsError as error:
            if error.code in _WRITTEN_BY_OTHERS:
                return ""
            raise self._problem(error) from error
        return str(answer["ETag"])

    def _place(self) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.name.kind.object, "ExpectedBucketOwner": self._aws.account}

    def _problem(self, error: AwsError) -> UserError:
        """Return the error as one about the lock. An error about the credentials or the connection stays as it is."""
        if error.is_fatal:
            return error
        if error.code == _NO_BUCKET:
            return NoBucket(f"The bucket {self.bucket} of the cluster {self.name.cluster} does not exist.")
        reason = str(error)
        if error.code == _UNKNOWN_OPTION:
            reason = "botocore is older than 1.35.69: upgrade it (pip install -U boto3)."
        address = f"s3://{self.bucket}/{self.name.kind.object}"
        return NoLocking(f"{self.name.title} cannot be locked by {address}: {reason}")


def _age(answer: dict[str, Any]) -> float:
    """Return how long ago the object was written, by S3's clock alone: the operator's may be wrong.

    Without S3's date the age counts as 0, so that the lock is never taken over for its age.
    """
    written: datetime = answer["LastModified"]
    headers = (answer.get("ResponseMetadata") or {}).get("HTTPHeaders") or {}
    date = headers.get("date")
    if not date:
        return 0.0
    return (parsedate_to_datetime(date) - written).total_seconds()
