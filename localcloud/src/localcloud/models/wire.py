"""Read requests and answers as they are on the wire, with all that the models do not have.

What a model knows gets the name of its member; anything else remains under the name that it has on the wire.
https://smithy.io/2.0/aws/protocols/index.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

from .values import Text

_ELSEWHERE = ("uri", "querystring", "header", "headers")
_SIGNING = (
    *("x-amz-date", "x-amz-content-sha256", "x-amz-security-token"),
    *("x-amz-decoded-content-length", "x-amz-trailer"),
)
"""Headers of the signature and of a body in chunks, which no model has."""
_CHECKSUMS = "x-amz-checksum-"
"""Headers that an operation with the trait httpChecksum has beside its members."""
_ANSWERING = {"x-amz-request-id", "x-amz-id-2", "x-amzn-requestid"}
_XSI = "{http://www.w3.org/2001/XMLSchema-instance}"

Headers = Mapping[str, str]
"""by lower-case names"""


def request_values(
    model: Any, protocol: str, body: bytes, query: str, headers: Headers, params: Mapping[str, Any]
) -> Any:
    """Return what a request has. `params` are those that the endpoint understands; the path's are taken from there."""
    if protocol in ("query", "ec2"):
        pairs = [*parse_qsl(query, keep_blank_values=True), *parse_qsl(body.decode(), keep_blank_values=True)]
        return _of_query(model.input_shape, _tree(pairs), protocol)
    if protocol == "json":
        return json.loads(body or b"{}")
    values: dict[str, Any] = {name: params[name] for name in _located(model.input_shape, _ELSEWHERE) if name in params}
    static = {name for name, _ in parse_qsl(model.http["requestUri"].partition("?")[2], keep_blank_values=True)}
    known = _wire_names(model.input_shape, ("querystring",)) | static | {"x-id"}
    values |= {name: value for name, value in parse_qsl(query, keep_blank_values=True) if name not in known}
    checksums = {name for name in headers if name.startswith(_CHECKSUMS)} if model.http_checksum else set()
    values |= _unknown_headers(model.input_shape, headers, {*_SIGNING, *checksums})
    return values | _of_body(model.input_shape, protocol, body)


def answer_values(model: Any, protocol: str, body: bytes, headers: Headers) -> Any:
    """Return what an answer has that is no error."""
    shape = model.output_shape
    if protocol == "json":
        return json.loads(body or b"{}")
    if protocol in ("query", "ec2"):
        root = ElementTree.fromstring(body)
        result = root.find(f"{{*}}{shape.serialization['resultWrapper']}") if protocol == "query" else root
        values = _of_xml(shape, result) if result is not None else {}
        for name in ("requestId", "ResponseMetadata"):
            values.pop(name, None)
        return values
    known = _located(shape, ("header",))
    names = {member.serialization["name"].lower(): name for name, member in known.items()}
    values = {names[name]: Text(value) for name, value in headers.items() if name in names}
    values |= _unknown_headers(shape, headers, _ANSWERING)
    return values | _of_body(shape, protocol, body)


def _located(shape: Any, places: tuple[str, ...]) -> dict[str, Any]:
    return {name: member for name, member in shape.members.items() if member.serialization.get("location") in places}


def _wire_names(shape: Any, places: tuple[str, ...]) -> set[str]:
    return {member.serialization.get("name", name) for name, member in _located(shape, places).items()}


def _unknown_headers(shape: Any, headers: Headers, others: set[str]) -> dict[str, str]:
    known = {name.lower() for name in _wire_names(shape, ("header",))} | others
    prefixes = tuple(name.lower() for name in _wire_names(shape, ("headers",)))
    return {
        name: value
        for name, value in headers.items()
        if name.startswith("x-amz") and name not in known and not (prefixes and name.startswith(prefixes))
    }


def _of_body(shape: Any, protocol: str, body: bytes) -> dict[str, Any]:
    """Return what the body of a REST protocol has, unless it is a stream."""
    payload = shape.serialization.get("payload")
    inner = shape.members[payload] if payload else shape
    if not body or inner.type_name == "blob":
        return {}
    if inner.type_name == "string":
        return {payload: Text(body.decode())}
    if protocol == "rest-json":
        value = _of_json(inner, json.loads(body))
    else:
        value = _of_xml(inner, ElementTree.fromstring(body))
    return {payload: value} if payload else value


def _of_json(shape: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {member.serialization.get("name", name): name for name, member in shape.members.items()}
    return {names.get(name, name): value for name, value in values.items()}


# XML ------------------------------------------------------------------------------------------------------------------


def _of_xml(shape: Any, element: ElementTree.Element) -> Any:
    return _XML.get(shape.type_name, _xml_scalar)(shape, element)


def _xml_scalar(_shape: Any, element: ElementTree.Element) -> Any:
    if len(element):
        return {child.tag.rpartition("}")[2]: Text(child.text or "") for child in element}
    return Text(element.text or "")


def _xml_structure(shape: Any, element: ElementTree.Element) -> Any:
    names = {
        (_item_name(member) if member.serialization.get("flattened") else None)
        or member.serialization.get("name", name): name
        for name, member in shape.members.items()
    }
    values: dict[str, Any] = {
        names[attribute]: Text(value)
        for attribute, value in ((key.replace(_XSI, "xsi:"), value) for key, value in element.attrib.items())
        if attribute in names
    }
    for child in element:
        tag = child.tag.rpartition("}")[2]
        name = names.get(tag)
        if name is None:
            values[tag] = Text(child.text or "")
        elif (member := shape.members[name]).serialization.get("flattened"):
            values.setdefault(name, []).append(_of_xml(member.member, child))
        else:
            values[name] = _of_xml(member, child)
    return values


def _item_name(shape: Any) -> str | None:
    name: str | None = shape.member.serialization.get("name") if shape.type_name == "list" else None
    return name


def _xml_list(shape: Any, element: ElementTree.Element) -> Any:
    return [_of_xml(shape.member, child) for child in element]


def _xml_map(shape: Any, element: ElementTree.Element) -> Any:
    return {key.text or "": _of_xml(shape.value, value) for key, value in (tuple(entry) for entry in element)}


_XML: Mapping[str, Callable[[Any, ElementTree.Element], Any]] = {
    "structure": _xml_structure,
    "list": _xml_list,
    "map": _xml_map,
}


# Parameters of a query ------------------------------------------------------------------------------------------------


def _tree(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Return `Filter.1.Name=x` as {"Filter": {"1": {"Name": "x"}}}."""
    tree: dict[str, Any] = {}
    for name, value in pairs:
        if name in ("Action", "Version"):
            continue
        *parents, last = name.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = Text(value)
    return tree


def _of_query(shape: Any, tree: Any, protocol: str) -> Any:
    if shape.type_name == "structure" and isinstance(tree, dict):
        names = {_query_name(name, member, protocol): name for name, member in shape.members.items()}
        return {
            names.get(key, key): _of_query(shape.members[names[key]], value, protocol) if key in names else value
            for key, value in tree.items()
        }
    if shape.type_name == "list":
        if tree == "":
            return []
        flat = protocol == "ec2" or shape.serialization.get("flattened")
        items = tree if flat else tree.get(shape.member.serialization.get("name", "member"))
        if isinstance(items, dict) and all(key.isdigit() for key in items):
            return [_of_query(shape.member, value, protocol) for value in items.values()]
    return tree


def _query_name(name: str, shape: Any, protocol: str) -> str:
    written = str(shape.serialization.get("name", name))
    if protocol == "ec2":
        return str(shape.serialization.get("queryName") or written[:1].upper() + written[1:])
    return written
