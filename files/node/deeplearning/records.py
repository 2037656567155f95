"""JSON that passes between parts and machines: every key is known, every value has its form, or it is refused."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from deeplearning import Refusal

SCHEMA = 1
HIDDEN = ("environment",)
"""Keys whose values may be secrets."""


class Wrong(ValueError):
    """A value of another form; the text says which is wanted."""


MOST_GPUS = 64
"""No machine of AWS has more. Each may become a process, so a number that a machine reports is not just believed."""

Check = Callable[[Any], None]
"""Raises Wrong."""


def matching(pattern: str, wanted: str) -> Check:
    form = re.compile(pattern)

    def check(value: Any) -> None:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise Wrong(wanted)

    return check


word = matching(r"[A-Za-z0-9_.:/@+-]{1,255}", "a word")
name = matching(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", "a name of letters, digits and dashes")
path = matching(r"(/[A-Za-z0-9_.+-]+)+", "an absolute path without blanks")
host_name = matching(r"[a-z0-9-]+(\.[a-z0-9-]+)*", "a host's name")
instance = matching(r"i-[0-9a-f]{8,17}", "an instance id")
instance_type = matching(r"[a-z0-9-]+\.[a-z0-9-]+", "an instance type")
signature = matching(r"[A-Za-z0-9+/]{100,2000}={0,2}", "a signature in base64")
moment = matching(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "a time like 2026-01-31T12:00:00Z")
host_key = matching(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,1000}={0,2}",
    "a host's public key (ed25519, ecdsa or rsa) without a comment",
)


def between(least: int, most: int) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Wrong(f"a whole number from {least} to {most}")

    return check


number = between(0, 2**32 - 1)
gpus = between(0, MOST_GPUS)


def flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise Wrong("true or false")


def an_address(value: Any) -> None:
    try:
        ipaddress.IPv4Address(value if isinstance(value, str) else "")
    except ValueError:
        raise Wrong("an IPv4 address") from None


def an_address_range(value: Any) -> None:
    try:
        ipaddress.IPv4Network(value if isinstance(value, str) else "")
    except ValueError:
        raise Wrong("a range of IPv4 addresses like 10.0.0.0/16") from None


def one_of(*values: Any) -> Check:
    def check(value: Any) -> None:
        if value not in values:
            raise Wrong(f"one of {', '.join(map(str, values))}")

    return check


def an_optional(inner: Check) -> Check:
    def check(value: Any) -> None:
        if value is not None:
            inner(value)

    return check


def a_list(inner: Check, least: int = 0) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, list) or len(value) < least:
            raise Wrong(f"a list of {least} or more")
        for item in value:
            inner(item)

    return check


def quoted(key: str, value: Any) -> str:
    """Return a value as a refusal quotes it: what may be a secret is not shown."""
    return "<hidden>" if key in HIDDEN else f"{value!r:.200}"


def checked(record: Any, fields: Mapping[str, Check], what: str) -> dict[str, Any]:
    """A whole file's record, without its schema, once all of it is as it should be."""
    if not isinstance(record, dict):
        raise Refusal(f"{what} is no JSON object.")
    if record.get("schema") != SCHEMA:
        raise Refusal(f"{what} has schema {record.get('schema')!r}, not {SCHEMA}: configure the cluster again.")
    return checked_part({key: value for key, value in record.items() if key != "schema"}, fields, what)


def checked_part(record: Any, fields: Mapping[str, Check], what: str) -> dict[str, Any]:
    """The same of a record inside another: it has no schema of its own."""
    if not isinstance(record, dict):
        raise Refusal(f"{what} is no JSON object.")
    unknown, missing = sorted(record.keys() - fields.keys()), sorted(fields.keys() - record.keys())
    if unknown or missing:
        said = [
            f"{kind} keys: {', '.join(keys)}" for kind, keys in (("unknown", unknown), ("missing", missing)) if keys
        ]
        raise Refusal(f"{what} has {'; '.join(said)}.")
    for key, check in fields.items():
        try:
            check(record[key])
        except Wrong as wrong:
            raise Refusal(f"{what}: {key} is {quoted(key, record[key])}, not {wrong}.") from None
    return record
