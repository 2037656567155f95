# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A folder of objects in a bucket: one of the collection's own, or another one that the user names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...module_utils.aws.client import Aws, AwsError, problem
from ...module_utils.contract import schema
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.manifest import FILE as MANIFEST

try:
    from boto3.exceptions import S3UploadFailedError
    from boto3.s3.transfer import TransferConfig
    from botocore.exceptions import BotoCoreError
except ImportError:
    pass  # aws/client.py reports it

_MISSING = ("404", "NoSuchKey")
_CHUNK = 1 << 20


class MissingBucket(UserError):
    """There is no such bucket."""


class ObjectReader:
    """An object that is read once, with its size and SHA-256."""

    def __init__(self, body: Any) -> None:
        self._body, self._size, self._sha256 = body, 0, hashlib.sha256()

    def read(self, size: int | None = _CHUNK) -> bytes:
        try:
            piece: bytes = self._body.read(size)
        except BotoCoreError as error:
            raise problem(error, "s3", "GetObject") from error
        self._size += len(piece)
        self._sha256.update(piece)
        return piece

    def complete(self) -> tuple[int, str]:
        """Read the rest, and return the size and SHA-256 of all."""
        while self.read():
            pass
        return self._size, self._sha256.hexdigest()


def file_sha256(path: Path, show: Callable[[int], None] = lambda position: None) -> str:
    """Return the SHA-256 of a file of this machine. `show` is called with the position."""
    sha256 = hashlib.sha256()
    with path.open("rb") as opened:
        while data := opened.read(_CHUNK):
            sha256.update(data)
            show(opened.tell())
    return sha256.hexdigest()


@dataclass(frozen=True)
class Bucket:
    aws: Aws
    name: str
    prefix: str
    owner: str = ""
    """The account that must own it, if it is one of the collection's own."""

    @property
    def url(self) -> str:
        return f"s3://{self.name}/{self.prefix}"

    def check(self) -> None:
        """Raise UserError if the bucket does not exist, may not be used or is in another region."""
        region = self.find_region()
        if region != self.aws.region:
            raise UserError(
                f"The bucket {self.name} is in {region}, and the cluster in {self.aws.region}: nodes would read it "
                "slowly and at a price, so name a bucket in the cluster's own region."
            )

    def find_region(self) -> str:
        """Return the bucket's region. Raise UserError if it does not exist or may not be used."""
        try:
            head = self.aws.call("s3", "head_bucket", Bucket=self.name, **self._owned)
        except AwsError as error:
            if error.code == "404":
                raise MissingBucket(f"The bucket {self.name} does not exist: create it first.") from None
            if error.code == "301":
                raise UserError(f"The bucket {self.name} is in another region than {self.aws.region}.") from None
            if error.denied:
                owner = f", or it does not belong to the account {self.owner}" if self.owner else ""
                raise UserError(f"These credentials may not use the bucket {self.name}{owner}.") from None
            raise
        # Unless an endpoint is set, the SDK follows a bucket to its region.
        return str(head.get("BucketRegion", self.aws.region))

    def manifest(self) -> dict[str, Any]:
        """Return the list of the data set's parts, empty if there is none that can be read."""
        reader = self.open(MANIFEST)
        return schema.json_object(reader.read(None)) if reader else {}

    def put_manifest(self, manifest: Mapping[str, Any]) -> None:
        body = json.dumps(manifest, indent=1).encode()
        self.aws.call("s3", "put_object", Body=body, **self._object(MANIFEST))

    def open(self, name: str) -> ObjectReader | None:
        """Return a reader of an object, None if there is none."""
        answer = self.aws.find("s3", "get_object", _MISSING, **self._object(name))
        return ObjectReader(answer["Body"]) if answer else None

    def recorded(self, name: str) -> tuple[int, str] | None:
        """Return the size of an object and the SHA-256 that was recorded for it, None if there is none."""
        head = self.aws.find("s3", "head_object", _MISSING, **self._object(name))
        return (head["ContentLength"], str(head["Metadata"].get("sha256", ""))) if head else None

    def entries(self, folder: str) -> Iterator[tuple[str, bool]]:
        """Yield the names of what is in a folder of this one, and whether each is a folder."""
        prefix = f"{self.prefix}/{folder}/"
        place = {"Bucket": self.name, "Prefix": prefix, "Delimiter": "/", **self._owned}
        for item in self.aws.pages("s3", "list_objects_v2", "CommonPrefixes", **place):
            yield item["Prefix"].removeprefix(prefix).rstrip("/"), True
        for item in self.aws.pages("s3", "list_objects_v2", "Contents", **place):
            yield item["Key"].removeprefix(prefix), False

    def send(self, file: Path, name: str, sha256: str, transfer: Callable[[str, int, int], None]) -> None:
        """Upload a file, in several parts at once. Call `transfer` with what is done, as displays take it."""
        size, done = file.stat().st_size, 0

        def add(count: int) -> None:
            nonlocal done
            done += count
            transfer(f"sending {name}", done, size)

        try:
            self.aws.retrying_client("s3").upload_file(
                str(file),
                self.name,
                f"{self.prefix}/{name}",
                ExtraArgs={"Metadata": {"sha256": sha256}, **self._owned},
                Config=TransferConfig(multipart_chunksize=64 << 20, max_concurrency=8),
                Callback=add,
            )
        except S3UploadFailedError as error:
            raise UserError(f"{file.name} cannot be sent to {self.url}: {error}.") from None
        except BotoCoreError as error:
            raise problem(error, "s3", "PutObject") from error

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self.name, "Key": f"{self.prefix}/{name}", **self._owned}

    @property
    def _owned(self) -> dict[str, str]:
        return {"ExpectedBucketOwner": self.owner} if self.owner else {}


def choose(aws: Aws, own: str, location: str, folder: str) -> Bucket:
    """Return a folder of the bucket at `location` (bucket, bucket/prefix, or either after s3://).

    Without a location it is a folder of the collection's own bucket of that name.
    """
    if not location:
        return Bucket(aws, own, folder, aws.account)
    name, _slash, prefix = location.removeprefix("s3://").strip("/").partition("/")
    if not name or "://" in location.removeprefix("s3://"):
        raise UserError(f"bucket is {location}; it must be a bucket. Example: -e bucket=s3://my-bucket/prefix")
    return Bucket(aws, name, f"{prefix}/{folder}".strip("/"))
