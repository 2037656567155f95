"""EC2 Auto Scaling: the instances of groups, and the hooks that hold them up."""

from __future__ import annotations

from localcloud.api.registry import Call, Result, answers
from localcloud.autoscaling import checking, ending, hooks, launching, shown, words
from localcloud.autoscaling.checking import invalid
from localcloud.autoscaling.engine import Scaling
from localcloud.autoscaling.records import LAUNCHING, TERMINATING, Action, Group, Launch, Member, Place
from localcloud.autoscaling.regions import scaling_in
from localcloud.errors import AwsError


@answers("autoscaling", "DescribeAutoScalingInstances")
def describe(call: Call) -> Result:
    scaling, ids = scaling_in(call.cloud, call.region), call.params.get("InstanceIds")
    found = [
        (group, member)
        for group in scaling.groups.values()
        for member in group.members.values()
        if not ids or member.id in ids
    ]
    found.sort(key=lambda pair: pair[1].id)
    found, token = shown.page(found, lambda pair: pair[1].id, call.params, 50, 50)
    return {"AutoScalingInstances": [shown.instance(group, member) for group, member in found], **token}


@answers("autoscaling", "SetInstanceHealth")
def set_health(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group, member = checking.member_with(scaling, params["InstanceId"])
    status = params["HealthStatus"]
    if status not in ("Healthy", "Unhealthy"):
        raise invalid(f"HealthStatus {status} is not valid: use Healthy or Unhealthy.")
    if params.get("ShouldRespectGracePeriod") is not False:
        young = member.since is None or scaling.now < member.since + group.grace
        if young and status == "Unhealthy":
            return {}
    member.health = status
    member.why_unhealthy = words.USER_CHECK if status == "Unhealthy" else ""
    scaling.kick()
    return {}


@answers("autoscaling", "SetInstanceProtection")
def set_protection(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    wanted = ("InService", "EnteringStandby", "Standby", "Pending", "Pending:Wait", "Pending:Proceed")
    for member in checking.members_of(group, params["InstanceIds"], *wanted):
        member.protected = params["ProtectedFromScaleIn"]
    group.told_protected = False
    scaling.kick()
    return {}


@answers("autoscaling", "TerminateInstanceInAutoScalingGroup")
def terminate(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group, member = checking.member_with(scaling, params["InstanceId"])
    if member.state.startswith("Terminating"):
        if member.activity is None:
            raise invalid(f"The instance {member.id} is being terminated already.")
        return {"Activity": shown.activity(member.activity)}
    change = None
    if params["ShouldDecrementDesiredCapacity"] and member.counts:
        if group.desired <= group.least:
            raise invalid(
                f"Currently, desiredSize equals minSize ({group.least}). Terminating instance without replacement will "
                "violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower "
                "group's min size."
            )
        change = (group.desired, group.desired - 1)
        group.desired -= 1
    cause = words.cause((), scaling.now, words.by_request(member.id, "taken out of service", change))
    return {"Activity": shown.activity(ending.end(scaling, group, member, cause))}


@answers("autoscaling", "AttachInstances")
def attach(call: Call) -> Result:
    """Take running instances in: the group grows by them."""
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    found = [scaling.ec2.know(name) for name in dict.fromkeys(params.get("InstanceIds") or [])]
    for known in found:
        if owner := scaling.find(known.launched.id):
            raise invalid(f"Instance {known.launched.id} is already part of AutoScalingGroup:{owner[0].name}.")
        if known.state != "running":
            raise invalid(f"Instance {known.launched.id} is not in correct state: it must be running.")
        if known.launched.zone not in group.zones:
            raise invalid(f"Instance {known.launched.id} is not in an Availability Zone of the group.")
    if group.desired + len(found) > group.most:
        raise _too_small(group, f"attach {len(found)} more instances")
    for known in found:
        launched, before = known.launched, group.desired
        group.desired += 1
        place = Place(launched.zone, launched.subnet)
        member = Member(launched.id, launched.type, launched.image, place, scaling.now, protected=group.protect_new)
        cause = words.by_request(member.id, "attached", (before, group.desired))
        description = f"Attaching an existing EC2 instance: {member.id}"
        activity = scaling.begin(group, description, words.cause((), scaling.now, cause), launching.details_of(place))
        activity.status, activity.progress = "PreInService", 50
        member.activity = activity
        group.members[member.id] = member
        scaling.ec2.tag(member.id, {"aws:autoscaling:groupName": group.name})
    scaling.kick()
    return {}


@answers("autoscaling", "DetachInstances")
def detach(call: Call) -> Result:
    """Let instances go, as they are."""
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    members = checking.members_of(group, params.get("InstanceIds") or [], "InService", "Standby")
    counted = sum(member.counts for member in members)
    _shrink_by_request(group, counted, params["ShouldDecrementDesiredCapacity"], "detach")
    activities = []
    before = group.desired + (counted if params["ShouldDecrementDesiredCapacity"] else 0)
    for member in members:
        change = None
        if params["ShouldDecrementDesiredCapacity"] and member.counts:
            change, before = (before, before - 1), before - 1
        cause = words.cause((), scaling.now, words.by_request(member.id, "detached", change))
        details = launching.details_of(member.place)
        activity = scaling.begin(group, f"Detaching EC2 instance: {member.id}", cause, details)
        activity.finish("Successful", scaling.now)
        del group.members[member.id]
        scaling.ec2.untag(member.id, ["aws:autoscaling:groupName"])
        activities.append(shown.activity(activity))
    scaling.kick()
    return {"Activities": activities}


def _too_small(group: Group, wish: str) -> AwsError:
    return invalid(
        f"AutoScalingGroup {group.name} has min-size={group.least}, max-size={group.most}, and desired-size="
        f"{group.desired}. To {wish}, please update the AutoScalingGroup sizes appropriately."
    )


def _shrink_by_request(group: Group, count: int, decrement: bool, doing: str) -> None:
    if not decrement:
        return
    if group.desired - count < group.least:
        raise _too_small(group, f"{doing} {count} instances")
    group.desired -= count


@answers("autoscaling", "EnterStandby")
def enter_standby(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    members = checking.members_of(group, params.get("InstanceIds") or [], "InService")
    decrement, before = params["ShouldDecrementDesiredCapacity"], group.desired
    _shrink_by_request(group, len(members), decrement, "place into standby")
    activities = []
    for number, member in enumerate(members):
        change = (before - number, before - number - 1) if decrement else None
        cause = words.cause((), scaling.now, words.by_request(member.id, "moved to standby", change))
        details = launching.details_of(member.place)
        activity = scaling.begin(group, f"Moving EC2 instance to Standby: {member.id}", cause, details)
        activities.append(shown.activity(activity))
        activity.finish("Successful", scaling.now)
        member.state = "Standby"
    scaling.kick()
    return {"Activities": activities}


@answers("autoscaling", "ExitStandby")
def exit_standby(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    members = checking.members_of(group, params.get("InstanceIds") or [], "Standby")
    if group.desired + len(members) > group.most:
        raise _too_small(group, f"take {len(members)} more instances out of standby")
    activities = []
    for member in members:
        change = (group.desired, group.desired + 1)
        group.desired += 1
        cause = words.cause((), scaling.now, words.by_request(member.id, "moved out of standby", change))
        details = launching.details_of(member.place)
        activity = scaling.begin(
            group, f"Moving EC2 instance out of Standby: {member.id}", cause, details, "PreInService"
        )
        activity.progress = 30
        member.state, member.activity = "Pending", activity
        activities.append(shown.activity(activity))
    scaling.kick()
    return {"Activities": activities}


@answers("autoscaling", "LaunchInstances")
def launch_instances(call: Call) -> Result:
    """Launch now, and say what came of it."""
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    wanted = params["RequestedCapacity"]
    if group.template is None:
        raise invalid("LaunchInstances requires an Auto Scaling group with a launch template.")
    if not 1 <= wanted <= 100:
        raise invalid("RequestedCapacity must be between 1 and 100.")
    if group.desired + wanted > group.most:
        raise _too_small(group, f"launch {wanted} more instances")
    place = _place_asked_for(group, params.get("SubnetIds") or [], params.get("AvailabilityZones") or [])
    before = group.desired
    cause = words.cause((), scaling.now, words.grows(before, before + wanted))
    scaling.templates.clear()
    launched: list[Member] = []
    errors = []
    for _ in range(wanted):
        details = launching.details_of(place)
        activity = scaling.begin(group, "Launching a new EC2 instance", cause, details, "WaitingForInstanceId")
        try:
            member = launching.run(scaling, group, place)
        except AwsError as error:
            activity.finish(
                "Failed", scaling.now, words.launch_failed(error.message, error.code, group.mixed is not None)
            )
            where = {"SubnetId": place.subnet} if place.subnet else {}
            said = {"ErrorCode": error.code, "ErrorMessage": error.message, "MarketType": "on-demand"}
            errors.append({"AvailabilityZone": place.zone, **where, **said})
            break
        launching.join(group, member, Launch(activity, place, scaling.now))
        launched.append(member)
    # What did not come is tried again with the group's own means only if that was asked for.
    tries_again = params.get("RetryStrategy") == "retry-with-group-configuration"
    group.desired += wanted if tries_again else len(launched)
    scaling.kick()
    by_type: dict[str, list[str]] = {}
    for member in launched:
        by_type.setdefault(member.type, []).append(member.id)
    subnet = {"SubnetId": place.subnet} if place.subnet else {}
    instances = [
        {"InstanceType": kind, "MarketType": "on-demand", "AvailabilityZone": place.zone, **subnet, "InstanceIds": ids}
        for kind, ids in by_type.items()
    ]
    return {
        "AutoScalingGroupName": group.name,
        "ClientToken": params.get("ClientToken", ""),
        "Instances": instances,
        "Errors": errors,
    }


def _place_asked_for(group: Group, subnets: list[str], zones: list[str]) -> Place:
    fitting = [
        place
        for place in group.places
        if (not subnets or place.subnet in subnets) and (not zones or place.zone in zones)
    ]
    if not fitting:
        raise invalid("The specified Availability Zone or subnet is not part of the Auto Scaling group.")
    if len(group.zones) > 1 and not subnets and not zones:
        raise invalid("Specify an Availability Zone or a subnet: the Auto Scaling group has several.")
    return fitting[0]


@answers("autoscaling", "PutLifecycleHook")
def put_hook(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    hook = checking.read_hook(params, group.hooks.get(params["LifecycleHookName"]))
    group.hooks[hook.name] = hook
    return {}


@answers("autoscaling", "DescribeLifecycleHooks")
def describe_hooks(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.group_named(scaling, params["AutoScalingGroupName"])
    names = params.get("LifecycleHookNames")
    found = [hook for name, hook in sorted(group.hooks.items()) if not names or name in names]
    return {"LifecycleHooks": [shown.hook(group, hook) for hook in found]}


@answers("autoscaling", "DescribeLifecycleHookTypes")
def describe_hook_types(call: Call) -> Result:
    return {"LifecycleHookTypes": [LAUNCHING, TERMINATING]}


@answers("autoscaling", "DeleteLifecycleHook")
def delete_hook(call: Call) -> Result:
    """What it still holds up goes on with its default result."""
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    hook = group.hooks.pop(params["LifecycleHookName"], None)
    if hook is None:
        raise invalid("No Lifecycle Hook found with the given name.")
    for member in group.members.values():
        if action := hooks.find(member, hook.name, None):
            hooks.complete(action, hook.default)
    scaling.kick()
    return {}


@answers("autoscaling", "CompleteLifecycleAction")
def complete_action(call: Call) -> Result:
    scaling, action = _action_of(call)
    result = call.params["LifecycleActionResult"]
    if result not in ("CONTINUE", "ABANDON"):
        raise invalid(f"Lifecycle Action Result {result} is not valid: use CONTINUE or ABANDON.")
    hooks.complete(action, result)
    scaling.kick()
    return {}


@answers("autoscaling", "RecordLifecycleActionHeartbeat")
def heartbeat(call: Call) -> Result:
    scaling, action = _action_of(call)
    hooks.extend(action, scaling.now)
    return {}


def _action_of(call: Call) -> tuple[Scaling, Action]:
    """The open action that a call names by its token, or by instance."""
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.group_named(scaling, params["AutoScalingGroupName"])
    token, instance = params.get("LifecycleActionToken"), params.get("InstanceId")
    if not token and not instance:
        raise invalid("Either the instance ID or the lifecycle action token must be given.")
    members = [member for member in group.members.values() if instance in (None, member.id)]
    for member in members:
        if action := hooks.find(member, params["LifecycleHookName"], token):
            return scaling, action
    raise invalid(
        f"No active Lifecycle Action found with token {token}"
        if token
        else f"No active Lifecycle Action found with instance ID {instance}"
    )
