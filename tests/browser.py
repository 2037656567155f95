"""A headless browser: Chromium or Chrome."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.debian import installed_program

SECONDS = 300
"""A machine that is busy with other tests needs minutes to start it."""
OPTIONS = (
    "--headless",
    # Root has no sandbox; the pages are our own.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    # Do not look for updates, accounts or a proxy.
    *("--disable-background-networking", "--disable-sync", "--no-first-run", "--no-proxy-server"),
)


# Not chromium-browser: Ubuntu's is a script that asks for a snap.
PROGRAMS = ("chromium", "google-chrome")


def screenshot(url: str, file: Path, width: int = 1200, height: int = 900) -> None:
    """Write a picture (PNG) of the page."""
    _browse(url, f"--screenshot={file}", f"--window-size={width},{height}")
    assert file.stat().st_size > 0


def page_text(url: str) -> str:
    """Return the document as the browser has it after it was loaded, as HTML."""
    return _browse(url, "--dump-dom")


def _browse(url: str, *options: str) -> str:
    installed = next(filter(None, map(shutil.which, PROGRAMS)), None)
    program = installed or installed_program("chromium", "chromium", "fonts-dejavu-core")
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [program, *OPTIONS, f"--user-data-dir={profile}", *options, url],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
