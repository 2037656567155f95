"""Large objects of S3 are kept on disk, whole and in parts."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.backends import get_backend
from moto.s3.models import FakeKey

from localcloud.api.s3_storage import body_on_disk
from localcloud.core.settings import ACCOUNT
from localcloud.daemon import SERVICE_ENVIRONMENT
from localcloud.testing.clock import ManualClock
from localcloud_kits.rules_kit import Aws

MIB = 1024 * 1024
PARTS = [bytes([number]) * (5 * MIB) for number in (1, 2)] + [b"end"]

SERVER = """
import sys, threading
from localcloud.api.iam.identities import bootstrap
from localcloud.core.calls import CallLog
from localcloud.core.clock import RealClock
from localcloud.core.cloud import Cloud
from localcloud.core.latency import latency_from
from localcloud.endpoint.front import Front
from localcloud.endpoint.server import HttpServer

lock = threading.RLock()
cloud = Cloud(RealClock(lock), lock, latency_from("none"), CallLog(), strict=True)
key, secret = bootstrap(cloud)
server = HttpServer(Front(cloud), "127.0.0.1", 0)
server.start()
print(server.port, key, secret, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time())


def stored(key: str) -> Any:
    return get_backend("s3")[ACCOUNT]["aws"].buckets["bucket-1"].keys[key]


def upload(client: Any, key: str, **algorithm: str) -> dict[str, Any]:
    """Upload an object in parts; return the answer to its completion."""
    named = {"Bucket": "bucket-1", "Key": key}
    upload_id = client.create_multipart_upload(**named, **algorithm)["UploadId"]
    tags = []
    for number, part in enumerate(PARTS, 1):
        answer = client.upload_part(**named, UploadId=upload_id, PartNumber=number, Body=part)
        tags.append({"PartNumber": number, "ETag": answer["ETag"]})
    completed: dict[str, Any] = client.complete_multipart_upload(
        **named, UploadId=upload_id, MultipartUpload={"Parts": tags}
    )
    return completed


def test_an_object_is_joined_from_its_parts_on_disk(aws: Aws) -> None:
    client = aws("s3")
    client.create_bucket(Bucket="bucket-1")
    assert upload(client, "big")["ETag"].endswith('-3"')
    assert client.get_object(Bucket="bucket-1", Key="big")["Body"].read() == b"".join(PARTS)
    assert client.head_object(Bucket="bucket-1", Key="big")["ContentLength"] == 10 * MIB + 3
    assert stored("big")._value_buffer._rolled
    client.put_object(Bucket="bucket-1", Key="whole", Body=PARTS[0])
    assert stored("whole")._value_buffer._rolled


@pytest.mark.parametrize(
    ("extent", "start", "end"),
    [("bytes=3-1048580", 3, 1048581), ("bytes=-5", 4 * MIB - 5, 4 * MIB), ("bytes=4194300-", 4194300, 4 * MIB)],
)
def test_a_part_of_an_object_on_disk(aws: Aws, extent: str, start: int, end: int) -> None:
    client = aws("s3")
    client.create_bucket(Bucket="bucket-1")
    content = bytes(range(256)) * (4 * MIB // 256)
    client.put_object(Bucket="bucket-1", Key="big", Body=content)
    answer = client.get_object(Bucket="bucket-1", Key="big", Range=extent)
    client.put_object(Bucket="bucket-1", Key="big", Body=b"another")
    assert answer["Body"].read() == content[start:end]
    assert answer["ContentRange"] == f"bytes {start}-{end - 1}/{4 * MIB}"


def test_a_copy_of_an_object_on_disk(aws: Aws) -> None:
    client = aws("s3")
    client.create_bucket(Bucket="bucket-1")
    client.put_object(Bucket="bucket-1", Key="big", Body=PARTS[0])
    source = {"Bucket": "bucket-1", "Key": "big"}
    client.copy_object(Bucket="bucket-1", Key="copy", CopySource=source)
    client.delete_object(**source)
    assert client.get_object(Bucket="bucket-1", Key="copy")["Body"].read() == PARTS[0]
    assert stored("copy")._value_buffer._rolled


def test_parts_that_are_copied_from_an_object_on_disk(aws: Aws) -> None:
    client = aws("s3")
    client.create_bucket(Bucket="bucket-1")
    client.put_object(Bucket="bucket-1", Key="big", Body=b"".join(PARTS))
    named = {"Bucket": "bucket-1", "Key": "copy"}
    upload_id = client.create_multipart_upload(**named)["UploadId"]
    tags = []
    for number, extent in enumerate((f"bytes=1-{6 * MIB}", f"bytes={6 * MIB}-{10 * MIB + 2}"), 1):
        part = {"PartNumber": number, "CopySource": {"Bucket": "bucket-1", "Key": "big"}, "CopySourceRange": extent}
        answer = client.upload_part_copy(**named, UploadId=upload_id, **part)
        tags.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
    client.complete_multipart_upload(**named, UploadId=upload_id, MultipartUpload={"Parts": tags})
    content = b"".join(PARTS)
    assert client.get_object(**named)["Body"].read() == content[1 : 6 * MIB + 1] + content[6 * MIB :]


def test_a_body_in_chunks_is_decoded_on_disk() -> None:
    body = b"5;chunk-signature=0\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32:DUoRhQ==\r\n\r\n"
    environ: dict[str, Any] = {
        "wsgi.input": io.BytesIO(body),
        "HTTP_X_AMZ_CONTENT_SHA256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    }
    with body_on_disk(environ):
        key = FakeKey("key", environ["wsgi.input"].read(), ACCOUNT, "us-east-1")
    assert (key.value, key.contentsize) == (b"hello world", 11)
    assert environ["HTTP_X_AMZ_CHECKSUM_CRC32"] == "DUoRhQ=="


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
def test_checksums_of_an_object_in_parts(aws: Aws, kind: str) -> None:
    client = aws("s3")
    client.create_bucket(Bucket="bucket-1")
    upload(client, "big", ChecksumAlgorithm="CRC32", ChecksumType=kind)
    crcs = b"".join(zlib.crc32(part).to_bytes(4, "big") for part in PARTS)
    content = crcs if kind == "COMPOSITE" else b"".join(PARTS)
    assert stored("big").checksum_value == base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([{"PartNumber": 1, "ETag": "none"}], "InvalidPart"),
        ([{"PartNumber": 2, "ETag": "none"}], "InvalidPart"),
    ],
)
def test_parts_that_do_not_exist_are_refused(aws: Aws, parts: list[dict[str, Any]], code: str) -> None:
    client = aws("s3")
    client.create_bucket(Bucket="bucket-1")
    named = {"Bucket": "bucket-1", "Key": "big"}
    upload_id = client.create_multipart_upload(**named)["UploadId"]
    client.upload_part(**named, UploadId=upload_id, PartNumber=1, Body=b"part")
    with pytest.raises(ClientError, match=code):
        client.complete_multipart_upload(**named, UploadId=upload_id, MultipartUpload={"Parts": parts})


def test_uploads_downloads_and_copies_do_not_fill_the_memory_of_the_service(tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(64 * MIB)
    environment = {**os.environ, **SERVICE_ENVIRONMENT}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER], env=environment, **pipes) as service:
        assert service.stdout and service.stdin
        port, key, secret = service.stdout.readline().split()
        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )
        client.create_bucket(Bucket="bucket-1")
        client.put_object(Bucket="bucket-1", Key="small", Body=b"x")
        before = peak(service.pid)
        client.upload_file(str(big), "bucket-1", "big")
        with big.open("rb") as file:
            client.put_object(Bucket="bucket-1", Key="whole", Body=file)
        client.copy_object(Bucket="bucket-1", Key="copy", CopySource={"Bucket": "bucket-1", "Key": "whole"})
        for key in ("big", "whole", "copy"):
            body = client.get_object(Bucket="bucket-1", Key=key)["Body"]
            assert sum(len(chunk) for chunk in body.iter_chunks(MIB)) == 64 * MIB
        after = peak(service.pid)
        service.stdin.close()
    # Buffers take some 35 MiB whatever the size is.
    assert after - before < 60 * MIB


def peak(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
