"""Data sets on a node: complete or absent, checked, and resumed after an interruption."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import os
import re
import socketserver
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning.contract import download
from deeplearning.contract.datasets import DATASETS, ON_DEMAND, Dataset, DatasetFile
from deeplearning.contract.errors import UserError
from deeplearning.contract.manifest import build
from deeplearning.data import cli, sources, staging
from deeplearning.data.sources import Progress
from deeplearning.data.staging import StagingRequest, receive, show, stage

from tests.unit.node.s3_kit import Bucket
from tests.unit.node.staged_kit import contents, manifest, tar
from tests.unit.node.users_kit import as_nobody, open_folder

ROOT = Path(__file__).resolve().parents[3]


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def part(name: str, content: bytes) -> DatasetFile:
    return DatasetFile(name, sha256=hashlib.sha256(content).hexdigest())


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
    tiny = Dataset((part("tiny.tar.gz", WHOLE),), {"tiny_data": "."}, files={"one.bin": 5000, "two.bin": 7000})
    zipped = Dataset((part("images.gz", IMAGES),), files={"images": 6})
    monkeypatch.setattr(staging, "DATASETS", {"tiny": tiny, "zipped": zipped})
    monkeypatch.setattr(staging, "ON_NODE", tmp_path / "node")
    monkeypatch.setattr(staging.paths, "TRAINERS", str(ROOT / "files/trainers"))
    monkeypatch.setattr(download, "RETRY_SECONDS", 0)
    # This machine's disks stay as they are.
    monkeypatch.setattr(staging.local_disk, "prepare", lambda _root: None)
    mount = tmp_path / "efs"
    mount.mkdir()
    return mount


def staged(efs: Path, *arguments: Any) -> dict[str, Any]:
    return stage(StagingRequest(arguments[0], efs, *arguments[1:]), lambda _event: None)


class Web:
    """Serves files, with ranges; cuts the connection on request."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_after: int | None = None
        self.asked: list[str] = []

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        content = self.files.get(request.path)
        range_ = request.headers.get("Range", "")
        self.asked.append(f"{request.path} {range_}".strip())
        if content is None:
            request.send_error(404)
            return
        start = int(range_.removeprefix("bytes=").rstrip("-") or 0)
        if start >= len(content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(content)}")
            request.end_headers()
            return
        request.send_response(206 if range_ else 200)
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


def test_a_named_dataset_is_fetched_once_unpacked_and_linked(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"] = WHOLE
    result = staged(efs, "tiny", web.home)
    assert result == {"exists": True, "path": f"{efs}/data/tiny", "generated": False, "received": 0, "changed": True}
    assert sorted(os.listdir(efs / "data/tiny")) == [".deeplearning.json", "one.bin", "two.bin"]
    assert (efs / "tiny_data/two.bin").read_bytes() == b"2" * 7000
    assert (efs / "data").stat().st_mode & 0o7777 == 0o1777
    asked = list(web.asked)
    assert not staged(efs, "tiny", web.home)["changed"]
    assert web.asked == asked


def test_an_interrupted_download_resumes(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"], web.cut_after = WHOLE, 50
    staged(efs, "tiny", web.home)
    assert web.asked == ["/tiny.tar.gz", "/tiny.tar.gz bytes=50-"]


def test_a_second_attempt_resumes_the_first_ones_download(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"] = WHOLE
    partial = efs / "data/.tiny.partial"
    partial.mkdir(parents=True)
    (partial / ".tiny.tar.gz").write_bytes(WHOLE[:60])
    staged(efs, "tiny", web.home)
    assert web.asked == ["/tiny.tar.gz bytes=60-"]
    assert not partial.exists()


def test_a_complete_download_is_used_as_it_is(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"] = WHOLE
    partial = efs / "data/.tiny.partial"
    partial.mkdir(parents=True)
    (partial / ".tiny.tar.gz").write_bytes(WHOLE)
    assert staged(efs, "tiny", web.home)["changed"]
    assert web.asked == [f"/tiny.tar.gz bytes={len(WHOLE)}-"]


def test_a_partial_file_that_is_too_long_is_downloaded_again(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"] = WHOLE
    partial = efs / "data/.tiny.partial"
    partial.mkdir(parents=True)
    (partial / ".tiny.tar.gz").write_bytes(WHOLE + b"x")
    assert staged(efs, "tiny", web.home)["changed"]
    assert web.asked == [f"/tiny.tar.gz bytes={len(WHOLE) + 1}-", "/tiny.tar.gz"]


def test_a_wrong_checksum_is_refused_and_the_file_is_removed(efs: Path, web: Any) -> None:
    web.files["/tiny.tar.gz"] = archive(one=b"something else")
    with pytest.raises(UserError, match="tiny.tar.gz has the SHA-256 .*, and .* is published"):
        staged(efs, "tiny", web.home)
    assert not show(StagingRequest("tiny", efs))["exists"]
    assert os.listdir(efs / "data/.tiny.partial") == []
    web.files["/tiny.tar.gz"] = WHOLE
    assert staged(efs, "tiny", web.home)["changed"]


def test_a_failed_download_is_one_sentence(efs: Path, web: Any) -> None:
    with pytest.raises(UserError, match="cannot be fetched .404 Not Found.: name another data_source"):
        staged(efs, "tiny", web.home)
    with pytest.raises(
        UserError, match="cannot be fetched .*refused.*: name another data_source, such as a file of your machine.$"
    ):
        staged(efs, "tiny", "http://127.0.0.1:1/")


def test_files_that_are_compressed_separately_are_unpacked(efs: Path, web: Any) -> None:
    web.files["/mirror/images.gz"] = IMAGES
    staged(efs, "zipped", f"{web.home}mirror/")
    assert (efs / "data/zipped/images").read_bytes() == b"images"


def test_a_file_sent_by_the_operator_is_received_in_parts_and_removed_after_use(efs: Path) -> None:
    key, tell = md5(WHOLE), lambda _event: None
    request = StagingRequest("tiny", efs)
    receive(request, key, 0, iter([WHOLE[:30]]), tell)
    assert show(request, key)["received"] == 30
    path = receive(request, key, 30, iter([WHOLE[30:]]), tell)["path"]
    assert staged(efs, "tiny", path)["changed"]
    assert not Path(path).exists()


def test_two_senders_of_the_same_file_do_not_corrupt_it(efs: Path) -> None:
    """What a playbook that was killed has started may send on while the next run does."""
    key, tell = md5(WHOLE), lambda _event: None
    request = StagingRequest("tiny", efs)

    def rest() -> Iterator[bytes]:
        yield WHOLE[30:40]
        at = show(request, key)["received"]
        receive(request, key, at, iter([WHOLE[at:]]), tell)
        yield WHOLE[40:50]

    receive(request, key, 0, iter([WHOLE[:30]]), tell)
    path = receive(request, key, 30, rest(), tell)["path"]
    assert md5(Path(path).read_bytes()) == key


def test_a_sent_file_with_a_wrong_checksum_is_removed(efs: Path) -> None:
    path = receive(StagingRequest("tiny", efs), "0" * 32, 0, iter([archive(one=b"?")]), lambda _event: None)["path"]
    with pytest.raises(UserError, match="another data_source"):
        staged(efs, "tiny", path)
    assert not Path(path).exists()


def test_a_file_of_the_node_is_not_moved(efs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "tiny.tar.gz"
    mine.write_bytes(WHOLE)
    staged(efs, "tiny", str(mine))
    assert mine.exists()


def test_a_dataset_put_there_by_hand_counts_only_if_it_is_complete(efs: Path) -> None:
    folder = efs / "data/tiny"
    folder.mkdir(parents=True)
    (folder / "one.bin").write_bytes(b"1" * 5000)
    with pytest.raises(UserError, match="is there and is not the whole of tiny: move it away"):
        staged(efs, "tiny")
    (folder / "two.bin").write_bytes(b"2" * 7000)
    assert not staged(efs, "tiny")["changed"]


def test_generated_data_is_marked(efs: Path) -> None:
    result = staged(efs, "generated")
    assert result["generated"] and result["changed"]
    assert (efs / "data/generated/data_batch_1.bin").stat().st_size % 3073 == 0
    assert not staged(efs, "generated")["changed"]


def test_a_folder_is_used_in_place_or_copied_to_the_nodes_disk(efs: Path, tmp_path: Path) -> None:
    mine = efs / "mine"
    (mine / "deep").mkdir(parents=True)
    (mine / "deep/a").write_text("a")
    assert staged(efs, str(mine)) == {
        "exists": True,
        "path": str(mine),
        "generated": False,
        "received": 0,
        "changed": False,
    }
    copied = staged(efs, str(mine), "", True)
    assert copied["changed"] and Path(copied["path"]).parent == tmp_path / "node"
    assert Path(copied["path"], "deep/a").read_text() == "a"


def test_a_folder_of_the_shared_file_system_is_copied_by_its_name(efs: Path, tmp_path: Path) -> None:
    (efs / "data/mine/deep").mkdir(parents=True)
    with pytest.raises(UserError, match="data is mine, which has no files: put them there, or choose other data"):
        staged(efs, "mine", "", True)
    (efs / "data/mine/deep/a").write_text("a")
    assert staged(efs, "mine")["path"] == str(efs / "data/mine")
    copied = Path(staged(efs, "mine", "", True)["path"])
    assert copied.parent == tmp_path / "node" and (copied / "deep/a").read_text() == "a"


@pytest.mark.parametrize("on_node", [False, True])
@pytest.mark.parametrize("data", ["nothing", "/efs/nothing"])
def test_a_missing_folder_is_refused(efs: Path, data: str, on_node: bool) -> None:
    with pytest.raises(UserError, match=f"data is {data}, and this node has no folder .*/nothing: stage it first"):
        staged(efs, data, "", on_node)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """A bucket of data sets, with photos in it."""
    (tmp_path / "bucket/photos").mkdir(parents=True)
    tar(tmp_path / "bucket/photos/a.tar", contents())
    manifest(tmp_path / "bucket/photos", "a.tar", name="photos")
    return tmp_path / "bucket"


def test_a_staged_set_is_unpacked_to_the_nodes_disk(efs: Path, bucket: Path, tmp_path: Path) -> None:
    request = StagingRequest("photos", efs, "", True, str(bucket))
    assert not show(request)["exists"]
    result = stage(request, lambda _event: None)
    folder = Path(result["path"])
    assert result["exists"] and result["changed"] and folder.parent == tmp_path / "node"
    assert {str(file.relative_to(folder)) for file in folder.rglob("*.*") if file.name != ".deeplearning.json"} == set(
        contents()
    )
    assert not stage(request, lambda _event: None)["changed"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [f".{folder.name}.lock", folder.name]
    assert list(efs.iterdir()) == []


def test_another_version_than_what_is_staged_now_is_refused(efs: Path, bucket: Path) -> None:
    request = StagingRequest("photos", efs, "", True, str(bucket))
    folder = Path(stage(request, lambda _event: None)["path"])
    manifest(bucket / "photos", "a.tar", name="photos", version="2" * 16)
    with pytest.raises(UserError, match=f"{folder} is another version of photos than what is staged: remove it"):
        show(request)
    # Without what it came from, it is used as it is.
    (bucket / "photos/manifest.json").unlink()
    assert show(request)["exists"]


def test_a_copy_of_a_shared_folder_has_its_version(efs: Path, bucket: Path) -> None:
    shared = efs / "data/photos"
    shared.mkdir(parents=True)
    (shared / "mine").write_text("mine")
    (shared / ".deeplearning.json").write_text('{"version": "1", "files": {"mine": 4}}')
    request = StagingRequest("photos", efs, "", True, str(bucket))
    assert stage(request, lambda _event: None)["exists"]
    (shared / ".deeplearning.json").write_text('{"version": "2", "files": {"mine": 4}}')
    with pytest.raises(UserError, match="is another version of photos than what is staged"):
        show(request)


def test_an_incomplete_shared_set_is_not_copied(efs: Path, bucket: Path) -> None:
    (efs / "data/tiny").mkdir(parents=True)
    (efs / "data/tiny/one.bin").write_bytes(b"1" * 5000)
    (bucket / "tiny").mkdir()
    (bucket / "tiny/tiny.tar.gz").write_bytes(WHOLE)
    manifest(bucket / "tiny", "tiny.tar.gz", strip="some-folder", name="tiny")
    copied = Path(staged(efs, "tiny", "", True, str(bucket))["path"])
    assert (copied / "two.bin").stat().st_size == 7000


def test_an_archive_that_was_replaced_is_refused_and_nothing_of_it_stays(
    efs: Path, bucket: Path, tmp_path: Path
) -> None:
    tar(bucket / "photos/a.tar", {name: content[::-1] for name, content in contents().items()})
    with pytest.raises(UserError, match="a.tar has the SHA-256 .* was replaced since. Stage it again"):
        staged(efs, "photos", "", True, str(bucket))
    assert not [path for path in (tmp_path / "node").iterdir() if path.is_dir()]


def test_a_named_set_in_one_archive_of_the_bucket_is_refused(efs: Path, bucket: Path, tmp_path: Path) -> None:
    """Any operator of the account can put one there, and no checksum of it is published."""
    known = DATASETS["coco2017"]
    assert known.archive
    (bucket / "coco2017").mkdir()
    tar(bucket / "coco2017/coco-2017.tar", contents())
    content = (bucket / "coco2017/coco-2017.tar").read_bytes()
    for sha256 in ("e" * 64, hashlib.sha256(content).hexdigest()):
        made = build("coco2017", (known.archive,), {"coco-2017.tar": (len(content), sha256)}, known.links)
        (bucket / "coco2017/manifest.json").write_text(json.dumps(made))
        with pytest.raises(UserError, match="is not the list of coco2017 with the published checksums"):
            staged(efs, "coco2017", "", True, str(bucket))
    assert not [path for path in (tmp_path / "node").iterdir() if path.is_dir()]


def test_a_set_that_is_neither_staged_nor_a_folder_is_refused_before_anything_is_done(efs: Path, bucket: Path) -> None:
    for name in ("pictures", "/efs/pictures"):
        request = StagingRequest(name, efs, "", True, str(bucket))
        message = f"data is {name}, and this node has no folder .*pictures, and .* is no staged data set"
        with pytest.raises(UserError, match=message):
            show(request)
        with pytest.raises(UserError, match=message):
            stage(request, lambda _event: None)


def test_a_folder_of_the_shared_file_system_is_used_although_the_set_is_staged(efs: Path, bucket: Path) -> None:
    (efs / "data/photos").mkdir(parents=True)
    (efs / "data/photos/mine").write_text("mine")
    copied = Path(staged(efs, "photos", "", True, str(bucket))["path"])
    assert (copied / "mine").read_text() == "mine" and not (copied / "train").exists()


@pytest.mark.parametrize("content", [archive(one=b"1" * 5000, two=b"9" * 7000), WHOLE])
def test_a_named_set_of_the_bucket_with_another_checksum_is_refused(
    efs: Path, bucket: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may write to the bucket: its own list proves nothing."""
    published = DatasetFile("tiny.tar.gz", sha256=hashlib.sha256(WHOLE).hexdigest(), strip="some-folder")
    monkeypatch.setitem(DATASETS, "tiny", Dataset((published,)))
    (bucket / "tiny").mkdir()
    (bucket / "tiny/tiny.tar.gz").write_bytes(content)
    sizes = {"tiny.tar.gz": (len(content), hashlib.sha256(content).hexdigest())}
    (bucket / "tiny/manifest.json").write_text(json.dumps(build("tiny", (published,), sizes, {})))
    if content == WHOLE:
        assert staged(efs, "tiny", "", False, str(bucket))["exists"]
        return
    with pytest.raises(UserError, match="is not the list of tiny with the published checksums"):
        staged(efs, "tiny", "", False, str(bucket))
    assert not (efs / "data/tiny").exists()


def test_a_set_with_a_publisher_is_taken_from_the_bucket_if_it_is_staged(efs: Path, bucket: Path) -> None:
    (bucket / "tiny").mkdir()
    (bucket / "tiny/tiny.tar.gz").write_bytes(WHOLE)
    manifest(bucket / "tiny", "tiny.tar.gz", strip="some-folder", name="tiny")
    result = staged(efs, "tiny", "", False, str(bucket))
    assert result["path"] == str(efs / "data/tiny") and (efs / "data/tiny/two.bin").stat().st_size == 7000
    assert (efs / "tiny_data").resolve() == efs / "data/tiny"


def test_a_copy_is_continued_with_the_files_that_are_missing_or_incomplete(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    for name, content in {"a/complete": b"new", "a/cut": b"whole", "b": b"missing"}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    (copy / "a").mkdir(parents=True)
    (copy / "a/complete").write_bytes(b"old")
    (copy / "a/cut").write_bytes(b"who")
    progress = Progress(lambda _event: None)
    sources.copy_folder(source, copy, progress)
    files = {str(file.relative_to(copy)): file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    assert files == {"a/complete": b"old", "a/cut": b"whole", "b": b"missing"}
    assert progress.done == progress.total == len(b"whole") + len(b"missing")


@pytest.mark.parametrize(("free", "fits"), [(12, True), (11, False)])
def test_a_copy_may_fill_the_disk_to_its_last_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, fits: bool
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "copy").mkdir()
    (tmp_path / "source/a").write_bytes(b"x" * 12)
    monkeypatch.setattr(sources.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    if fits:
        sources.copy_folder(tmp_path / "source", tmp_path / "copy", Progress(lambda _event: None))
    else:
        with pytest.raises(UserError, match="has 0.0 GiB left, and 0.0 GiB are needed: make room"):
            sources.copy_folder(tmp_path / "source", tmp_path / "copy", Progress(lambda _event: None))
        assert list((tmp_path / "copy").iterdir()) == []


def test_a_copy_that_differs_from_its_source_is_refused(efs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (efs / "data/mine").mkdir(parents=True)
    (efs / "data/mine/a").write_text("a")
    monkeypatch.setattr(sources, "md5_of", lambda _file: "0" * 32)
    with pytest.raises(UserError, match="differs from .*/mine/a after it was copied: check this node's disk"):
        staged(efs, "mine", "", True)


def test_an_empty_folder_is_refused_where_it_lies(efs: Path) -> None:
    (efs / "data/empty").mkdir(parents=True)
    with pytest.raises(UserError, match="data is empty, and .*/data/empty has no files: put them there, or choose"):
        show(StagingRequest("empty", efs))


def test_a_full_disk_is_reported_before_and_during_a_transfer(
    efs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (efs / "mine").mkdir()
    (efs / "mine/a").write_text("a")
    with monkeypatch.context() as patched:
        patched.setattr(sources.shutil, "disk_usage", lambda _folder: type("Usage", (), {"free": 0}))
        with pytest.raises(UserError, match="has 0.0 GiB left, and 0.0 GiB are needed: make room"):
            staged(efs, str(efs / "mine"), "", True)
    monkeypatch.setattr(staging.programs, "run", Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(UserError, match="is full: make room"):
        staged(efs, "generated")


def test_a_root_that_sudo_cannot_create_is_one_sentence(efs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging.safe_paths, "shared_folder", Mock(side_effect=PermissionError))
    monkeypatch.setattr(staging, "as_root", lambda *words: ["sh", "-c", "echo sudo: no tty >&2; exit 1"])
    with pytest.raises(UserError, match="data cannot be created: sudo: no tty"):
        staged(efs, "tiny")


def test_each_source_has_a_folder_of_its_own() -> None:
    names = {staging.name_of(data) for data in ("s3://a/b", "s3://a-b", "/efs/a/b", "cifar10", "generated")}
    assert len(names) == 5 and {"cifar10", "generated"} < names
    assert all("/" not in name for name in names)


def test_the_catalogue_is_complete() -> None:
    parts = [part for name in ON_DEMAND for part in DATASETS[name].parts]
    assert all(re.fullmatch("[0-9a-f]{64}", part.sha256) and part.url for part in parts)


def test_progress_is_reported_at_intervals() -> None:
    events: list[dict[str, Any]] = []
    progress = Progress(events.append, interval=0.0)
    progress.total = 10
    progress.add(4)
    progress.add(6)
    assert events == [{"event": "progress", "done": 4, "total": 10}, {"event": "progress", "done": 10, "total": 10}]


def test_progress_is_reported_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[int] = []
    times = iter([100.0, 100.9, 101.0, 101.5, 102.25])
    monkeypatch.setattr(sources, "time", SimpleNamespace(monotonic=lambda: next(times)))
    progress = Progress(lambda event: events.append(event["done"]))
    for _piece in range(5):
        progress.add(1)
    assert events == [1, 3, 5]


# What another user of the file system can prepare


@pytest.fixture
def shared(efs: Path) -> Iterator[Path]:
    """A file system on which everybody may make folders, below `data` too."""
    with open_folder() as mount:
        (mount / "data").mkdir()
        (mount / "data").chmod(0o1777)
        (mount / "victim").mkdir()
        yield mount


@pytest.mark.root
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
    with pytest.raises(
        UserError, match=r"(is a link|is a file|is a folder|belongs to nobody) .*Example: sudo (mv|rm) "
    ):
        path = receive(StagingRequest("tiny", shared), md5(WHOLE), 0, iter([WHOLE]), lambda _event: None)["path"]
        staged(shared, "tiny", path)
    assert os.listdir(shared / "victim") == []


@pytest.mark.root
def test_a_root_that_belongs_to_another_user_is_not_used(shared: Path) -> None:
    (shared / "data").rmdir()
    as_nobody((shared / "data").mkdir)
    for begin in (
        lambda: staged(shared, "tiny"),
        lambda: receive(StagingRequest("tiny", shared), "0" * 32, 0, iter([]), print),
    ):
        with pytest.raises(UserError, match="data belongs to nobody and has to be a folder of root"):
            begin()


@pytest.mark.root
def test_a_dataset_that_others_may_change_does_not_count(shared: Path) -> None:
    as_nobody(lambda: ((shared / "data/tiny").mkdir(), (shared / "data/tiny/one.bin").write_bytes(b"?" * 5000)))
    with pytest.raises(UserError, match="data/tiny belongs to nobody"):
        show(StagingRequest("tiny", shared))
    os.chown(shared / "data/tiny", os.geteuid(), -1)
    (shared / "data/tiny").chmod(0o777)
    with pytest.raises(UserError, match="data/tiny has mode 0777, .* Example: sudo chmod go-w "):
        show(StagingRequest("tiny", shared))


# The command


@pytest.fixture
def data(efs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[Any]]:
    """Calls `deeplearning data`, and returns the lines that it prints."""
    users: list[str] = []
    monkeypatch.setattr(cli, "read_config", lambda: SimpleNamespace(efs_mount=str(efs), user="me", region="here"))
    monkeypatch.setattr(cli, "become", users.append)

    def call(*words: str, stdin: bytes = b"") -> list[Any]:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        capsys.readouterr()
        cli.main([*words])
        assert users == ["me"]
        users.clear()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return call


def test_a_data_set_is_sent_staged_and_shown(data: Callable[..., list[Any]], efs: Path) -> None:
    key = md5(WHOLE)
    shown = {"exists": False, "path": f"{efs}/data/tiny", "generated": False, "received": 0}
    assert data("show", "tiny", "--key", key) == [shown]
    file = f"{efs}/data/.incoming/{key}"
    assert data("receive", "tiny", "--key", key, stdin=WHOLE[:70])[-1] == {"path": file}
    assert data("show", "tiny", "--key", key) == [{**shown, "received": 70}]
    assert data("show", "tiny") == [shown]
    assert data("receive", "tiny", "--key", key, "--at", "70", stdin=WHOLE[70:])[-1] == {"path": file}
    end = {"event": "end", **shown, "exists": True, "changed": True}
    assert data("stage", "tiny", "--from", file)[-1] == end
    assert data("stage", "tiny")[-1] == {**end, "changed": False}


@pytest.mark.parametrize(("on", "folder"), [("efs", "efs/data"), ("node", "node"), ("instance_store", "node")])
def test_a_data_set_is_staged_where_it_is_asked_for(
    data: Callable[..., list[Any]], efs: Path, web: Any, monkeypatch: pytest.MonkeyPatch, on: str, folder: str
) -> None:
    required: list[str] = []
    monkeypatch.setattr(cli.local_disk, "require_instance_store", lambda: required.append(on))
    web.files["/tiny.tar.gz"] = WHOLE
    assert data("stage", "tiny", "--from", web.home, "--on", on)[-1]["path"] == f"{efs.parent}/{folder}/tiny"
    assert required == ([on] if on == "instance_store" else [])


def test_a_staged_set_is_found_in_the_bucket(data: Callable[..., list[Any]], bucket: Path, efs: Path) -> None:
    (bucket / "tiny").mkdir()
    tar(bucket / "tiny/a.tar", {"one.bin": b"1" * 5000, "two.bin": b"2" * 7000})
    manifest(bucket / "tiny", "a.tar")
    assert data("stage", "tiny", "--bucket", str(bucket))[-1]["exists"] is True


@pytest.mark.parametrize("key", ["x", "A" * 32, f"../{'a' * 29}", "a" * 33])
def test_a_key_that_is_no_checksum_is_refused(data: Callable[..., list[Any]], efs: Path, key: str) -> None:
    with pytest.raises(UserError, match=f"--key is {re.escape(key)}: give the file's MD5."):
        data("receive", "tiny", "--key", key)
    assert list(efs.iterdir()) == []


def test_a_copy_of_s3_on_the_nodes_own_disk_leaves_nothing_on_the_file_system(
    efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "AwsClient", lambda _region: Bucket(set__a=b"aaaa"))
    path = Path(staged(efs, "s3://bucket/set", "", True)["path"])
    assert path.parent == staging.ON_NODE and (path / "a").read_bytes() == b"aaaa"
    assert not list(efs.rglob("*"))
