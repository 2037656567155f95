# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What Auto Scaling groups have done, and by which launch templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws


class GroupHistory:
    """Reads each of them once: costs, reasons of missing machines and replacements follow from the same records."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._activities: dict[str, Sequence[Any]] = {}
        self._templates: dict[str, Sequence[Any]] = {}

    def activities(self, group: str) -> Sequence[Any]:
        """Return the scaling activities of a group, the newest first."""
        if group not in self._activities:
            self._activities[group] = self._aws.pages(
                "autoscaling", "describe_scaling_activities", "Activities", AutoScalingGroupName=group
            )
        return self._activities[group]

    def template_versions(self, group: str) -> Sequence[Any]:
        """Return all versions of a group's launch template, which has the name of the group."""
        if group not in self._templates:
            self._templates[group] = self._aws.pages(
                "ec2", "describe_launch_template_versions", "LaunchTemplateVersions", LaunchTemplateName=group
            )
        return self._templates[group]
