"""Filters, pages and the complaints about them, as all Describe operations of EC2 have them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from localcloud.core.errors import AwsError

Item = TypeVar("Item")
Values = Iterable[str | None]


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


def chosen(
    items: Iterable[Item],
    filters: Sequence[Mapping[str, Any]] | None,
    getters: Mapping[str, Callable[[Item], Values]],
    tags: Callable[[Item], Mapping[str, str]] | None = None,
) -> list[Item]:
    """Return the items that pass all filters. Raise AwsError for an unknown filter."""
    left = list(items)
    for record in filters or ():
        name, values = str(record.get("Name", "")), [str(value) for value in record.get("Values") or ()]
        getter = getters.get(name) or (tag_getter(name, tags) if tags else None)
        if getter is None:
            raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
        requested = matcher(values)
        left = [item for item in left if any(value is not None and requested(value) for value in getter(item))]
    return left


def tag_getter(name: str, tags: Callable[[Item], Mapping[str, str]]) -> Callable[[Item], Values] | None:
    """Return the function that gets the values of a tag filter; None if the filter is not about tags."""
    if name.startswith("tag:"):
        key = name[4:]
        return lambda item: (tags(item).get(key),)
    if name == "tag-key":
        return lambda item: tags(item).keys()
    if name == "tag-value":
        return lambda item: tags(item).values()
    return None


def page(
    items: Sequence[Item], params: Mapping[str, Any], minimum: int = 5, maximum: int = 1000, default: int | None = 1000
) -> tuple[Sequence[Item], str | None]:
    """Return a page of items, and the token of the next one."""
    size = params.get("MaxResults")
    if size is not None and not minimum <= int(size) <= maximum:
        side, bound = ("greater", minimum) if int(size) < minimum else ("less", maximum)
        raise AwsError(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value {side} than or equal to {bound}.",
        )
    count = int(size) if size is not None else default
    start = _offset(params.get("NextToken"))
    if count is None or len(items) <= start + count:
        return items[start:], None
    return items[start : start + count], base64.b64encode(f"from:{start + count}".encode()).decode()


def _offset(token: str | None) -> int:
    if not token:
        return 0
    try:
        word, _, number = base64.b64decode(token, validate=True).decode().partition(":")
        if word == "from":
            return int(number)
    except ValueError:
        pass
    raise AwsError("InvalidParameterValue", "Unable to parse pagination token")


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
