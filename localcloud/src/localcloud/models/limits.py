"""Limits of requests that AWS documents, and that neither its models nor the services here have: data/limits.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.core.settings import DATA


@dataclass(frozen=True)
class Limit:
    calls: tuple[str, ...]
    """as `ec2:CreateTags`"""
    members: tuple[str, ...]
    """paths, as `Tags[].Key`"""
    source: str
    of: str = "characters"
    """what is counted: characters, bytes or entries"""
    most: int = 0
    """0: any number"""
    pattern: str = ""
    """of the whole value"""

    def problems(self, params: Mapping[str, Any]) -> Iterator[str]:
        for member in self.members:
            for value in _at(params, member.split(".")):
                size = _SIZES[self.of](value)
                if self.most and size > self.most:
                    yield f"{member}: more than {self.most} {self.of}, {size}"
                if self.pattern and not re.fullmatch(self.pattern, value):
                    yield f"{member}: has other characters than {self.pattern}, {value!r:.60}"


_SIZES: Mapping[str, Callable[[Any], int]] = {
    "characters": len,
    "bytes": lambda text: len(text.encode()),
    "entries": len,
}


def _at(value: Any, names: list[str]) -> Iterator[Any]:
    if not names:
        yield value
        return
    name = names[0].removesuffix("[]")
    inner = value.get(name) if isinstance(value, Mapping) else None
    if inner is not None:
        for item in inner if names[0].endswith("[]") else [inner]:
            yield from _at(item, names[1:])


@functools.cache
def limits() -> dict[str, list[Limit]]:
    """Return the limits of each call."""
    table: dict[str, list[Limit]] = {}
    for entry in tomllib.loads((DATA / "limits.toml").read_text(encoding="utf-8"))["limit"]:
        limit = Limit(**{**entry, "calls": tuple(entry["calls"]), "members": tuple(entry["members"])})
        for call in limit.calls:
            table.setdefault(call, []).append(limit)
    return table


def problems(call: str, params: Mapping[str, Any]) -> set[str]:
    return {problem for limit in limits().get(call, ()) for problem in limit.problems(params)}
