"""How bindfs is started: what it is asked to cache depends on the FUSE that it is built with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud import daemon
from localcloud.machines import filesystem

SOURCE = "fs-1.efs.us-east-1.amazonaws.com:/"


@pytest.fixture(params=["2.9", "3.17"])
def fuse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    text = f"libfuse interface compile-time version {request.param}\n"
    monkeypatch.setattr(subprocess, "run", lambda *_words, **_more: subprocess.CompletedProcess([], 0, text))
    filesystem.can_cache.cache_clear()
    yield str(request.param)
    filesystem.can_cache.cache_clear()


def test_only_fuse_2_is_asked_to_cache(fuse: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = filesystem._bindfs(SOURCE, Path("data,"), Path("mounted"))
    options = command[command.index("-o") + 1].split(",")
    assert options[:2] == [f"fsname={SOURCE}", "subtype=nfs4"]
    assert ("negative_timeout=30" in options) == (fuse == "2.9")
    assert ("--enable-lock-forwarding" in command) == (fuse == "2.9")
    daemon._report_missing_cache()
    assert ("do not cache" in "".join(capsys.readouterr())) == (fuse != "2.9")
