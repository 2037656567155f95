"""How groups grow."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from localcloud.autoscaling import ending, hooks, words
from localcloud.autoscaling.choosing import lopsided, spread
from localcloud.autoscaling.ec2 import OF_THE_PLACE, Launched, Order, Template
from localcloud.autoscaling.records import LAUNCHING, Group, Launch, Member, Place, Spec
from localcloud.errors import AwsError

if TYPE_CHECKING:
    from localcloud.autoscaling.engine import Scaling

log = logging.getLogger(__name__)


def plan(scaling: Scaling, group: Group) -> None:
    """Decide on as many launches as are missing, all at once; or on one more, where the zones are uneven."""
    now = scaling.now
    missing = group.desired - group.counted
    if not group.may("Launch"):
        return
    if missing > 0 and now >= group.retry_at:
        group.failed.clear()
        before = group.counted
        places = spread(group.places, taken(group), (), missing)
        for place in places:
            # The missing are first of all successors of those that were unhealthy.
            replaces = group.to_replace > 0
            group.to_replace = max(0, group.to_replace - 1)
            why = words.REPLACES if replaces else words.grows(before, group.desired)
            _decide(scaling, group, place, words.cause(group.reasons, now, why))
        group.reasons.clear()
        group.scaled_at = now
    elif missing == 0 and now >= max(group.rebalance_at, group.retry_at) and group.may("AZRebalance"):
        thin = lopsided(group.places, taken(group))
        on_the_way = any(launch.extra for launch in group.launches) or any(one.extra for one in group.members.values())
        if thin is not None and not on_the_way and group.refresh is None:
            _decide(scaling, group, thin, words.cause((), now, words.REBALANCES), extra=True)
    if missing <= 0:
        group.to_replace = 0


def taken(group: Group) -> Iterator[Place]:
    yield from (member.place for member in group.members.values() if member.counts)
    yield from (launch.place for launch in group.launches if not launch.extra)


def _decide(scaling: Scaling, group: Group, place: Place, cause: str, extra: bool = False) -> Launch:
    activity = scaling.begin(group, "Launching a new EC2 instance", cause, details_of(place), "WaitingForInstanceId")
    activity.progress = 20
    launch = Launch(activity, place, scaling.now + scaling.launch_takes(), extra)
    group.launches.append(launch)
    return launch


def details_of(place: Place) -> dict[str, str]:
    zone = {"Availability Zone": place.zone}
    return {"Subnet ID": place.subnet, **zone} if place.subnet else zone


def launch_due(scaling: Scaling, group: Group, most: int) -> bool:
    """Ask EC2 for what is due, up to so many; says whether more is due."""
    done = 0
    while due := next((launch for launch in group.launches if launch.due <= scaling.now), None):
        if done == most:
            return True
        done += 1
        group.launches.remove(due)
        _launch(scaling, group, due)
    return False


def _launch(scaling: Scaling, group: Group, launch: Launch) -> None:
    others = [place for place in group.places if place not in group.failed]
    if launch.place in group.failed and others and not launch.extra:
        # Another one has just failed there.
        launch.place = spread(others, taken(group), (), 1)[0]
        launch.activity.details = details_of(launch.place)
    try:
        member = run(scaling, group, launch.place)
    except AwsError as error:
        _fail(scaling, group, launch, error)
        return
    except Exception as error:
        log.exception("launching for the Auto Scaling group %s failed", group.name)
        _fail(scaling, group, launch, AwsError("InternalError", f"The local cloud failed: {error!r}."))
        return
    join(group, member, launch)


def join(group: Group, member: Member, launch: Launch) -> None:
    """EC2 has launched it."""
    activity = launch.activity
    activity.description = f"Launching a new EC2 instance: {member.id}"
    activity.status, activity.progress = "PreInService", 30
    member.activity, member.extra = activity, launch.extra
    group.members[member.id] = member
    if launch.extra:
        group.rebalance_failures = 0
    else:
        group.failures = 0


def run(scaling: Scaling, group: Group, place: Place) -> Member:
    """Launch one instance: of the first type that is to be had."""
    orders = list(orders_of(scaling, group, place))
    for order, last in zip(orders, [False] * (len(orders) - 1) + [True], strict=True):
        try:
            launched = scaling.ec2.run(order)
        except AwsError as error:
            if last or error.code not in OF_THE_PLACE:
                raise
        else:
            return member_of(scaling, group, order, launched)
    raise AssertionError("there is always an order")


def member_of(scaling: Scaling, group: Group, order: Order, launched: Launched) -> Member:
    return Member(
        id=launched.id,
        type=launched.type,
        image=launched.image,
        place=Place(launched.zone, order.place.subnet),
        launched=scaling.now,
        template=order.template.spec if order.template else None,
        configuration=None if order.template else group.configuration,
        protected=group.protect_new,
    )


def orders_of(scaling: Scaling, group: Group, place: Place) -> Iterator[Order]:
    """One for each type that the group may use, the first choice first."""
    tags = {key: tag.value for key, tag in group.tags.items() if tag.propagate}
    tags["aws:autoscaling:groupName"] = group.name
    if group.template is None:
        configuration = scaling.configurations.get(group.configuration or "")
        if configuration is None:
            raise AwsError("ValidationError", f"Launch configuration name not found - {group.configuration}")
        yield Order(place, tags, configuration=run_of(configuration), placement_group=group.placement_group)
        return
    overrides = ((group.mixed or {}).get("LaunchTemplate") or {}).get("Overrides") or [{}]
    for override in overrides:
        template = resolve(scaling, override.get("LaunchTemplateSpecification") or as_given(group.template))
        yield Order(place, tags, template, None, override.get("InstanceType"), group.placement_group)


def as_given(spec: Spec) -> dict[str, str]:
    return {"LaunchTemplateId": spec.id, "Version": spec.version}


def resolve(scaling: Scaling, given: Mapping[str, Any]) -> Template:
    """Look a template up, once a step."""
    key = str(given.get("LaunchTemplateId") or given.get("LaunchTemplateName")), str(given.get("Version", "$Default"))
    if key not in scaling.templates:
        scaling.templates[key] = scaling.ec2.template(given)
    return scaling.templates[key]


def run_of(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A launch configuration in the words of RunInstances."""
    same = ("ImageId", "InstanceType", "KeyName", "UserData", "BlockDeviceMappings", "EbsOptimized", "MetadataOptions")
    params = {key: configuration[key] for key in same if configuration.get(key) not in (None, "", [])}
    groups = configuration.get("SecurityGroups") or []
    by_id = [group for group in groups if group.startswith("sg-")]
    by_name = [group for group in groups if not group.startswith("sg-")]
    if "KernelId" in configuration and configuration["KernelId"]:
        params["KernelId"] = configuration["KernelId"]
    if profile := configuration.get("IamInstanceProfile"):
        params["IamInstanceProfile"] = {"Arn" if profile.startswith("arn:") else "Name": profile}
    if "AssociatePublicIpAddress" in configuration:
        interface = {"DeviceIndex": 0, "AssociatePublicIpAddress": configuration["AssociatePublicIpAddress"]}
        params["NetworkInterfaces"] = [{**interface, "Groups": by_id}] if by_id else [interface]
        return params
    if by_id:
        params["SecurityGroupIds"] = by_id
    if by_name:
        params["SecurityGroups"] = by_name
    return params


def _fail(scaling: Scaling, group: Group, launch: Launch, error: AwsError) -> None:
    now, activity = scaling.now, launch.activity
    message = words.launch_failed(error.message, error.code, group.mixed is not None)
    activity.description = f"Launching a new EC2 instance.  Status Reason: {message}"
    activity.finish("Failed", now, message)
    if error.code in OF_THE_PLACE:
        group.failed.add(launch.place)
    if launch.extra:
        group.rebalance_failures += 1
        group.rebalance_at = now + scaling.backoff.most * 2 ** (group.rebalance_failures - 1)
        return
    others = [place for place in group.places if place not in group.failed]
    if error.code in OF_THE_PLACE and others and group.may("Launch"):
        place = spread(others, taken(group), (), 1)[0]
        again = _decide(scaling, group, place, activity.cause)
        again.due = now
        return
    _wait(scaling, group)


def _wait(scaling: Scaling, group: Group) -> None:
    """After a failure: those of one attempt count once."""
    now = scaling.now
    if now >= group.retry_at:
        group.failures += 1
        group.retry_at = now + scaling.backoff.after(group.failures)


def arrive(scaling: Scaling, group: Group, member: Member) -> None:
    """It runs: hooks first, then it serves."""
    if hooks.hold(member, group.hooks_of(LAUNCHING), scaling.now):
        member.state = "Pending:Wait"
        if member.activity:
            member.activity.status, member.activity.progress = "MidLifecycleAction", 60
    else:
        serve(scaling, member)


def serve(scaling: Scaling, member: Member) -> None:
    member.state, member.since, member.extra = "InService", scaling.now, False
    member.actions.clear()
    if member.activity:
        member.activity.finish("Successful", scaling.now)
        member.activity = None


def lose(scaling: Scaling, group: Group, member: Member, message: str) -> None:
    """It ended before it served. Another one follows after a while, lest what dies at once is launched without end."""
    _wait(scaling, group)
    abandon(scaling, group, member, message, words.LOST)


def abandon(scaling: Scaling, group: Group, member: Member, message: str, why: str) -> None:
    """It shall not serve: end it, and launch another."""
    if member.activity:
        member.activity.description += f".  Status Reason: {message}"
        member.activity.finish("Cancelled", scaling.now, message)
        member.activity = None
    group.to_replace += member.counts
    ending.end(scaling, group, member, words.cause((), scaling.now, words.unhealthy(why)))
