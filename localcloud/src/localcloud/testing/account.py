"""An AWS account in this process, behind an HTTP endpoint. Its instances have no machines.

    with Account() as account:
        account.client("ec2").create_vpc(CidrBlock="10.0.0.0/16")

Other processes reach it with `account.variables` in their environment.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, cast

from localcloud.api.autoscaling.records import Group
from localcloud.api.autoscaling.regions import Regions, scaling_in
from localcloud.api.iam.identities import bootstrap
from localcloud.core.calls import CallLog, Record
from localcloud.core.clock import RealClock
from localcloud.core.cloud import Cloud
from localcloud.core.faults import Faults
from localcloud.core.identity import Credentials
from localcloud.core.latency import Latency, latency_from
from localcloud.core.settings import DEFAULT_REGION
from localcloud.endpoint.front import Front
from localcloud.endpoint.server import Application, HttpServer
from localcloud.testing.clients import MODELS, new_session, observer_config
from localcloud.testing.clock import ManualClock

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class Calls(CallLog):
    """The log of an account's calls."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[Record], None] = lambda _record: None
        """Called after each call of the API, before the caller gets the answer."""

    def add(self, record: Record) -> None:
        """Log a call, and report it to `tell`."""
        super().add(record)
        self.tell(record)

    def operations(self, since: float = 0.0) -> list[str]:
        """Return the calls since a time as `service:Operation`."""
        return [f"{record['service']}:{record['operation']}" for record in self.since(since)]


class Account:
    """A new account, from entering the context manager to its end."""

    def __init__(
        self,
        clock: ManualClock | None = None,
        latency: str = "none",
        strict: bool = True,
        wrap: Callable[[Application], Application] = lambda application: application,
    ) -> None:
        """Without a clock, time passes as usual. Start a manual clock at `time.time()`: clients sign with the time.

        `latency` is a profile, as for `localcloud up --latency`. In a strict account, the first call after a change
        misses the change. `wrap` takes and returns the WSGI application behind the endpoint.
        """
        self._strict = strict
        self._latency = latency
        self._wrap = wrap
        self._manual = clock
        self.lock = threading.RLock()
        """Hold it to advance the clock, or to change anything but faults."""
        self.calls = Calls()
        self.endpoint = ""
        self.variables: Mapping[str, str] = {}
        """The environment in which programs use this account as a user with all permissions."""

    def __enter__(self) -> Account:
        keys_before = {name: os.environ[name] for name in _KEYS if name in os.environ}
        clock = self._manual or RealClock(self.lock)
        self._cloud = Cloud(clock, self.lock, latency_from(self._latency), self.calls, self._strict)
        self._cloud._session._session.register_component("data_loader", MODELS)
        # moto has set keys of its own.
        for name in _KEYS:
            os.environ.pop(name, None)
        os.environ.update(keys_before)
        self._server = HttpServer(self._wrap(Front(self._cloud)), "127.0.0.1", 0)
        self._server.start()
        key, secret = bootstrap(self._cloud)
        self.endpoint = f"http://127.0.0.1:{self._server.port}"
        self.variables = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
        }
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        # The server needs half a second to notice, which nobody has to wait for.
        threading.Thread(target=self._server.stop, daemon=True).start()
        if isinstance(self._cloud.clock, RealClock):
            self._cloud.clock.stop()
        for name in _KEYS:
            os.environ.setdefault(name, "")  # moto removes them if they were missing
        self._cloud.close()

    # Clients and calls

    def client(self, service: str, region: str = DEFAULT_REGION) -> Any:
        """Return a boto3 client of a user with all permissions, for which nothing is late."""
        key, secret = (self.variables[name] for name in _KEYS)
        session = new_session(key, secret, region)
        return session.client(service, endpoint_url=self.endpoint, config=observer_config())

    @property
    def credentials(self) -> Credentials:
        """Temporary credentials of roles: `issue` and `expire` them, or change `default_seconds`, their lifetime."""
        return self._cloud.credentials

    # Time and failures

    @property
    def clock(self) -> ManualClock:
        """The account's clock. Only a manual clock can be advanced."""
        return cast(ManualClock, self._cloud.clock)

    @property
    def faults(self) -> Faults:
        """The faults in force: `add` and `remove` them."""
        return self._cloud.faults

    @property
    def latency(self) -> Latency:
        """How long things take. Set it to a `Latency` to change that."""
        return self._cloud.latency

    @latency.setter
    def latency(self, latency: Latency) -> None:
        """Change how long things take."""
        self._cloud.latency = latency

    @property
    def strict(self) -> bool:
        """Whether the first call after a change misses it."""
        return self._cloud.lateness.enabled

    @strict.setter
    def strict(self, strict: bool) -> None:
        """Let the first call after a change miss it, or not."""
        self._cloud.lateness.enabled = strict

    def settle(self) -> None:
        """Let every client know what was changed until now."""
        self._cloud.lateness.settle()

    # Auto Scaling

    def complete_lifecycle_actions(self) -> None:
        """Let all instances enter service that wait for the answer to a launch hook. Hold the lock."""
        for scaling in self._regions().by_name.values():
            members = [member for group in scaling.groups.values() for member in group.members.values()]
            waiting = [action for member in members for action in member.actions if action.result is None]
            for action in waiting:
                action.complete("CONTINUE")
            if waiting:
                scaling.schedule_step()

    def boot_instances(self, at_once: bool) -> None:
        """Answer launch hooks at once, as instances do that need no time to boot, or leave them to the test. This needs
        the real clock."""
        clock = self._cloud.clock
        if not isinstance(clock, RealClock):
            raise TypeError("with a manual clock, call complete_lifecycle_actions")
        clock.afterwards = self.complete_lifecycle_actions if at_once else lambda: None

    def lifecycle_states(self, region: str = DEFAULT_REGION) -> dict[str, list[str]]:
        """Return the lifecycle states of the instances of each Auto Scaling group, at any time of the clock."""
        groups = self._groups(region)
        return {group.name: [member.state for member in group.members.values()] for group in groups}

    def set_lifecycle_state(self, group: str, state: str, region: str = DEFAULT_REGION) -> None:
        """Set the lifecycle state of all instances of an Auto Scaling group, such as `Pending:Wait`."""
        for member in scaling_in(self._cloud, region).groups[group].members.values():
            member.state = state

    def run_scheduled_action(self, name: str, region: str = DEFAULT_REGION) -> None:
        """Let the scheduled actions with this name run now, in all groups of a region."""
        with self.lock:
            for group in self._groups(region):
                action = group.scheduled[name]
                action.start, action.end = time.time() - 1, time.time() + 60

    def _groups(self, region: str) -> Iterable[Group]:
        return scaling_in(self._cloud, region).groups.values()

    def _regions(self) -> Regions:
        regions: Regions = self._cloud.records("autoscaling", Regions)
        return regions

    # EMR

    def fail_bootstrap_actions(self, fails: Callable[[str, Mapping[str, Any]], int]) -> None:
        """Decide which bootstrap actions of EMR's nodes fail. `fails` takes an instance's id and the settings of its
        node (`cluster`, `instance_info`), and returns the number of the action that fails, or 0 if all succeed."""
        self._cloud.failing_bootstrap_action = fails
