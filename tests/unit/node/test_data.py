"""Data sets on a node: whole or not at all, checked, and gone on with after an interruption."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import socketserver
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from deeplearning import Refusal
from deeplearning.aws import Aws
from deeplearning.data import fetching, staging
from deeplearning.data.catalog import SETS, Part, Set
from deeplearning.data.fetching import Progress
from deeplearning.data.staging import Wanted, receive, show, stage

from tests.unit.node.users_kit import as_nobody, open_folder

ROOT = Path(__file__).resolve().parents[3]


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def archive(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as out:
        for name, content in files.items():
            member = tarfile.TarInfo(f"some-folder/{name}.bin")
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return packed.getvalue()


WHOLE = archive(one=b"1" * 5000, two=b"2" * 7000, three=b"no part of it")
IMAGES = gzip.compress(b"images")


@pytest.fixture
def efs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a tiny set of each kind."""
    tiny = Set("", (Part("tiny.tar.gz", md5(WHOLE)),), {"one.bin": 5000, "two.bin": 7000}, "tiny_data")
    zipped = Set("", (Part("images.gz", md5(IMAGES)),), {"images": 6})
    monkeypatch.setattr(staging, "SETS", {"tiny": tiny, "zipped": zipped})
    monkeypatch.setattr(staging, "ON_NODE", tmp_path / "node")
    monkeypatch.setattr(staging.paths, "TRAINERS", str(ROOT / "files/trainers"))
    monkeypatch.setattr(fetching, "PAUSE", 0)
    mount = tmp_path / "efs"
    mount.mkdir()
    return mount


def staged(efs: Path, *wanted: Any) -> dict[str, Any]:
    return stage(Wanted(*wanted), str(efs), lambda _event: None)


class Web:
    """Serves files, with ranges; cuts the connection where it is told to."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_after: int | None = None
        self.asked: list[str] = []

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        content = self.files.get(request.path)
        wanted = request.headers.get("Range", "")
        self.asked.append(f"{request.path} {wanted}".strip())
        if content is None:
            request.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-") or 0)
        if start >= len(content):
            request.send_error(416)
            return
        request.send_response(206 if wanted else 200)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        request.wfile.write(content[start : self.cut_after])
        self.cut_after = None


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.answer(self)

        def log_message(self, *_: Any) -> None: ...

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        web.home = f"http://127.0.0.1:{server.server_address[1]}/"  # type: ignore[attr-defined]
        yield web
        server.shutdown()


def test_a_named_set_is_fetched_unpacked_and_linked_and_then_left_alone(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"] = WHOLE
    found = staged(efs, "tiny", web.home)
    assert found == {"there": True, "path": f"{efs}/data/tiny", "generated": False, "received": 0, "changed": True}
    assert sorted(os.listdir(efs / "data/tiny")) == [".deeplearning.json", "one.bin", "two.bin"]
    assert (efs / "tiny_data/two.bin").read_bytes() == b"2" * 7000
    assert (efs / "data").stat().st_mode & 0o7777 == 0o1777
    asked = list(web.asked)
    assert not staged(efs, "tiny", web.home)["changed"]
    assert web.asked == asked


def test_a_download_that_breaks_off_goes_on_where_it_was(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"], web.cut_after = WHOLE, 50
    staged(efs, "tiny", web.home)
    assert web.asked == ["/tiny.tar.gz", "/tiny.tar.gz bytes=50-"]


def test_a_second_attempt_takes_what_the_first_has_left(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"] = WHOLE
    partial = efs / "data/.tiny.partial"
    partial.mkdir(parents=True)
    (partial / ".tiny.tar.gz").write_bytes(WHOLE[:60])
    staged(efs, "tiny", web.home)
    assert web.asked == ["/tiny.tar.gz bytes=60-"]
    assert not partial.exists()


def test_a_wrong_checksum_is_refused_and_what_came_is_taken_away(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"] = archive(one=b"something else")
    with pytest.raises(Refusal, match="tiny.tar.gz has the checksum .*, and its publisher says"):
        staged(efs, "tiny", web.home)
    assert not show(Wanted("tiny"), str(efs))["there"]
    assert os.listdir(efs / "data/.tiny.partial") == []
    web.files["/tiny.tar.gz"] = WHOLE
    assert staged(efs, "tiny", web.home)["changed"]


def test_what_is_not_to_be_had_is_a_sentence(efs: Path, web: Any) -> None:
    with pytest.raises(Refusal, match="cannot be fetched .404 Not Found.: name another data_source"):
        staged(efs, "tiny", web.home)
    with pytest.raises(Refusal, match="cannot be fetched .*refused.*: name another data_source"):
        staged(efs, "tiny", "http://127.0.0.1:1/")


def test_files_that_are_compressed_one_by_one(efs: Path, web: Any) -> None:
    web.files["/mirror/images.gz"] = IMAGES
    staged(efs, "zipped", f"{web.home}mirror/")
    assert (efs / "data/zipped/images").read_bytes() == b"images"


def test_a_file_of_the_operators_machine_comes_in_parts_and_is_gone_when_it_was_used(efs: Path) -> None:
    key, tell = md5(WHOLE), lambda _event: None
    wanted = Wanted("tiny")
    receive(wanted, str(efs), key, 0, iter([WHOLE[:30]]), tell)
    assert show(wanted, str(efs), key)["received"] == 30
    path = receive(wanted, str(efs), key, 30, iter([WHOLE[30:]]), tell)["path"]
    assert staged(efs, "tiny", path)["changed"]
    assert not Path(path).exists()


def test_two_that_send_the_same_file_do_not_spoil_it(efs: Path) -> None:
    """What a playbook that was killed has started may send on while the next run does."""
    key, tell = md5(WHOLE), lambda _event: None
    wanted = Wanted("tiny")

    def rest() -> Iterator[bytes]:
        yield WHOLE[30:40]
        at = show(wanted, str(efs), key)["received"]
        receive(wanted, str(efs), key, at, iter([WHOLE[at:]]), tell)
        yield WHOLE[40:50]

    receive(wanted, str(efs), key, 0, iter([WHOLE[:30]]), tell)
    path = receive(wanted, str(efs), key, 30, rest(), tell)["path"]
    assert md5(Path(path).read_bytes()) == key


def test_a_sent_file_with_a_wrong_checksum_does_not_stay(efs: Path) -> None:
    path = receive(Wanted("tiny"), str(efs), "0" * 32, 0, iter([archive(one=b"?")]), lambda _event: None)["path"]
    with pytest.raises(Refusal, match="another data_source"):
        staged(efs, "tiny", path)
    assert not Path(path).exists()


def test_a_file_of_the_node_is_left_where_it_is(efs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "tiny.tar.gz"
    mine.write_bytes(WHOLE)
    staged(efs, "tiny", str(mine))
    assert mine.exists()


def test_what_somebody_put_there_whole_counts_and_half_of_it_is_refused(efs: Path) -> None:
    folder = efs / "data/tiny"
    folder.mkdir(parents=True)
    (folder / "one.bin").write_bytes(b"1" * 5000)
    with pytest.raises(Refusal, match="is there and is not the whole of tiny: move it away"):
        staged(efs, "tiny")
    (folder / "two.bin").write_bytes(b"2" * 7000)
    assert not staged(efs, "tiny")["changed"]


def test_generated_data_says_so(efs: Path) -> None:
    found = staged(efs, "generated")
    assert found["generated"] and found["changed"]
    assert (efs / "data/generated/data_batch_1.bin").stat().st_size % 3073 == 0
    assert not staged(efs, "generated")["changed"]


def test_a_folder_stays_where_it_is_or_comes_to_the_nodes_disk(efs: Path, tmp_path: Path) -> None:
    mine = efs / "mine"
    (mine / "deep").mkdir(parents=True)
    (mine / "deep/a").write_text("a")
    assert staged(efs, str(mine)) == {
        "there": True,
        "path": str(mine),
        "generated": False,
        "received": 0,
        "changed": False,
    }
    copied = staged(efs, str(mine), "", True)
    assert copied["changed"] and Path(copied["path"]).parent == tmp_path / "node"
    assert Path(copied["path"], "deep/a").read_text() == "a"
    with pytest.raises(Refusal, match="there is no such folder on this node"):
        staged(efs, str(efs / "nothing"))


def test_full_is_a_sentence_before_it_begins_and_while_it_goes_on(
    efs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (efs / "mine").mkdir()
    (efs / "mine/a").write_text("a")
    with monkeypatch.context() as patched:
        patched.setattr(fetching.shutil, "disk_usage", lambda _folder: type("Usage", (), {"free": 0}))
        with pytest.raises(Refusal, match="has 0.0 GiB left, and 0.0 GiB are needed: make room"):
            staged(efs, str(efs / "mine"), "", True)
    monkeypatch.setattr(staging, "_generate", lambda _folder: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(Refusal, match="is full: make room"):
        staged(efs, "generated")


class Bucket:
    """Of S3, what is asked of it."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = {name.replace("__", "/"): content for name, content in objects.items()}
        self.asked: list[tuple[str, str]] = []
        self.listed: list[str] = []

    def client(self, _service: str) -> None: ...

    def pages(self, _service: str, _operation: str, _key: str, Bucket: str, Prefix: str) -> list[dict[str, Any]]:
        self.listed.append(Prefix)
        return [
            {"Key": name, "Size": len(content), "ETag": f'"{md5(content)}"'}
            for name, content in self.objects.items()
            if name.startswith(Prefix)
        ]

    def call(self, _service: str, _operation: str, Bucket: str, Key: str, IfMatch: str, Range: str = "") -> Any:
        self.asked.append((Key, Range))
        content = self.objects[Key]
        return {"Body": io.BytesIO(content[int(Range.removeprefix("bytes=").rstrip("-") or 0) :])}


def test_all_objects_below_a_prefix_come_and_what_is_there_does_not_come_again(tmp_path: Path) -> None:
    bucket = Bucket(set__a=b"aaaa", set__deep__b=b"bbbbbb", other=b"no", setting=b"no")
    (tmp_path / ".a.coming").write_bytes(b"aa")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/b").write_bytes(b"bbbbbb")
    fetching.fetch_s3(bucket, "bucket", "set", tmp_path, Progress(lambda _event: None))
    assert bucket.asked == [("set/a", "bytes=2-")]
    assert (tmp_path / "a").read_bytes() == b"aaaa"
    assert sorted(os.listdir(tmp_path)) == ["a", "deep"]


def test_only_names_below_the_prefix_are_listed(tmp_path: Path) -> None:
    bucket = Bucket(set__a=b"aaaa", set_secret=b"no")
    fetching.fetch_s3(bucket, "bucket", "set", tmp_path, Progress(lambda _event: None))
    assert bucket.listed == ["set/"]


def test_a_prefix_may_be_the_name_of_one_object(tmp_path: Path) -> None:
    fetching.fetch_s3(Bucket(set__a=b"aaaa", set__ab=b"no"), "bucket", "set/a", tmp_path, Progress(lambda _event: None))
    assert os.listdir(tmp_path) == ["a"]


def test_a_listing_that_members_are_denied_after_an_empty_one_means_that_nothing_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their policy has `imagenet/*`, so they may list `imagenet/`, and not `imagenet`."""
    real = Aws("us-east-1")
    allowed = ["imagenet/"]

    def paginate(Bucket: str, Prefix: str) -> list[dict[str, Any]]:
        if Prefix not in allowed:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListObjectsV2")
        return [{}]

    client = SimpleNamespace(get_paginator=lambda _operation: SimpleNamespace(paginate=paginate))
    monkeypatch.setattr(real, "client", lambda _service: client)
    for said in ("s3://bucket/imagenet holds nothing", "is not allowed s3 list_objects_v2"):
        with pytest.raises(Refusal, match=said):
            fetching.fetch_s3(real, "bucket", "imagenet", tmp_path, Progress(lambda _event: None))
        allowed.clear()


def test_an_object_that_came_otherwise_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".a.coming").write_bytes(b"xx")
    with pytest.raises(Refusal, match="came otherwise than S3 lists it"):
        fetching.fetch_s3(Bucket(set__a=b"aaaa"), "bucket", "set/", tmp_path, Progress(lambda _event: None))
    assert os.listdir(tmp_path) == []


def test_names_of_objects_lead_nowhere_else(tmp_path: Path) -> None:
    bucket = Bucket()
    bucket.objects = {"set/../../evil": b"x"}
    with pytest.raises(Refusal, match="no path below a folder"):
        fetching.fetch_s3(bucket, "bucket", "set", tmp_path, Progress(lambda _event: None))
    with pytest.raises(Refusal, match="s3://bucket/none holds nothing"):
        fetching.fetch_s3(bucket, "bucket", "none", tmp_path, Progress(lambda _event: None))


def test_each_source_has_a_folder_of_its_own() -> None:
    names = {staging.name_of(data) for data in ("s3://a/b", "s3://a-b", "/efs/a/b", "cifar10", "generated")}
    assert len(names) == 5 and {"cifar10", "generated"} < names
    assert all("/" not in name for name in names)


def test_the_catalog_is_whole() -> None:
    assert {part.md5 for part in SETS["cifar10"].parts} == {"c32a1d4ab5d03f1284b67883e8d87530"}
    assert all(len(part.md5) == 32 and one.home.endswith("/") for one in SETS.values() for part in one.parts)


def test_progress_is_told_now_and_then() -> None:
    told: list[dict[str, Any]] = []
    progress = Progress(told.append, every=0.0)
    progress.total = 10
    progress.add(4)
    progress.add(6)
    assert told == [{"event": "progress", "done": 4, "total": 10}, {"event": "progress", "done": 10, "total": 10}]


# What another user of the file system can prepare


@pytest.fixture
def shared(efs: Path) -> Iterator[Path]:
    """A file system on which everybody may make folders, below `data` too."""
    with open_folder() as mount:
        (mount / "data").mkdir()
        (mount / "data").chmod(0o1777)
        (mount / "victim").mkdir()
        yield mount


@pytest.mark.parametrize("name", [".tiny.partial", ".tiny.lock", ".incoming", "tiny"])
@pytest.mark.parametrize("kind", ["a folder", "a file", "a link"])
def test_what_another_user_has_prepared_is_not_used(shared: Path, name: str, kind: str) -> None:
    def prepare() -> None:
        os.umask(0)
        if kind == "a folder":
            (shared / "data" / name).mkdir()
        elif kind == "a file":
            (shared / "data" / name).touch()
        else:
            (shared / "data" / name).symlink_to(shared / "victim/new")

    as_nobody(prepare)
    with pytest.raises(Refusal, match=r"(is a link|is a file|is a folder|belongs to nobody) .*Example: sudo (mv|rm) "):
        path = receive(Wanted("tiny"), str(shared), md5(WHOLE), 0, iter([WHOLE]), lambda _event: None)["path"]
        staged(shared, "tiny", path)
    assert os.listdir(shared / "victim") == []


def test_a_root_that_belongs_to_another_user_is_not_used(shared: Path) -> None:
    (shared / "data").rmdir()
    as_nobody((shared / "data").mkdir)
    for begin in (
        lambda: staged(shared, "tiny"),
        lambda: receive(Wanted("tiny"), str(shared), "0" * 32, 0, iter([]), print),
    ):
        with pytest.raises(Refusal, match="data belongs to nobody and has to be a folder of root"):
            begin()


def test_a_set_that_others_may_change_does_not_count(shared: Path) -> None:
    as_nobody(lambda: ((shared / "data/tiny").mkdir(), (shared / "data/tiny/one.bin").write_bytes(b"?" * 5000)))
    with pytest.raises(Refusal, match="data/tiny belongs to nobody"):
        show(Wanted("tiny"), str(shared))
    os.chown(shared / "data/tiny", os.geteuid(), -1)
    (shared / "data/tiny").chmod(0o777)
    with pytest.raises(Refusal, match="data/tiny has mode 0777, .* Example: sudo chmod go-w "):
        show(Wanted("tiny"), str(shared))


def test_an_object_that_has_changed_since_the_first_attempt_comes_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old!")
    fetching.fetch_s3(Bucket(set__a=b"new!"), "bucket", "set", tmp_path, Progress(lambda _event: None))
    assert (tmp_path / "a").read_bytes() == b"new!"
