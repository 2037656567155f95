"""A machine that boots next to an AWS of this process: metadata, a bucket and an Auto Scaling group, over real HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from urllib.request import Request, urlopen

import pytest
from deeplearning.boot import first_stage
from deeplearning.contract.boot import first_stage_parameters
from deeplearning.contract.report import MAX_BYTES

INSTANCE = "i-0123456789abcdef0"
ROLE_ID = "AROA0123456789EXAMPLE"
SHA256 = "a" * 64
PARAMETERS: dict[str, Any] = {
    **first_stage_parameters(),
    "largest_report": MAX_BYTES,
    "cluster": "red",
    "region": "us-east-1",
    "suffix": "amazonaws.com",
    "bucket": "red-123456789012-us-east-1",
    "sha256": SHA256,
    "group": "red-workers",
    "role": "worker",
    "role_id": ROLE_ID,
    "gpus": 0,
    "address": "",
}
OWN_REPORT = f"members/{ROLE_ID}:{INSTANCE}/report.json"
NO_ACTION = (400, "ValidationError", f"No active Lifecycle Action found with instance ID {INSTANCE}")

Error = tuple[int, str, str]


@dataclass
class FakeAws:
    objects: dict[str, bytes] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    """when, by key"""
    calls: list[dict[str, str]] = field(default_factory=list)
    """of EC2 and Auto Scaling"""
    reports: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    """the answers to the next requests, metadata apart"""
    inactive: int = 0
    """how many lifecycle calls find no action; -1 for all"""
    denied: bool = False
    """whether members may not read bundles"""
    truncated: int = 0
    """how many downloads break off"""
    date: str = ""
    metadata: dict[str, str] = field(
        default_factory=lambda: {
            "instance-id": INSTANCE,
            "mac": "02:00:00:00:00:01",
            "local-hostname": "ip-10-0-0-5.ec2.internal",
            "local-ipv4": "10.0.0.5",
            "network/interfaces/macs/02:00:00:00:00:01/interface-id": "eni-1",
            "iam/security-credentials/": "red-worker",
            "iam/security-credentials/red-worker": json.dumps(
                {"AccessKeyId": "AKID", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}
            ),
        }
    )

    def states(self) -> list[tuple[str, str]]:
        return [(report["state"], report["step"]) for report in self.reports]

    def actions(self) -> list[str]:
        return [call["Action"] + call.get("LifecycleActionResult", "") for call in self.calls]

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        url = urlsplit(path)
        key = unquote(url.path[1:])
        if key.startswith("latest/"):
            value = "token" if method == "PUT" else self.metadata.get(key.removeprefix("latest/meta-data/"))
            return (404, b"") if value is None else (200, value.encode())
        self.requests.append(f"{method} {key}")
        if self.denied and key.startswith("bundles/"):
            return self._error(403, "AccessDenied", "")
        if self.errors:
            return self._error(*self.errors.pop(0))
        if method == "POST":
            self.calls.append(dict(parse_qsl(body.decode())))
            if "Lifecycle" in self.calls[-1]["Action"] and self.inactive:
                self.inactive -= 1
                return self._error(*NO_ACTION)
            return 200, b""
        if method == "PUT":
            self.objects[key] = body
            self.reports.append(json.loads(body))
            return 200, b""
        if url.query:
            return 200, self._listing(dict(parse_qsl(url.query)))
        return (200, self.objects[key]) if key in self.objects else self._error(404, "NoSuchKey", "There is none.")

    def _error(self, status: int, code: str, message: str) -> tuple[int, bytes]:
        return status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    def _listing(self, query: dict[str, str]) -> bytes:
        """In pages of two."""
        keys = sorted(key for key in self.objects if key.startswith(query["prefix"]) and key > query["start-after"])
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        items = "".join(
            f"<Contents><Key>{key}</Key><LastModified>{self.written.get(key, now)}</LastModified>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in keys[:2]
        )
        return f"<ListBucketResult>{items}</ListBucketResult>".encode()


class Clock:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return sum(self.slept)


@dataclass
class Boot:
    """A machine with files of its own."""

    aws: FakeAws
    clock: Clock
    folder: Path

    def machine(self) -> first_stage.InstanceApi:
        return first_stage.InstanceApi()

    @property
    def log(self) -> str:
        return Path(PARAMETERS["log"]).read_text(encoding="utf-8")


@contextmanager
def booting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boot]:
    aws, clock = FakeAws(), Clock()

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = aws.answer(self.command, self.path, body)
            self.send_response_only(status)
            self.send_header("Date", aws.date or self.date_time_string())
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if "bundles/" in self.path and aws.truncated:
                aws.truncated -= 1
                answer = answer[:-1]
            self.wfile.write(answer)

        do_GET = do_PUT = do_POST = do_any  # noqa: N815

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def local(request: Request, timeout: float) -> Any:
        url = urlsplit(request.full_url)
        rest = f"{url.path}?{url.query}" if url.query else url.path
        headers = dict(request.header_items())
        here = Request(
            f"http://127.0.0.1:{server.server_port}{rest}", request.data, headers, method=request.get_method()
        )
        return urlopen(here, timeout=timeout)

    keys = folder / "ssh"
    keys.mkdir()
    (keys / "ssh_host_ed25519_key.pub").write_text(f"ssh-ed25519 {'A' * 68} root@x\n")
    monkeypatch.setattr(first_stage, "urlopen", local)
    monkeypatch.setattr(first_stage, "HOST_KEYS", str(keys))
    monkeypatch.setattr(first_stage, "PARAMETERS", PARAMETERS)
    monkeypatch.setitem(PARAMETERS, "folder", str(folder / "boot"))
    monkeypatch.setitem(PARAMETERS, "log", str(folder / "log"))
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    (folder / "boot/bundle").mkdir(parents=True)
    try:
        yield Boot(aws, clock, folder)
    finally:
        server.shutdown()
        server.server_close()
