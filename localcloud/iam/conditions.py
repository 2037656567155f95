"""The Condition element: the operators, and when one holds.

    {"ForAllValues:StringLikeIfExists": {"aws:TagKeys": ["deeplearning:*", "Name"]}}
     qualifier    operator  suffix       key             values

How a key without a value is judged is most of what is here:

| | key is there | key is absent |
| --- | --- | --- |
| StringEquals … | one of the values matches | false |
| StringNotEquals … | none of the values matches | true |
| …IfExists | as above | true |
| ForAllValues: | every value of the request passes | true |
| ForAnyValue: | one value of the request passes | false |
| Null | false if "true" was asked | true if "true" was asked |

A key with several values that is compared without a qualifier is taken as ForAnyValue (for a negated operator: none may
match). AWS does not say what it does there and advises against it.

Unknown operators, and values that an operator cannot read, are errors when the policy is read, never "true" later.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-logic-multiple-context-keys-or-values.html
"""

from __future__ import annotations

import ipaddress
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .patterns import Context, Pattern


class MalformedPolicy(Exception):
    """The policy cannot be read; the text is what AWS says."""


# A test says whether one value of the request matches one value of the policy.
Test = Callable[[str, Pattern, Context], bool]


def _number(text: str) -> float:
    return float(text)


def _moment(text: str) -> float:
    """Seconds since 1970, out of ISO 8601 or such seconds."""
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _compared(read: Callable[[str], Any], compare: Callable[[Any, Any], bool]) -> Test:
    def test(value: str, pattern: Pattern, context: Context) -> bool:
        try:
            return compare(read(value), read(pattern.text))
        except (ValueError, KeyError):
            return False  # the request's value is not of the operator's type; the policy's was checked on reading

    return test


def _within(value: Any, network: Any) -> bool:
    return value.version == network.version and bool(value.subnet_of(network))


_TESTS: dict[str, Test] = {
    "StringEquals": lambda value, pattern, context: value == pattern.literal(context),
    "StringEqualsIgnoreCase": lambda value, pattern, context: value.lower() == pattern.literal(context).lower(),
    "StringLike": lambda value, pattern, context: pattern.matches(value, context),
    # IAM treats the two alike: both are case sensitive, part by part, with wildcards.
    "ArnEquals": lambda value, pattern, context: pattern.matches_arn(value, context),
    "ArnLike": lambda value, pattern, context: pattern.matches_arn(value, context),
    "BinaryEquals": lambda value, pattern, context: value == pattern.text,
    "Bool": _compared(_truth, operator.eq),
    "IpAddress": _compared(_network, _within),
    **{
        f"{kind}{name}": _compared(read, compare)
        for kind, read in (("Numeric", _number), ("Date", _moment))
        for name, compare in (
            ("Equals", operator.eq),
            ("LessThan", operator.lt),
            ("LessThanEquals", operator.le),
            ("GreaterThan", operator.gt),
            ("GreaterThanEquals", operator.ge),
        )
    },
}
_NEGATED = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "NumericNotEquals": "NumericEquals",
    "DateNotEquals": "DateEquals",
    "NotIpAddress": "IpAddress",
}
_READERS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("Numeric", _number),
    ("Date", _moment),
    ("IpAddress", _network),
    ("Bool", _truth),
    ("Null", _truth),
)
_CANONICAL = {name.lower(): name for name in (*_TESTS, *_NEGATED, "Null")}


@dataclass(frozen=True)
class Condition:
    operator: str
    key: str
    values: tuple[Pattern, ...]
    qualifier: str = ""  # "forallvalues", "foranyvalue" or none
    if_exists: bool = False

    def holds(self, context: Context) -> bool:
        value = context.get(self.key.lower())
        values = () if value is None else (value,) if isinstance(value, str) else tuple(value)
        if self.operator == "Null":
            return (not values) == _truth(self.values[0].text)
        negated = self.operator in _NEGATED
        if not values:
            return self.if_exists or self.qualifier == "forallvalues" or (negated and not self.qualifier)
        test = _TESTS[_NEGATED.get(self.operator, self.operator)]

        def passes(value: str) -> bool:
            return any(test(value, pattern, context) for pattern in self.values) != negated

        everyone = self.qualifier == "forallvalues" or (negated and not self.qualifier)
        return all(map(passes, values)) if everyone else any(map(passes, values))


def _condition(written: str, key: str, values: Iterable[str], variables: bool) -> Condition:
    qualifier, colon, rest = written.lower().rpartition(":")
    name = _CANONICAL.get(rest.removesuffix("ifexists"))
    if_exists = rest.endswith("ifexists")
    if name is None or (colon and qualifier not in ("forallvalues", "foranyvalue")):
        raise MalformedPolicy(f"Invalid Condition type : {written}.")
    if name == "Null" and (qualifier or if_exists):
        raise MalformedPolicy(f"Invalid Condition type : {written}.")
    filled = variables and name.startswith(("String", "Arn"))
    patterns = tuple(Pattern.parse(value, variables=filled) for value in values)
    if not patterns:
        raise MalformedPolicy(f"Condition {written} on {key} has no value.")
    base = _NEGATED.get(name, name)
    for prefix, read in _READERS:
        if base.startswith(prefix):
            for pattern in patterns:
                try:
                    read(pattern.text)
                except (ValueError, KeyError):
                    raise MalformedPolicy(f"Invalid value {pattern.text} for condition {written}.") from None
    return Condition(name, key, patterns, qualifier, if_exists)


def parse_conditions(block: object, *, variables: bool = True) -> tuple[Condition, ...]:
    """The Condition element of a statement. All of them must hold."""
    if not isinstance(block, dict):
        raise MalformedPolicy("Syntax errors in policy.")
    found = []
    for written, keys in block.items():
        if not isinstance(keys, dict):
            raise MalformedPolicy("Syntax errors in policy.")
        for key, given in keys.items():
            values = given if isinstance(given, list) else [given]
            if not all(isinstance(value, str | bool | int | float) for value in values):
                raise MalformedPolicy("Syntax errors in policy.")
            texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
            found.append(_condition(written, key, texts, variables))
    return tuple(found)
