"""CIFAR-10, MNIST and COCO on their whole way, from archives of the publishers' layout behind the publishers' names:
download, resume, checksum, unpacking. A server of this test answers for these names, with a certificate of its own
authority. The archives' checksums are pinned in this process alone: no option can replace those of the catalogue."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import shutil
import socket
import tarfile
import threading
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import datasets as operator_catalogue
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import download as operator_download
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError as OperatorError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data import datasets as staged_datasets
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.first_fetches import FirstFetches
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.upload import stage as upload
from deeplearning.contract import datasets, download
from deeplearning.contract.errors import UserError
from deeplearning.data import staging
from deeplearning.data.extract import Unpacking
from deeplearning.data.ranged_reader import Source
from deeplearning.data.staging import StagingRequest, stage

from localcloud.testing.tls import Authority

ROOT = Path(__file__).resolve().parents[3]
RECORDS = 20
QUIET: Any = SimpleNamespace(transfer=lambda *_words: None, message=lambda _line: None)


def cifar10() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
        for name in [*names, "batches.meta.txt", "readme.html"]:
            content = bytes(range(10)) if name.endswith((".txt", ".html")) else bytes(3073 * RECORDS)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def mnist(name: str) -> bytes:
    count = 60 if name.startswith("train") else 10
    return gzip.compress(bytes(16 + 784 * count) if "images" in name else bytes(8 + count))


def coco(name: str) -> bytes:
    if not name.endswith(".zip"):
        return b"weights of " + name.encode()
    packed, folder = io.BytesIO(), name.removesuffix(".zip")
    with zipfile.ZipFile(packed, "w") as archive:
        if folder.startswith("annotations"):
            archive.writestr("annotations/instances_val2017.json", json.dumps({"images": []}))
        else:
            for number in range(3):
                archive.writestr(f"{folder}/{number:012}.jpg", bytes([number]) * 5000)
    return packed.getvalue()


CONTENTS: Mapping[str, Callable[[str], bytes]] = {"cifar10": lambda _name: cifar10(), "mnist": mnist, "coco2017": coco}


def pinned(name: str, contents: Mapping[str, bytes], catalogue: Any) -> Any:
    """Return the catalogue's set with the checksums and sizes of this test's archives."""
    known = catalogue.DATASETS[name]
    parts = tuple(
        replace(part, sha256=hashlib.sha256(contents[part.url]).hexdigest() if part.sha256 else "")
        for part in known.parts
    )
    sizes = {file: 3073 * RECORDS if name == "cifar10" else len(gzip.decompress(mnist(file))) for file in known.files}
    return replace(known, parts=parts, files=sizes)


class Publishers:
    """Serve files by their whole address, over TLS where the address says so. Cut each first transfer in its middle."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.mirrors: set[str] = set()
        """Addresses that have no files, unless a test puts them there."""
        self.gone: set[str] = set()
        """Addresses that answer once, and no more."""
        self.slow: set[str] = set()
        self.ended = threading.Event()
        self.samples: list[str] = []
        self.transfers: list[tuple[str, int]] = []
        publishers, self.authority = self, Authority()

        class Handler(http.server.BaseHTTPRequestHandler):
            scheme = "http"

            def do_GET(self) -> None:
                url = f"{self.scheme}://{self.headers['Host']}{self.path}"
                begin, _dash, end = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
                start = int(begin)
                content = publishers.files.get(url)
                if content is None:
                    self.send_error(404)
                    return
                if end:
                    self.sample(url, content)
                    return
                first = url not in dict(publishers.transfers)
                if url in publishers.gone and not first:
                    self.send_error(503)
                    return
                publishers.transfers.append((url, start))
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                self.wfile.write(content[start : len(content) // 2 if first else None])

            def sample(self, url: str, content: bytes) -> None:
                """Send the first bytes, or nothing while the test goes on."""
                publishers.samples.append(url)
                if url in publishers.slow:
                    publishers.ended.wait()
                self.send_response(206)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None: ...

        class SecureHandler(Handler):
            scheme = "https"

        self.servers = {80: Handler, 443: SecureHandler}
        self.ports: dict[int, int] = {}
        for port, handler in self.servers.items():
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            server.daemon_threads = True
            if port == 443:
                server.socket = self.authority.context().wrap_socket(server.socket, server_side=True)
            self.ports[port] = server.server_address[1]
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            setattr(self, f"server{port}", server)

    def close(self) -> None:
        self.ended.set()
        for port in self.servers:
            getattr(self, f"server{port}").shutdown()
            getattr(self, f"server{port}").server_close()


@pytest.fixture
def publishers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publishers]:
    """Servers that have the names of all publishers."""
    publishers = Publishers()
    for name, content in CONTENTS.items():
        publishers.files.update(
            {part.url: content(part.name.removesuffix(".gz")) for part in datasets.DATASETS[name].parts}
        )
        publishers.mirrors.update(mirror for part in datasets.DATASETS[name].parts for mirror in part.mirrors)
    names = {urlsplit(url).hostname for url in (*publishers.files, *publishers.mirrors)}
    resolve = socket.getaddrinfo

    def look_up(host: Any, port: Any, *words: Any, **more: Any) -> Any:
        if host in names:
            return resolve("127.0.0.1", publishers.ports[int(port)], *words, **more)
        return resolve(host, port, *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    (tmp_path / "authority.pem").write_text(publishers.authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    # An opener that exists keeps the authorities of its time.
    monkeypatch.setattr(urllib.request, "_opener", None)
    for module in (download, operator_download):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0)
    yield publishers
    publishers.close()


@pytest.fixture
def efs(tmp_path: Path) -> Path:
    (tmp_path / "efs").mkdir()
    return tmp_path / "efs"


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_a_node_brings_it_from_its_publisher(
    name: str, publishers: Publishers, efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(staging.DATASETS, name, pinned(name, publishers.files, datasets))
    result = stage(StagingRequest(name, efs), lambda _event: None)
    assert result["exists"] and result["changed"]
    urls = [part.url for part in datasets.DATASETS[name].parts]
    halves = [(url, at) for url in urls for at in (0, len(publishers.files[url]) // 2)]
    assert publishers.transfers == halves
    folder = efs / "data" / name
    assert {file: (folder / file).stat().st_size for file in staging.DATASETS[name].files} == staging.DATASETS[
        name
    ].files
    if name == "cifar10":
        # Both names under which old scripts look.
        assert (efs / "cifar10_data/test_batch.bin").is_file()
        assert (efs / "cifar10_data/cifar-10-batches-bin/test_batch.bin").is_file()


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_an_archive_with_another_checksum_than_the_catalogues_is_refused(
    name: str, publishers: Publishers, efs: Path
) -> None:
    with pytest.raises(UserError, match="has the SHA-256 [0-9a-f]{64}, and [0-9a-f]{64} is published"):
        stage(StagingRequest(name, efs), lambda _event: None)
    assert not (efs / "data" / name).exists()


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_without_the_publisher_it_fails_with_one_sentence(name: str, publishers: Publishers, efs: Path) -> None:
    publishers.close()
    with pytest.raises(UserError, match=r"^https://\S+ cannot be fetched \(.*refused\): ") as refusal:
        stage(StagingRequest(name, efs), lambda _event: None)
    advice = str(refusal.value).partition("): ")[2]
    assert ("ansible-playbook deeplearning.aws.stage -e dataset=cifar10" in advice) == (name == "cifar10")
    assert advice.endswith("name another data_source, such as a file of your machine, or train on dataset=generated.")


@pytest.mark.parametrize("name", ["cifar10", "coco2017"])
def test_without_the_publisher_the_operator_gets_one_sentence(
    name: str, publishers: Publishers, tmp_path: Path
) -> None:
    publishers.close()
    bucket: Any = Memory(tmp_path / "bucket")
    with pytest.raises(OperatorError, match=r"^https://\S+ cannot be fetched \(.*refused.*\): ") as refusal:
        upload(bucket, name, None, tmp_path / "stage", FirstFetches(tmp_path), QUIET, check=False)
    assert "run the same command again, it resumes there; or fetch it yourself and name its folder" in str(
        refusal.value
    )
    # COCO is for Mask R-CNN, and generated data is none of its kind.
    assert ("train -e dataset=generated" in str(refusal.value)) == (name == "cifar10")


def mirror_of(name: str) -> tuple[str, str]:
    """Return the addresses of a set's first part: a mirror's and the publisher's."""
    part = datasets.DATASETS[name].parts[0]
    return part.mirrors[0], part.url


def test_a_mirror_is_tried_before_the_slow_publisher(
    publishers: Publishers, efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, url = mirror_of("cifar10")
    publishers.files[mirror] = publishers.files[url]
    monkeypatch.setitem(staging.DATASETS, "cifar10", pinned("cifar10", publishers.files, datasets))
    assert stage(StagingRequest("cifar10", efs), lambda _event: None)["changed"]
    assert {address for address, _start in publishers.transfers} == {mirror}


@pytest.mark.parametrize("slow", ["mirror", "publisher", "both"])
def test_a_slow_address_is_the_last_one(
    slow: str, publishers: Publishers, efs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, url = mirror_of("cifar10")
    publishers.files[mirror] = publishers.files[url]
    publishers.slow = {"mirror": {mirror}, "publisher": {url}, "both": {mirror, url}}[slow]
    ours = pinned("cifar10", publishers.files, operator_catalogue)
    monkeypatch.setitem(staged_datasets.DATASETS, "cifar10", ours)
    monkeypatch.setitem(staging.DATASETS, "cifar10", pinned("cifar10", publishers.files, datasets))
    for module in (download, operator_download):
        monkeypatch.setattr(module, "SAMPLE_SECONDS", 2)
    bucket: Any = Memory(tmp_path / "bucket")
    upload(bucket, "cifar10", None, tmp_path / "stage", FirstFetches(tmp_path), QUIET, check=False)
    assert stage(StagingRequest("cifar10", efs), lambda _event: None)["changed"]
    assert {address for address, _start in publishers.transfers} == {url if slow == "mirror" else mirror}
    assert publishers.samples == 2 * ([mirror] if slow == "publisher" else [mirror, url])


def test_of_slow_addresses_the_one_that_sends_most_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SAMPLE_SECONDS", 1)
    ended, sends = threading.Event(), {"a": 1, "b": 3, "c": 2}

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(size) or b"" * ended.wait()

    def open_url(url: str, _headers: Mapping[str, str]) -> io.BytesIO:
        return Slow(bytes(sends[url] << 14))

    assert download.quickest_first(list(sends), open_url) == ["b", "c", "a"]
    ended.set()
    assert download.quickest_first(["a"], Mock(side_effect=AssertionError)) == ["a"]


def test_other_bytes_of_a_mirror_are_not_used(
    publishers: Publishers, efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, url = mirror_of("cifar10")
    publishers.files[mirror] = b"something else"
    monkeypatch.setitem(staging.DATASETS, "cifar10", pinned("cifar10", publishers.files, datasets))
    notes: list[str] = []
    stage(StagingRequest("cifar10", efs), lambda event: notes.append(str(event.get("text"))))
    assert [address for address, start in publishers.transfers if not start] == [mirror, url]
    assert any(mirror in note and "is published" in note for note in notes)


def test_what_a_mirror_has_left_does_not_spoil_the_publishers_file(
    publishers: Publishers, efs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, url = mirror_of("cifar10")
    publishers.files[mirror] = b"something else"
    publishers.gone.add(mirror)
    half = len(b"something else") // 2
    monkeypatch.setitem(staging.DATASETS, "cifar10", pinned("cifar10", publishers.files, datasets))
    ours = pinned("cifar10", publishers.files, operator_catalogue)
    monkeypatch.setitem(staged_datasets.DATASETS, "cifar10", ours)
    assert stage(StagingRequest("cifar10", efs), lambda _event: None)["changed"]
    assert publishers.transfers[0] == (mirror, 0) and [at for at in publishers.transfers if at[0] == url][0][1] == half
    publishers.transfers.clear()
    bucket: Any = Memory(tmp_path / "bucket")
    upload(bucket, "cifar10", None, tmp_path / "stage", FirstFetches(tmp_path), QUIET, check=False)
    assert (url, half) in publishers.transfers and (url, 0) in publishers.transfers


def test_a_full_disk_is_not_taken_for_a_fault_of_a_mirror(
    publishers: Publishers, efs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, url = mirror_of("cifar10")
    publishers.files[mirror] = publishers.files[url]
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=10))
    bucket: Any = Memory(tmp_path / "bucket")
    with pytest.raises(OperatorError, match="make room, or name another folder"):
        upload(bucket, "cifar10", None, tmp_path / "stage", FirstFetches(tmp_path), QUIET, check=False)
    with pytest.raises(UserError, match="make room, or stage it elsewhere with data_on"):
        stage(StagingRequest("cifar10", efs), lambda _event: None)
    assert {address for address, _start in publishers.transfers} == {mirror}


@pytest.mark.parametrize("content", [None, b"something else"])
def test_the_operator_takes_a_mirror_or_the_publisher(
    content: bytes | None, publishers: Publishers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, url = mirror_of("cifar10")
    publishers.files[mirror] = content or publishers.files[url]
    ours = pinned("cifar10", publishers.files, operator_catalogue)
    monkeypatch.setitem(staged_datasets.DATASETS, "cifar10", ours)
    bucket: Any = Memory(tmp_path / "bucket")
    lines: list[str] = []
    display: Any = SimpleNamespace(transfer=lambda *_words: None, message=lines.append)
    upload(bucket, "cifar10", None, tmp_path / "stage", FirstFetches(tmp_path), display, check=False)
    assert [address for address, start in publishers.transfers if not start] == [mirror, url][: 2 if content else 1]
    assert [mirror in line and line.endswith("The next address is tried.") for line in lines] == [True] * bool(content)
    assert (tmp_path / "bucket" / ours.parts[0].name).read_bytes() == publishers.files[url]


class Memory:
    """A bucket that keeps what it gets in a folder."""

    owner = ""

    def __init__(self, folder: Path) -> None:
        self.url, self.folder = str(folder), folder
        folder.mkdir()

    def check(self) -> None: ...

    def manifest(self) -> dict[str, Any]:
        return {}

    def put_manifest(self, manifest: Mapping[str, Any]) -> None:
        (self.folder / "manifest.json").write_text(json.dumps(manifest))

    def recorded(self, _name: str) -> None: ...

    def send(self, file: Path, name: str, *_: Any) -> None:
        (self.folder / name).write_bytes(file.read_bytes())


def test_coco_comes_from_its_publishers_through_the_bucket_to_all_nodes(
    publishers: Publishers, efs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = pinned("coco2017", publishers.files, operator_catalogue)
    monkeypatch.setitem(staged_datasets.DATASETS, "coco2017", ours)
    bucket: Any = Memory(tmp_path / "bucket")
    fetches = FirstFetches(tmp_path)
    done = upload(bucket, "coco2017", None, tmp_path / "stage", fetches, QUIET, check=False)
    # TensorPack's weights have no published checksum.
    assert done["unpublished"] == [part.name for part in ours.parts if not part.sha256] != []
    assert [url for url, start in publishers.transfers if not start] == [part.url for part in ours.parts]
    assert all((part.url, len(publishers.files[part.url]) // 2) in publishers.transfers for part in ours.parts)
    for share in range(3):
        unpacking = Unpacking(efs / "data", "coco2017", Source(str(tmp_path / "bucket"), "here"))
        unpacking.unpack(share, 3, lambda _event: None)
    unpacking.finish()
    files = {str(file.relative_to(efs / "data/coco2017")) for file in (efs / "data/coco2017").rglob("*.*")}
    images = {f"{which}2017/{number:012}.jpg" for which in ("train", "val") for number in range(3)}
    weights = {f"pretrained-models/{part.name}" for part in ours.parts if part.to}
    assert files == {*images, *weights, "annotations/instances_val2017.json", ".deeplearning.json"}
    assert (efs / "data/train2017/000000000002.jpg").read_bytes() == bytes([2]) * 5000


def test_an_archive_of_coco_with_another_checksum_is_refused(publishers: Publishers, tmp_path: Path) -> None:
    bucket: Any = Memory(tmp_path / "bucket")
    with pytest.raises(OperatorError, match="not the published one: .* instead of 69a8bb58.*removed"):
        fetches = FirstFetches(tmp_path)
        upload(bucket, "coco2017", None, tmp_path / "stage", fetches, QUIET, check=False)
    assert not list((tmp_path / "bucket").iterdir())
