"""Calls, and who answers them.

An extension module answers an operation by a function marked with `answers`: it takes a Call and returns what boto3
would return, as a plain dict, or raises AwsError. What no extension answers goes to moto unchanged. A function may ask
moto itself (`call.moto()`) and add to its answer. Importing the module is all that registers it: see `EXTENSIONS` in
front.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from localcloud.errors import AwsError

if TYPE_CHECKING:
    from localcloud.api.auth import Caller
    from localcloud.cloud import Cloud

Result = Mapping[str, Any] | None
Handler = Callable[["Call"], Result]

_handlers: dict[tuple[str, str], Handler] = {}


@dataclass(frozen=True)
class Call:
    """One operation that somebody asked for. `service` is botocore's name, `params` is what boto3 was given."""

    cloud: Cloud
    service: str
    operation: str
    params: Mapping[str, Any]
    region: str
    caller: Caller

    def moto(self, **params: Any) -> dict[str, Any]:
        """What moto answers to this operation: to these parameters, or to the call's own when none are given."""
        return self.cloud.moto(self.service, self.operation, self.region, params or self.params)


def answers(service: str, *operations: str) -> Callable[[Handler], Handler]:
    """Mark a function as the one that answers these operations of a service."""

    def mark(handler: Handler) -> Handler:
        for operation in operations:
            if (service, operation) in _handlers:
                raise ValueError(f"{service}.{operation} is answered twice")
            _handlers[service, operation] = handler
        return handler

    return mark


def handler_of(service: str, operation: str) -> Handler | None:
    return _handlers.get((service, operation))


def as_aws_error(error: ClientError) -> AwsError:
    """moto's refusal, told on as our own."""
    detail = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return AwsError(str(detail.get("Code", "InternalError")), str(detail.get("Message", "")), status)
