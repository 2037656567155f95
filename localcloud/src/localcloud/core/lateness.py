"""Eventual consistency: in a strict cloud, the first call after a change misses it.

AWS usually answers consistently, and so does a cloud that is not strict.

Lateness is counted in calls, and nothing but an instance profile is late for longer than SECONDS on the cloud's clock.
https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_general.html#troubleshoot_general_eventual-consistency
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from localcloud.core.clock import Clock

SECONDS = 10.0
OBSERVER = "localcloud-observer"
"""The application id (boto3's `user_agent_appid`, or AWS_SDK_UA_APP_ID) of clients of tests that set things up and look
independently: nothing is late for them, nor what they create and tag for others."""


class Lateness:
    def __init__(self, clock: Clock, enabled: bool) -> None:
        self._clock = clock
        self.enabled = enabled
        """False: nothing is late"""
        self._settled = 0.0
        self._missed: dict[Hashable, list[int]] = {}
        """the calls that missed a change"""
        self._once: dict[str, Hashable] = {}
        """the one change of those that are late once in an account"""
        self._number = 0
        self._service = ""
        """that of the call that is being answered; empty if it misses nothing"""
        self.time = 0.0
        """when the call began: the time of the changes that it makes"""

    @contextmanager
    def call(self, service: str, user_agent: str) -> Iterator[None]:
        """Answer a client's call within this. What the local cloud does by itself misses nothing."""
        self._number += 1
        self._service = service if self.enabled and OBSERVER not in user_agent else ""
        self.time = self._clock.time()
        try:
            yield
        finally:
            self._service = ""

    @property
    def applies(self) -> bool:
        """Whether a call is being answered that may miss something."""
        return bool(self._service)

    def misses(self, resource: str, since: float, once: str = "") -> bool:
        """Return whether the call misses a change of a resource at that time. Of those with the same `once` only the
        first change is late."""
        change = (resource, since)
        is_old = self.time >= since + SECONDS
        if is_old or not self._misses(resource, since, 1):
            return False
        return not once or self._once.setdefault(once, change) == change

    def misses_tags(self, resource: str, since: float) -> bool:
        """Return whether the call misses the tags that a resource got at that time: the first in an account are late.

        It misses the resource too, so that the next call knows both.
        """
        self.misses(resource, since)
        return self.misses(f"tags of {resource}", since, "tags")

    def misses_profile(self, name: str, since: float) -> float:
        """Return 0 if the service of the call knows an instance profile, otherwise the share of its misses, this one
        included, that are left. EMR misses it twice, other services once, at any time."""
        calls = 2 if self._service == "emr" else 1
        missed = self._misses((self._service, name), since, calls)
        return (calls - missed + 1) / calls if missed else 0.0

    def _misses(self, what: Hashable, since: float, calls: int) -> int:
        """Return which of the calls that miss a change this one is; 0 if it knows it."""
        if not self._service or since <= self._settled:
            return 0
        missed = self._missed.setdefault((what, since), [])
        if self._number not in missed and len(missed) < calls:
            missed.append(self._number)
        return missed.index(self._number) + 1 if self._number in missed else 0

    def settle(self) -> None:
        """Let all be known that was changed until now."""
        self._settled = self._clock.time()
