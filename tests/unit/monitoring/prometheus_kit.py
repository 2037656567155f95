"""A real Prometheus with the configuration of the role, and what it reads: a real node exporter and figures of ours."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from deeplearning.contract import paths
from deeplearning.members import rendering
from deeplearning.members.member_list import Members
from deeplearning.views import metrics

from tests.debian import unpacked_program
from tests.unit.node.runs_kit import members

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "roles/monitoring/files"
SECONDS = 60
# The metrics of DCGM exporter 4.6.0-4.8.3 with its default counters, as far as the dashboards use them.
DCGM = """
DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}"}} 97
DCGM_FI_DEV_FB_USED{{gpu="{gpu}"}} 30000
DCGM_FI_DEV_FB_FREE{{gpu="{gpu}"}} 10000
DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}"}} 61
DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}"}} 310.5
DCGM_FI_DEV_XID_ERRORS{{gpu="{gpu}"}} 0
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{gpu="{gpu}"}} 0
DCGM_FI_DEV_ROW_REMAP_FAILURE{{gpu="{gpu}"}} 0
"""


class Prometheus:
    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer. A wrong expression is an error."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._address}/{path}?{query}", timeout=10) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        try:
            return list(self.get("query", query=expression)["result"])
        except urllib.error.HTTPError as error:
            # While it starts, it is unavailable.
            if error.code == 503:
                raise
            raise AssertionError(f"{expression}: {error.read().decode()}") from None


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            if value := condition():
                return value
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"not within {SECONDS} s: {what}")


def watched(count: int = 2) -> Members:
    """Members with GPUs, all on the loopback address."""
    listed = members(count)
    return replace(listed, members=tuple(replace(each, private_ip="127.0.0.1", gpus=2) for each in listed.members))


@contextmanager
def running(folder: Path, arguments: str, runs: list[dict[str, Any]]) -> Iterator[Prometheus]:
    """Start it with the role's arguments, configuration and rules. Only paths, ports and intervals are the test's."""
    (folder / "textfile").mkdir()
    figures = [*metrics.of_members(watched()), *metrics.of_runs(runs)]
    (folder / "textfile" / Path(paths.METRICS).name).write_text(metrics.render(figures))
    with ExitStack() as stack:
        ports = {name: free_port() for name in ("9090", "9100")} | {"9400": stack.enter_context(_dcgm_exporter())}
        text = (FILES / "prometheus.yml").read_text().replace(paths.MONITORING, str(folder)).replace("15s", "2s")
        (folder / "prometheus.yml").write_text(text)
        (folder / "alerts.yml").write_text((FILES / "alerts.yml").read_text())
        for target in rendering.TARGETS:
            if target.monitoring:
                (folder / Path(target.path).name).write_text(_at(ports, target.lines(watched(), {})))
        exporter = unpacked_program("prometheus-node-exporter", "prometheus-node-exporter")
        stack.enter_context(
            _process(
                *(exporter, f"--web.listen-address=127.0.0.1:{ports['9100']}"),
                f"--collector.textfile.directory={folder}/textfile",
                # This machine may have nothing but what is left out by default.
                "--collector.filesystem.fs-types-exclude=^proc$",
                log=folder / "exporter.log",
            )
        )
        words = _at(ports, arguments.replace(paths.MONITORING, str(folder))).split()
        program = unpacked_program("prometheus", "prometheus")
        stack.enter_context(_process(program, *words, f"--storage.tsdb.path={folder}/data", log=folder / "server.log"))
        yield Prometheus(ports["9090"])


def free_port() -> int:
    with socket.socket() as test:
        test.bind(("127.0.0.1", 0))
        return int(test.getsockname()[1])


def _at(ports: dict[str, int], text: str) -> str:
    return re.sub(r":(9090|9100|9400)\b", lambda match: f":{ports[match[1]]}", text)


@contextmanager
def _process(*words: str, log: Path) -> Iterator[None]:
    with log.open("w") as file, subprocess.Popen(words, stdout=file, stderr=file) as process:
        try:
            yield
            assert process.poll() is None, log.read_text()[-2000:]
        finally:
            process.kill()


@contextmanager
def _dcgm_exporter() -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("".join(DCGM.format(gpu=gpu) for gpu in (0, 1)).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
