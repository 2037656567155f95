"""Pages of lists. A token is the number of the first item of the next page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from localcloud.core.errors import AwsError

Item = TypeVar("Item")


def page(
    items: Sequence[Item], token: str | None, size: int | None, refusal: AwsError
) -> tuple[Sequence[Item], str | None]:
    """Return the items from a token on, and the next token if there are more. Raise the refusal of an unknown token."""
    if token and not token.isdecimal():
        raise refusal
    start = int(token or 0)
    end = len(items) if size is None else start + size
    return items[start:end], str(end) if end < len(items) else None
