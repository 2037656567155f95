"""What machines take over from the host's pip: where packages come from, and no password."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from localcloud import daemon
from localcloud.machines import host

PASSWORD = "s3cr3t"


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Lines of the host's `pip config list`, to be given by the test."""
    lines: list[str] = []
    monkeypatch.setattr(host, "_pip_config", lambda: "\n".join(lines))
    yield lines


def pip_conf(root: Path) -> dict[str, str]:
    host.write_host_settings(root)
    lines = (root / "etc/pip.conf").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "[global]"
    return dict(line.split(" = ", 1) for line in lines[1:])


@pytest.mark.parametrize(
    "configured_as, copied",
    [
        ("https://pypi.example.org/simple", "https://pypi.example.org/simple"),
        (f"https://me:{PASSWORD}@pypi.example.org/simple", "https://pypi.example.org/simple"),
        (f"https://{PASSWORD}@pypi.example.org:8443/simple", "https://pypi.example.org:8443/simple"),
        (f"https://me:p@{PASSWORD}@pypi.example.org/simple", "https://pypi.example.org/simple"),
        (
            f"https://one.example.org/simple https://me:{PASSWORD}@two.example.org/a@b/simple",
            "https://one.example.org/simple https://two.example.org/a@b/simple",
        ),
    ],
)
@pytest.mark.parametrize("setting", ["index-url", "extra-index-url", "find-links"])
def test_addresses_of_packages_lose_user_and_password(
    setting: str, configured_as: str, copied: str, configured: list[str], tmp_path: Path
) -> None:
    configured.append(f"global.{setting}='{configured_as}'")
    assert pip_conf(tmp_path)[setting] == copied
    assert host.withheld_credentials() == ([setting] if configured_as != copied else [])


def test_who_starts_the_cloud_hears_what_machines_do_not_get(
    configured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.report_withheld_credentials()
    assert capsys.readouterr().err == ""
    configured += [
        f"global.index-url='https://me:{PASSWORD}@one.example.org/simple'",
        f":env:.extra-index-url='https://me:{PASSWORD}@two.example.org/simple'",
        "global.find-links='/wheels'",
    ]
    daemon.report_withheld_credentials()
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip's extra-index-url and index-url" in line
    assert "No matching distribution found" in line
    assert PASSWORD not in line


class Locked(BaseHTTPRequestHandler):
    """A package index that requires a password."""

    seen: list[str | None]

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="packages"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Print nothing."""


def test_pip_asks_nobody_when_an_index_needs_the_password(configured: list[str], tmp_path: Path) -> None:
    handler = type("Handler", (Locked,), {"seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        configured.append(f"global.index-url='http://me:{PASSWORD}@127.0.0.1:{server.server_port}/simple'")
        host.write_host_settings(tmp_path)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "some-package"],
            env={**environment, "PIP_CONFIG_FILE": str(tmp_path / "etc/pip.conf"), "NO_PROXY": "127.0.0.1"},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ERROR: No matching distribution found for some-package"
    assert "Traceback" not in done.stderr
    assert set(handler.seen) == {None}
