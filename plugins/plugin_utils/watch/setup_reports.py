# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read what machines report while they configure themselves, and the consoles of those that do not report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.contract import report
from ...module_utils.contract.errors import UserError
from ..members.console import console_output
from ..untrusted import one_line
from .capacity import MOST_LINES, NodeSetup, ScalingGroup

AT_ONCE = 16


@dataclass
class SetupReports:
    aws: Aws
    bucket: str
    account: str
    role_ids: Mapping[str, str]
    """The id of the members' IAM role, by the name of the group."""
    _read: dict[str, tuple[str, NodeSetup | None]] = field(default_factory=dict, init=False)
    """By the key of a report, its ETag and its content, unless it is malformed."""

    def add_to(self, groups: Mapping[str, ScalingGroup]) -> dict[str, ScalingGroup]:
        """Return the groups with the reports of machines that are not in service, or that never were."""
        ids = {
            name: [
                *(machine.id for machine in group.machines if machine.is_pending),
                *(failure.machine for failure in group.failures if failure.machine),
            ]
            for name, group in groups.items()
        }
        setups = self.read(ids)
        return {name: replace(group, setups=setups) for name, group in groups.items()}

    def read(self, ids: Mapping[str, Sequence[str]]) -> dict[str, NodeSetup]:
        """Return what the instances of each group report, by instance id. Only reports that changed are read."""
        keys = {
            report.key_of(f"{self.role_ids[group]}:{machine}"): machine
            for group, machines in ids.items()
            for machine in machines
        }
        if not keys:
            return {}
        bucket = {"Bucket": self.bucket, "ExpectedBucketOwner": self.account}
        listed = self.aws.pages("s3", "list_objects_v2", "Contents", **bucket, Prefix=report.PREFIX)
        reports = [item for item in listed if item["Key"] in keys]
        changed = [item for item in reports if self._read.get(item["Key"], ("", None))[0] != item["ETag"]]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for item, setup in zip(changed, pool.map(self._setup, changed), strict=True):
                self._read[item["Key"]] = (item["ETag"], setup)
        setups = {machine: self._read[key][1] for key, machine in keys.items() if key in self._read}
        return {machine: setup for machine, setup in setups.items() if setup}

    def _setup(self, item: Mapping[str, Any]) -> NodeSetup | None:
        key = str(item["Key"])
        try:
            content = self.aws.content(self.bucket, key, self.account, report.MAX_BYTES)
            fields = report.parse(content, key, self.bucket)
        except UserError:
            return None
        return NodeSetup(
            fields["state"],
            one_line(fields["step"]),
            [one_line(line) for line in fields["log"]],
            fields["bundle"],
            item["LastModified"].timestamp(),
        )

    def console(self, machine: str) -> list[str]:
        """Return the last lines of a machine's console, or none if AWS does not show it."""
        try:
            output = console_output(self.aws, machine, may_have_ended=True)
        except AwsError:
            return []
        lines = [one_line(line) for line in output.splitlines()]
        return [line for line in lines if line.strip()][-MOST_LINES:]
