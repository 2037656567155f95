"""Objects of S3 as files: several requests at a time, what is refused, and nothing fetched or read twice."""

from __future__ import annotations

import errno
import io
import os
import random
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from deeplearning import aws
from deeplearning.aws import PARALLEL_REQUESTS, AwsClient, _error
from deeplearning.contract.errors import UserError
from deeplearning.data import objects, staging
from deeplearning.data.objects import fetch_s3
from deeplearning.data.sources import Progress
from deeplearning.data.staging import StagingRequest, stage

from tests.unit.node.s3_kit import Bucket

PIECE = 100
PIECES = 2 * PARALLEL_REQUESTS + 1
LARGE = random.Random(0).randbytes(PIECES * PIECE - 30)
WAIT_SECONDS = 60
"""For another thread or process, which does not take long."""


def range_of(piece: int) -> str:
    return f"bytes={piece * PIECE}-{min((piece + 1) * PIECE, len(LARGE)) - 1}"


class Broken(io.BytesIO):
    """The connection breaks after two bytes."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content[:2])

    def read(self, size: int | None = -1) -> bytes:
        if part := super().read(size):
            return part
        raise ReadTimeoutError(endpoint_url="https://s3", error="timed out")


def short(content: bytes) -> io.BytesIO:
    return io.BytesIO(content[:-1])


def busy(_content: bytes) -> io.BytesIO:
    raise _error("s3", "get_object", {}, {"Code": "SlowDown", "Message": "Please reduce your request rate."})


def fetched(bucket: Bucket, folder: Path, prefix: str = "set") -> None:
    fetch_s3(bucket, "bucket", prefix, folder, Progress(lambda _event: None))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "RANGE_BYTES", PIECE)
    monkeypatch.setattr(aws, "RETRY_SECONDS", 0)


def test_all_objects_below_a_prefix_are_fetched_once(tmp_path: Path) -> None:
    bucket = Bucket(set__a=b"aaaa", set__deep__b=b"bbbbbb", set__empty=b"", other=b"no", setting=b"no")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/b").write_bytes(b"bbbbbb")
    fetched(bucket, tmp_path)
    assert bucket.asked == [("set/a", "bytes=0-3")]
    assert (tmp_path / "a").read_bytes() == b"aaaa" and (tmp_path / "empty").read_bytes() == b""
    assert sorted(os.listdir(tmp_path)) == ["a", "deep", "empty"]


def test_only_names_below_the_prefix_are_listed(tmp_path: Path) -> None:
    bucket = Bucket(set__a=b"aaaa", set_secret=b"no")
    fetched(bucket, tmp_path)
    assert bucket.listed == ["set/"]


def test_a_prefix_may_be_the_name_of_one_object(tmp_path: Path) -> None:
    fetched(Bucket(set__a=b"aaaa", set__ab=b"no"), tmp_path, "set/a")
    assert os.listdir(tmp_path) == ["a"]


def test_a_denied_listing_after_an_empty_one_means_an_empty_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their policy has `imagenet/*`, so they may list `imagenet/`, and not `imagenet`."""
    real = AwsClient("us-east-1")
    allowed = ["imagenet/"]

    def paginate(Bucket: str, Prefix: str) -> list[dict[str, Any]]:
        if Prefix not in allowed:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListObjectsV2")
        return [{}]

    client = SimpleNamespace(get_paginator=lambda _operation: SimpleNamespace(paginate=paginate))
    monkeypatch.setattr(real, "client", lambda _service: client)
    for message in ("s3://bucket/imagenet holds nothing", "is not allowed s3 list_objects_v2"):
        with pytest.raises(UserError, match=message):
            fetch_s3(real, "bucket", "imagenet", tmp_path, Progress(lambda _event: None))
        allowed.clear()


def test_names_of_objects_stay_below_the_folder(tmp_path: Path) -> None:
    bucket = Bucket()
    bucket.objects = {"set/../../evil": b"x"}
    with pytest.raises(UserError, match="no path below a folder"):
        fetched(bucket, tmp_path)
    with pytest.raises(UserError, match="s3://bucket/none holds nothing"):
        fetched(bucket, tmp_path, "none")


@pytest.mark.parametrize("large", [True, False], ids=["pieces of an object", "objects"])
def test_so_many_requests_run_at_the_same_time(tmp_path: Path, large: bool) -> None:
    bucket = Bucket(set__a=LARGE) if large else Bucket(**{f"set__{n}": b"x" for n in range(PIECES)})
    together, running, most, lock = threading.Barrier(PARALLEL_REQUESTS), [0], [0], threading.Lock()

    def during(_range: str) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            is_first = len(bucket.asked) <= PARALLEL_REQUESTS
        if is_first:
            together.wait(WAIT_SECONDS)
        with lock:
            running[0] -= 1

    bucket.during = during
    fetched(bucket, tmp_path)
    assert most == [PARALLEL_REQUESTS] and len(bucket.asked) == PIECES
    assert not large or (tmp_path / "a").read_bytes() == LARGE


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_downloaded_object_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_parts: bool) -> None:
    """Its MD5 is computed while it comes, if its tag is one."""
    for module, name in ((objects, "md5_of"), (objects.os, "pread")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("it is read from the disk"))
    bucket = Bucket(set__a=LARGE, set__b=b"small")
    bucket.uploaded_in_parts = in_parts
    done: list[dict[str, Any]] = []
    fetch_s3(bucket, "bucket", "set", tmp_path, Progress(done.append, interval=0))
    assert (tmp_path / "a").read_bytes() == LARGE and (tmp_path / "b").read_bytes() == b"small"
    assert {event["total"] for event in done} == {len(LARGE) + 5} and done[-1]["done"] == len(LARGE) + 5


def test_a_request_that_fails_is_repeated_and_no_other(tmp_path: Path) -> None:
    bucket = Bucket(set__a=LARGE)
    bucket.answers = {range_of(3): [Broken, Broken], range_of(8): [busy]}
    fetched(bucket, tmp_path)
    assert (tmp_path / "a").read_bytes() == LARGE
    repeated = [range_of(3)] * 2 + [range_of(8)]
    assert sorted(bucket.asked) == sorted(("set/a", range_) for range_ in [*map(range_of, range(PIECES)), *repeated])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Broken, "s3://bucket/set/a broke off while it was read .*: try again"),
        (busy, r"AWS does not answer s3 get_object \(SlowDown\): try again later"),
        (short, "s3://bucket/set/a differs from what S3 lists: run the same command again"),
    ],
)
@pytest.mark.parametrize("content", [LARGE, LARGE[:PIECE]], ids=["large", "small"])
def test_what_always_fails_is_one_sentence(
    tmp_path: Path, content: bytes, answer: Callable[[bytes], io.BytesIO], message: str
) -> None:
    bucket = Bucket(set__a=content)
    bucket.answers = {range_of(0): [answer] * 9}
    with pytest.raises(UserError, match=message):
        fetched(bucket, tmp_path)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("in_parts", [False, True])
def test_an_object_that_is_replaced_while_it_is_fetched_is_fetched_anew(tmp_path: Path, in_parts: bool) -> None:
    """No piece of the old one stays, although nothing else than its tag differs."""
    bucket, new = Bucket(set__a=LARGE), LARGE[::-1]
    bucket.uploaded_in_parts = in_parts

    def replace(range_: str) -> None:
        if range_ == range_of(PIECES - 1):
            bucket.objects["set/a"] = new

    bucket.during = replace
    fetched(bucket, tmp_path)
    assert (tmp_path / "a").read_bytes() == new
    assert bucket.listed == ["set/"] * 2 and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("content", [LARGE, b"aaaaaaaa"], ids=["large", "small"])
def test_an_object_that_is_replaced_again_and_again_is_refused(tmp_path: Path, content: bytes) -> None:
    bucket = Bucket(set__a=content)
    bucket.during = lambda _range: bucket.objects.update({"set/a": os.urandom(len(content))})
    with pytest.raises(UserError, match="s3://bucket/set/a does not exist, or was replaced while it was read: run"):
        fetched(bucket, tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_object_that_vanishes_after_it_was_listed_is_left_out(tmp_path: Path) -> None:
    bucket = Bucket(set__a=b"a", set__b=b"b")
    bucket.during = lambda _range: bucket.objects.pop("set/b", None)
    fetched(bucket, tmp_path)
    assert os.listdir(tmp_path) == ["a"] and bucket.listed == ["set/"] * 2


@pytest.mark.parametrize("content", [LARGE, b"aaaa"], ids=["large", "small"])
def test_content_that_differs_from_its_listing_is_refused(tmp_path: Path, content: bytes) -> None:
    bucket = Bucket(set__a=content)
    first = range_of(0) if content == LARGE else "bytes=0-3"
    bucket.answers = {first: [lambda part: io.BytesIO(b"x" * len(part))]}
    with pytest.raises(UserError, match="differs from what S3 lists"):
        fetched(bucket, tmp_path)
    assert os.listdir(tmp_path) == []


def test_the_tag_of_an_object_that_kms_encrypts_is_no_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket(set__a=LARGE, set__b=b"small")
    bucket.encryption = "aws:kms"
    monkeypatch.setattr(bucket, "tag", lambda _key: f'"{"0" * 32}"')
    fetched(bucket, tmp_path)
    assert (tmp_path / "a").read_bytes() == LARGE and (tmp_path / "b").read_bytes() == b"small"


def test_an_object_that_changed_since_the_first_attempt_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old!")
    fetched(Bucket(set__a=b"new!"), tmp_path)
    assert (tmp_path / "a").read_bytes() == b"new!"


# An interrupted copy

UNFETCHED = {3, PARALLEL_REQUESTS - 1}


def killed(folder: Path, content: bytes = LARGE, in_parts: bool = False) -> None:
    """Fetch in another process, and kill it when it waits for some of the first requests and has written the others."""
    bucket = Bucket(set__a=content)
    bucket.uploaded_in_parts = in_parts
    waiting = {range_of(piece) for piece in UNFETCHED}
    bucket.during = lambda range_: threading.Event().wait() if range_ in waiting else None
    process = get_context("fork").Process(target=fetched, args=(bucket, folder), daemon=True)
    process.start()
    expected = bytes(piece not in UNFETCHED for piece in range(PARALLEL_REQUESTS))
    deadline = time.monotonic() + WAIT_SECONDS
    while marks(folder)[:PARALLEL_REQUESTS] != expected:
        process.join(0.01)
        assert time.monotonic() < deadline and process.is_alive(), marks(folder)
    process.kill()
    process.join()


def marks(folder: Path) -> bytes:
    file = folder / ".a.coming"
    return file.read_bytes()[len(LARGE) + objects.DIGEST_BYTES :] if file.exists() else b""


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_killed_copy_resumes_and_fetches_what_is_missing(tmp_path: Path, in_parts: bool) -> None:
    killed(tmp_path, in_parts=in_parts)
    assert os.listdir(tmp_path) == [".a.coming"]
    missing = [range_of(piece) for piece, mark in enumerate(marks(tmp_path)) if not mark]
    bucket, done = Bucket(set__a=LARGE), []
    bucket.uploaded_in_parts = in_parts
    fetch_s3(bucket, "bucket", "set", tmp_path, Progress(done.append, interval=0))
    assert sorted(bucket.asked) == sorted(("set/a", range_) for range_ in missing)
    assert (tmp_path / "a").read_bytes() == LARGE and os.listdir(tmp_path) == ["a"]
    fetched_bytes = sum(int(range_.split("-")[1]) - int(range_.split("=")[1].split("-")[0]) + 1 for range_ in missing)
    assert done[-1] == {"event": "progress", "done": fetched_bytes, "total": fetched_bytes}


@pytest.mark.parametrize("in_parts", [False, True])
def test_pieces_of_another_object_are_not_used(tmp_path: Path, in_parts: bool) -> None:
    killed(tmp_path, LARGE[::-1], in_parts)
    bucket = Bucket(set__a=LARGE)
    bucket.uploaded_in_parts = in_parts
    fetched(bucket, tmp_path)
    assert len(bucket.asked) == PIECES and (tmp_path / "a").read_bytes() == LARGE


def test_a_piece_that_was_changed_on_the_disk_is_noticed(tmp_path: Path) -> None:
    killed(tmp_path)
    with (tmp_path / ".a.coming").open("r+b") as file:
        file.write(b"changed")
    with pytest.raises(UserError, match="differs from what S3 lists"):
        fetched(Bucket(set__a=LARGE), tmp_path)
    fetched(Bucket(set__a=LARGE), tmp_path)
    assert (tmp_path / "a").read_bytes() == LARGE


def test_what_is_no_copy_of_ours_is_written_over(tmp_path: Path) -> None:
    for left in (b"aa", LARGE, LARGE + bytes(500)):
        (tmp_path / ".a.coming").write_bytes(left)
        fetched(Bucket(set__a=LARGE), tmp_path)
        assert (tmp_path / "a").read_bytes() == LARGE and os.listdir(tmp_path) == ["a"]
        (tmp_path / "a").unlink()


def test_a_disk_that_becomes_full_is_one_sentence_and_the_pieces_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, room, pwrite = Bucket(set__a=LARGE), [5 * PIECE], os.pwrite

    def full(descriptor: int, content: Any, position: int) -> int:
        """Write as much as there is room for, in the middle of a piece too."""
        if len(content) > 1:
            room[0] -= (count := min(len(content), room[0], 70))
            if not count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            content = content[:count]
        return pwrite(descriptor, content, position)

    monkeypatch.setattr(staging, "AwsClient", lambda _region: bucket)
    efs = tmp_path / "efs"
    efs.mkdir()
    request = StagingRequest("s3://bucket/set", efs)
    with monkeypatch.context() as patched:
        patched.setattr(objects.os, "pwrite", full)
        with pytest.raises(UserError, match=f"{efs}/data is full: make room, or stage it elsewhere with data_on"):
            stage(request, lambda _event: None)
    (partial,) = (efs / "data").glob(".*.partial")
    missing = sum(not mark for mark in marks(partial))
    assert PIECES - 5 <= missing < PIECES
    bucket.asked.clear()
    result = stage(request, lambda _event: None)
    assert len(bucket.asked) == missing
    assert Path(result["path"], "a").read_bytes() == LARGE


def test_room_is_needed_for_what_is_missing_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(tmp_path)
    needed: list[int] = []
    monkeypatch.setattr(objects, "require_space", lambda _folder, count: needed.append(count))
    missing = sum(not mark for mark in marks(tmp_path))
    fetched(Bucket(set__a=LARGE), tmp_path)
    assert needed[0] in (missing * PIECE, missing * PIECE - 30)
