"""Launch instances until a group has its desired capacity."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from localcloud.api.autoscaling import messages, termination
from localcloud.api.autoscaling.ec2 import ZONE_ERRORS, LaunchRequest, Template
from localcloud.api.autoscaling.records import Group, Launch, LaunchTemplateSpecification, Member, Subnet
from localcloud.api.autoscaling.selection import spread
from localcloud.api.autoscaling.state import Scaling, backoff
from localcloud.core.errors import AwsError

log = logging.getLogger(__name__)


def plan(scaling: Scaling, group: Group) -> None:
    """Decide on as many launches as are missing, all at once."""
    now = scaling.now
    missing = group.desired - group.counted
    if not group.allows("Launch"):
        return
    if missing > 0 and now >= group.retry_at:
        group.failed.clear()
        before = group.counted
        subnets = spread(group.subnets, occupied_subnets(group), missing)
        for subnet in subnets:
            # Missing instances replace unhealthy ones first.
            replaces = group.to_replace > 0
            group.to_replace = max(0, group.to_replace - 1)
            why = messages.REPLACES if replaces else messages.grows(before, group.desired)
            _decide(scaling, group, subnet, messages.cause(group.reasons, now, why))
        group.reasons.clear()
    if missing <= 0:
        group.to_replace = 0


def occupied_subnets(group: Group) -> Iterator[Subnet]:
    yield from (member.subnet for member in group.members.values() if member.counts)
    yield from (launch.subnet for launch in group.launches)


def _decide(scaling: Scaling, group: Group, subnet: Subnet, cause: str) -> Launch:
    activity = scaling.begin(group, "Launching a new EC2 instance", cause, subnet.details, "WaitingForInstanceId")
    activity.progress = 20
    launch = Launch(activity, subnet, scaling.now + scaling.launch_takes())
    group.launches.append(launch)
    return launch


def launch_due(scaling: Scaling, group: Group, limit: int) -> bool:
    """Make the launches that are due, up to `most`. Return True if more are due."""
    done = 0
    while due := next((launch for launch in group.launches if launch.due <= scaling.now), None):
        if done == limit:
            return True
        done += 1
        group.launches.remove(due)
        _launch(scaling, group, due)
    return False


def _launch(scaling: Scaling, group: Group, launch: Launch) -> None:
    others = [subnet for subnet in group.subnets if subnet not in group.failed]
    if launch.subnet in group.failed and others:
        # Another launch has just failed in that subnet.
        launch.subnet = spread(others, occupied_subnets(group), 1)[0]
        launch.activity.details = launch.subnet.details
    try:
        member = _run(scaling, group, launch.subnet)
    except AwsError as error:
        _fail(scaling, group, launch, error)
        return
    except Exception as error:
        log.exception("launching for the Auto Scaling group %s failed", group.name)
        _fail(scaling, group, launch, AwsError("InternalError", f"The local cloud failed: {error!r}."))
        return
    activity = launch.activity
    activity.description = f"Launching a new EC2 instance: {member.id}"
    activity.status, activity.progress = "PreInService", 30
    member.activity = activity
    group.members[member.id] = member
    group.failures = 0


def _run(scaling: Scaling, group: Group, subnet: Subnet) -> Member:
    request = launch_request(scaling, group, subnet)
    instance_id, kind = scaling.ec2.run(request)
    return Member(instance_id, kind, subnet, launched=scaling.now, template=request.template.specification)


def launch_request(scaling: Scaling, group: Group, subnet: Subnet) -> LaunchRequest:
    tags = {key: tag.value for key, tag in group.tags.items() if tag.propagate}
    tags["aws:autoscaling:groupName"] = group.name
    return LaunchRequest(subnet, tags, _resolve(scaling, group.template), group.placement_group)


def _resolve(scaling: Scaling, name: LaunchTemplateSpecification) -> Template:
    """Look up a template, once in each step."""
    if name not in scaling.templates:
        scaling.templates[name] = scaling.ec2.template({"LaunchTemplateId": name.id, "Version": name.version})
    return scaling.templates[name]


def _fail(scaling: Scaling, group: Group, launch: Launch, error: AwsError) -> None:
    now, activity = scaling.now, launch.activity
    message = messages.launch_failed(error.message)
    activity.description = f"Launching a new EC2 instance.  Status Reason: {message}"
    activity.finish("Failed", now, message)
    if error.code in ZONE_ERRORS:
        group.failed.add(launch.subnet)
    others = [subnet for subnet in group.subnets if subnet not in group.failed]
    if error.code in ZONE_ERRORS and others and group.allows("Launch"):
        subnet = spread(others, occupied_subnets(group), 1)[0]
        again = _decide(scaling, group, subnet, activity.cause)
        again.due = now
        return
    _back_off(scaling, group)


def _back_off(scaling: Scaling, group: Group) -> None:
    """Delay the next attempt. Failures of one attempt count once."""
    now = scaling.now
    if now >= group.retry_at:
        group.failures += 1
        group.retry_at = now + backoff(group.failures)


def on_running(scaling: Scaling, group: Group, member: Member) -> None:
    """Start the launch hooks of a running instance, or put it in service."""
    if member.hold(group.hooks.values(), scaling.now):
        member.state = "Pending:Wait"
        if member.activity:
            member.activity.status, member.activity.progress = "MidLifecycleAction", 60
    else:
        enter_service(scaling, member)


def enter_service(scaling: Scaling, member: Member) -> None:
    member.state, member.since = "InService", scaling.now
    member.actions.clear()
    if member.activity:
        member.activity.finish("Successful", scaling.now)
        member.activity = None


def fail_before_service(scaling: Scaling, group: Group, member: Member, message: str) -> None:
    """Replace an instance that failed before it was in service, after a delay that grows with each failure."""
    _back_off(scaling, group)
    abandon(scaling, group, member, message, messages.LOST)


def abandon(scaling: Scaling, group: Group, member: Member, message: str, why: str) -> None:
    """Terminate an instance that must not enter service, and replace it."""
    if member.activity:
        member.activity.description += f".  Status Reason: {message}"
        member.activity.finish("Cancelled", scaling.now, message)
        member.activity = None
    group.to_replace += member.counts
    termination.end(scaling, group, member, messages.cause((), scaling.now, messages.unhealthy(why)))
