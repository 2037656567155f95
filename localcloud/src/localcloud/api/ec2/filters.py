"""Filters and pages, as all Describe operations of EC2 have them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from localcloud.api import paging
from localcloud.api.ec2.errors import invalid
from localcloud.core.cloud import Call
from localcloud.core.errors import AwsError
from localcloud.core.settings import DATA

Item = TypeVar("Item")
Described = Mapping[str, Any]
"""an item as the API shows it"""

_PATHS: Mapping[str, Mapping[str, str]] = tomllib.loads((DATA / "ec2_filters.toml").read_text(encoding="utf-8"))


def matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that compares a text with patterns; * matches any characters, ? one."""
    exact = {pattern for pattern in patterns if "*" not in pattern and "?" not in pattern}
    wild = [_regex(pattern) for pattern in patterns if pattern not in exact]
    if not wild:
        return exact.__contains__
    return lambda text: text in exact or any(regex.match(text) for regex in wild)


def _regex(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    text = "".join(parts.get(part, re.escape(part)) for part in re.split(r"([*?])", pattern))
    return re.compile(text + r"\Z", re.DOTALL)


def listing(
    call: Call, key: str, items: Iterable[Described], filters: str = "Filters", **limits: Any
) -> dict[str, Any]:
    """Answer a Describe operation with a page of the items that pass its filters; `limits` are those of `page`."""
    matches = matching(items, call.params.get(filters) or (), key)
    refuse_dry_run(call.params)
    shown, token = page(matches, call.params, **limits)
    return {key: list(shown)} | ({"NextToken": token} if token else {})


def matching(items: Iterable[Described], filters: Iterable[Mapping[str, Any]], key: str) -> list[Described]:
    """Return the items of a list of EC2 that pass all filters. Raise AwsError for an unknown filter."""
    left, paths = list(items), _PATHS[key]
    for record in filters:
        name = str(record.get("Name", ""))
        if name not in paths and not name.startswith(("tag:", "tag-")):
            raise invalid(f"The filter '{name}' is invalid")
        passes = matcher([str(value) for value in record.get("Values") or ()])
        left = [item for item in left if any(map(passes, _values(item, name, paths.get(name))))]
    return left


def _values(item: Described, name: str, path: str | None) -> Iterable[str]:
    if path is not None:
        return _at(item, path)
    tags = {tag["Key"]: tag["Value"] for tag in item["TagSet" if "TagSet" in item else "Tags"]}
    if name.startswith("tag:"):
        return [tags[name[4:]]] if name[4:] in tags else []
    return tags.keys() if name == "tag-key" else tags.values()


def _at(described: Any, path: str) -> Iterator[str]:
    """Return the values at a path through lists, in the form of filters."""
    if isinstance(described, list):
        for item in described:
            yield from _at(item, path)
    elif path:
        first, _, rest = path.partition(".")
        if first in described:
            yield from _at(described[first], rest)
    else:
        yield str(described).lower() if isinstance(described, bool) else str(described)


def by_name(items: Sequence[Item], field: str, names: Iterable[Any], unknown: Callable[[str], AwsError]) -> list[Item]:
    """Return the items with these names, or all if the request names none."""
    existing = {getattr(item, field): item for item in items}
    requested = [str(name) for name in dict.fromkeys(names)]
    for name in requested:
        if name not in existing:
            raise unknown(name)
    return [existing[name] for name in requested] if requested else list(items)


def page(
    items: Sequence[Item], params: Mapping[str, Any], minimum: int = 5, maximum: int = 1000, default: int | None = 1000
) -> tuple[Sequence[Item], str | None]:
    """Return a page of items, and the token of the next one."""
    size = params.get("MaxResults")
    if size is not None and not minimum <= int(size) <= maximum:
        side, bound = ("greater", minimum) if int(size) < minimum else ("less", maximum)
        raise invalid(
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value {side} than or equal to {bound}."
        )
    refusal = invalid("Unable to parse pagination token")
    return paging.page(items, params.get("NextToken"), default if size is None else int(size), refusal)


def tags_of(params: Mapping[str, Any], resource_type: str) -> dict[str, str]:
    """Return the tags in TagSpecifications of a call for a type of resource."""
    return {
        str(tag["Key"]): str(tag.get("Value") or "")
        for specification in params.get("TagSpecifications") or ()
        if specification.get("ResourceType") == resource_type
        for tag in specification.get("Tags") or ()
    }


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def refuse_dry_run(params: Mapping[str, Any]) -> None:
    """DryRun: everything was in order, so say so instead of doing it."""
    if params.get("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
