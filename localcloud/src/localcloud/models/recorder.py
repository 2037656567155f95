"""Record the forms of requests and answers, and what in them the models do not have, in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moto.core.request import determine_request_protocol

from . import VARIABLE, limits, origins_from, wire
from .values import Form, compare


class Recorder:
    """Append a line of JSON for each form that this process has not seen. Several processes write to one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.origins = origins_from(os.environ)
        self._seen: set[tuple[str, str, str, frozenset[str], frozenset[str]]] = set()

    def request(
        self,
        model: Any,
        environ: Mapping[str, Any],
        headers: Mapping[str, str],
        params: Mapping[str, Any],
        origin: str,
    ) -> None:
        """`params` are those that the endpoint understands, and `origin` says who calls."""
        form = Form()
        if model.input_shape is not None:
            body = b""
            if not model.has_streaming_input:
                body = environ["wsgi.input"].read()
                environ["wsgi.input"].seek(0)
            query = str(environ.get("QUERY_STRING", ""))
            values = wire.request_values(model, _protocol(model, environ), body, query, headers, params)
            form = compare(model.input_shape, values, sizes=True)
        form.problems |= limits.problems(_name(model), params)
        self._add(model, "request", form, origin)

    def result(self, model: Any, result: Mapping[str, Any]) -> None:
        """Record a result before it is serialized, which drops what the model does not have."""
        if model.output_shape is not None:
            self._add(model, "answer", compare(model.output_shape, result))
        else:
            self._add(model, "answer", Form(problems={f"{name}: no such member" for name in result}))

    def answer(self, model: Any, environ: Mapping[str, Any], body: bytes, headers: list[tuple[str, str]]) -> None:
        """Record an answer as it is on the wire."""
        form = Form()
        if model.output_shape is not None:
            names = {name.lower(): value for name, value in headers}
            form = compare(model.output_shape, wire.answer_values(model, _protocol(model, environ), body, names))
        self._add(model, "answer", form)

    def _add(self, model: Any, side: str, form: Form, origin: str = "") -> None:
        call = _name(model)
        key = (call, side, origin, frozenset(form.members), frozenset(form.problems))
        if key in self._seen:
            return
        self._seen.add(key)
        line = {
            "call": call,
            "side": side,
            "origin": origin,
            "members": sorted(form.members),
            "problems": sorted(form.problems),
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("ab", buffering=0) as output:
            output.write(json.dumps(line).encode() + b"\n")


def recorder() -> Recorder | None:
    file = os.environ.get(VARIABLE)
    return Recorder(Path(file)) if file else None


def _name(model: Any) -> str:
    return f"{model.service_model.service_name}:{model.name}"


def _protocol(model: Any, environ: Mapping[str, Any]) -> str:
    return determine_request_protocol(model.service_model, environ.get("CONTENT_TYPE", ""))
