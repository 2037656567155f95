"""The cloud: what all parts of the service share."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError
from moto import mock_aws

from localcloud.api.auth import Caller, Credentials
from localcloud.api.registry import Call, Result, as_aws_error, handler_of
from localcloud.calls import CallLog
from localcloud.clock import Clock
from localcloud.faults import Faults
from localcloud.latency import Latency
from localcloud.settings import ACCOUNT

if TYPE_CHECKING:
    from localcloud.views import InstanceView


class Machines(Protocol):
    """What is behind the instances. Every method returns at once; what comes of it is reported to api.ec2's
    `machine_started(cloud, instance_id)` and `machine_exited(cloud, instance_id, how)`, under the cloud's lock."""

    def start(self, instance: InstanceView) -> None:
        """Boot it (also again, after it was stopped: its disk is still there)."""

    def stop(self, instance_id: str) -> None:
        """Shut it down in good order, within a deadline; reported as exited with "stopped"."""

    def destroy(self, instance_id: str) -> None:
        """Shut it down and throw its disk away; reported as exited with "destroyed", also if nothing ran."""

    def reboot(self, instance_id: str) -> None: ...

    def console(self, instance_id: str) -> str:
        """What it has written to its console so far."""


class Network(Protocol):
    def changed(self) -> None:
        """The API's records of networks have changed: make the wires follow, before this returns."""


class NoMachines:
    """API-only instances: nothing boots, and all is reported at once."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def start(self, instance: InstanceView) -> None:
        from localcloud.api.ec2 import machine_started

        self._cloud.clock.later(0, lambda: machine_started(self._cloud, instance.id))

    def stop(self, instance_id: str) -> None:
        self._report(instance_id, "stopped")

    def destroy(self, instance_id: str) -> None:
        self._report(instance_id, "destroyed")

    def _report(self, instance_id: str, how: str) -> None:
        from localcloud.api.ec2 import machine_exited

        self._cloud.clock.later(0, lambda: machine_exited(self._cloud, instance_id, how))

    def reboot(self, instance_id: str) -> None:
        """Nothing runs, so nothing restarts."""

    def console(self, instance_id: str) -> str:
        return ""


class NoNetwork:
    def changed(self) -> None:
        """Nothing to follow."""


class Cloud:
    """Records live in moto and in the extension modules' own state; whoever reads or writes them holds `lock`."""

    machines: Machines
    network: Network

    def __init__(self, clock: Clock, lock: threading.RLock, latency: Latency, calls: CallLog) -> None:  # type: ignore[valid-type,unused-ignore]
        self.clock = clock
        self.lock = lock
        self.latency = latency
        self.calls = calls
        self.faults = Faults(clock)
        self.credentials = Credentials(clock)
        self.machines = NoMachines(self)
        self.network = NoNetwork()
        self.state: dict[str, Any] = {}
        """each extension module's own records, by its name: see `records`"""
        self._mock = mock_aws()
        self._mock.start()
        self._session = boto3.Session("AKIAMOTOINTERNAL0000", secrets.token_hex(20))
        self._clients: dict[tuple[str, str], Any] = {}

    def close(self) -> None:
        self._mock.stop()

    def records(self, name: str, make: type[Any]) -> Any:
        """The records that an extension module keeps, made when first asked for."""
        if name not in self.state:
            self.state[name] = make()
        return self.state[name]

    def moto(self, service: str, operation: str, region: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """What moto itself answers: no rules, no faults, no log."""
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
        """Ask as a service of AWS does on somebody's behalf: extensions and faults apply, rules and the log do not."""
        handler = handler_of(service, operation)
        call = Call(self, service, operation, params, region, caller)
        with self.lock:
            result: Result = handler(call) if handler else call.moto()
        return dict(result or {})


def arn(service: str, region: str, resource: str) -> str:
    return f"arn:aws:{service}:{region}:{ACCOUNT}:{resource}"
