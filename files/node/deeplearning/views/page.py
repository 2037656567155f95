"""deeplearning page start|stop: the status page on the master's loopback address, in a systemd unit of its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ForkingMixIn
from typing import Any

from deeplearning.config import Config, read_config
from deeplearning.contract import paths
from deeplearning.views import loopback, page_html, snapshot

PORTS = range(6106, 6206)
SERVER = loopback.LoopbackServer("The status page", "deeplearning-page.service", "Status page", PORTS, "/")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="deeplearning page", description="The status page of this cluster.")
    parser.add_argument("verb", choices=["start", "stop", "serve"], help="serve: in this process, until it is ended")
    parser.add_argument("--port", type=int, default=PORTS[0], help="of serve (default: %(default)s)")
    options = parser.parse_args(argv)
    config = read_config()
    if options.verb == "serve":
        with PageServer(options.port, config.cluster, lambda: page(config)) as server:
            server.serve_forever()
    else:
        print(json.dumps(start(config) if options.verb == "start" else loopback.stop(SERVER.unit)))


def start(config: Config) -> dict[str, Any]:
    """Start the server unless it runs already."""
    return SERVER.start(config.user, lambda port: (paths.PROGRAM, "page", "serve", "--port", str(port)))


def page(config: Config) -> str:
    """Return the page as it is now. It names what cannot be read."""
    return page_html.page(snapshot.take(config))


class PageServer(ForkingMixIn, HTTPServer):
    """A process for each request, so that a file system that does not answer hangs none of the others."""

    allow_reuse_address = True
    block_on_close = False

    def __init__(self, port: int, cluster: str, page: Callable[[], str]) -> None:
        self.page = page
        # To a browser, all pages at localhost are one site: the playbook prints the cluster's own name.
        self.hosts = (f"{cluster}.localhost", "localhost", loopback.ADDRESS)
        super().__init__((loopback.ADDRESS, port), Handler)


class Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 10
    server_version = "deeplearning"
    sys_version = ""

    def do_GET(self) -> None:  # noqa: N802
        # A web site may have its own name resolved to the loopback address, to read this page in a browser.
        if (self.headers.get("Host") or "").partition(":")[0] not in self.server.hosts:
            self._answer(403, page_html.error_page("Refused", f"Open this page as http://{self.server.hosts[0]}."))
        elif self.path != "/":
            self._answer(404, page_html.error_page("Not found", "There is one page only."))
        else:
            self._answer(200, self.server.page())

    def _answer(self, status: int, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in page_html.HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Leave no line in the journal for each request."""
