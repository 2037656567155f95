"""Check the form of IAM policies: their elements, ARNs, condition operators and the types of condition keys.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.lint import reference
from tests.lint.reference import Found, listed

VERSION = "2012-10-17"
EITHER = (("Action", "NotAction"), ("Resource", "NotResource"), ("Principal", "NotPrincipal"))
ELEMENTS = frozenset({"Sid", "Effect", "Condition"}.union(*EITHER))

ARN = re.compile(r"arn:(aws|aws-cn|aws-us-gov|\*):[a-z0-9*-]+:([a-z]{2}(-[a-z]+)+-\d|\*?):(\d{12}|aws|\*?):.+")
VARIABLE = re.compile(r"\$\{[^}]+\}")
"""A policy variable, which can stand for any text."""


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return False
    return True


OPERATORS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    # AWS compares ARNs with the String operators too, and epoch times with the Numeric ones.
    "String(Not)?(Equals(IgnoreCase)?|Like)": ("String ARN", lambda _value: True),
    "Numeric((Not)?Equals|(Less|Greater)Than(Equals)?)": ("Numeric Date", re.compile(r"-?\d+(\.\d+)?").fullmatch),
    "Date((Not)?Equals|(Less|Greater)Than(Equals)?)": (
        "Date",
        re.compile(r"\d+|\d{4}-\d\d-\d\d(T[\d:.]+Z)?").fullmatch,
    ),
    "Bool": ("Bool", re.compile("true|false").fullmatch),
    "(Not)?IpAddress": ("IPAddress", _is_address),
    "Arn(Not)?(Equals|Like)": ("ARN", re.compile(r"arn(:[^:]*){4}:.+|\*").fullmatch),
    "Null": ("String ARN Numeric Date Bool IPAddress", re.compile("true|false").fullmatch),
}
"""Condition operators: the types of the keys that each compares, and whether a value has the right form."""


def findings(policy: Mapping[str, Any]) -> Iterator[Found]:
    """Yield what AWS would refuse, or would accept although it never has the intended effect."""
    if policy.get("Version") != VERSION:
        yield "", "MALFORMED", f"Version is {policy.get('Version')}, not {VERSION}"
    for element in sorted(set(policy) - {"Version", "Id", "Statement"}):
        yield "", "MALFORMED", f"unknown element {element}"
    for sid, count in Counter(statement.get("Sid") for statement in policy["Statement"]).items():
        if sid and count > 1:
            yield sid, "MALFORMED", "several statements have this Sid"
    for statement in policy["Statement"]:
        sid = str(statement.get("Sid", ""))
        for detail in _of_elements(statement):
            yield sid, "MALFORMED", detail
        for resource in listed(statement.get("Resource", statement.get("NotResource", "*"))):
            if resource != "*" and not ARN.fullmatch(VARIABLE.sub("*", resource)):
                yield sid, "MALFORMED_ARN", resource
        prefixes = {action.partition(":")[0] for action in listed(statement.get("Action", []))}
        for operator, condition in statement.get("Condition", {}).items():
            for finding, detail in _of_condition(operator, condition, prefixes):
                yield sid, finding, detail


def _of_elements(statement: Mapping[str, Any]) -> Iterator[str]:
    for element in sorted(set(statement) - ELEMENTS):
        yield f"unknown element {element}"
    if not re.fullmatch("[0-9A-Za-z]*", str(statement.get("Sid", ""))):
        yield "the Sid has other characters than letters and digits"
    if statement.get("Effect") not in ("Allow", "Deny"):
        yield f"Effect is {statement.get('Effect')}"
    if "Action" not in statement and "NotAction" not in statement:
        yield "no Action"
    if not {"Resource", "NotResource", "Principal", "NotPrincipal"} & set(statement):
        yield "neither Resource nor Principal"
    for one, other in EITHER:
        if one in statement and other in statement:
            yield f"both {one} and {other}"


def _of_condition(operator: str, condition: Mapping[str, Any], prefixes: set[str]) -> Iterator[tuple[str, str]]:
    name = re.sub("^ForA(ny|ll)Values:|IfExists$", "", operator)
    known = [value for pattern, value in OPERATORS.items() if re.fullmatch(pattern, name)]
    if not known or operator == "NullIfExists":
        yield "UNKNOWN_OPERATOR", operator
        return
    ((types, has_form),) = known
    for key, values in condition.items():
        key_type = reference.key_type(key, prefixes)
        # reference.findings() reports a key that has no type, because it does not exist.
        if key_type and key_type.removeprefix("ArrayOf") not in types.split():
            yield "WRONG_OPERATOR", f"{operator} {key}, whose type is {key_type}"
        if key_type and operator.startswith("ForA") and not key_type.startswith("ArrayOf"):
            yield "SINGLE_VALUE", f"{operator} {key}, which has one value"
        for value in map(str, listed(values)):
            if not VARIABLE.search(value) and not has_form(value):
                yield "WRONG_VALUE", f"{operator} {key} {value}"
