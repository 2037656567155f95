# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Downloads over HTTP that resume where an earlier attempt was interrupted."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
import urllib.error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import UserError

CHUNK = 1 << 20
ATTEMPTS = 5
MIRROR_ATTEMPTS = 2
"""Where another address has the same bytes."""
SAMPLE = 1 << 20
SAMPLE_SECONDS = 5.0
"""An address that has not sent the sample by then is slow."""
_PIECE = 1 << 14
RETRY_SECONDS = 2.0
"""Seconds before the first repetition; twice as many before the second, and so on."""

OpenUrl = Callable[[str, dict[str, str]], Any]
"""Opens a URL with headers, as urllib does."""


class DownloadError(Exception):
    """Why a file cannot be downloaded, in a few words."""


class WrongContent(UserError):
    """What is wrong with a file that was downloaded, and removed."""


@dataclass(frozen=True)
class Download:
    """A download to a file, after what it already has."""

    file: Path
    progress: Callable[[int, int], None]
    """Called with the bytes that the file has, and those that it will have."""
    open_url: OpenUrl
    check_space: Callable[[int], None]
    """Called with the bytes that are missing."""

    def fetch_first(self, urls: Sequence[str], check: Callable[[Path], str], note: Callable[[str], None]) -> str:
        """Fetch the file from the quickest address that has the right one, and return its checksum.

        `check`: returns the checksum, and raises UserError if the content is wrong. `note`: called with a sentence for
        each address that another one follows. Raise DownloadError or WrongContent for the last one.
        """
        *others, last = quickest_first(urls, self.open_url)
        for url in others:
            try:
                return self._fetch_checked(url, check, MIRROR_ATTEMPTS)
            except DownloadError as error:
                note(f"{url} cannot be fetched ({error}). The next address is tried.")
            except WrongContent as problem:
                note(f"{problem} The next address is tried.")
        try:
            return self._fetch_checked(last, check, ATTEMPTS)
        except DownloadError as error:
            raise DownloadError(f"{last} cannot be fetched ({error})") from None

    def _fetch_checked(self, url: str, check: Callable[[Path], str], attempts: int) -> str:
        """Return the checksum of the file from one address. Remove a file with wrong content."""
        is_resumed = self.file.exists()
        self.fetch(url, attempts)
        try:
            return check(self.file)
        except UserError as problem:
            self.file.unlink(missing_ok=True)
            if not is_resumed:
                raise WrongContent(f"{problem} The file was removed. It came from {url}.") from None
        # What an interrupted download had left may have come from another address.
        return self._fetch_checked(url, check, attempts)

    def fetch(self, url: str, attempts: int = ATTEMPTS) -> None:
        """Fetch the file from one address. Raise DownloadError if that fails."""
        for attempt in range(attempts):
            time.sleep(RETRY_SECONDS * attempt)
            try:
                self._fetch_rest(url)
                return
            except urllib.error.HTTPError as error:
                reason = f"{error.code} {error.reason}"
                if error.code < 500 and error.code != 429:
                    break
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                reason = str(getattr(error, "reason", error))
        raise DownloadError(reason)

    def _fetch_rest(self, url: str) -> None:
        size = self.file.stat().st_size if self.file.exists() else 0
        try:
            response = self.open_url(url, {"Range": f"bytes={size}-"} if size else {})
        except urllib.error.HTTPError as error:
            if error.code != 416 or not size:
                raise
            if error.headers.get("Content-Range") == f"bytes */{size}":
                return  # it is complete
            self.file.unlink()
            raise ConnectionError("the file is not the one whose download was interrupted") from None
        with response:
            if response.status != 206:
                size = 0
            total = size + int(response.headers.get("Content-Length") or 0)
            self.check_space(total - size)
            with self.file.open("ab" if size else "wb") as output:
                for chunk in iter(lambda: response.read(CHUNK), b""):
                    output.write(chunk)
                    size += len(chunk)
                    self.progress(size, total)
        if size < total:
            raise ConnectionError("the connection was closed too early")


def quickest_first(urls: Sequence[str], open_url: OpenUrl) -> list[str]:
    """Return the addresses, the first that is not slow in front. If all are, order them by what they have sent."""
    received = dict.fromkeys(urls, 0)
    for url in urls if len(urls) > 1 else ():
        if not _is_slow(url, open_url, received):
            return [url, *(other for other in urls if other != url)]
    return sorted(urls, key=lambda url: -received[url])


def _is_slow(url: str, open_url: OpenUrl, received: dict[str, int]) -> bool:
    """Return whether an address neither sends the sample in time nor fails. Count what it sends meanwhile."""

    def read() -> None:
        headers = {"Range": f"bytes=0-{SAMPLE - 1}"}
        with contextlib.suppress(OSError, http.client.HTTPException), open_url(url, headers) as response:
            while received[url] < SAMPLE and (piece := response.read(_PIECE)):
                received[url] += len(piece)

    # A thread, because a connection may neither be made nor fail for minutes.
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(SAMPLE_SECONDS)
    return thread.is_alive()
