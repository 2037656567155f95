# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Downloads over HTTP that resume where an earlier attempt was interrupted."""

from __future__ import annotations

import http.client
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
ATTEMPTS = 5
MIRROR_ATTEMPTS = 2
"""Where another address has the same bytes."""
RETRY_SECONDS = 2.0
"""Seconds before the first repetition; twice as many before the second, and so on."""

Progress = Callable[[int, int], None]
"""Called with the bytes that the file has, and those that it will have."""


class DownloadError(Exception):
    """Why a file cannot be downloaded, in a few words."""


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
