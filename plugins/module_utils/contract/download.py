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

Progress = Callable[[int, int], None]
"""Called with the bytes that the file has, and those that it will have."""


class DownloadError(Exception):
    """Why a file cannot be downloaded, in a few words."""


class WrongContent(UserError):
    """What is wrong with a file that was downloaded, and removed."""


def download_first(
    urls: Sequence[str],
    file: Path,
    check: Callable[[Path], str],
    progress: Progress,
    open_url: Callable[[str, dict[str, str]], Any],
    check_space: Callable[[int], None],
    note: Callable[[str], None],
) -> str:
    """Download a file from the quickest address that has the right one, after what it already has.

    `check`: returns its checksum, and raises UserError if its content is wrong. `note`: called with a sentence for each
    address that another one follows. Raise DownloadError or WrongContent for the last one. The other arguments are
    those of `download`.
    """
    *others, last = quickest_first(urls, open_url)
    for url in others:
        try:
            return _download_and_check(url, file, check, progress, open_url, check_space, MIRROR_ATTEMPTS)
        except DownloadError as error:
            note(f"{url} cannot be fetched ({error}). The next address is tried.")
        except WrongContent as problem:
            note(f"{problem} The next address is tried.")
    try:
        return _download_and_check(last, file, check, progress, open_url, check_space, ATTEMPTS)
    except DownloadError as error:
        raise DownloadError(f"{last} cannot be fetched ({error})") from None


def quickest_first(urls: Sequence[str], open_url: Callable[[str, dict[str, str]], Any]) -> list[str]:
    """Return the addresses, the first that is not slow in front. If all are, order them by what they have sent."""
    received = dict.fromkeys(urls, 0)
    for url in urls if len(urls) > 1 else ():
        if not _is_slow(url, open_url, received):
            return [url, *(other for other in urls if other != url)]
    return sorted(urls, key=lambda url: -received[url])


def _is_slow(url: str, open_url: Callable[[str, dict[str, str]], Any], received: dict[str, int]) -> bool:
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


def _download_and_check(
    url: str,
    file: Path,
    check: Callable[[Path], str],
    progress: Progress,
    open_url: Callable[[str, dict[str, str]], Any],
    check_space: Callable[[int], None],
    attempts: int,
) -> str:
    """Return the checksum of a file from one address. Remove a file with wrong content."""
    is_resumed = file.exists()
    download(url, file, progress, open_url, check_space, attempts)
    try:
        return check(file)
    except UserError as problem:
        file.unlink(missing_ok=True)
        if not is_resumed:
            raise WrongContent(f"{problem} The file was removed. It came from {url}.") from None
    # What an interrupted download had left may have come from another address.
    return _download_and_check(url, file, check, progress, open_url, check_space, attempts)


def download(
    url: str,
    file: Path,
    progress: Progress,
    open_url: Callable[[str, dict[str, str]], Any],
    check_space: Callable[[int], None],
    attempts: int = ATTEMPTS,
) -> None:
    """Download to a file, after what it already has. Raise DownloadError if that fails.

    `open_url`: opens a URL with headers, as urllib does. `check_space`: called with the bytes that are missing.
    """
    for attempt in range(attempts):
        time.sleep(RETRY_SECONDS * attempt)
        try:
            _download_rest(url, file, progress, open_url, check_space)
            return
        except urllib.error.HTTPError as error:
            reason = f"{error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                break
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = str(getattr(error, "reason", error))
    raise DownloadError(reason)


def _download_rest(
    url: str,
    file: Path,
    progress: Progress,
    open_url: Callable[[str, dict[str, str]], Any],
    check_space: Callable[[int], None],
) -> None:
    size = file.stat().st_size if file.exists() else 0
    try:
        response = open_url(url, {"Range": f"bytes={size}-"} if size else {})
    except urllib.error.HTTPError as error:
        if error.code != 416 or not size:
            raise
        if error.headers.get("Content-Range") == f"bytes */{size}":
            return  # it is complete
        file.unlink()
        raise ConnectionError("the file is not the one whose download was interrupted") from None
    with response:
        if response.status != 206:
            size = 0
        total = size + int(response.headers.get("Content-Length") or 0)
        check_space(total - size)
        with file.open("ab" if size else "wb") as output:
            for chunk in iter(lambda: response.read(CHUNK), b""):
                output.write(chunk)
                size += len(chunk)
                progress(size, total)
    if size < total:
        raise ConnectionError("the connection was closed too early")
