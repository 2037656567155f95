"""Staged sets on the shared file system: all parts by some nodes, what is refused, and nothing done twice."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from deeplearning.aws import PARALLEL_REQUESTS, AwsClient
from deeplearning.contract.archives import files_sha256
from deeplearning.contract.datasets import DATASETS, LINKS, STAGED, Dataset, DatasetFile
from deeplearning.contract.errors import UserError
from deeplearning.contract.manifest import build, digest, read
from deeplearning.data import extract
from deeplearning.data import unpack_cli as cli
from deeplearning.data.extract import RECORDS, Unpacking, parts_of_node
from deeplearning.data.ranged_reader import RangedReader, Source
from deeplearning.data.sources import sha256_of

from tests.unit.node.staged_kit import V1, V2, contents, manifest, tar
from tests.unit.node.users_kit import as_nobody, open_folder


def quiet(event: dict[str, Any]) -> None:
    """Drop the report."""


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    (tmp_path / "staged").mkdir()
    return tmp_path / "staged"


@dataclass
class Place:
    """The root of all data sets, and a name below it."""

    root: Path
    name: str

    @property
    def path(self) -> Path:
        return self.root / self.name

    def partial(self, attempt: str) -> Path:
        return self.root / f".{self.name}.{attempt}.unpacking"

    def records(self, attempt: str) -> Path:
        return self.partial(attempt) / RECORDS


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "efs").mkdir()
    return Place(tmp_path / "efs/data", "coco")


def unpack(
    place: Place, source: Source, share: int, shares: int, report: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    return Unpacking(place.root, place.name, source).unpack(share, shares, report)


def finish(place: Place, source: Source) -> dict[str, Any]:
    return Unpacking(place.root, place.name, source).finish()


def all_of(place: Place, staged: Path, count: int) -> dict[str, Any]:
    for share in range(count):
        unpack(place, Source(str(staged), "here"), share, count, quiet)
    return finish(place, Source(str(staged), ""))


def files_in(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del files[".deeplearning.json"]
    return files


def zipped_contents(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents().items():
            archive.writestr(name, content)


@pytest.mark.parametrize("count", [1, 2, 90])
@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
def test_a_tar_is_unpacked_whole(place: Place, staged: Path, count: int, format_: int) -> None:
    tar(staged / "a.tar", contents(), format_)
    manifest(staged, "a.tar")
    done = all_of(place, staged, count)
    assert done == {"changed": True, "files": len(contents())}
    assert files_in(place.path) == contents()


@pytest.mark.parametrize("count", [1, 2])
def test_a_zip_is_unpacked_whole(place: Place, staged: Path, count: int) -> None:
    zipped_contents(staged / "a.zip")
    manifest(staged, "a.zip")
    all_of(place, staged, count)
    assert files_in(place.path) == contents()


@pytest.mark.parametrize(
    ("sizes", "shares", "expected"),
    [
        ([5], 1, [[0]]),
        ([5], 3, [[0], [], []]),
        ([1, 9, 2], 1, [[0, 1, 2]]),
        # As COCO: train2017, val2017, annotations, weights.
        ([190, 8, 2, 1], 2, [[0], [1, 2, 3]]),
        ([4, 4, 4, 4], 2, [[0, 2], [1, 3]]),
        ([0, 0], 2, [[0, 1], []]),
    ],
)
def test_parts_are_dealt_by_their_sizes(sizes: list[int], shares: int, expected: list[list[int]]) -> None:
    parts = [{"size": size} for size in sizes]
    assert [parts_of_node(parts, share, shares) for share in range(shares)] == expected


def test_each_node_unpacks_its_parts(place: Place, staged: Path) -> None:
    for part in range(4):
        tar(staged / f"{part}.tar", {f"{part}-{n}.jpg": b"x" * 2000 for n in range(100)})
    manifest(staged, *(f"{part}.tar" for part in range(4)))
    assert [unpack(place, Source(str(staged), ""), share, 4, quiet)["files"] for share in range(4)] == [100] * 4


def test_records_and_the_marker_list_no_more_than_so_many_files(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", {f"{n}.jpg": b"x" for n in range(extract.LISTED + 5)})
    manifest(staged, "a.tar")
    unpack(place, Source(str(staged), ""), 0, 1, quiet)
    assert len(json.loads((place.records(V1) / "0.json").read_text())["some"]) == extract.LISTED
    finish(place, Source(str(staged), ""))
    marker = json.loads((place.path / ".deeplearning.json").read_text())
    assert (len(marker["files"]), marker["count"]) == (extract.LISTED, extract.LISTED + 5)
    assert set(marker["files"].values()) == {1}


def test_parts_are_unpacked_into_their_folders(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", {"train2017/1.jpg": b"1"}, top="data/")
    with tarfile.open(staged / "b.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("data/val2017/2.jpg")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"2"))
    (staged / "weights.npz").write_bytes(b"3")
    manifest(staged, "a.tar", "b.tar.gz", "weights.npz", strip="data", links={"data/train2017": "train2017"})
    all_of(place, staged, 3)
    assert files_in(place.path) == {"train2017/1.jpg": b"1", "val2017/2.jpg": b"2", "weights.npz": b"3"}
    assert (place.root / "train2017/1.jpg").read_bytes() == b"1"
    assert (place.root / "train2017").readlink() == Path("coco/train2017")


def test_a_second_time_nothing_is_unpacked(place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar(staged / "a.tar", contents())
    manifest(staged, "a.tar")
    all_of(place, staged, 2)
    monkeypatch.setattr(extract, "files_of", None)
    assert all_of(place, staged, 2) == {"changed": False}


def test_a_complete_part_is_not_unpacked_again(place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by another number of nodes."""
    tar(staged / "a.tar", contents())
    tar(staged / "b.tar", {"b": b"b"})
    manifest(staged, "a.tar", "b.tar")
    first = unpack(place, Source(str(staged), ""), 0, 2, quiet)
    read = extract.files_of
    unpacked = []
    monkeypatch.setattr(extract, "files_of", lambda opened, part: unpacked.append(part["name"]) or read(opened, part))
    assert unpack(place, Source(str(staged), ""), 0, 2, quiet) == {"changed": False, "files": first["files"]}
    assert unpack(place, Source(str(staged), ""), 0, 1, quiet) == {"changed": True, "files": first["files"] + 1}
    assert unpacked == ["b.tar"]


def test_a_record_does_not_outlive_its_files(place: Place, staged: Path) -> None:
    """As when a person removes the hidden folder to make room."""
    tar(staged / "a.tar", {"a": b"a"})
    tar(staged / "b.tar", {"b": b"b"})
    manifest(staged, "a.tar", "b.tar")
    assert unpack(place, Source(str(staged), ""), 0, 2, quiet)["changed"] and (place.records(V1) / "0.json").exists()
    shutil.rmtree(place.partial(V1))
    unpack(place, Source(str(staged), ""), 1, 2, quiet)
    with pytest.raises(UserError, match="a.tar of coco is not unpacked"):
        finish(place, Source(str(staged), ""))
    all_of(place, staged, 2)
    assert files_in(place.path) == {"a": b"a", "b": b"b"} and not (place.path / RECORDS).exists()


def test_an_attempt_that_another_node_removes_is_not_begun_again(
    place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar(staged / "a.tar", contents())
    tar(staged / "b.tar", {"b": b"b"})
    manifest(staged, "a.tar", "b.tar")
    read = extract.files_of

    def removed_meanwhile(opened: Any, part: Any) -> Any:
        extract._remove(place.partial(V1))
        return read(opened, part)

    monkeypatch.setattr(extract, "files_of", removed_meanwhile)
    with pytest.raises(UserError, match="is unpacked has been removed meanwhile.* run deeplearning.aws.stage again"):
        unpack(place, Source(str(staged), ""), 0, 1, quiet)
    assert os.listdir(place.root) == []


def test_of_two_files_with_one_path_that_of_the_last_archive_stays(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", {"labels.csv": b"old"})
    tar(staged / "b.tar", {"labels.csv": b"newer", "large": bytes(100_000)})
    tar(staged / "c.tar", {"labels.csv": b"new"})
    manifest(staged, "a.tar", "b.tar", "c.tar")
    all_of(place, staged, 1)
    assert (place.path / "labels.csv").read_bytes() == b"new"
    assert json.loads((place.path / ".deeplearning.json").read_text())["files"]["labels.csv"] == 3


def test_the_name_of_the_records_is_refused_in_an_archive(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", {f"{RECORDS}/0.json": b"{}"})
    manifest(staged, "a.tar")
    with pytest.raises(UserError, match=f"{RECORDS} is a name of ours: pack it without"):
        unpack(place, Source(str(staged), ""), 0, 1, quiet)
    assert os.listdir(place.root) == []


def test_an_interrupted_part_resumes(place: Place, staged: Path) -> None:
    """Files that are right are not written again. Their content says that, and not their size."""
    tar(staged / "a.tar", contents())
    manifest(staged, "a.tar")
    left = {name: contents()[f"train/{name}"] for name in ("0000.jpg", "0001.jpg", "0002.jpg", "0003.jpg", "large.bin")}
    changed = {
        "0001.jpg": left["0001.jpg"][:-1],
        "0002.jpg": left["0002.jpg"] + b"more",
        "0003.jpg": bytes(len(left["0003.jpg"])),
        "large.bin": left["large.bin"][:200_000] + bytes(100_000),
    }
    (place.partial(V1) / "train").mkdir(parents=True)
    for name, content in (left | changed).items():
        (place.partial(V1) / "train" / name).write_bytes(content)
        os.utime(place.partial(V1) / "train" / name, ns=(1, 1))
    all_of(place, staged, 1)
    assert files_in(place.path) == contents()
    assert (place.path / "train/0000.jpg").stat().st_mtime_ns == 1
    assert all((place.path / "train" / name).stat().st_mtime_ns > 1 for name in changed)


def test_no_node_looks_up_a_name_that_another_node_creates(
    place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar(staged / "a.tar", contents())
    tar(staged / "b.tar", {"b": b"b"})
    manifest(staged, "a.tar", "b.tar")
    missing = set()
    lexists = os.path.lexists

    def record(function: Any) -> Any:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(path, (str, Path)) and not lexists(path):
                missing.add(str(path))
            return function(path, *arguments, **options)

        return call

    for module, name in ((os, "stat"), (io, "open")):
        monkeypatch.setattr(module, name, record(getattr(module, name)))
    assert unpack(place, Source(str(staged), ""), 0, 2, quiet)["changed"]
    with pytest.raises(UserError, match="b.tar of coco is not unpacked"):
        finish(place, Source(str(staged), ""))
    created = {place.path, place.path / ".deeplearning.json", (place.records(V1) / "1.json")}
    assert not missing & {str(path) for path in created}


def test_a_missing_part_keeps_the_dataset_from_appearing(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", contents())
    tar(staged / "b.tar", {"b": b"b"})
    manifest(staged, "a.tar", "b.tar")
    unpack(place, Source(str(staged), ""), 0, 2, quiet)
    with pytest.raises(UserError, match="b.tar of coco is not unpacked: run deeplearning.aws.stage again"):
        finish(place, Source(str(staged), ""))
    assert not place.path.exists()


def test_another_version_in_its_place_is_not_touched(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", contents(4))
    all_of(place, staged, 1) if manifest(staged, "a.tar") else None
    manifest(staged, "a.tar", version=V2)
    with pytest.raises(UserError, match=rf"is not what was staged \({V1}\): move it away"):
        unpack(place, Source(str(staged), ""), 0, 1, quiet)
    (place.path / ".deeplearning.json").unlink()
    with pytest.raises(UserError, match="it has no version"):
        Unpacking(place.root, place.name, Source(str(staged), "")).is_unpacked()


def test_an_archive_in_an_archive_stays_one(place: Place, staged: Path) -> None:
    tar(staged / "inner.tar", {f"inner/{n}": b"x" * 700 for n in range(300)})
    inner = (staged / "inner.tar").read_bytes()
    tar(staged / "a.tar", {"first": b"1", "inner.tar": inner, "last": b"2"})
    manifest(staged, "a.tar")
    all_of(place, staged, 3)
    assert files_in(place.path) == {"first": b"1", "inner.tar": inner, "last": b"2"}


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd"])
def test_a_name_that_leads_elsewhere_is_refused(place: Place, staged: Path, name: str) -> None:
    tar(staged / "a.tar", {name: b"x"})
    manifest(staged, "a.tar")
    with pytest.raises(UserError, match="is no path below a folder"):
        unpack(place, Source(str(staged), ""), 0, 1, quiet)


def test_links_and_devices_are_refused(place: Place, staged: Path) -> None:
    with tarfile.open(staged / "a.tar", "w") as archive:
        link = tarfile.TarInfo("train/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    manifest(staged, "a.tar")
    with pytest.raises(UserError, match="train/link in the archive is neither a file nor a folder"):
        unpack(place, Source(str(staged), ""), 0, 1, quiet)


def damaged(file: Path, place: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(b"\xff" * 64)


def zipped(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("1.jpg", b"1" * 1000)


def gzipped(file: Path) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in contents().items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("name", "make", "where"),
    [
        ("a.zip", zipped, 900),
        ("a.zip", zipped, 1020),
        ("a.tar", lambda file: tar(file, {f"{n}.jpg": b"x" for n in range(100)}), 50 * 1024 + 512),
        ("a.tar.gz", gzipped, 0),
        ("a.tar.gz", gzipped, 50_000),
    ],
    ids=["what a zip holds", "a zip's list", "a header in a tar", "no gz at all", "what a gz holds"],
)
def test_a_corrupt_archive_is_refused(place: Place, staged: Path, name: str, make: Any, where: int) -> None:
    make(staged / name)
    damaged(staged / name, where)
    manifest(staged, name)
    with pytest.raises(UserError, match=f"{name} is no whole archive \\("):
        all_of(place, staged, 1)
    assert not place.path.exists()


def test_a_full_disk_is_one_sentence_and_written_files_are_used(
    place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar(staged / "a.tar", contents())
    manifest(staged, "a.tar")
    with (
        monkeypatch.context() as full,
        pytest.raises(UserError, match="data is full: make room, and run deeplearning.aws.stage again"),
    ):

        def own_file(path: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(extract.safe_paths, "own_file", own_file)
        unpack(place, Source(str(staged), ""), 0, 1, quiet)
    all_of(place, staged, 1)
    assert files_in(place.path) == contents()


def test_progress_is_one_line_each(
    place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tar(staged / "a.tar", contents())
    (staged / "weights.npz").write_bytes(b"w" * 1000)
    made = manifest(staged, "a.tar", "weights.npz")
    monkeypatch.setattr(extract, "REPORT_SECONDS", 0)
    monkeypatch.setattr(cli, "become", lambda user: None)
    monkeypatch.setattr(
        cli, "read_config", lambda: SimpleNamespace(efs_mount=str(place.root.parent), region="", user="me")
    )
    known = ["--from", str(staged), "--sha256", digest(made)]
    for share, total in (("1/2", (staged / "a.tar").stat().st_size), ("2/2", 1000)):
        cli.main(["share", "coco", *known, "--share", share])
        *progress, end = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert end["event"] == "end" and end["changed"]
        assert {event["event"] for event in progress} == {"progress"}
        assert all(event["done"] <= event["total"] == total for event in progress) and progress[-1]["done"] == total


@pytest.fixture
def unpacking(
    place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Calls `deeplearning unpack`, and returns the last line that it prints."""
    users: list[str] = []
    config = SimpleNamespace(efs_mount=str(place.root.parent), region="here", user="me")
    monkeypatch.setattr(cli, "read_config", lambda: config)
    monkeypatch.setattr(cli, "become", users.append)

    def call(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        file = staged / "manifest.json"
        known = digest(json.loads(file.read_text())) if file.exists() else "0" * 64
        cli.main([words[0], "--sha256", known, *words[1:], "--from", str(staged)])
        assert users == ["me"]
        users.clear()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return answer

    return call


def test_a_share_needs_to_know_from_where(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["share", "coco", "--sha256", "0" * 64])
    assert ended.value.code == 2 and "--from" in capsys.readouterr().err


def test_nodes_unpack_their_parts_and_one_finishes(
    unpacking: Callable[..., dict[str, Any]], place: Place, staged: Path
) -> None:
    tar(staged / "a.tar", contents())
    manifest(staged, "a.tar")
    assert unpacking("show", "coco") == {"exists": False}
    done = [unpacking("share", "coco", "--share", f"{share}/3") for share in (1, 2, 3)]
    assert {answer["event"] for answer in done} == {"end"}
    assert sum(answer["files"] for answer in done) == len(contents())
    assert unpacking("finish", "coco") == {"changed": True, "files": len(contents())}
    assert unpacking("show", "coco") == {"exists": True} and files_in(place.path) == contents()
    # By default there is one share.
    assert unpacking("share", "coco")["event"] == "end"


@pytest.mark.parametrize("share", ["0/1", "2/1", "1/0", "1", "1/1x", "-1/2", "10000/10000", "1/10000"])
def test_a_share_that_does_not_exist_is_refused(unpacking: Callable[..., dict[str, Any]], share: str) -> None:
    with pytest.raises(UserError, match=f"--share is {share}: give which of how many. Example: --share 2/4"):
        unpacking("share", "coco", f"--share={share}")


@pytest.mark.parametrize("name", ["../coco", "Coco", ""])
def test_a_name_that_is_no_folders_is_refused(unpacking: Callable[..., dict[str, Any]], name: str) -> None:
    with pytest.raises(UserError, match="cannot be a folder's name"):
        unpacking("show", name)


class Breaking:
    """S3, which breaks off so often while an object is read."""

    def __init__(self, breaks: int) -> None:
        self.breaks, self.asked = breaks, 0

    def get_object(self, **asked: str) -> dict[str, Any]:
        self.asked += 1
        self.body = io.BytesIO(b"whole")
        return {"Body": self}

    def read(self, most: int) -> bytes:
        if self.asked <= self.breaks:
            raise ConnectionResetError("reset")
        return self.body.read(most)


# The object may end before the piece.
@pytest.mark.parametrize("count", [5, 9])
@pytest.mark.parametrize("breaks", [0, 2])
def test_an_interrupted_piece_is_requested_again(breaks: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    s3, pauses = Breaking(breaks), list[float]()
    monkeypatch.setattr(AwsClient, "client", lambda *_: s3)
    monkeypatch.setattr("deeplearning.aws.time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr("deeplearning.aws.CHUNK", 2)
    assert AwsClient("us-east-1").read_range("mine", "a.tar", 0, count) == b"whole"
    assert s3.asked == breaks + 1 and pauses == [2.0, 4.0][:breaks]


def test_a_piece_that_is_always_interrupted_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AwsClient, "client", lambda *_: Breaking(9))
    monkeypatch.setattr("deeplearning.aws.RETRY_SECONDS", 0)
    with pytest.raises(UserError, match="s3://mine/a.tar broke off while it was read"):
        AwsClient("us-east-1").read_range("mine", "a.tar", 0, 5)


def test_a_part_that_became_shorter_is_refused(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", contents())
    manifest(staged, "a.tar")
    with (staged / "a.tar").open("r+b") as file:
        file.truncate(100_000)
    with pytest.raises(UserError, match="is shorter than what was staged"):
        unpack(place, Source(str(staged), ""), 0, 1, quiet)


def test_a_source_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no data set that was staged whole .*: run deeplearning.aws.stage"):
        Source(str(tmp_path), "").manifest()


def test_a_lack_of_space_is_reported_before_anything_is_written(
    place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar(staged / "a.tar", contents())
    manifest(staged, "a.tar")
    monkeypatch.setattr(extract.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(UserError, match="GiB left, and coco needs 0.0: make room"):
        unpack(place, Source(str(staged), ""), 0, 1, quiet)
    assert not place.partial(V1).exists()


class Pieces:
    """A file of pieces of 1,000 bytes. `hold` is called in each request for one, with its number."""

    def __init__(self, count: int = 50) -> None:
        self.content = random.Random(0).randbytes(1000 * count - 10)
        self.hold: Callable[[int], object] = lambda _piece: None
        self.asked: list[int] = []
        self.progress: list[int] = []
        self.reader = io.BufferedReader(RangedReader(self.fetch, len(self.content), self.progress.append))

    def fetch(self, start: int, count: int) -> bytes:
        assert count == min(1000, len(self.content) - start)
        self.asked.append(start)
        self.hold(start // 1000)
        return self.content[start : start + count]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pieces]:
    monkeypatch.setattr("deeplearning.data.ranged_reader.RANGE_BYTES", 1000)
    pieces = Pieces()
    # If the garbage collection closed it, that would wait for threads, wherever it came, also where a thread is made.
    with pieces.reader:
        yield pieces


def test_each_piece_is_requested_once_and_read_in_order(pieces: Pieces) -> None:
    """However long each of them takes."""
    later = threading.Event()
    # The next one is answered first.
    pieces.hold = lambda piece: later.wait(60) if piece == 20 else later.set() if piece == 21 else None
    read = b"".join(iter(lambda: pieces.reader.read(700), b""))
    assert read == pieces.content and later.is_set()
    assert sorted(pieces.asked) == list(range(0, len(pieces.content), 1000))
    assert pieces.progress == [1000] * 49 + [990]
    assert pieces.reader.raw.sha256() == hashlib.sha256(pieces.content).hexdigest()


def test_so_many_pieces_are_requested_at_the_same_time(pieces: Pieces) -> None:
    """And no more: what waits to be read is in memory."""
    together = threading.Barrier(PARALLEL_REQUESTS)
    pieces.hold = lambda piece: together.wait(60) if piece < PARALLEL_REQUESTS else None
    for piece in range(10):
        pieces.reader.read(1000)
        assert len(pieces.asked) <= piece + PARALLEL_REQUESTS


def test_a_reader_that_jumps_has_what_it_jumps_to(pieces: Pieces) -> None:
    pieces.reader.read(3000)
    for place in (40_000, 30_500, 49_000, 200):
        pieces.reader.seek(place)
        assert pieces.reader.read(100) == pieces.content[place : place + 100]
    pieces.reader.seek(-5, io.SEEK_END)
    assert pieces.reader.read() == pieces.content[-5:]
    # For each jump no more than may wait to be read.
    assert len(pieces.asked) <= 3 + 6 * PARALLEL_REQUESTS
    assert pieces.reader.raw.sha256() == hashlib.sha256(pieces.content).hexdigest()


def test_a_skipped_piece_is_read_for_the_checksum(pieces: Pieces) -> None:
    pieces.reader.read(1000)
    pieces.reader.seek(1990)
    assert pieces.reader.read(2000) == pieces.content[1990:3990]
    assert pieces.progress == [1000] * 4
    assert len(pieces.asked) == len(set(pieces.asked))


def test_an_error_of_a_piece_is_raised_where_it_is_read(pieces: Pieces) -> None:
    def hold(piece: int) -> None:
        if piece == 3:
            raise UserError("this one is missing")

    pieces.hold = hold
    assert pieces.reader.read(3000) == pieces.content[:3000]
    with pytest.raises(UserError, match="this one is missing"):
        pieces.reader.read(1)
    pieces.hold = lambda _piece: None
    assert pieces.reader.read() == pieces.content[3000:]


def test_a_closed_reader_requests_nothing_that_still_waits(pieces: Pieces) -> None:
    threads = threading.active_count()
    pieces.reader.read(4001)
    pieces.reader.close()
    assert threading.active_count() == threads and len(pieces.asked) <= 5 + PARALLEL_REQUESTS


# What a bucket that others may write to can say


EVIL_PATHS = ("../outside", "/etc", "a/../../b", "..", "a\n", 7, None, ["a"])


@pytest.mark.parametrize(
    "change",
    [
        *({"to": value} for value in EVIL_PATHS),
        *({"strip": value} for value in (*EVIL_PATHS, "a/b")),
        *({"name": value} for value in (*EVIL_PATHS, "", ".", "a/b", "x" * 256)),
        *({"kind": value} for value in ("exe", "", None, ["tar"])),
        *({"size": value} for value in (-1, 1.5, True, "7", 10**30, None)),
        *({"sha256": value} for value in ("", "0" * 63, "G" * 64, "../" + "0" * 61, 0)),
        {"more": 1},
    ],
    ids=str,
)
def test_a_part_of_another_form_is_refused(place: Place, staged: Path, change: dict[str, Any]) -> None:
    tar(staged / "a.tar", {"a": b"1"})
    made = manifest(staged, "a.tar")
    made["parts"][0].update(change)
    refused(place, staged, made)


@pytest.mark.parametrize(
    "change",
    [
        *({"version": value} for value in ("v1", "../../../outside0", "1" * 15, "1" * 17, "G" * 16, 1, None)),
        *({"name": value} for value in ("../outside", "Photos", "", 7)),
        *({"links": {name: "."}} for name in ("../link", "/etc/link", ".deeplearning", "runs", "data/photos", "")),
        *({"links": {"data/train2017": target}} for target in ("..", "../../etc", "/etc", "a\0b", None)),
        {"links": ["data/train2017"]},
        {"parts": []},
        {"parts": {"a.tar": {}}},
        {"parts": ["a.tar"]},
        {"schema": 2},
        {"more": 1},
    ],
    ids=str,
)
def test_a_manifest_of_another_form_is_refused(place: Place, staged: Path, change: dict[str, Any]) -> None:
    tar(staged / "a.tar", {"a": b"1"})
    refused(place, staged, {**manifest(staged, "a.tar"), **change})


def test_a_part_that_is_named_twice_is_refused(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", {"a": b"1"})
    refused(place, staged, manifest(staged, "a.tar", "a.tar"))


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"[" * 100_000, b'{"schema": 1}', b'{"schema": 1'])
def test_a_file_that_is_no_manifest_is_one_sentence(place: Place, staged: Path, content: bytes) -> None:
    refused(place, staged, content)


def refused(place: Place, staged: Path, made: dict[str, Any] | bytes) -> None:
    """Assert that it is refused in one sentence, with nothing written next to the manifest."""
    (staged / "manifest.json").write_bytes(made if isinstance(made, bytes) else json.dumps(made).encode())
    before = everything(place.root.parent.parent)
    with pytest.raises(UserError, match="remove .*/manifest.json|run deeplearning.aws.stage") as error:
        all_of(place, staged, 1)
    assert "\n" not in str(error.value)
    assert everything(place.root.parent.parent) == before


def everything(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("size", [0, 2**32, 19_336_861_798, 50 << 40])
def test_a_part_may_be_as_large_as_an_object_of_s3(staged: Path, size: int) -> None:
    (staged / "a.tar").touch()
    made = manifest(staged, "a.tar")
    made["parts"][0]["size"] = size
    assert read(json.dumps(made).encode(), "s3://mine/coco")["parts"][0]["size"] == size


@pytest.mark.parametrize("name", STAGED)
def test_each_manifest_that_an_operator_writes_is_read(name: str) -> None:
    known = DATASETS[name]
    for variant in (known, replace(known, parts=(known.archive,))) if known.archive else (known,):
        made = build(
            name,
            variant.parts,
            {part.name: (19 << 30, "0" * 64) for part in variant.parts},
            variant.links,
        )
        assert read(json.dumps(made).encode(), f"s3://mine/{name}") == made


def test_each_link_that_an_operator_writes_is_known_here() -> None:
    assert {name for dataset in DATASETS.values() for name in dataset.links} == set(LINKS)


def exchanged(file: Path) -> None:
    """What another one has put there: as large, and as whole."""
    size = file.stat().st_size
    if file.name.endswith(".tar"):
        tar(file, {name: bytes(len(content)) for name, content in contents().items()})
    elif file.name.endswith(".zip"):
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in contents().items():
                archive.writestr(name, bytes(len(content)))
    else:
        file.write_bytes(bytes(size))
    assert file.stat().st_size == size


@pytest.mark.parametrize(
    ("name", "count"),
    [("a.tar", 1), ("a.tar", 3), ("a.zip", 1), ("a.zip", 3), ("weights.npz", 1), ("weights.npz", 3)],
)
def test_a_part_that_was_replaced_in_the_bucket_is_refused(place: Place, staged: Path, name: str, count: int) -> None:
    tar(staged / "a.tar", contents())
    zipped_contents(staged / "a.zip")
    (staged / "weights.npz").write_bytes(b"w" * 1000)
    manifest(staged, name)
    exchanged(staged / name)
    with pytest.raises(UserError, match=f"{name} has the SHA-256 .*: it was replaced since. Stage it again"):
        all_of(place, staged, count)
    assert not place.path.exists()


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_of_a_replaced_archive_gets_into_the_dataset(place: Place, staged: Path, broken: bool) -> None:
    tar(staged / "a.tar", {"sitecustomize.py": b"theirs", **contents()})
    if broken:
        damaged(staged / "a.tar", (staged / "a.tar").stat().st_size - 300_000)
    foreign = (staged / "a.tar").read_bytes()
    tar(staged / "a.tar", contents())
    manifest(staged, "a.tar")
    right = (staged / "a.tar").read_bytes()
    (staged / "a.tar").write_bytes((foreign + bytes(len(right)))[: len(right)])
    with pytest.raises(UserError, match="a.tar"):
        all_of(place, staged, 1)
    (staged / "a.tar").write_bytes(right)
    all_of(place, staged, 1)
    assert files_in(place.path) == contents()
    assert os.listdir(place.root) == ["coco"]


def test_nothing_of_another_version_gets_into_the_dataset(place: Place, staged: Path) -> None:
    tar(staged / "a.tar", {"old": b"1"})
    manifest(staged, "a.tar", version=V2)
    unpack(place, Source(str(staged), ""), 0, 2, quiet)
    for older in (".coco.unpacking", ".coco.shares", ".coco.x.unpacking"):
        (place.root / older).mkdir()
    tar(staged / "a.tar", {"new": b"2"})
    manifest(staged, "a.tar")
    all_of(place, staged, 1)
    assert files_in(place.path) == {"new": b"2"}
    assert sorted(os.listdir(place.root)) == [".coco.x.unpacking", "coco"]


@pytest.mark.root
def test_leftovers_of_another_user_are_not_removed(shared: Place, staged: Path) -> None:
    as_nobody(lambda: shared.partial(V2).mkdir())
    shares = shared.root / f".coco.{V2}.shares"
    as_nobody(lambda: shares.symlink_to(outside(shared)))
    (outside(shared) / "mine").touch()
    all_of(shared, staged, 1)
    assert sorted(os.listdir(shared.root)) == sorted([shared.partial(V2).name, shares.name, "coco"])
    assert os.listdir(outside(shared)) == ["mine"]


def test_a_manifest_that_the_operators_side_has_not_checked_is_not_used(
    unpacking: Callable[..., dict[str, Any]], place: Place, staged: Path
) -> None:
    """Who replaces an archive in the bucket can replace its checksum there too."""
    tar(staged / "a.tar", contents())
    checked = digest(manifest(staged, "a.tar"))
    tar(staged / "a.tar", {"sitecustomize.py": b"theirs"})
    manifest(staged, "a.tar")
    for verb in ("show", "share", "finish"):
        with pytest.raises(UserError, match="manifest.json is not the one that stage.yml has checked: it was replaced"):
            unpacking(verb, "coco", "--sha256", checked)
    assert not place.root.exists()
    with pytest.raises(UserError, match="--sha256 is x: give the manifest's SHA-256"):
        unpacking("share", "coco", "--sha256", "x")


@pytest.mark.parametrize("name", STAGED)
def test_a_named_set_has_the_published_checksums(staged: Path, name: str) -> None:
    known = DATASETS[name]

    def of(sha256: str, **more: Any) -> dict[str, Any]:
        parts = {part.name: (1, part.sha256 or sha256) for part in known.parts}
        return {**build(name, known.parts, parts, known.links), **more}

    right = of("0" * 64)
    (staged / "manifest.json").write_text(json.dumps(right))
    assert Source(str(staged), "", name).manifest() == right
    other = [{**part, "name": f"x{part['name']}"} for part in right["parts"]]
    evil = [of("0" * 64, parts=other), of("0" * 64, name="x"), of("0" * 64, version="0" * 16)]
    if known.parts[0].sha256:
        evil.append(build(name, known.parts, {part.name: (1, "e" * 64) for part in known.parts}, known.links))
    for content in evil:
        (staged / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=f"is not the list of {name} .*-e dataset={name} -e stage_replace=true"):
            Source(str(staged), "", name).manifest()


def test_the_one_archive_of_a_named_set_is_used_if_the_operators_side_has_checked_it(
    unpacking: Callable[..., dict[str, Any]], place: Place, staged: Path
) -> None:
    tar(staged / "coco-2017.tar", contents())
    known = DATASETS["coco2017"]
    assert known.archive
    content = {"coco-2017.tar": ((staged / "coco-2017.tar").stat().st_size, sha256_of(staged / "coco-2017.tar"))}
    made = build("coco2017", (known.archive,), content, known.links)
    (staged / "manifest.json").write_text(json.dumps(made))
    with pytest.raises(UserError, match="is not the list of coco2017 .*-e dataset=coco2017 -e stage_replace=true"):
        Source(str(staged), "", "coco2017").manifest()
    assert not place.root.exists()
    assert unpacking("share", "coco2017") == {"event": "end", "changed": True, "files": len(contents())}


def test_published_sources_are_compared_by_their_files(
    place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gzipped(staged / "s.tar.gz")
    with (staged / "s.tar.gz").open("rb") as opened:
        known = files_sha256(opened, "")
    parts = (DatasetFile("s.tar.gz", files_sha256=known),)
    monkeypatch.setitem(DATASETS, "coco", Dataset(parts))
    content = {"s.tar.gz": ((staged / "s.tar.gz").stat().st_size, sha256_of(staged / "s.tar.gz"))}
    (staged / "manifest.json").write_text(json.dumps(build("coco", parts, content, {})))
    assert unpack(place, Source(str(staged), "", "coco"), 0, 2, quiet)["changed"]
    monkeypatch.setitem(DATASETS, "coco", Dataset((replace(parts[0], files_sha256="e" * 64),)))
    place.root = place.root.parent / "others"
    with pytest.raises(UserError, match=f"s.tar.gz have the SHA-256 {known} instead of e*: .*-e stage_replace=true"):
        unpack(place, Source(str(staged), "", "coco"), 0, 2, quiet)
    assert os.listdir(place.root) == []


class Objects:
    """S3 with the files of a folder, of which others can replace one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def head_object(self, Bucket: str, Key: str) -> dict[str, str]:
        return {"ETag": self._etag(self._content(Key))}

    def get_object(self, Bucket: str, Key: str, Range: str, IfMatch: str = "") -> dict[str, Any]:
        content = self._content(Key)
        if IfMatch not in ("", self._etag(content)):
            raise ClientError({"Error": {"Code": "PreconditionFailed"}}, "GetObject")
        start, end = (int(number) for number in Range.removeprefix("bytes=").split("-"))
        return {"Body": io.BytesIO(content[start : end + 1])}

    def _content(self, key: str) -> bytes:
        """Each answer is of one content, as S3's is, whenever another one replaces it."""
        return (self.folder / Path(key).name).read_bytes()

    @staticmethod
    def _etag(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()


@pytest.fixture
def objects(staged: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(AwsClient, "client", lambda *_: Objects(staged))
    monkeypatch.setattr("deeplearning.data.ranged_reader.RANGE_BYTES", 10_000)
    tar(staged / "a.tar", contents())
    manifest(staged, "a.tar")
    return staged / "a.tar"


def test_an_object_that_is_replaced_while_it_is_read_is_refused(place: Place, objects: Path) -> None:
    opened = Source("s3://mine/coco", "here").open("a.tar", objects.stat().st_size, lambda _count: None)
    opened.read(10)
    exchanged(objects)
    with pytest.raises(UserError, match="s3://mine/coco/a.tar does not exist, or was replaced while it was read"):
        opened.read()


def test_nodes_that_have_read_different_objects_do_not_share_a_set(place: Place, objects: Path) -> None:
    """Each node compares what it reads. All parts are of the objects that were there together."""
    right = objects.read_bytes()

    def source() -> Source:
        return Source("s3://mine/coco", "here")

    tar(objects.parent / "b.tar", {"b": b"b"})
    manifest(objects.parent, "a.tar", "b.tar")
    exchanged(objects)
    unpack(place, source(), 1, 2, quiet)
    objects.write_bytes(right)
    unpack(place, source(), 0, 2, quiet)
    with pytest.raises(UserError, match="b.tar of coco is not unpacked: run deeplearning.aws.stage again"):
        finish(place, source())
    unpack(place, source(), 1, 2, quiet)
    finish(place, source())
    assert files_in(place.path) == {**contents(), "b": b"b"} and os.listdir(place.root) == ["coco"]


def zip_of(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)


def tar_of(path: Path, *names: str) -> None:
    tar(path, {name: name.encode() for name in names})


@pytest.mark.parametrize("pack", [zip_of, tar_of])
@pytest.mark.parametrize(
    ("names", "named"), [(("b", "b/c"), "'b(/c)?'"), (("b/c", "b"), "'b'"), ((".",), "'.'"), (("strip",), "'strip'")]
)
def test_colliding_names_are_an_error_of_the_archive(
    place: Place, staged: Path, pack: Any, names: tuple[str, ...], named: str
) -> None:
    name = "a.zip" if pack is zip_of else "a.tar"
    pack(staged / name, *names)
    manifest(staged, name, strip="strip")
    with pytest.raises(UserError, match=f"{name} has a file {named}, ") as refused:
        all_of(place, staged, 1)
    assert "sudo" not in str(refused.value) and "somebody" not in str(refused.value)
    assert os.listdir(place.root) == []


def test_a_packed_archive_is_compared_to_its_last_byte(place: Place, staged: Path) -> None:
    """What follows the archive's own end is not read to unpack it."""
    gzipped(staged / "a.tar.gz")
    content = (staged / "a.tar.gz").read_bytes()
    (staged / "a.tar.gz").write_bytes(content + bytes(20 << 20))
    manifest(staged, "a.tar.gz")
    all_of(place, staged, 2)
    assert files_in(place.path) == contents()


def test_a_large_archive_is_compared_although_it_is_read_in_pieces(
    place: Place, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeplearning.data.ranged_reader.RANGE_BYTES", 10_000)
    zipped_contents(staged / "a.zip")
    tar(staged / "a.tar", contents())
    manifest(staged, "a.zip", "a.tar")
    all_of(place, staged, 1)
    assert files_in(place.path) == contents()


# What another user of the file system can prepare


@pytest.fixture
def shared(staged: Path) -> Iterator[Place]:
    """A file system on which everybody may make folders, and a staged set that is to come there."""
    tar(staged / "a.tar", {"a/authorized_keys": b"attacker"})
    manifest(staged, "a.tar")
    with open_folder() as mount:
        place = Place(mount / "data", "coco")
        place.root.mkdir()
        place.root.chmod(0o1777)
        outside(place).mkdir()
        yield place


def outside(place: Place) -> Path:
    return place.root.parent.parent / "home"


def linked(folder: Path, place: Place) -> None:
    folder.mkdir(parents=True)
    (folder / "a").symlink_to(outside(place))


PREPARED = {
    "a folder with a link": lambda place: linked(place.partial(V1), place),
    "a link": lambda place: place.partial(V1).symlink_to(outside(place)),
    "a file": lambda place: place.partial(V1).write_text(""),
    "a folder that all may write": lambda place: (place.partial(V1).mkdir(), place.partial(V1).chmod(0o777)),
    "records": lambda place: place.records(V1).mkdir(parents=True),
    "the set": lambda place: (
        place.path.mkdir(),
        (place.path / ".deeplearning.json").write_text(f'{{"version": "{V1}"}}'),
    ),
}


@pytest.mark.root
@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED.keys())
def test_what_another_user_has_prepared_is_not_used(shared: Place, staged: Path, prepare: Any) -> None:
    as_nobody(lambda: prepare(shared))
    with pytest.raises(
        UserError, match="(is a link|is a file|belongs to nobody) .*Example: sudo mv .*/data/"
    ) as refused:
        all_of(shared, staged, 1)
    assert "\n" not in str(refused.value)
    assert os.listdir(outside(shared)) == []


@pytest.mark.root
@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED.keys())
def test_what_another_user_has_prepared_is_not_used_after_all_parts(shared: Place, staged: Path, prepare: Any) -> None:
    manifest(staged, "a.tar")
    as_nobody(lambda: prepare(shared))
    with pytest.raises(UserError):
        finish(shared, Source(str(staged), ""))
    assert os.listdir(outside(shared)) == []


@pytest.mark.root
def test_a_root_that_another_user_could_exchange_is_not_used(shared: Place, staged: Path) -> None:
    shared.root.rmdir()
    as_nobody(shared.root.mkdir)
    with pytest.raises(UserError, match="data belongs to nobody and has to be a folder of root"):
        all_of(shared, staged, 1)
    shared.root.rmdir()
    shared.root.mkdir()
    (shared.root / "theirs").mkdir()
    shared.root.chmod(0o777)
    with pytest.raises(UserError, match="has mode 0777.*Example: sudo chmod .t .*/data$"):
        all_of(shared, staged, 1)


@pytest.mark.parametrize("below", ["a", "a/authorized_keys"])
def test_links_in_a_folder_that_was_open_are_not_followed(shared: Place, staged: Path, below: str) -> None:
    victim = outside(shared) / "authorized_keys"
    victim.write_text("mine")
    (shared.partial(V1) / below).parent.mkdir(parents=True)
    (shared.partial(V1) / below).symlink_to(outside(shared) if below == "a" else victim)
    with pytest.raises(UserError, match=f"{below} is a link"):
        all_of(shared, staged, 1)
    (shared.partial(V1) / below).unlink()
    (shared.partial(V1) / "a").mkdir(exist_ok=True)
    os.link(victim, shared.partial(V1) / "a/authorized_keys")
    with pytest.raises(UserError, match="authorized_keys has a second name"):
        all_of(shared, staged, 1)
    assert victim.read_text() == "mine"


def test_other_users_cannot_write_to_unpacked_files(shared: Place, staged: Path) -> None:
    before = os.umask(0o002)
    try:
        unpack(shared, Source(str(staged), ""), 0, 1, quiet)
    finally:
        os.umask(before)
    folders = [shared.partial(V1), shared.partial(V1) / "a", shared.records(V1)]
    assert [folder.stat().st_mode & 0o7777 for folder in folders] == [0o755] * 3
