# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The scheduled end of machines of which none has ever been in service: docs/decisions/011-money-guard.md."""

from __future__ import annotations

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import Names
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import SETUP


def delete_if_in_service(aws: Aws, cluster: str) -> bool:
    """Delete the end of the setup if a member is in service. Return whether there was one to delete."""
    groups, name = list(Names(cluster).groups.values()), Names(cluster).of(SETUP)
    actions = aws.pages(
        "autoscaling", "describe_scheduled_actions", "ScheduledUpdateGroupActions", ScheduledActionNames=[name]
    )
    with_end = sorted({str(action["AutoScalingGroupName"]) for action in actions} & set(groups))
    if not with_end:
        return False
    listed = aws.pages("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", AutoScalingGroupNames=groups)
    if not any(one["LifecycleState"] == "InService" for group in listed for one in group.get("Instances", ())):
        return False
    for group in with_end:
        aws.call("autoscaling", "delete_scheduled_action", AutoScalingGroupName=group, ScheduledActionName=name)
    return True
