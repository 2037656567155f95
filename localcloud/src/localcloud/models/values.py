"""Compare values with a shape of botocore's models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


class Text(str):
    """A scalar of a protocol that has only text: a number is its digits."""

    __slots__ = ()


@dataclass
class Form:
    """What a request or an answer consists of. A path is `Reservations[].Instances[].State`."""

    sizes: bool = False
    """whether limits of lengths and numbers count: AWS's answers do not follow them"""
    members: set[str] = field(default_factory=set)
    problems: set[str] = field(default_factory=set)
    """`path: problem`, with the value behind a comma"""


def compare(shape: Any, value: Any, sizes: bool = False) -> Form:
    form = Form(sizes)
    _compare(shape, value, "", form)
    return form


def _compare(shape: Any, value: Any, path: str, form: Form) -> None:
    check = _KINDS.get(shape.type_name)
    if check is not None:
        check(shape, value, path, form)
    elif not (_TEXTS if isinstance(value, Text) else _TYPES)[shape.type_name](value):
        form.problems.add(f"{path}: no {shape.type_name}, {value!r:.60}")
    elif shape.type_name == "string":
        _compare_string(shape, value, path, form)
    else:
        _compare_size(shape, value, path, form)


def _compare_structure(shape: Any, value: Any, path: str, form: Form) -> None:
    if not isinstance(value, Mapping):
        form.problems.add(f"{path}: no structure, {value!r:.60}")
        return
    members = shape.members
    for name, item in value.items():
        if item is None:
            continue
        inner = f"{path}.{name}" if path else name
        form.members.add(inner)
        if name in members:
            _compare(members[name], item, inner, form)
        else:
            form.problems.add(f"{inner}: no such member")
    for name in shape.required_members:
        if value.get(name) is None:
            form.problems.add(f"{path}.{name}: missing" if path else f"{name}: missing")


def _compare_list(shape: Any, value: Any, path: str, form: Form) -> None:
    if not isinstance(value, list | tuple):
        form.problems.add(f"{path}: no list, {value!r:.60}")
        return
    _compare_size(shape, len(value), path, form)
    inner = f"{path}[]"
    for item in value:
        _compare(shape.member, item, inner, form)


def _compare_map(shape: Any, value: Any, path: str, form: Form) -> None:
    if not isinstance(value, Mapping):
        form.problems.add(f"{path}: no map, {value!r:.60}")
        return
    for key, item in value.items():
        _compare(shape.key, key, f"{path}{{}}", form)
        _compare(shape.value, item, f"{path}{{}}", form)


def _compare_string(shape: Any, value: str, path: str, form: Form) -> None:
    if shape.enum and value not in shape.enum:
        form.problems.add(f"{path}: not one of its values, {value!r:.60}")
    _compare_size(shape, len(value), path, form)


def _compare_size(shape: Any, size: Any, path: str, form: Form) -> None:
    limits = shape.metadata if form.sizes else {}
    if "min" in limits and float(size) < limits["min"]:
        form.problems.add(f"{path}: less than {limits['min']}, {size}")
    if "max" in limits and float(size) > limits["max"]:
        form.problems.add(f"{path}: more than {limits['max']}, {size}")


_KINDS: Mapping[str, Callable[[Any, Any, str, Form], None]] = {
    "structure": _compare_structure,
    "list": _compare_list,
    "map": _compare_map,
}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?|\w{3}, \d\d \w{3} \d{4} [\d:]+ GMT"
)
_WHOLE = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_whole,
    "long": _is_whole,
    "float": _is_number,
    "double": _is_number,
    "timestamp": lambda value: isinstance(value, datetime) or _is_number(value) or _is_time(value),
    "blob": lambda value: isinstance(value, bytes | str),
}
_TEXTS: Mapping[str, Callable[[Text], bool]] = {
    "string": lambda _value: True,
    "boolean": lambda value: value in ("true", "false"),
    "integer": lambda value: bool(_WHOLE.fullmatch(value)),
    "long": lambda value: bool(_WHOLE.fullmatch(value)),
    "float": lambda value: bool(_NUMBER.fullmatch(value)),
    "double": lambda value: bool(_NUMBER.fullmatch(value)),
    "timestamp": lambda value: bool(_TIME.fullmatch(value)),
    "blob": lambda _value: True,
}


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and bool(_TIME.fullmatch(value))
