# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What members of a cluster may do in S3, as statements of an IAM policy.

A place is a bucket or a bucket/prefix, without a slash at its end.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

RESULTS = "results"
"""The prefix of the cluster's own bucket that its members may be given to write."""
_WRITE = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]

Statement = dict[str, Any]


def outside_results(bucket: str, places: Iterable[str]) -> list[str]:
    """Return the places in the cluster's own bucket where its members must not write. Reports of other members, data
    sets and wheels that nodes install as root are there."""
    results = f"{bucket}/{RESULTS}"
    return [
        place
        for place in places
        if place.split("/")[0] == bucket and place != results and not place.startswith(f"{results}/")
    ]


def bucket_statements(
    bucket: str, account: str, read: Sequence[str], write: Sequence[str], partition: str = "aws"
) -> list[Statement]:
    """Return the statements for the cluster's own bucket, and for the further places to read and to write.

    Names of buckets can be foreseen, so one that another account has taken is neither read nor written. The last one
    denies all other writing, whatever else the role is given: a report is trusted because only its own member can write
    to where it lies.
    """
    s3 = f"arn:{partition}:s3:::"
    # The role's id and the instance's: no two members have the same.
    own_report = f"{s3}{bucket}/members/${{aws:userid}}/report.json"
    forbidden = outside_results(bucket, write)
    writable = [place for place in write if place not in forbidden]
    readable = list(dict.fromkeys([*read, *writable]))
    objects = [f"{s3}{place}/*" for place in writable]
    of_account = {"Condition": {"StringEquals": {"aws:ResourceAccount": account}}}
    statements = [
        _statement("ReadTheClustersBucket", ["s3:GetObject"], [f"{s3}{bucket}/*"]) | of_account,
        _statement("ListTheClustersBucket", ["s3:ListBucket"], [f"{s3}{bucket}"]) | of_account,
        _statement("ReportItself", ["s3:PutObject"], [own_report]) | of_account,
    ]
    if readable:
        statements.append(_statement("ReadFurtherData", ["s3:GetObject"], [f"{s3}{place}/*" for place in readable]))
    statements += _listing(s3, readable)
    if writable:
        statements.append(_statement("WriteFurtherData", _WRITE, objects))
    denied: Statement = {"Sid": "WriteNothingElse", "Effect": "Deny", "Action": _WRITE}
    return [*statements, {**denied, "NotResource": [own_report, *objects]}]


def _listing(s3: str, places: Iterable[str]) -> list[Statement]:
    """One statement for each bucket: the prefixes of one must not open another. A prefix ends with a slash, as S3 takes
    it for text: `imagenet` would list `imagenet-secret/` too."""
    prefixes: dict[str, list[str]] = {}
    for place in places:
        bucket, _slash, prefix = place.partition("/")
        prefixes.setdefault(bucket, []).append(prefix)
    statements = []
    for number, (bucket, found) in enumerate(prefixes.items(), 1):
        statement = _statement(f"ListFurtherBucket{number}", ["s3:ListBucket"], [f"{s3}{bucket}"])
        if all(found):
            statement["Condition"] = {"StringLike": {"s3:prefix": [f"{prefix}/*" for prefix in found]}}
        statements.append(statement)
    return statements


def _statement(sid: str, actions: list[str], resources: list[str]) -> Statement:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
