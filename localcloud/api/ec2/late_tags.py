"""The fault `late-tags`: tags that a call of EC2 sets count for policies a while later.

https://github.com/hashicorp/terraform-provider-aws/issues/6055 describes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from localcloud.api.ec2.moto_records import backend_of
from localcloud.core.cloud import Call, Cloud


@contextmanager
def recorded(call: Call) -> Iterator[None]:
    """Record which tags a call sets, and when. Those that exist before it count at once."""
    if call.service != "ec2" or not call.cloud.faults.tag_delay():
        yield
        return
    _record(call, 0.0)
    yield
    _record(call, call.cloud.clock.time())


def _record(call: Call, time: float) -> None:
    times = _times(call.cloud)
    for resource, tags in backend_of(call.region).tags.items():
        for tag in tags.items():
            times.setdefault((resource, *tag), time)


def _times(cloud: Cloud) -> dict[tuple[str, str, str], float]:
    """Return when tags were set, by resource, key and value."""
    times: dict[tuple[str, str, str], float] = cloud.records("late-tags", dict)
    return times


def counting(cloud: Cloud, resource: str, tags: Mapping[str, str]) -> Mapping[str, str]:
    """Return those of a resource's tags that count for policies."""
    delay = cloud.faults.tag_delay()
    if not delay:
        return tags
    times, now = _times(cloud), cloud.clock.time()
    return {key: value for key, value in tags.items() if now >= times.get((resource, key, value), 0.0) + delay}
