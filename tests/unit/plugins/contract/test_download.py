"""Downloads that resume: what is asked for again, what is refused, and how long it is tried."""

from __future__ import annotations

import http.client
import io
import urllib.error
from email.message import Message
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import download as module
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.download import Download, DownloadError

CONTENT = b"0123456789"


class Response(io.BytesIO):
    def __init__(self, content: bytes, status: int, length: int | None) -> None:
        super().__init__(content)
        self.status = status
        self.headers = {} if length is None else {"Content-Length": str(length)}


class Site:
    """A site whose answers to the next requests may be failures."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.ranges: list[str] = []
        self.spaces: list[int] = []
        self.progress: list[tuple[int, int]] = []
        self.slept: list[float] = []
        self.knows_ranges, self.names_length = True, True
        self.cut = len(CONTENT)

    def open(self, url: str, headers: dict[str, str]) -> Response:
        assert url == "https://h/file"
        self.ranges.append(headers.get("Range", ""))
        if self.failures:
            raise self.failures.pop(0)
        start = int(self.ranges[-1].removeprefix("bytes=").rstrip("-") or 0) if self.knows_ranges else 0
        if start >= len(CONTENT):
            raise refusal(416, f"bytes */{len(CONTENT)}")
        length = len(CONTENT) - start if self.names_length else None
        rest, self.cut = CONTENT[start : self.cut], len(CONTENT)
        return Response(rest, 206 if start else 200, length)

    def fetch(self, file: Path) -> None:
        download = Download(file, lambda *sizes: self.progress.append(sizes), self.open, self.spaces.append)
        download.fetch("https://h/file")


def refusal(code: int, content_range: str = "") -> urllib.error.HTTPError:
    headers = Message()
    headers["Content-Range"] = content_range
    return urllib.error.HTTPError("https://h/file", code, "Reason", headers, None)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site()
    monkeypatch.setattr(module.time, "sleep", site.slept.append)
    monkeypatch.setattr(module, "CHUNK", 4)
    return site


def test_a_file_is_fetched_in_pieces(site: Site, tmp_path: Path) -> None:
    site.fetch(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert (site.ranges, site.spaces, site.slept) == ([""], [10], [0])
    assert site.progress == [(4, 10), (8, 10), (10, 10)]


def test_what_is_missing_is_fetched(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT[:7])
    site.fetch(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert (site.ranges, site.spaces, site.progress) == (["bytes=7-"], [3], [(10, 10)])


def test_a_site_that_knows_no_ranges_sends_all_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 7)
    site.knows_ranges = False
    site.fetch(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT and site.spaces == [10]


def test_a_connection_that_breaks_off_is_resumed(site: Site, tmp_path: Path) -> None:
    site.cut = 5
    site.fetch(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert site.ranges == ["", "bytes=5-"] and site.slept == [0, 2]


def test_a_file_of_unknown_length_is_taken_as_it_comes(site: Site, tmp_path: Path) -> None:
    site.names_length = False
    site.fetch(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT and site.spaces == [0]


@pytest.mark.parametrize(("size", "ranges"), [(10, ["bytes=10-"]), (11, ["bytes=11-", ""])])
def test_a_complete_file_stays_and_a_longer_one_is_another(
    site: Site, tmp_path: Path, size: int, ranges: list[str]
) -> None:
    (tmp_path / "file").write_bytes((CONTENT + b"x")[:size])
    site.fetch(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT and site.ranges == ranges


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (refusal(500), "500 Reason"),
        (refusal(503), "503 Reason"),
        (refusal(429), "429 Reason"),
        (urllib.error.URLError("no route"), "no route"),
        (ConnectionResetError("reset"), "reset"),
        (TimeoutError("timed out"), "timed out"),
        (http.client.IncompleteRead(b""), "IncompleteRead"),
    ],
)
def test_what_may_pass_is_tried_five_times(site: Site, tmp_path: Path, failure: Exception, reason: str) -> None:
    site.failures = [failure] * 5
    with pytest.raises(DownloadError, match=reason):
        site.fetch(tmp_path / "file")
    assert site.slept == [0, 2, 4, 6, 8] and len(site.ranges) == 5
    site.failures = [failure] * 4
    site.fetch(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("code", [400, 403, 404, 416, 499])
def test_a_refusal_is_final(site: Site, tmp_path: Path, code: int) -> None:
    site.failures = [refusal(code)]
    with pytest.raises(DownloadError, match=f"^{code} Reason$"):
        site.fetch(tmp_path / "file")
    assert len(site.ranges) == 1 and not (tmp_path / "file").exists()


def test_a_lack_of_space_is_found_before_anything_is_written(site: Site, tmp_path: Path) -> None:
    def refuse(size: int) -> None:
        raise ValueError(size)

    with pytest.raises(ValueError, match="10"):
        Download(tmp_path / "file", lambda *_: None, site.open, refuse).fetch("https://h/file")
    assert not (tmp_path / "file").exists()
