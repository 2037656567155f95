"""stage.yml: data sets to a bucket, checked, resumed, and not sent twice."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from ansible_collections.deeplearning.aws.plugins.action import node_command
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import download
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.archives import files_sha256
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.datasets import (
    DATASETS,
    STAGED,
    Dataset,
    DatasetFile,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.manifest import build, digest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data import datasets
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data import upload as staging_upload
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.bucket import Bucket, choose
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.datasets import set_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.first_fetches import FirstFetches
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.progress_bar import ProgressDisplay

from tests.unit.conftest import Account

CONTENT = bytes(range(256)) * 2000


def packed(content: bytes = CONTENT, name: str = "1.jpg", mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


ARCHIVE = packed()


class Quiet:
    """Shows nothing, and keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def transfer(self, what: str, done: int, total: int) -> None: ...

    def message(self, line: str) -> None:
        self.messages.append(line)


def stage(
    bucket: Bucket,
    name: str,
    source: Path | None,
    folder: Path,
    check: bool = False,
    replace: bool = False,
    display: Quiet | None = None,
) -> dict[str, Any]:
    """Stage with the operator's records next to the folder of downloads."""
    fetches = FirstFetches(folder.parent)
    return staging_upload.stage(bucket, name, source, folder, fetches, display or Quiet(), check, replace)


@pytest.fixture
def bucket(aws: Account) -> Bucket:
    aws.client("s3").create_bucket(Bucket="mine")
    return Bucket(Aws("us-east-1"), "mine", "data/photos", "123456789012")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.tar").write_bytes(ARCHIVE)
    (folder / "weights.npz").write_bytes(b"weights")
    return folder


class Publisher:
    """Serves one file, with ranges; breaks off after so many bytes, as often as it is configured to."""

    def __init__(self) -> None:
        self.content, self.breaks, self.offsets = ARCHIVE, [], []
        publisher = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                match = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
                begin = int(match[1]) if match else 0
                publisher.offsets.append(begin)
                if match and begin >= len(publisher.content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(publisher.content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206 if match else 200)
                rest = publisher.content[begin:]
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                self.wfile.write(rest[: publisher.breaks.pop(0)] if publisher.breaks else rest)

            def log_message(self, *_: Any) -> None:
                """Not to the test's output."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/a.tar"


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    source = Publisher()
    monkeypatch.setattr(
        datasets, "DATASETS", {"photos": Dataset((DatasetFile("a.tar", source.url),), {"data/photos": "."})}
    )
    monkeypatch.setattr(download, "RETRY_SECONDS", 0)
    threading.Thread(target=source.server.serve_forever, args=(0.01,), daemon=True).start()
    yield source
    source.server.shutdown()
    source.server.server_close()


def test_a_folder_is_staged_and_written_down(bucket: Bucket, aws: Account, source: Path, tmp_path: Path) -> None:
    done = stage(bucket, "photos", source, tmp_path / "stage")
    assert done["changed"] and done["source"] == "s3://mine/data/photos"
    assert done["unpublished"] == ["a.tar", "weights.npz"]
    result = json.loads(aws.client("s3").get_object(Bucket="mine", Key="data/photos/manifest.json")["Body"].read())
    assert result["version"] == done["version"]
    assert [(part["name"], part["kind"], part["size"]) for part in result["parts"]] == [
        ("a.tar", "tar", len(ARCHIVE)),
        ("weights.npz", "file", 7),
    ]
    assert result["parts"][0]["sha256"] == hashlib.sha256(ARCHIVE).hexdigest()
    assert aws.client("s3").get_object(Bucket="mine", Key="data/photos/a.tar")["Body"].read() == ARCHIVE


def test_a_second_time_nothing_is_sent(bucket: Bucket, aws: Account, source: Path, tmp_path: Path) -> None:
    first = stage(bucket, "photos", source, tmp_path / "stage")
    before = len(aws.calls())
    again = stage(bucket, "photos", source, tmp_path / "stage")
    assert again == {**first, "changed": False, "unpublished": []}
    assert not [call for call in aws.calls()[before:] if "Put" in call or "Multipart" in call]


def test_only_what_has_changed_is_sent(bucket: Bucket, aws: Account, source: Path, tmp_path: Path) -> None:
    first = stage(bucket, "photos", source, tmp_path / "stage")
    (source / "weights.npz").write_bytes(b"others!")
    before = len(aws.calls())
    again = stage(bucket, "photos", source, tmp_path / "stage")
    assert again["changed"] and again["version"] != first["version"]
    # The file, and the list.
    assert [call for call in aws.calls()[before:] if "Put" in call] == ["s3:PutObject"] * 2


def test_in_check_mode_nothing_is_sent(bucket: Bucket, aws: Account, source: Path, tmp_path: Path) -> None:
    assert stage(bucket, "photos", source, tmp_path / "stage", check=True)["changed"]
    assert bucket.manifest() == {}
    done = stage(bucket, "photos", source, tmp_path / "stage")
    again = stage(bucket, "photos", source, tmp_path / "stage", check=True)
    assert (again["changed"], again["version"]) == (False, done["version"])
    (source / "weights.npz").write_bytes(b"more weights")
    assert stage(bucket, "photos", source, tmp_path / "stage", check=True)["changed"]


def test_what_broke_off_is_fetched_from_there(bucket: Bucket, publisher: Publisher, tmp_path: Path) -> None:
    publisher.breaks = [100_000, 50_000]
    assert stage(bucket, "photos", None, tmp_path / "stage")["changed"]
    assert publisher.offsets == [0, 100_000, 150_000]
    assert (tmp_path / "stage/a.tar").read_bytes() == ARCHIVE
    assert not (tmp_path / "stage/a.tar.part").exists()


@pytest.mark.parametrize(("left", "offsets"), [(ARCHIVE, [len(ARCHIVE)]), (ARCHIVE + b"x", [len(ARCHIVE) + 1, 0])])
def test_what_has_come_before_a_kill_is_taken_if_it_is_all_of_it(
    bucket: Bucket, publisher: Publisher, tmp_path: Path, left: bytes, offsets: list[int]
) -> None:
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage/a.tar.part").write_bytes(left)
    assert stage(bucket, "photos", None, tmp_path / "stage")["changed"]
    assert publisher.offsets == offsets
    assert (tmp_path / "stage/a.tar").read_bytes() == ARCHIVE


def test_what_never_comes_is_half_under_another_name(bucket: Bucket, publisher: Publisher, tmp_path: Path) -> None:
    publisher.breaks = [10] * download.ATTEMPTS
    with pytest.raises(UserError, match="cannot be fetched .*: run the same command again, it resumes there"):
        stage(bucket, "photos", None, tmp_path / "stage")
    assert len(publisher.offsets) == download.ATTEMPTS
    assert [path.name for path in (tmp_path / "stage").iterdir()] == ["a.tar.part"]
    assert bucket.manifest() == {}


def test_what_is_in_the_bucket_is_not_fetched_again(bucket: Bucket, publisher: Publisher, tmp_path: Path) -> None:
    first = stage(bucket, "photos", None, tmp_path / "stage")
    assert first["unpublished"] == ["a.tar"]
    again = stage(bucket, "photos", None, tmp_path / "elsewhere")
    assert again == {**first, "changed": False, "unpublished": []} and len(publisher.offsets) == 1


def test_another_file_than_the_first_time_is_refused(
    bucket: Bucket, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(bucket, "photos", None, tmp_path / "stage")
    parts = (DatasetFile("a.tar", publisher.url), DatasetFile("b.tar", publisher.url))
    monkeypatch.setattr(datasets, "DATASETS", {"photos": Dataset(parts)})
    publisher.content = b"another"
    sentence = "a.tar has the SHA-256 .*, and http.* had .* when it was fetched first. .*The file was removed"
    with pytest.raises(UserError, match=sentence):
        stage(bucket, "photos", None, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


EVIL: list[Callable[[dict[str, Any]], Any]] = [
    lambda manifest: manifest["parts"][0].update(to="../../../home/ubuntu/.ssh"),
    lambda manifest: manifest["parts"][0].update(strip="data"),
    lambda manifest: manifest["parts"][0].update(kind="file"),
    lambda manifest: manifest["parts"][0].update(sha256="0"),
    lambda manifest: manifest["parts"][0].update(size="7"),
    lambda manifest: manifest["parts"][0].update(size=-1),
    lambda manifest: manifest["parts"].append(manifest["parts"][0]),
    lambda manifest: manifest["links"].update({".deeplearning": "."}),
    lambda manifest: manifest.update(links={}),
    lambda manifest: manifest.update(version="../../home"),
    lambda manifest: manifest.update(name="others"),
    lambda manifest: manifest.update(schema=2),
    lambda manifest: manifest.update(more=1),
]


@pytest.mark.parametrize("change", EVIL)
def test_a_changed_manifest_is_written_again(
    bucket: Bucket, publisher: Publisher, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    first = stage(bucket, "photos", None, tmp_path / "stage")
    right = bucket.manifest()
    wrong = bucket.manifest()
    change(wrong)
    bucket.put_manifest(wrong)
    assert stage(bucket, "photos", None, tmp_path / "stage", check=True)["changed"]
    assert bucket.manifest() == wrong
    again = stage(bucket, "photos", None, tmp_path / "stage")
    assert (again["changed"], again["version"]) == (True, first["version"])
    assert bucket.manifest() == right


@pytest.mark.parametrize(
    "content", [b"", b"no JSON", b"[]", b'"parts"', b'{"parts": 1}', b'{"parts": [1, {"name": []}]}']
)
def test_a_list_that_is_none_is_written_anew(
    bucket: Bucket, aws: Account, publisher: Publisher, tmp_path: Path, content: bytes
) -> None:
    first = stage(bucket, "photos", None, tmp_path / "stage")
    right = bucket.manifest()
    aws.client("s3").put_object(Bucket="mine", Key="data/photos/manifest.json", Body=content)
    again = stage(bucket, "photos", None, tmp_path / "stage")
    assert (again["changed"], again["version"], bucket.manifest()) == (True, first["version"], right)


def test_a_published_checksum_has_to_be_right(
    bucket: Bucket, publisher: Publisher, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = DatasetFile("a.tar", publisher.url, hashlib.sha256(ARCHIVE).hexdigest())
    monkeypatch.setattr(datasets, "DATASETS", {"photos": Dataset((part,))})
    assert stage(bucket, "photos", source, tmp_path / "stage")["unpublished"] == []
    assert not (tmp_path / "first-fetches.json").exists()
    (source / "a.tar").write_bytes(b"corrupt")
    publisher.content = b"corrupt"
    sentence = f"a.tar is not the published one: it has the SHA-256 .* instead of {part.sha256}. Fetch it again."
    with pytest.raises(UserError, match=f"{sentence}$"):
        stage(bucket, "photos", source, tmp_path / "stage")
    # What the user provides stays.
    assert (source / "a.tar").exists()
    with pytest.raises(UserError, match=f"{sentence} The file was removed"):
        stage(bucket, "photos", None, tmp_path / "stage", replace=True)
    assert list((tmp_path / "stage").iterdir()) == []


# What another operator has put in the bucket


def put_list(bucket: Bucket, name: str, sha256: str) -> dict[str, Any]:
    """Put a complete list in the bucket, with one SHA-256 for all parts."""
    dataset = datasets.DATASETS[name]
    manifest = build(name, dataset.parts, {part.name: (7, sha256) for part in dataset.parts}, dataset.links)
    bucket.put_manifest(manifest)
    return manifest


@pytest.mark.parametrize("name", STAGED)
@pytest.mark.parametrize("check", [False, True])
def test_a_complete_list_with_other_checksums_is_refused(
    bucket: Bucket, aws: Account, tmp_path: Path, name: str, check: bool
) -> None:
    manifest = put_list(bucket, name, "e" * 64)
    others = {"Key": "data/photos/tensorpack-1547a54e.tar.gz", "Body": sources(a=b"others")}
    aws.client("s3").put_object(Bucket="mine", **others)
    records = {part.url: "a" * 64 for part in DATASETS[name].parts}
    (tmp_path / "first-fetches.json").write_text(json.dumps({"schema": 1, "sha256": records}))
    sentence = (
        "(has the SHA-256 e{64} for .*|does not have the published files), so nothing of it is used: all operators of "
        "the account 123456789012 write there. Ask who staged it, or replace it. Example: ansible-playbook "
        "deeplearning.aws.stage "
        f"-e dataset={name} -e stage_replace=true"
    )
    with pytest.raises(UserError, match=sentence):
        stage(bucket, name, None, tmp_path / "stage", check=check)
    assert bucket.manifest() == manifest and not (tmp_path / "stage").exists()


def test_a_file_without_a_published_checksum_is_compared_with_the_publishers(
    bucket: Bucket, publisher: Publisher, tmp_path: Path
) -> None:
    manifest = put_list(bucket, "photos", "e" * 64)
    with pytest.raises(UserError, match="has the SHA-256 e{64} for a.tar, and [0-9a-f]{64} is right"):
        stage(bucket, "photos", None, tmp_path / "stage")
    assert bucket.manifest() == manifest
    records = json.loads((tmp_path / "first-fetches.json").read_text())
    assert records == {"schema": 1, "sha256": {publisher.url: hashlib.sha256(ARCHIVE).hexdigest()}}


def test_another_operator_fetches_such_a_file_once_and_sends_nothing(
    bucket: Bucket, publisher: Publisher, tmp_path: Path
) -> None:
    first = stage(bucket, "photos", None, tmp_path / "mine/stage")
    second = stage(bucket, "photos", None, tmp_path / "theirs/stage")
    assert second == {**first, "changed": False} and first["unpublished"] == ["a.tar"]
    assert first["sha256"] == digest(bucket.manifest())
    assert stage(bucket, "photos", None, tmp_path / "theirs/stage") == {**second, "unpublished": []}
    assert publisher.offsets == [0, 0]


def test_what_others_have_put_there_is_replaced_on_request(
    bucket: Bucket, aws: Account, publisher: Publisher, tmp_path: Path
) -> None:
    s3, right = aws.client("s3"), hashlib.sha256(ARCHIVE).hexdigest()
    stage(bucket, "photos", None, tmp_path / "stage")
    # It looks like the right one, also to those who compare its metadata.
    evil = {"Body": bytes(len(ARCHIVE)), "Metadata": {"sha256": right}}
    s3.put_object(Bucket="mine", Key="data/photos/a.tar", **evil)
    put_list(bucket, "photos", "e" * 64)
    assert stage(bucket, "photos", None, tmp_path / "stage", replace=True)["changed"]
    assert s3.get_object(Bucket="mine", Key="data/photos/a.tar")["Body"].read() == ARCHIVE
    assert not stage(bucket, "photos", None, tmp_path / "stage")["changed"]


def test_damaged_records_are_a_sentence(bucket: Bucket, publisher: Publisher, tmp_path: Path) -> None:
    for text in ("", "[]", '{"schema": 1, "sha256": {"http://x": "y"}}'):
        (tmp_path / "first-fetches.json").write_text(text)
        with pytest.raises(UserError, match=r"first-fetches.json is damaged \(.*\): remove it"):
            stage(bucket, "photos", None, tmp_path / "stage")


def sources(**files: bytes) -> bytes:
    """Pack files as GitHub does, with a folder around them and a link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"top/{name}.py")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("top/link")
        link.type, link.linkname = tarfile.SYMTYPE, "b.py"
        archive.addfile(link)
    return out.getvalue()


def test_sources_are_known_by_their_files(
    bucket: Bucket, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = files_sha256(io.BytesIO(sources(a=b"1", b=b"2")), "top")
    (tmp_path / "sums/top").mkdir(parents=True)
    for name, content in (("a", b"1"), ("b", b"2")):
        (tmp_path / "sums/top" / f"{name}.py").write_bytes(content)
    command = r"find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    words = ["bash", "-c", command]
    by_hand = subprocess.run(words, cwd=tmp_path / "sums/top", capture_output=True, text=True, check=True)
    assert by_hand.stdout.split()[0] == known
    part = DatasetFile("s.tar.gz", publisher.url, files_sha256=known, strip="top")
    monkeypatch.setattr(datasets, "DATASETS", {"photos": Dataset((part,))})
    sentence = f"s.tar.gz is not the published one: its files have the SHA-256 .* instead of {known}.*was removed"
    for others in (sources(a=b"1", b=b"3"), sources(b=b"1", a=b"2"), sources(a=b"1"), sources(a=b"1", b=b"2", c=b"")):
        publisher.content = others
        with pytest.raises(UserError, match=sentence):
            stage(bucket, "photos", None, tmp_path / "stage")
    # The order in which they are packed is of no matter, nor is how.
    publisher.content = sources(b=b"2", a=b"1")
    done = stage(bucket, "photos", None, tmp_path / "stage")
    assert done["changed"] and done["unpublished"] == []
    publisher.content = b"no archive"
    with pytest.raises(UserError, match=r"is not a complete archive \(.*was removed"):
        stage(bucket, "photos", None, tmp_path / "again/stage", replace=True)


def repacked(content: bytes, level: int) -> bytes:
    return gzip.compress(gzip.decompress(content), level)


@pytest.fixture
def packed_anew(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """An archive of sources that are known by their files, as the publisher serves it first."""
    content = sources(a=b"1" * 9000, b=b"2")
    known = files_sha256(io.BytesIO(content), "top")
    part = DatasetFile("s.tar.gz", publisher.url, files_sha256=known, strip="top")
    monkeypatch.setattr(datasets, "DATASETS", {"photos": Dataset((part,))})
    publisher.content = repacked(content, 9)
    return content


def test_an_archive_that_is_packed_anew_is_the_same(
    bucket: Bucket, aws: Account, publisher: Publisher, packed_anew: bytes, tmp_path: Path
) -> None:
    first = stage(bucket, "photos", None, tmp_path / "mine/stage")
    publisher.content = repacked(packed_anew, 1)
    assert publisher.content != repacked(packed_anew, 9)
    # Others fetch nothing, as the bucket has the published files, nor does who provides the file.
    for folder in ("theirs", "mine"):
        assert stage(bucket, "photos", None, tmp_path / folder / "stage") == {**first, "changed": False}
    (tmp_path / "own").mkdir()
    (tmp_path / "own/s.tar.gz").write_bytes(publisher.content)
    for check in (True, False):
        assert not stage(bucket, "photos", tmp_path / "own", tmp_path / "stage", check=check)["changed"]
    assert publisher.offsets == [0]
    # On request the one that is served now replaces it.
    new = stage(bucket, "photos", None, tmp_path / "theirs/stage", replace=True)
    assert new["changed"] and new["version"] != first["version"]
    assert stage(bucket, "photos", None, tmp_path / "mine/stage") == {**new, "changed": False}
    # A list that names another archive than the bucket has is written again, and a missing archive is sent again.
    put_list(bucket, "photos", "e" * 64)
    assert stage(bucket, "photos", None, tmp_path / "mine/stage") == new
    aws.client("s3").delete_object(Bucket="mine", Key="data/photos/s.tar.gz")
    assert stage(bucket, "photos", None, tmp_path / "mine/stage")["sha256"] == first["sha256"]
    assert not (tmp_path / "mine/first-fetches.json").exists()


@pytest.mark.parametrize("content", [sources(a=b"2"), b"no archive"])
def test_an_archive_of_others_in_the_bucket_is_refused(
    bucket: Bucket, aws: Account, publisher: Publisher, packed_anew: bytes, tmp_path: Path, content: bytes
) -> None:
    stage(bucket, "photos", None, tmp_path / "stage")
    aws.client("s3").put_object(Bucket="mine", Key="data/photos/s.tar.gz", Body=content)
    with pytest.raises(UserError, match="s.tar.gz does not have the published files, so nothing of it is used: all"):
        stage(bucket, "photos", None, tmp_path / "stage")
    assert stage(bucket, "photos", None, tmp_path / "stage", replace=True)["changed"]
    assert not stage(bucket, "photos", None, tmp_path / "stage")["changed"]


def test_a_wrong_file_of_an_earlier_attempt_is_fetched_again(
    bucket: Bucket, publisher: Publisher, packed_anew: bytes, tmp_path: Path
) -> None:
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage/s.tar.gz").write_bytes(b"no archive")
    (tmp_path / "stage/s.tar.gz.part").write_bytes(b"wrong")
    display = Quiet()
    assert stage(bucket, "photos", None, tmp_path / "stage", display=display)["changed"]
    assert publisher.offsets == [5, 0]
    assert ["s.tar.gz is not a complete archive" in line for line in display.messages] == [True]


def test_too_little_space_is_reported_before_the_download(
    bucket: Bucket, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_upload.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(UserError, match="make room, or name another folder"):
        stage(bucket, "photos", None, tmp_path / "stage")
    assert list((tmp_path / "stage").iterdir()) == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("404", "The bucket mine does not exist: create it first"),
        ("301", "The bucket mine is in another region than us-east-1"),
        ("403", "These credentials may not use the bucket mine, or it does not belong to the account 123456789012"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_a_sentence(
    bucket: Bucket, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    def refused(service: str, operation: str, **params: Any) -> None:
        assert params["ExpectedBucketOwner"] == "123456789012"
        raise AwsError("HeadBucket failed", code)

    monkeypatch.setattr(bucket.aws, "call", refused)
    with pytest.raises(UserError, match=says):
        stage(bucket, "photos", source, tmp_path)


def test_the_option_bucket_selects_the_bucket_and_prefix(aws: Account) -> None:
    def chosen(location: str) -> Bucket:
        return choose(Aws("us-east-1"), "ours", location, "photos")

    own = chosen("")
    assert (own.url, own.owner) == ("s3://ours/photos", "123456789012")
    # As in all other settings of a bucket, the scheme is optional.
    for other in ("s3://other/", "other"):
        assert chosen(other).url == "s3://other/photos" and chosen(other).owner == ""
    for other in ("s3://other/a/b", "other/a/b/"):
        assert chosen(other).url == "s3://other/a/b/photos"
    for wrong in ("s3://", "https://other", "/"):
        with pytest.raises(UserError, match=f"bucket is {wrong}; it must be a bucket. Example: -e bucket=s3://"):
            chosen(wrong)


@pytest.mark.parametrize(
    ("name", "source", "says"),
    [
        ("Photos", None, "in lower-case letters"),
        (
            "photos",
            None,
            "dataset is photos, which is not published: use coco2017, cifar10, tensorpack, or name",
        ),
        (
            "mnist",
            "empty",
            "nodes download from its publisher: give your own files another name. Example: -e dataset=my-",
        ),
        ("photos", "none", "there is no such folder on this machine"),
        ("photos", "empty", "which has no file"),
        ("photos", "folders", "which has folders: pack them. Example: tar -cf photos.tar FOLDER"),
        ("photos", "ours", "its manifest.json has a reserved name"),
        ("coco2017", "folders", "has no train2017.zip, val2017.zip, .*: put them there, or coco-2017.tar"),
    ],
)
def test_what_cannot_be_staged_is_a_sentence(name: str, source: str | None, says: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "folders/train").mkdir(parents=True)
    (tmp_path / "folders/a.tar").write_text("")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/manifest.json").write_text("")
    with pytest.raises(UserError, match=says):
        set_of(name, tmp_path / source if source else None)


def test_the_one_archive_of_the_old_script_is_taken(tmp_path: Path) -> None:
    (tmp_path / "coco-2017.tar").write_text("")
    result = set_of("coco2017", tmp_path)
    assert result.parts == (DatasetFile("coco-2017.tar", strip="data"),)
    assert result.links["data/train2017"] == "train2017"


def test_every_published_checksum_has_its_form_and_every_part_an_address() -> None:
    for part in (part for dataset in DATASETS.values() for part in dataset.parts):
        assert all(url.startswith("https://") for url in (part.url, *part.mirrors))
        assert part.sha256 or not part.mirrors
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in (part.sha256, part.files_sha256) if sha256)
    unpublished = {part.name for dataset in DATASETS.values() for part in dataset.parts if not part.is_published}
    assert unpublished == {"ImageNet-R50-AlignPadding.npz", "COCO-R50FPN-MaskRCNN-Standard.npz"}


def test_a_bucket_of_another_region_is_refused(bucket: Bucket, source: Path, aws: Account, tmp_path: Path) -> None:
    elsewhere = {"LocationConstraint": "eu-west-1"}
    aws.client("s3").create_bucket(Bucket="far", CreateBucketConfiguration=elsewhere)
    far = Bucket(bucket.aws, "far", "data/photos")
    with pytest.raises(UserError, match="The bucket far is in eu-west-1, and the cluster in us-east-1"):
        stage(far, "photos", source, tmp_path)


def zipped(name: str = "1.jpg") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, CONTENT)
    return out.getvalue()


def spoiled(content: bytes, place: int) -> bytes:
    return content[:place] + b"\xff" * 64 + content[place + 64 :]


TWO = packed(b"x" * 100)[:1024] + packed(b"y")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("b.tar", b"", r"b.tar is not a complete archive \("),
        ("b.tar", b"corrupt" * 1000, r"b.tar is not a complete archive \("),
        ("b.tar", ARCHIVE[:-20_000], r"b.tar is not a complete archive \("),
        ("b.tar", spoiled(TWO, 1024), r"b.tar is not a complete archive \(no header at 1024"),
        ("b.tar", TWO[:1024], r"b.tar is not a complete archive \(no header at 1024"),
        ("b.tar", packed(name="../1.jpg"), "b.tar has a file '../1.jpg', which leads out of its folder"),
        ("b.tar.gz", packed(mode="w:gz")[:-1], r"b.tar.gz is not a complete archive \("),
        ("b.tar.gz", spoiled(packed(mode="w:gz"), 60), r"b.tar.gz is not a complete archive \("),
        ("b.tar.gz", ARCHIVE, r"b.tar.gz is not a complete archive \("),
        ("b.zip", zipped()[:-1], r"b.zip is not a complete archive \("),
        ("b.zip", spoiled(zipped(), 100), r"b.zip is not a complete archive \("),
        ("b.zip", zipped("/1.jpg"), "b.zip has a file '/1.jpg'"),
    ],
)
def test_an_archive_that_nodes_could_not_unpack_is_not_sent(
    bucket: Bucket, aws: Account, source: Path, tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (source / name).write_bytes(content)
    with pytest.raises(UserError, match=says):
        stage(bucket, "photos", source, tmp_path)
    assert "Contents" not in aws.client("s3").list_objects_v2(Bucket="mine")


@pytest.mark.parametrize(("name", "mode"), [("b.tar", "w"), ("b.tar.gz", "w:gz")])
def test_links_in_an_archive_are_refused(
    bucket: Bucket, source: Path, tmp_path: Path, name: str, mode: Literal["w", "w:gz"]
) -> None:
    with tarfile.open(source / name, mode) as archive:
        link = tarfile.TarInfo("train/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    with pytest.raises(UserError, match="train/link, .* Example: tar --dereference -cf b.tar FOLDER"):
        stage(bucket, "photos", source, tmp_path)


def test_an_encrypted_archive_is_refused(bucket: Bucket, source: Path, tmp_path: Path) -> None:
    content = bytearray(zipped())
    for header in (content.find(b"PK\x03\x04") + 6, content.find(b"PK\x01\x02") + 8):
        content[header] |= 1
    (source / "b.zip").write_bytes(content)
    with pytest.raises(UserError, match="b.zip cannot be unpacked .*encrypted.*: pack it in another way"):
        stage(bucket, "photos", source, tmp_path)


def test_all_kinds_of_archives_are_taken(bucket: Bucket, source: Path, tmp_path: Path) -> None:
    (source / "b.tar.gz").write_bytes(packed(mode="w:gz"))
    (source / "c.zip").write_bytes(zipped())
    assert stage(bucket, "photos", source, tmp_path)["changed"]


# On the nodes


def test_how_far_a_node_is_is_shown_as_it_comes() -> None:
    output: list[str] = []

    def show(line: str, newline: bool = True) -> None:
        output.append(line)

    lines = [
        '{"event": "note", "text": "Another upload is at it"}',
        '{"event": "progress", "done": 1048576, "total": 4194304}',
        "no event",
        '{"event": "progress", "done": "all of it"}',
        '{"event": "note", "text": ["x"]}',
        '{"event": "end", "changed": true, "files": 3}',
    ]
    assert node_command.show(lines, "node", ["unpack", "share"], ProgressDisplay(show, False, 80)) == {
        "changed": True,
        "files": 3,
    }
    assert output == ["node: Another upload is at it", "  node: 1 of 4 MiB"]
    with pytest.raises(UserError, match="node answered `deeplearning unpack share` with something unexpected"):
        node_command.show(lines[:3], "node", ["unpack", "share"], ProgressDisplay(show, False, 80))


def test_a_transfer_shows_the_time_left_at_its_speed() -> None:
    output: list[str] = []
    times = [0.0]
    display = ProgressDisplay(lambda msg, newline=True: output.append(msg), False, 80, lambda: times[0])
    # What an earlier attempt has left does not count as speed.
    for times[0], what, mebibytes in ((0.0, "node", 40), (10.0, "node", 50), (30.0, "node", 70), (31.0, "checking", 1)):
        display.transfer(what, mebibytes << 20, 160 << 20)
    assert output == [
        "  node: 40 of 160 MiB",
        "  node: 50 of 160 MiB, 1 MiB/s, 1:50 left",
        "  node: 70 of 160 MiB, 1 MiB/s, 1:30 left",
    ]


@pytest.mark.parametrize(
    ("done", "total", "line"),
    [
        (0, 0, "  first: 0 of 0 bytes"),
        (0, 700, "  first: 0 of 700 bytes"),
        (2048, 5000, "  first: 2 of 5 KiB"),
        (1 << 20, 3 << 30, "  first: 1 of 3072 MiB"),
    ],
)
def test_a_small_transfer_has_a_small_unit(done: int, total: int, line: str) -> None:
    output: list[str] = []
    display = ProgressDisplay(lambda msg, newline=True: output.append(msg), False, 80, lambda: 0.0)
    display.transfer("first", done, total)
    assert output == [line]


# The playbook


def playbook(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "stage.yml", "-e", "cluster_name=red", *words],
        cwd=Path(__file__).resolve().parents[4],
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_person_stages_a_folder_and_stages_it_again(aws: Account, source: Path) -> None:
    words, s3 = ("-e", "dataset=photos", "-e", f"source_dir={source}"), aws.client("s3")
    code, output = playbook(*words, "--check")
    assert code == 0 and s3.list_buckets()["Buckets"] == [], output
    code, output = playbook(*words)
    assert code == 0 and "changed" in output, output
    assert "No checksums are published for these" in output and "a.tar, weights.npz" in output
    assert "Traceback" not in output
    # No cluster exists: the bucket is the account's.
    bucket = "123456789012-us-east-1-deeplearning-data"
    assert {"Key": "deeplearning:data", "Value": "true"} in s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
    assert s3.head_object(Bucket=bucket, Key="photos/manifest.json")
    code, output = playbook(*words)
    assert code == 0 and "changed" not in output and "No checksums" not in output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "dataset is not given: name a data set. Example: -e dataset=coco2017"),
        (("-e", "dataset=coco2017", "-e", "stage_target=home"), "stage_target is home"),
        (("-e", "dataset=photos"), "dataset is photos, which is not published"),
    ],
)
def test_what_a_person_gets_wrong_is_a_sentence(aws: Account, words: tuple[str, ...], says: str) -> None:
    code, output = playbook(*words)
    assert code == 2
    assert says in " ".join(output.split())
    assert "Traceback" not in output


def test_a_folder_that_cannot_be_written_is_a_sentence(aws: Account) -> None:
    code, output = playbook("-e", "dataset=coco2017", "-e", "stage_folder=/dev/null")
    assert code == 2 and "Traceback" not in output
    assert "/dev/null/coco2017: Not a directory. Fix that and run the same command again" in " ".join(output.split())
