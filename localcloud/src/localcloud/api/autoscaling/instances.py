"""EC2 Auto Scaling: the instances of groups, and the hooks that hold them up."""

from __future__ import annotations

from localcloud.api.autoscaling import messages, responses, termination, validation
from localcloud.api.autoscaling.records import Action
from localcloud.api.autoscaling.regions import scaling_in
from localcloud.api.autoscaling.state import Scaling
from localcloud.api.autoscaling.validation import invalid
from localcloud.core.cloud import Call, Result, answers
from localcloud.core.words import aws_error


@answers("autoscaling", "DescribeAutoScalingInstances")
def describe(call: Call) -> Result:
    scaling, ids = scaling_in(call.cloud, call.region), call.params.get("InstanceIds")
    pairs = [
        (group, member)
        for group in scaling.groups.values()
        for member in group.members.values()
        if not ids or member.id in ids
    ]
    pairs.sort(key=lambda pair: pair[1].id)
    pairs, token = responses.page(pairs, lambda pair: pair[1].id, call.params, 50, 50)
    return {"AutoScalingInstances": [responses.instance(group, member) for group, member in pairs], **token}


@answers("autoscaling", "TerminateInstanceInAutoScalingGroup")
def terminate(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group, member = validation.member_with(scaling, params["InstanceId"])
    if member.state.startswith("Terminating"):
        if member.activity is None:
            raise invalid(f"The instance {member.id} is being terminated already.")
        return {"Activity": responses.activity(member.activity)}
    change = None
    if params["ShouldDecrementDesiredCapacity"] and member.counts:
        if group.desired <= group.min_size:
            raise invalid(
                f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without replacement "
                "will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or "
                "lower group's min size."
            )
        change = (group.desired, group.desired - 1)
        group.desired -= 1
    cause = messages.cause((), scaling.now, messages.by_request(member.id, "taken out of service", change))
    return {"Activity": responses.activity(termination.end(scaling, group, member, cause))}


@answers("autoscaling", "DetachInstances")
def detach(call: Call) -> Result:
    """Remove running instances from the group."""
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = validation.changeable(scaling, params["AutoScalingGroupName"])
    members = validation.members_of(group, params.get("InstanceIds") or [], "InService")
    decrement = params["ShouldDecrementDesiredCapacity"]
    if decrement and group.desired - len(members) < group.min_size:
        raise invalid(
            f"AutoScalingGroup {group.name} has min-size={group.min_size}, max-size={group.max_size}, and desired-size="
            f"{group.desired}. To detach {len(members)} instances, please update the AutoScalingGroup sizes "
            "appropriately."
        )
    activities = []
    for member in members:
        change = None
        if decrement:
            change = (group.desired, group.desired - 1)
            group.desired -= 1
        cause = messages.cause((), scaling.now, messages.by_request(member.id, "detached", change))
        details = member.subnet.details
        activity = scaling.begin(group, f"Detaching EC2 instance: {member.id}", cause, details)
        activity.finish("Successful", scaling.now)
        del group.members[member.id]
        scaling.ec2.untag(member.id, ["aws:autoscaling:groupName"])
        activities.append(responses.activity(activity))
    scaling.schedule_step()
    return {"Activities": activities}


@answers("autoscaling", "PutLifecycleHook")
def put_hook(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = validation.changeable(scaling, params["AutoScalingGroupName"])
    hook = validation.read_hook(params, group.hooks.get(params["LifecycleHookName"]))
    group.hooks[hook.name] = hook
    return {}


@answers("autoscaling", "DescribeLifecycleHooks")
def describe_hooks(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = validation.group_named(scaling, params["AutoScalingGroupName"])
    names = params.get("LifecycleHookNames")
    hooks = [hook for name, hook in sorted(group.hooks.items()) if not names or name in names]
    return {"LifecycleHooks": [responses.hook(group, hook) for hook in hooks]}


@answers("autoscaling", "DeleteLifecycleHook")
def delete_hook(call: Call) -> Result:
    """Instances that wait for the hook continue with its default result."""
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = validation.changeable(scaling, params["AutoScalingGroupName"])
    hook = group.hooks.pop(params["LifecycleHookName"], None)
    if hook is None:
        raise invalid("No Lifecycle Hook found with the given name.")
    for member in group.members.values():
        if action := member.open_action(hook.name, None):
            action.complete(hook.default)
    scaling.schedule_step()
    return {}


@answers("autoscaling", "CompleteLifecycleAction")
def complete_action(call: Call) -> Result:
    scaling, action = _action_of(call)
    result = call.params["LifecycleActionResult"]
    if result not in ("CONTINUE", "ABANDON"):
        raise invalid(f"Lifecycle Action Result {result} is not valid: use CONTINUE or ABANDON.")
    action.complete(result)
    scaling.schedule_step()
    return {}


@answers("autoscaling", "RecordLifecycleActionHeartbeat")
def heartbeat(call: Call) -> Result:
    scaling, action = _action_of(call)
    action.extend(scaling.now)
    return {}


def _action_of(call: Call) -> tuple[Scaling, Action]:
    """Return the open action of a call, by its token or by instance."""
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = validation.group_named(scaling, params["AutoScalingGroupName"])
    token, instance = params.get("LifecycleActionToken"), params.get("InstanceId")
    if not token and not instance:
        raise invalid("Either the instance ID or the lifecycle action token must be given.")
    members = [member for member in group.members.values() if instance in (None, member.id)]
    for member in members:
        if action := member.open_action(params["LifecycleHookName"], token):
            return scaling, action
    if token:
        raise aws_error("autoscaling:CompleteLifecycleAction", "ValidationError", token=token)
    raise aws_error("autoscaling:CompleteLifecycleAction", "ValidationError", instance=instance)
