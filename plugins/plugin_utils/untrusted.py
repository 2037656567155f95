# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Parsers for what nodes send. Training code may be root on a node, so a node may send anything.

A parser takes a value that was read from JSON. It returns one that is safe to use and to print, or raises InvalidValue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..module_utils.contract import schema

Parser = schema.Check
InvalidValue = schema.InvalidValue

LONGEST_TEXT = 4096
LONGEST_ARGUMENT = 1 << 17
MOST_ITEMS = 10_000

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, C1: control a terminal
    "\u061c\u2028\u2029\u202a-\u202e"  # reorder or break a line; so do some of the next
    "\u00ad\u200b-\u200f\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # invisible
    "\ud800-\udfff]"  # in no terminal's encoding
)

_ESCAPE = r"(?:\x1b|\\u001[bB]|\\x1[bB])"
"""Also as JSON and Python write it."""
_SEQUENCE = re.compile(
    rf"(?:{_ESCAPE}\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI, such as a colour
    rf"|(?:{_ESCAPE}\]|\x9d)[^\x07\x1b\x9c\\\n]*(?:\x07|\x9c|\x1b\\)"  # OSC, such as a title
    r"|\x1b[ -/]*[0-~]"
)


def without_sequences(text: str) -> str:
    """Return the text without sequences that control a terminal: a word with a colour in it is whole again."""
    return _SEQUENCE.sub("", text)


def printable(text: str) -> str:
    """Return the text without characters that control a terminal. Newlines and tabs stay."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Return the text as one printable line."""
    return printable(text[:LONGEST_TEXT]).replace("\n", " ").replace("\t", " ")


def words(value: Any) -> str:
    """Parse a line of text for people."""
    if not isinstance(value, str):
        raise InvalidValue("a text")
    return one_line(value)


node = schema.matching(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}", "a node's name")
from_json = schema.from_json
between, boolean, one_of, optional = schema.between, schema.boolean, schema.one_of, schema.optional
count = between(0, 2**53)


path = schema.checked_by(
    lambda value: isinstance(value, str) and value.startswith("/") and one_line(value) == value, "an absolute path"
)
"""On a node. It is sent to nodes and shown, and never used on this machine."""
argument = schema.checked_by(lambda value: isinstance(value, str) and len(value) <= LONGEST_ARGUMENT, "a text")
"""A word of a command line, which may hold anything. It is sent to nodes and not shown."""


def list_of(parse: Parser, most: int = MOST_ITEMS) -> Callable[[Any], list[Any]]:
    return schema.list_of(parse, most=most)


def number(value: Any) -> float:
    """Parse a number that can be multiplied and divided by another without exceeding a float."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= 1e15:
        raise InvalidValue("a number")
    return value if abs(value) >= 1e-15 else 0


def map_of(key: Parser, parse: Parser, most: int = MOST_ITEMS) -> Callable[[Any], dict[Any, Any]]:
    return schema.map_of(key, parse, most)


def record(**fields: Parser) -> Callable[[Any], dict[str, Any]]:
    """Return a parser for a map with these fields. A missing field counts as null; other fields are left out."""

    def parse(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidValue("a map")
        parsed = {}
        for name, parse_field in fields.items():
            try:
                parsed[name] = parse_field(value.get(name))
            except InvalidValue as malformed:
                raise InvalidValue(f"{name}: {malformed}") from None
        return parsed

    return parse


def lenient(parse: Parser) -> Parser:
    """Return a parser that returns None for a malformed value: for figures that users' scripts write."""

    def parse_or_none(value: Any) -> Any:
        try:
            return parse(value)
        except InvalidValue:
            return None

    return parse_or_none
