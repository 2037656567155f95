"""Record the calls of AWS that a process makes, by botocore, each as a line of JSON: its request, its answer or error,
when it was and how long it took, as far as the sanitizer lets them through.

Playbooks do this in every Python that they start (hook/sitecustomize.py). The variables:
"""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.smoke.sanitizer import Sanitizer

RECORD, NAMES, STAGE = "SMOKE_RECORD", "SMOKE_NAMES", "SMOKE_STAGE"
"""The file; what the command's clusters are named after; the stage that calls belong to."""
IDS = ".ids"
"""The file beside it, which is never sent, has the ids of the clusters' resources."""

OF_REFUSALS = frozenset(
    (
        "access", "allows", "authorized", "based", "because", "boundary", "control", "denied", "deny", "dependencies",
        "exceeded", "explicit", "expired", "identity", "limit", "on", "perform", "permissions", "policy", "rate",
        "resource", "service", "session", "throttled", "token", "unauthorized", "user",
    )
)  # fmt: skip
"""Words in which AWS refuses calls, of any service: not all of them are in each service's documentation."""


def record_calls(client: ModuleType) -> None:
    """Let all clients of botocore.client record their calls."""
    call = client.BaseClient._make_api_call
    if hasattr(call, "records"):
        return

    @functools.wraps(call)
    def recorded(self: Any, operation: str, params: Any) -> Any:
        if RECORD not in os.environ:
            return call(self, operation, params)
        started, answer, error = time.time(), None, None
        try:
            answer = call(self, operation, params)
            return answer
        except Exception as raised:
            error = raised
            raise
        finally:
            model = self.meta.service_model
            add(Path(os.environ[RECORD]), _entry(model, operation, params, answer, error, started))

    vars(recorded)["records"] = True
    client.BaseClient._make_api_call = recorded


def add(file: Path, entry: dict[str, Any]) -> None:
    """Add an entry in one write: several processes write to the file."""
    line = json.dumps({"stage": os.environ.get(STAGE, ""), **entry}, default=str) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _entry(
    model: Any, operation: str, params: Any, answer: Any, error: Exception | None, started: float
) -> dict[str, Any]:
    ids = Path(os.environ[RECORD] + IDS)
    before = set(ids.read_text(encoding="utf-8").split()) if ids.exists() else set()
    sanitizer = Sanitizer(os.environ.get(NAMES, "").split(), before, _vocabulary(model))
    shapes = model.operation_model(operation)
    response = answer if answer is not None else getattr(error, "response", {})
    metadata = response.get("ResponseMetadata", {})
    entry = {
        "call": f"{model.service_name}:{operation}",
        "at": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
        "seconds": round(time.time() - started, 3),
        "status": metadata.get("HTTPStatusCode", 0),
        "retries": metadata.get("RetryAttempts", 0),
        "request": sanitizer.request(params, shapes.input_shape),
    }
    if error is None:
        entry["answer"] = sanitizer.answer(answer, shapes.output_shape)
    else:
        refusal = response.get("Error", {})
        entry["code"] = re.sub(r"[^A-Za-z0-9.]", "", str(refusal.get("Code") or type(error).__name__))[:64]
        entry["message"] = sanitizer.message(str(refusal.get("Message") or ""))
    if new := sanitizer.ids - before:
        with ids.open("a", encoding="utf-8") as file:
            file.write("".join(f"{each}\n" for each in sorted(new)))
    return entry


def _vocabulary(model: Any) -> Callable[[], frozenset[str]]:
    return lambda: words_of(model.service_name, model)


_words: dict[str, frozenset[str]] = {}


def words_of(service: str, model: Any) -> frozenset[str]:
    """Return the words of a service's documentation, which botocore has, in lower case."""
    if service not in _words:
        text = json.dumps(model._service_description, default=str)
        _words[service] = OF_REFUSALS | {word.lower() for word in re.findall(r"[A-Za-z]+", text)}
    return _words[service]
