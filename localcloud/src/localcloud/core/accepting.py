"""Answer connections, each in a thread of its own, until closed."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Accepting:
    def __init__(self, listening: socket.socket, answer: Callable[[socket.socket], None], name: str) -> None:
        """`answer` is given each connection, and need not close it."""
        self._listening = listening
        self._answer = answer
        self._closed = False
        threading.Thread(target=self._accept, daemon=True, name=name).start()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError as error:
                if self._closed:
                    return
                log.warning("a connection was lost: %s", error)
                time.sleep(0.1)  # out of files, say: others end meanwhile
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            self._answer(client)
