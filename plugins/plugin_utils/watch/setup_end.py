# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The scheduled end of machines of which none has ever been in service: docs/decisions/011-money-guard.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.contract.names import Names
from ...module_utils.contract.scheduled_end import SETUP
from .capacity import ScalingGroup
from .capacity_watcher import AutoScaling
from .setup_reports import SetupReports


def delete_if_in_service(aws: Aws, cluster: str, warn: Callable[[str], None]) -> bool:
    """Delete the end of the setup if a member is in service. Return whether there was one to delete.

    A group with no machine in service keeps its end while it holds machines that could not configure themselves.
    """
    deleted = False
    try:
        for group in _groups_to_keep(aws, cluster):
            name = Names(cluster).of(SETUP)
            aws.call("autoscaling", "delete_scheduled_action", AutoScalingGroupName=group, ScheduledActionName=name)
            deleted = True
    except AwsError as error:
        # Who only trains may not be allowed to.
        warn(f"It is not certain that the machines stay: the end of the setup was not deleted. {error}")
    return deleted


def _groups_to_keep(aws: Aws, cluster: str) -> Iterator[str]:
    """Yield the groups whose end is to be deleted, those with a member in service first."""
    names = Names(cluster)
    ends = {"ScheduledActionNames": [names.of(SETUP)]}
    actions = aws.pages("autoscaling", "describe_scheduled_actions", "ScheduledUpdateGroupActions", **ends)
    with_end = {str(action["AutoScalingGroupName"]) for action in actions} & set(names.groups.values())
    if not with_end:
        return
    groups = AutoScaling(aws).describe(list(names.groups.values()), 0.0, frozenset())
    in_service = [name for name, group in groups.items() if any(item.state == "InService" for item in group.machines)]
    if in_service:
        yield from (name for name in in_service if name in with_end)
        others = {role: name for role, name in names.groups.items() if name in with_end and name not in in_service}
        for role, name in others.items():
            if name in groups and not _has_failed(aws, cluster, role, groups[name]):
                yield name


def _has_failed(aws: Aws, cluster: str, role: str, group: ScalingGroup) -> bool:
    """Return whether a group holds a machine that could not configure itself and keeps its place."""
    held = [machine.id for machine in group.machines if machine.is_held]
    if not held:
        return False
    names = Names(cluster, aws.account, aws.region)
    role_id = str(aws.call("iam", "get_role", RoleName=names.identity(role))["Role"]["RoleId"])
    setups = SetupReports(aws, names.bucket, aws.account, {group.name: role_id}).read({group.name: held})
    return bool(replace(group, setups=setups).failed_setups)
