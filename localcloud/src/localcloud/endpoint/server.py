"""The HTTP server of the API: a thread for each connection, with TLS where machines ask for AWS's own names."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer

log = logging.getLogger(__name__)

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Handler(MotoRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 300

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Calls are logged by the front, with more in it."""

    def send_response(self, code: int, message: str | None = None) -> None:
        """Leave the header `Date` to the front, which knows AWS's clock."""
        self.send_response_only(code, message)

    def connection_dropped(self, error: BaseException, environ: dict[str, Any] | None = None) -> None:
        self.close_connection = True

    def address_string(self) -> str:
        return str(self.client_address[0])


class _Server(ThreadedWSGIServer):
    daemon_threads = True
    request_queue_size = 256
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Runs in the connection's own thread: a slow handshake delays no other connection."""
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_Handler.timeout)
        try:
            secured = self.tls.wrap_socket(request, server_side=True)
        except OSError as error:
            log.info("no TLS with %s: %s", client_address, error)
            return
        with secured:
            super().finish_request(secured, client_address)
            with contextlib.suppress(OSError):
                secured.unwrap()


class HttpServer:
    """Serves an application on one address until stopped."""

    def __init__(self, app: Application, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        listening = socket.create_server((host, port), backlog=256)
        self._server = _Server(host, port, app, _Handler, fd=listening.detach())
        self._server.tls = tls
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"http-{host}", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
