# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wait for machines, and report progress. The decisions are in plugin_utils/watch/capacity.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.holding import change_since
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.store import LockStore
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch import setup_end
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.baking_watcher import wait_for_baking
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity import GroupTarget, Policy, WaitRules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity_watcher import AutoScaling, CapacityWatch
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.elastic_address import ElasticAddress
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.emr_watcher import EmrWatch
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.setup_reports import SetupReports


def _other_writer(aws: Aws, cluster: str, lock_version: str) -> Callable[[], str]:
    """Return the function that says who else has changed the cluster since its lock had this version."""
    if not lock_version:
        return lambda: ""
    return partial(change_since, LockStore(aws, cluster), lock_version)


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        wait = self._for_emr if options["emr"] else self._for_baking if options["baking"] else self._for_groups
        try:
            return wait(options)
        except UserError as error:
            return {"failed": True, "outcome": "failed", "elsewhere": False, "msg": str(error)}

    def _for_groups(self, options: dict[str, Any]) -> dict[str, Any]:
        groups, reports, started = options["groups"], options["reports"], time.time()
        targets = [
            GroupTarget(group["name"], group["desired_capacity"], group["minimum"], group["essential"])
            for group in groups
        ]
        if self.check_mode:
            names = ", ".join(f"{target.desired_capacity} of {target.name}" for target in targets)
            return {"changed": False, "outcome": "unknown", "msg": f"Would wait until these are in service: {names}."}
        if not reports:
            raise UserError("reports is not given: name the bucket, its account and the bundle of the machines.")
        aws = Aws.from_options(options)
        api = AutoScaling(aws)
        api.describe([target.name for target in targets], started, frozenset())
        deadline = api.now() + options["timeout_seconds"]
        role_ids = {group["name"]: group["role_id"] for group in groups}
        result = CapacityWatch(
            api,
            targets,
            WaitRules(Policy(options["policy"]), deadline, options["settle_seconds"], reports["bundle"]),
            options["since"] or started,
            self._display.display,
            SetupReports(aws, reports["bucket"], reports["account"], role_ids),
            [ElasticAddress(aws, group["name"], group["address"]) for group in groups if group["address"]],
            _other_writer(aws, options["cluster"], options["lock_version"]),
        ).run()
        if not result.get("failed") and options["cluster"]:
            setup_end.delete_if_in_service(aws, options["cluster"], self._display.warning)
        return result

    def _for_emr(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.check_mode:
            return {"changed": False, "outcome": "unknown", "msg": "Would wait until the EMR cluster is configured."}
        emr, aws = options["emr"], Aws.from_options(options)
        seconds, pause = options["timeout_seconds"], emr["poll_seconds"]
        return EmrWatch(aws, emr["id"], emr["logs"], seconds, pause, self._display.display).run()

    def _for_baking(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.check_mode:
            return {"changed": False, "outcome": "unknown", "msg": "Would wait until the machine has stopped."}
        baking, aws = options["baking"], Aws.from_options(options)
        reports = SetupReports(aws, baking["bucket"], baking["account"], {baking["id"]: baking["role_id"]})
        wait_for_baking(aws, baking["id"], reports, options["timeout_seconds"], self._display.display)
        return {"changed": False, "outcome": "ready", "msg": f"{baking['id']} is the source of an image."}
