# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A data set to a bucket: fetched if it has to be, checked, sent if it is not there, and then written down as whole.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ansible.module_utils.urls import open_url
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws, AwsProblem, problem
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage_archives import look_into
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage_sets import Part, Set, Unstageable, set_of

try:
    from boto3.exceptions import S3UploadFailedError
    from boto3.s3.transfer import TransferConfig
    from botocore.exceptions import BotoCoreError
except ImportError:
    pass  # _aws.py says so

CHUNK = 1 << 20
ATTEMPTS = 5
SHA256 = re.compile(r"[0-9a-f]{64}")
MANIFEST = "manifest.json"
"""Written last: a set with it is whole."""


class Tell(Protocol):
    """Of what is being done, how far, of how much."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Bucket:
    aws: Aws
    name: str
    prefix: str
    owner: str = ""
    """the account that it has to belong to, if it is the cluster's own"""

    @property
    def url(self) -> str:
        return f"s3://{self.name}/{self.prefix}"

    def look(self) -> None:
        try:
            found = self.aws.call("s3", "head_bucket", Bucket=self.name, **self._owned)
        except AwsProblem as error:
            if error.code in ("404", "NoSuchBucket"):
                raise Unstageable(
                    f"the bucket {self.name} does not exist: make the cluster first (site.yml)."
                ) from None
            if error.code in ("301", "PermanentRedirect"):
                raise Unstageable(f"the bucket {self.name} is in another region than {self.aws.region}.") from None
            if error.denied:
                whose = f", or it does not belong to the account {self.owner}" if self.owner else ""
                raise Unstageable(f"the bucket {self.name} may not be used by these credentials{whose}.") from None
            raise
        # Where nobody has set an endpoint, the SDK follows a bucket to where it is.
        region = found.get("BucketRegion", self.aws.region)
        if region != self.aws.region:
            raise Unstageable(
                f"the bucket {self.name} is in {region}, and the cluster in {self.aws.region}: nodes would read it "
                "from afar and at a price, so name one of the cluster's own region."
            )

    def manifest(self) -> dict[str, Any]:
        """The list of the set's parts, or nothing if there is none that can be read."""
        try:
            found = json.loads(self.read(MANIFEST))
        except AwsProblem as error:
            if error.code in ("404", "NoSuchKey"):
                return {}
            raise
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def read(self, name: str) -> bytes:
        return self.aws.content(self.name, f"{self.prefix}/{name}", self.owner)

    def sha256(self, name: str) -> str:
        """Return the checksum that an object was sent with; empty if it was sent without one."""
        found = self.aws.call("s3", "head_object", Bucket=self.name, Key=f"{self.prefix}/{name}", **self._owned)
        return str(found["Metadata"].get("sha256", ""))

    def names(self, beginning: str) -> list[str]:
        """Of what is there, as far as it begins like that."""
        where = {"Bucket": self.name, "Prefix": f"{self.prefix}/{beginning}", **self._owned}
        found = self.aws.pages("s3", "list_objects_v2", "Contents", **where)
        return [one["Key"].removeprefix(f"{self.prefix}/") for one in found]

    def has(self, name: str, size: int, sha256: str) -> bool:
        try:
            found = self.aws.call("s3", "head_object", Bucket=self.name, Key=f"{self.prefix}/{name}", **self._owned)
        except AwsProblem as error:
            if error.code in ("404", "NoSuchKey"):
                return False
            raise
        return bool(found["ContentLength"] == size and found["Metadata"].get("sha256") == sha256)

    def send(self, file: Path, name: str, sha256: str, told: Callable[[int], None]) -> None:
        """In parts, several at once."""
        try:
            self.aws.client("s3").upload_file(
                str(file),
                self.name,
                f"{self.prefix}/{name}",
                ExtraArgs={"Metadata": {"sha256": sha256}, **self._owned},
                Config=TransferConfig(multipart_chunksize=64 << 20, max_concurrency=8),
                Callback=told,
            )
        except S3UploadFailedError as error:
            raise Unstageable(f"{file.name} could not be sent: {error}.") from None
        except BotoCoreError as error:
            raise problem(error, "s3", "PutObject") from error

    def put_manifest(self, manifest: Mapping[str, Any]) -> None:
        body = json.dumps(manifest, indent=1).encode()
        self.aws.call("s3", "put_object", Bucket=self.name, Key=f"{self.prefix}/{MANIFEST}", Body=body, **self._owned)

    @property
    def _owned(self) -> dict[str, str]:
        return {"ExpectedBucketOwner": self.owner} if self.owner else {}


def stage(bucket: Bucket, name: str, source: Path | None, folder: Path, tell: Tell, check: bool) -> dict[str, Any]:
    """Have the set in the bucket: whether anything was sent, and what nobody has published a checksum of."""
    wanted = set_of(name, source)
    bucket.look()
    before = bucket.manifest()
    recorded = _recorded(before)
    # Others may write to the bucket too. Sizes and digests are taken from there; all else has to be as we write it.
    kept = recorded.keys() == {part.name for part in wanted.parts} and before == _manifest(name, wanted, recorded)
    if kept and source and check:
        kept = all(recorded[part.name][0] == (source / part.name).stat().st_size for part in wanted.parts)
    if check or (kept and source is None):
        version = before["version"] if kept else ""
        return {"changed": not kept, "source": bucket.url, "version": version, "unpublished": []}
    parts = []
    for part in wanted.parts:
        file = source / part.name if source else fetched(part, folder, tell)
        digest = checked(part, file, tell)
        if source is None and part.name in recorded and recorded[part.name][1] != digest:
            raise Unstageable(
                f"{part.name} from {part.url} is not the one that was staged before: its SHA-256 is {digest}, and "
                f"{recorded[part.name][1]} was written down. Remove {bucket.url}/{MANIFEST} to take the new one."
            )
        parts.append((part, file, digest))
    left = [one for one in parts if not bucket.has(one[0].name, one[1].stat().st_size, one[2])]
    for part, file, _digest in left:
        if not part.digest:
            look_into(part, file, partial(tell, f"looking into {part.name}", total=file.stat().st_size))
    for part, file, digest in left:
        _send(bucket, part, file, digest, tell)
    changed = bool(left)
    manifest = _manifest(name, wanted, {part.name: (file.stat().st_size, digest) for part, file, digest in parts})
    if manifest != before:
        bucket.put_manifest(manifest)
        changed = True
    unpublished = [part.name for part, *_rest in parts if not part.digest and part.name not in recorded]
    return {"changed": changed, "source": bucket.url, "version": manifest["version"], "unpublished": unpublished}


def _recorded(manifest: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of each part, as far as an existing manifest has them in their form."""
    try:
        return {
            part["name"]: (part["size"], part["sha256"])
            for part in manifest["parts"]
            if SHA256.fullmatch(part["sha256"]) and part["size"] >= 0
        }
    except (KeyError, TypeError):
        return {}


def _manifest(name: str, wanted: Set, found: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    parts = [
        {
            "name": part.name,
            "kind": part.kind,
            "size": found[part.name][0],
            "sha256": found[part.name][1],
            "to": part.to,
            "strip": part.strip,
        }
        for part in wanted.parts
    ]
    version = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    return {"schema": 1, "name": name, "version": version, "parts": parts, "links": dict(wanted.links)}


def _send(bucket: Bucket, part: Part, file: Path, digest: str, tell: Tell) -> None:
    size, done = file.stat().st_size, 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        tell(f"sending {part.name}", done, size)

    bucket.send(file, part.name, digest, told)


def checked(part: Part, file: Path, tell: Tell) -> str:
    """Its SHA-256. What is published has to be right; a wrong one that we have fetched is not kept."""
    sha256 = hashlib.sha256()
    published = hashlib.new(part.algorithm, usedforsecurity=False) if part.algorithm else None
    size, done = file.stat().st_size, 0
    with file.open("rb") as opened:
        for chunk in iter(lambda: opened.read(CHUNK), b""):
            sha256.update(chunk)
            if published:
                published.update(chunk)
            done += len(chunk)
            tell(f"checking {part.name}", done, size)
    if published and published.hexdigest() != part.digest:
        raise Unstageable(
            f"{file} has the {part.algorithm} {published.hexdigest()}, and {part.digest} is published: remove it, and "
            "run the same command again."
        )
    return sha256.hexdigest()


def fetched(part: Part, folder: Path, tell: Tell) -> Path:
    """The file in the folder: there already, or fetched from where an earlier attempt has ended."""
    file = folder / part.name
    if file.is_file():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    coming = folder / f"{part.name}.part"
    for attempt in range(ATTEMPTS):
        try:
            _fetch(part, coming, tell)
            coming.replace(file)
            return file
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt + 1 == ATTEMPTS:
                raise Unstageable(_unfetched(part, f"{error.code} {error.reason}")) from None
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            if attempt + 1 == ATTEMPTS:
                raise Unstageable(_unfetched(part, str(getattr(error, "reason", error)))) from None
    raise AssertionError("unreachable")


def _unfetched(part: Part, why: str) -> str:
    return (
        f"{part.url} cannot be fetched ({why}): run the same command again, it goes on from there; or fetch it "
        "yourself and say where it is. Example: -e source_dir=~/Downloads"
    )


def _fetch(part: Part, coming: Path, tell: Tell) -> None:
    have = coming.stat().st_size if coming.exists() else 0
    try:
        answering = open_url(part.url, headers={"Range": f"bytes={have}-"} if have else {}, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        # All of it has come: who fetched it was killed before it had its name. Or it is of another file.
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return
        coming.unlink()
        raise ConnectionError("it is another file than before") from None
    with answering as answer:
        if answer.status != 206:
            have = 0
        total = have + int(answer.headers.get("Content-Length") or 0)
        free = shutil.disk_usage(coming.parent).free
        if total - have > free:
            raise Unstageable(
                f"{part.name} has {total / 2**30:.1f} GiB, and {coming.parent} has {free / 2**30:.1f} GiB left: make "
                "room, or name another folder. Example: -e stage_folder=/mnt/stage"
            )
        with coming.open("ab" if have else "wb") as out:
            for chunk in iter(lambda: answer.read(CHUNK), b""):
                out.write(chunk)
                have += len(chunk)
                tell(f"fetching {part.name}", have, total)
    if have < total:
        raise ConnectionError("the connection ended too early")
