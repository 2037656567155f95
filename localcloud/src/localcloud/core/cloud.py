"""The cloud, which all parts of the service share; calls, and the functions that answer them.

A module of a service answers an operation by a function marked with `answers`: it takes a Call and returns what boto3
would return, as a plain dict, or raises AwsError. An operation that no function answers goes to moto unchanged. A
function may call moto (`call.moto()`) and add to its answer. Importing a module registers its functions.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError
from moto import mock_aws

from localcloud.core.caller import Caller
from localcloud.core.calls import CallLog
from localcloud.core.clock import Clock
from localcloud.core.errors import AwsError
from localcloud.core.faults import Faults
from localcloud.core.identity import Credentials
from localcloud.core.latency import Latency
from localcloud.core.lateness import Lateness
from localcloud.core.settings import ACCOUNT
from localcloud.core.views import InstanceView

Result = Mapping[str, Any] | None
Handler = Callable[["Call"], Result]
Report = Callable[[Mapping[str, Any]], None]
"""takes what a node of EMR reports"""

_handlers: dict[tuple[str, str], Handler] = {}


class Machines(Protocol):
    """What is behind the instances. Every method returns at once; what comes of it is reported to api.ec2.lifecycle's
    `machine_started(cloud, instance_id)` and `machine_exited(cloud, instance_id, how)`, under the cloud's lock."""

    def start(self, instance: InstanceView) -> None:
        """Boot it (also again, after it was stopped: its disk is still there)."""

    def stop(self, instance_id: str) -> None:
        """Shut it down in good order, within a deadline; reported as exited with "stopped"."""

    def destroy(self, instance_id: str) -> None:
        """Shut it down and throw its disk away; reported as exited with "destroyed", also if nothing ran."""

    def reboot(self, instance_id: str) -> None: ...

    def copy_disk(self, instance_id: str, name: str, done: Callable[[tuple[Path, ...]], None]) -> None:
        """Copy the disk of a stopped machine under a name, and call `done` with the layers that others boot from."""

    def console(self, instance_id: str) -> str:
        """Return the machine's console output."""

    def provision(self, instance_id: str, settings: Mapping[str, Any], report: Report) -> None:
        """Prepare a machine for EMR, and run the bootstrap actions in it (machines/emr_node.py).

        The clock calls `report` with {"state": "BOOTSTRAPPING"} before the first action, and at the end with
        {"status": …}: 0, or the exit status of the `action` (a number from 1) that failed, and whether it could be
        `downloaded`."""


class Network(Protocol):
    def changed(self) -> None:
        """Apply changed records to the network before returning."""


class NoNetwork:
    def changed(self) -> None:
        """Apply changed records to the network before returning."""


class Cloud:
    """Records live in moto and in `state`. Hold `lock` to read or write them."""

    machines: Machines | None = None
    """None where instances exist in the API alone"""
    network: Network

    def __init__(
        self,
        clock: Clock,
        lock: threading.RLock,  # type: ignore[valid-type,unused-ignore]
        latency: Latency,
        calls: CallLog,
        strict: bool = False,
    ) -> None:
        """A strict cloud is consistent only eventually: see core.lateness."""
        self.clock = clock
        self.lock = lock
        self.latency = latency
        self.calls = calls
        self.faults = Faults(clock)
        self.lateness = Lateness(clock, strict)
        self.credentials = Credentials(clock)
        self.failing_bootstrap_action: Callable[[str, Mapping[str, Any]], int] = lambda _instance, _settings: 0
        """The number of the bootstrap action that fails on a node of EMR without a machine; 0 if all succeed."""
        self.network = NoNetwork()
        self.state: dict[str, Any] = {}
        """each extension module's own records, by its name: see `records`"""
        self._mock = mock_aws()
        self._mock.start()
        self._session = boto3.Session("AKIAMOTOINTERNAL0000", secrets.token_hex(20))
        self._clients: dict[tuple[str, str], Any] = {}

    def close(self) -> None:
        self._mock.stop()

    def records(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the records of a service, and create them at the first call."""
        if name not in self.state:
            self.state[name] = make()
        return self.state[name]

    def moto(self, service: str, operation: str, region: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return moto's own answer, without permissions, faults and log."""
        client = self._clients.get((service, region))
        if client is None:
            config = Config(
                parameter_validation=False,
                retries={"total_max_attempts": 1},
                # A shell that uses this very cloud may have started it: it must not call itself.
                ignore_configured_endpoint_urls=True,
            )
            client = self._session.client(service, region_name=region, config=config)
            self._clients[service, region] = client
        try:
            answer: dict[str, Any] = getattr(client, xform_name(operation))(**params)
        except ClientError as error:
            raise as_aws_error(error) from error
        answer.pop("ResponseMetadata", None)
        return answer

    def ask(
        self, service: str, operation: str, region: str, params: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Call an operation as a service of AWS does on behalf of its user.

        Permissions are not checked, the call is not logged, and the faults `throttle` and `error` do not apply.
        """
        handler = handler_of(service, operation)
        call = Call(self, service, operation, params, region, caller)
        with self.lock:
            result: Result = handler(call) if handler else call.moto()
        return dict(result or {})


@dataclass(frozen=True)
class Call:
    """A call of an operation. `service` is botocore's name, `params` are what boto3 takes."""

    cloud: Cloud
    service: str
    operation: str
    params: Mapping[str, Any]
    region: str
    caller: Caller

    def moto(self, **params: Any) -> dict[str, Any]:
        """Return moto's answer to this operation, with these parameters or with those of the call."""
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
    """moto's error, converted to ours."""
    detail = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return AwsError(str(detail.get("Code", "InternalError")), str(detail.get("Message", "")), status)


def arn(service: str, region: str, resource: str) -> str:
    return f"arn:aws:{service}:{region}:{ACCOUNT}:{resource}"
