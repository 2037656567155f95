# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The checks of JSON files that pass between parts and machines: unknown keys and malformed values are refused."""

from __future__ import annotations

import calendar
import ipaddress
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from .errors import UserError

VERSION = 1
TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"
HIDDEN = ("environment",)
"""Keys whose values may be secrets."""


class InvalidValue(ValueError):
    """A malformed value. The message says what is expected."""


MAX_GPUS = 64
"""No machine of AWS has more. Each may become a process, so the number that a machine reports is limited."""

Check = Callable[[Any], Any]
"""Returns the value with its type. Raises InvalidValue if it is malformed."""


def checked_by(is_valid: Callable[[Any], bool], expected: str) -> Check:
    def check(value: Any) -> Any:
        if not is_valid(value):
            raise InvalidValue(expected)
        return value

    return check


def matching(pattern: str, expected: str) -> Check:
    form = re.compile(pattern)
    return checked_by(lambda value: isinstance(value, str) and form.fullmatch(value) is not None, expected)


string = matching(r"(?s).*", "a string")
word = matching(r"[A-Za-z0-9_.:/@+-]{1,255}", "a word")
name = matching(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", "a name of letters, digits and dashes")
path = matching(r"(/[A-Za-z0-9_.+-]+)+", "an absolute path without blanks")
host_name = matching(r"[a-z0-9][a-z0-9-]*(\.[a-z0-9-]+)*", "a host's name")
instance = matching(r"i-[0-9a-f]{8,17}", "an instance id")
instance_type = matching(r"[a-z][a-z0-9-]*\.[a-z0-9-]+", "the name of an EC2 instance type")
sha256 = matching(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal")
signature = matching(r"[A-Za-z0-9+/]{100,2000}={0,2}", "a signature in base64")
timestamp = matching(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "a time like 2026-01-31T12:00:00Z")
host_key = matching(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,1000}={0,2}",
    "a host's public key (ed25519, ecdsa or rsa) without a comment",
)


def format_time(seconds: float | None = None) -> str:
    """Return a time in seconds since the epoch, or the current one, as a timestamp."""
    return time.strftime(TIME_FORM, time.gmtime(seconds))


def parse_time(text: str) -> float:
    return calendar.timegm(time.strptime(text, TIME_FORM))


def _is_number(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)


def number(least: float, most: float) -> Check:
    return checked_by(
        lambda value: _is_number(value, (int, float)) and least <= value <= most, f"a number from {least} to {most}"
    )


def between(least: int, most: int) -> Check:
    return checked_by(
        lambda value: _is_number(value, (int,)) and least <= value <= most, f"a whole number from {least} to {most}"
    )


def text(most: int, least: int = 0) -> Check:
    return checked_by(
        lambda value: isinstance(value, str) and least <= len(value) <= most and value.isprintable(),
        f"{least or 'up'} to {most} printable characters",
    )


uint32 = between(0, 2**32 - 1)
gpus = between(0, MAX_GPUS)


boolean = checked_by(lambda value: isinstance(value, bool), "true or false")


def parsed_by(parse: Callable[[str], Any], expected: str) -> Check:
    def check(value: Any) -> Any:
        try:
            parse(value if isinstance(value, str) else "")
        except ValueError:
            raise InvalidValue(expected) from None
        return value

    return check


ipv4_address = parsed_by(ipaddress.IPv4Address, "an IPv4 address")
ipv4_network = parsed_by(ipaddress.IPv4Network, "a range of IPv4 addresses like 10.0.0.0/16")


def one_of(*values: Any) -> Check:
    expected = f"{'one of ' * (len(values) > 1)}{', '.join(map(str, values))}"
    return checked_by(lambda value: value in values, expected)


def optional(inner: Check) -> Check:
    return lambda value: None if value is None else inner(value)


def or_empty(inner: Check) -> Check:
    return lambda value: "" if value == "" else inner(value)


def list_of(inner: Check, least: int = 0, most: int | None = None) -> Callable[[Any], list[Any]]:
    expected = f"a list of {least} or more" if most is None else f"a list of up to {most}"

    def check(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) < least or (most is not None and len(value) > most):
            raise InvalidValue(expected)
        return [inner(item) for item in value]

    return check


def tuple_of(inner: Check, least: int = 0, most: int | None = None) -> Callable[[Any], tuple[Any, ...]]:
    check = list_of(inner, least, most)
    return lambda value: tuple(check(value))


def map_of(key: Check, inner: Check, most: int | None = None) -> Callable[[Any], dict[Any, Any]]:
    expected = "a map" if most is None else f"a map of up to {most}"

    def check(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict) or (most is not None and len(value) > most):
            raise InvalidValue(expected)
        return {key(name): inner(item) for name, item in value.items()}

    return check


def fields_of(**fields: Check) -> Callable[[Any], dict[str, Any]]:
    """Return the check of a map with exactly these keys."""
    *names, last = fields

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or value.keys() != fields.keys():
            raise InvalidValue(f"{', '.join(names)} and {last}")
        return {key: inner(value[key]) for key, inner in fields.items()}

    return check


def part(fields: Mapping[str, Check], name: str) -> Callable[[Any], dict[str, Any]]:
    """Return the check of a record inside another. It raises UserError, which names the part's key."""
    return lambda value: validate_part(value, fields, name)


def quoted(key: str, value: Any) -> str:
    """Return a value as an error message shows it, without what may be a secret."""
    return "<hidden>" if key in HIDDEN else f"{value!r:.200}"


def from_json(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidValue("JSON") from None


def json_object(text: bytes | str) -> dict[str, Any]:
    """Return the JSON object in a text that anyone may have written; empty if it is none."""
    try:
        record = from_json(text)
    except InvalidValue:
        return {}
    return record if isinstance(record, dict) else {}


def parse(body: bytes | str, most: int, fields: Mapping[str, Check], name: str) -> dict[str, Any]:
    """Return the record in a file of up to so many bytes."""
    try:
        record = from_json(body if len(body) <= most else "")
    except InvalidValue:
        raise UserError(f"{name} is no JSON of up to {most} bytes.") from None
    return validate(record, fields, name)


def validate(record: Any, fields: Mapping[str, Check], name: str) -> dict[str, Any]:
    """Return what the checks return for a file's record. Raise UserError for unknown, missing or malformed keys."""
    if not isinstance(record, dict):
        raise UserError(f"{name} is no JSON object.")
    if record.get("schema") != VERSION:
        raise UserError(f"{name} has schema {record.get('schema')!r}, not {VERSION}: configure the cluster again.")
    return validate_part({key: value for key, value in record.items() if key != "schema"}, fields, name)


def validate_part(record: Any, fields: Mapping[str, Check], name: str) -> dict[str, Any]:
    """Do the same for a record inside another, which has no schema of its own."""
    if not isinstance(record, dict):
        raise UserError(f"{name} is no JSON object.")
    unknown, missing = sorted(record.keys() - fields.keys()), sorted(fields.keys() - record.keys())
    if unknown or missing:
        problems = (("unknown", unknown), ("missing", missing))
        keys = "; ".join(f"{problem} keys: {', '.join(names)}" for problem, names in problems if names)
        raise UserError(f"{name} has {keys}.")
    values = {}
    for key, check in fields.items():
        try:
            values[key] = check(record[key])
        except InvalidValue as invalid:
            raise UserError(f"{name}: {key} is {quoted(key, record[key])}, not {invalid}.") from None
        except UserError as problem:
            raise UserError(f"{name}: {problem}") from None
    return values
