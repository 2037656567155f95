# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Turns what nodes send into values of known types. Training code may be root on a node, so a node may send anything.

A parser takes a value as it came out of JSON. It returns one that is safe to use and to print, or raises Malformed.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Parser = Callable[[Any], Any]

LONGEST_TEXT = 4096
LONGEST_ARGUMENT = 1 << 17
MOST_ITEMS = 10_000

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, C1: what drives a terminal
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # what reorders or breaks a line
    "\ud800-\udfff]"  # what no terminal's encoding has
)


class Malformed(ValueError):
    """The value has another form. The text says which one it should have."""


def printable(text: str) -> str:
    """The text with nothing in it that a terminal obeys. Newlines and tabs stay."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """A printable text that cannot pass for several lines."""
    return printable(text[:LONGEST_TEXT]).replace("\n", " ").replace("\t", " ")


def from_json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("JSON") from None


def words(value: Any) -> str:
    """One line of text for people."""
    if not isinstance(value, str):
        raise Malformed("a text")
    return one_line(value)


def matching(pattern: str | re.Pattern[str], what: str) -> Parser:
    form = re.compile(pattern)

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise Malformed(what)
        return value

    return parse


node = matching(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}", "a node's name")


def path(value: Any) -> str:
    """An absolute path on a node. It is handed back to nodes and shown, and never used on this machine."""
    if not isinstance(value, str) or not value.startswith("/") or one_line(value) != value:
        raise Malformed("an absolute path")
    return value


def argument(value: Any) -> str:
    """A word of a command line, which may hold anything. It is handed back to nodes and not shown."""
    if not isinstance(value, str) or len(value) > LONGEST_ARGUMENT:
        raise Malformed("a text")
    return value


def choice(*known: Any) -> Parser:
    def parse(value: Any) -> Any:
        if value not in known:
            raise Malformed(f"one of {', '.join(map(str, known))}")
        return value

    return parse


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Malformed("true or false")
    return value


def whole(least: int, most: int) -> Parser:
    def parse(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Malformed(f"a whole number from {least} to {most}")
        return value

    return parse


count = whole(0, 2**53)


def number(value: Any) -> float:
    """One that can be multiplied and divided by another without leaving what a float can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= 1e15:
        raise Malformed("a number")
    return value if abs(value) >= 1e-15 else 0


def optional(parse: Parser) -> Parser:
    return lambda value: None if value is None else parse(value)


def list_of(parse: Parser, most: int = MOST_ITEMS) -> Callable[[Any], list[Any]]:
    def parse_all(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise Malformed(f"a list of up to {most}")
        return [parse(item) for item in value]

    return parse_all


def map_of(key: Parser, parse: Parser, most: int = MOST_ITEMS) -> Callable[[Any], dict[Any, Any]]:
    def parse_all(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping) or len(value) > most:
            raise Malformed(f"a map of up to {most}")
        return {key(name): parse(item) for name, item in value.items()}

    return parse_all


def record(**fields: Parser) -> Callable[[Any], dict[str, Any]]:
    """A map with these fields. A missing one counts as null; others are left out."""

    def parse(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Malformed("a map")
        parsed = {}
        for name, parse_field in fields.items():
            try:
                parsed[name] = parse_field(value.get(name))
            except Malformed as malformed:
                raise Malformed(f"{name}: {malformed}") from None
        return parsed

    return parse


def lenient(parse: Parser) -> Parser:
    """None instead of a value of another form: for figures that people write themselves, and that may be missing."""

    def parse_or_none(value: Any) -> Any:
        try:
            return parse(value)
        except Malformed:
            return None

    return parse_or_none
