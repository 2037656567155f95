# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What Auto Scaling groups have done, and by which launch templates."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...module_utils.aws.client import Aws


class GroupHistory:
    """Reads each of them once: costs, reasons of missing machines and replacements follow from the same records."""

    def __init__(self, aws: Aws) -> None:
        self._pages = functools.cache(aws.pages)

    def activities(self, group: str) -> Sequence[Any]:
        """Return the scaling activities of a group, the newest first."""
        return self._pages("autoscaling", "describe_scaling_activities", "Activities", AutoScalingGroupName=group)

    def template_versions(self, group: str) -> Sequence[Any]:
        """Return all versions of a group's launch template, which has the name of the group."""
        return self._pages(
            "ec2", "describe_launch_template_versions", "LaunchTemplateVersions", LaunchTemplateName=group
        )
