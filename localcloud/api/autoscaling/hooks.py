"""Lifecycle actions, for which instances wait."""

from __future__ import annotations

from collections.abc import Iterable

from localcloud.api.autoscaling.records import Action, Hook, Member, new_id


def hold(member: Member, hooks: Iterable[Hook], now: float) -> bool:
    """Begin an action for each of these hooks. Return True if there is one."""
    member.actions = [Action(hook, new_id(), now, now + hook.heartbeat) for hook in hooks]
    return bool(member.actions)


def outcome(member: Member, now: float) -> str | None:
    """Return the result of all actions that hold an instance: CONTINUE, ABANDON, or None while one is open.

    An abandoned action ends the wait for all.
    """
    for action in member.actions:
        if action.result is None and now >= min(action.deadline, action.started + action.hook.longest):
            action.result, action.why = action.hook.default, "Heartbeat Timeout"
    results = {action.result for action in member.actions}
    if "ABANDON" in results:
        return "ABANDON"
    return None if None in results else "CONTINUE"


def find(member: Member, hook: str, token: str | None) -> Action | None:
    """Return the open action of a hook, by its token if the request has one."""
    for action in member.actions:
        if action.hook.name == hook and action.result is None and token in (None, action.token):
            return action
    return None


def complete(action: Action, result: str) -> None:
    action.result = result
    action.why = f"Lifecycle Action Completed with {result} Result"


def extend(action: Action, now: float) -> None:
    """Restart the timeout of an action, as a heartbeat does."""
    action.deadline = now + action.hook.heartbeat
