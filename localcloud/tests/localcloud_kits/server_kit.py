"""A server that stays up while the application behind it changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from localcloud.endpoint.front import Front


class Swapped:
    """An application in whose place each test puts its own: a server takes half a second to stop."""

    front: Front

    def __call__(self, *arguments: Any) -> Iterable[bytes]:
        return self.front(*arguments)
