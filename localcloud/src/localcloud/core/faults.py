"""The faults in force, and their effects on each part of the service.

A fault is in force until it is cleared (or used up, if it has a count). Faults with a single effect, such as
killing a machine, are in `control.py`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from localcloud.core.clock import Clock
from localcloud.core.errors import AwsError


@dataclass
class Fault:
    id: str
    kind: str
    """capacity, quota, default-quotas, throttle, error, late-iam, late-reads, late-tags, keep-fields,
    emr-end-checked, ebs-key, skew, foreign-bucket, fail-nat, deprecate-image, frozen, cut, stalled, expired"""
    target: Mapping[str, Any]
    """what it strikes, such as {"type": "t3.micro", "zone": "us-east-1a"}; an absent key means any"""
    value: Any = None
    left: int | None = None
    """how often it still strikes; None: until it is cleared"""

    def strikes(self, **what: str | None) -> bool:
        return all(key not in self.target or fnmatchcase(value or "", self.target[key]) for key, value in what.items())


class Faults:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: dict[str, Fault] = {}
        self._ids = itertools.count(1)
        self._random = random.Random(0)

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._faults.values()))

    def add(self, kind: str, target: Mapping[str, Any], value: Any = None, left: int | None = None) -> Fault:
        fault = Fault(f"fault-{next(self._ids)}", kind, target, value, left)
        self._faults[fault.id] = fault
        return fault

    def remove(self, fault: Fault) -> None:
        self._faults.pop(fault.id, None)

    def seed(self, seed: int) -> None:
        """Make what is random repeatable."""
        self._random.seed(seed)

    def of_kind(self, kind: str, **what: str | None) -> list[Fault]:
        return [fault for fault in self if fault.kind == kind and fault.strikes(**what)]

    def refuse_call(self, service: str, operation: str, throttled: AwsError) -> None:
        """Throttling at a rate, and errors by code and count; actions are named like ec2:RunInstances."""
        action = f"{service}:{operation}"
        for fault in self.of_kind("throttle", action=action):
            if self._random.random() < fault.value:
                raise throttled
        for fault in self.of_kind("error", action=action):
            self._use(fault)
            raise AwsError(fault.value["code"], fault.value["message"], fault.value["status"])

    def _use(self, fault: Fault) -> None:
        if fault.left is not None:
            fault.left -= 1
            if fault.left <= 0:
                self.remove(fault)

    def capacity_left(self, instance_type: str, zone: str) -> int | None:
        """Return the number of instances of a type that a zone can still launch; None is no limit."""
        matches = self.of_kind("capacity", type=instance_type, zone=zone)
        return min((fault.value for fault in matches), default=None)

    def take_capacity(self, instance_type: str, zone: str, count: int) -> None:
        """Launched (or, with a negative count, given back)."""
        for fault in self.of_kind("capacity", type=instance_type, zone=zone):
            fault.value -= count

    def quota(self, code: str, named: bool = False) -> int | None:
        """Return the value of a quota; None is its default. With `named`, only faults with a code count."""
        matches = self.of_kind("quota", code=code)
        return min((fault.value for fault in matches if "code" in fault.target or not named), default=None)

    def nat_gateway_fails(self) -> bool:
        """Return whether a new NAT gateway fails."""
        matches = self.of_kind("fail-nat")
        for fault in matches[:1]:
            self._use(fault)
        return bool(matches)

    def is_deprecated(self, image_id: str) -> bool:
        """Return whether the owner of an image has deprecated it."""
        return bool(self.of_kind("deprecate-image", image=image_id))

    def read_delay(self) -> float | None:
        """Seconds for which a new resource is not seen; None: it is seen at once."""
        return max((fault.value for fault in self.of_kind("late-reads")), default=None)

    def tag_delay(self) -> float:
        """Seconds for which the tags of a resource do not count for policies."""
        return max((float(fault.value) for fault in self.of_kind("late-tags")), default=0.0)

    def clock_skew(self) -> float:
        """Return the seconds by which AWS's clock is ahead of the machines' clocks."""
        return float(sum(fault.value for fault in self.of_kind("skew")))

    def iam_delay(self) -> float | None:
        """Seconds until a new policy or instance profile takes effect; None: as the latency profile says."""
        return max((fault.value for fault in self.of_kind("late-iam")), default=None)
