"""Pages of services whose markers are numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from localcloud.core.errors import AwsError

Item = TypeVar("Item")


def page(
    items: Sequence[Item], marker: str | None, size: int, refused: Callable[[str], AwsError]
) -> tuple[Sequence[Item], str | None]:
    """Return the items from the marker on, and the next marker if there are more."""
    if marker and not marker.isdigit():
        raise refused("The marker is not one that an earlier answer gave.")
    end = int(marker or 0) + size
    return items[int(marker or 0) : end], str(end) if end < len(items) else None
