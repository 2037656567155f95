"""A connection to a node that is this machine."""

from __future__ import annotations

from typing import Any


class Connection:
    def __init__(self, transport: str = "ssh", **options: Any) -> None:
        self.transport = transport
        self._options = {"ssh_common_args": "", "private_key_file": None, "remote_user": None, "host": "h", **options}

    def get_option(self, name: str) -> Any:
        return self._options[name]
