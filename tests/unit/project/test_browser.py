"""The tests' programs that are not Python's: which browser they use, and where Debian's packages come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import debian
from tests.browser import page_text


def program(folder: Path, name: str, output: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)


def test_an_installed_chrome_is_used_where_chromium_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path, "google-chrome", "<p>by Chrome</p>")
    assert page_text("about:blank") == "<p>by Chrome</p>\n"
    program(tmp_path, "chromium", "<p>by Chromium</p>")
    assert page_text("about:blank") == "<p>by Chromium</p>\n"


@pytest.mark.parametrize(
    ("listed", "mirror"),
    [("https://mirror.example.org/debian", "https://mirror.example.org/debian"), ("", "http://deb.debian.org/debian")],
)
def test_packages_of_another_suite_come_from_the_machines_mirror_or_debian(
    listed: str, mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "apt-get", listed)
    monkeypatch.setenv("PATH", str(tmp_path))
    debian._apt_options(tmp_path, "trixie")
    assert f"URIs: {mirror}\n" in (tmp_path / "apt.sources").read_text()
