"""The Condition element of a policy: its operators, and when one is met.

    {"ForAllValues:StringLikeIfExists": {"aws:TagKeys": ["deeplearning:*", "Name"]}}
     qualifier    operator  suffix       key             values

The result depends on whether the request has the key:

| | key is present | key is absent |
| --- | --- | --- |
| StringEquals … | one of the values matches | false |
| StringNotEquals … | none of the values matches | true |
| …IfExists | as above | true |
| ForAllValues: | every value of the request passes | true |
| ForAnyValue: | one value of the request passes | false |
| Null "true" | false | true |

A key with several values that is compared without a qualifier is treated as ForAnyValue (for a negated operator:
none may match). AWS does not document this case and advises against it.

Unknown operators, and values that an operator cannot parse, are errors when the policy is parsed.

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
    """The policy cannot be parsed; the text is AWS's message."""


# Returns whether one value of the request matches one value of the policy.
Test = Callable[[str, Pattern, Context], bool]


def _number(text: str) -> float:
    return float(text)


def _timestamp(text: str) -> float:
    """Parse ISO 8601, or seconds since 1970, to seconds since 1970."""
    try:
        return float(text)
    except ValueError:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _comparison(parse: Callable[[str], Any], compare: Callable[[Any, Any], bool]) -> Test:
    def test(value: str, pattern: Pattern, context: Context) -> bool:
        try:
            return compare(parse(value), parse(pattern.text))
        except (ValueError, KeyError):
            return False  # the request's value is not of the operator's type; the policy's was checked by the parser

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
    "Bool": _comparison(_boolean, operator.eq),
    "IpAddress": _comparison(_network, _within),
    **{
        f"{kind}{name}": _comparison(parse, compare)
        for kind, parse in (("Numeric", _number), ("Date", _timestamp))
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
_PARSERS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("Numeric", _number),
    ("Date", _timestamp),
    ("IpAddress", _network),
    ("Bool", _boolean),
    ("Null", _boolean),
)
_CANONICAL = {name.lower(): name for name in (*_TESTS, *_NEGATED, "Null")}


@dataclass(frozen=True)
class Condition:
    operator: str
    key: str
    values: tuple[Pattern, ...]
    qualifier: str = ""  # "forallvalues", "foranyvalue" or none
    if_exists: bool = False

    def is_met(self, context: Context) -> bool:
        value = context.get(self.key.lower())
        values = () if value is None else (value,) if isinstance(value, str) else tuple(value)
        if self.operator == "Null":
            return (not values) == _boolean(self.values[0].text)
        negated = self.operator in _NEGATED
        if not values:
            return self.if_exists or self.qualifier == "forallvalues" or (negated and not self.qualifier)
        test = _TESTS[_NEGATED.get(self.operator, self.operator)]

        def passes(value: str) -> bool:
            return any(test(value, pattern, context) for pattern in self.values) != negated

        every_value = self.qualifier == "forallvalues" or (negated and not self.qualifier)
        return all(map(passes, values)) if every_value else any(map(passes, values))


def _condition(name: str, key: str, values: Iterable[str], variables: bool) -> Condition:
    qualifier, colon, rest = name.lower().rpartition(":")
    canonical = _CANONICAL.get(rest.removesuffix("ifexists"))
    if_exists = rest.endswith("ifexists")
    if canonical is None or (colon and qualifier not in ("forallvalues", "foranyvalue")):
        raise MalformedPolicy(f"Invalid Condition type : {name}.")
    if canonical == "Null" and (qualifier or if_exists):
        raise MalformedPolicy(f"Invalid Condition type : {name}.")
    has_variables = variables and canonical.startswith(("String", "Arn"))
    patterns = tuple(Pattern.parse(value, variables=has_variables) for value in values)
    if not patterns:
        raise MalformedPolicy(f"Condition {name} on {key} has no value.")
    base = _NEGATED.get(canonical, canonical)
    for prefix, parse in _PARSERS:
        if base.startswith(prefix):
            for pattern in patterns:
                try:
                    parse(pattern.text)
                except (ValueError, KeyError):
                    raise MalformedPolicy(f"Invalid value {pattern.text} for condition {name}.") from None
    return Condition(canonical, key, patterns, qualifier, if_exists)


def parse_conditions(block: object, *, variables: bool = True) -> tuple[Condition, ...]:
    """Parse the Condition element of a statement. All its conditions must be met."""
    if not isinstance(block, dict):
        raise MalformedPolicy("Syntax errors in policy.")
    conditions = []
    for name, keys in block.items():
        if not isinstance(keys, dict):
            raise MalformedPolicy("Syntax errors in policy.")
        for key, element in keys.items():
            values = element if isinstance(element, list) else [element]
            if not all(isinstance(value, str | bool | int | float) for value in values):
                raise MalformedPolicy("Syntax errors in policy.")
            texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
            conditions.append(_condition(name, key, texts, variables))
    return tuple(conditions)
