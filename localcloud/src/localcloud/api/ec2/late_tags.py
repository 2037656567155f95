"""The first tags that a call of EC2 sets in an account do not count for the policies of the first call that names their
resource. The fault `late-tags` makes all tags late.

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
    is_late = call.cloud.lateness.applies or call.cloud.faults.tag_delay()
    if call.service != "ec2" or not is_late or not ("TagSpecifications" in call.params or "Tags" in call.params):
        yield
        return
    _record(call, 0.0)
    yield
    _record(call, call.cloud.lateness.time)


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
    times = _times(cloud)
    return {
        key: value
        for key, value in tags.items()
        if not is_late(cloud, resource, times.get((resource, key, value), 0.0))
    }


def is_late(cloud: Cloud, resource: str, time: float) -> bool:
    """Return whether the tags that a resource got at a time do not count yet."""
    return cloud.lateness.misses_tags(resource, time) or cloud.clock.time() < time + cloud.faults.tag_delay()
