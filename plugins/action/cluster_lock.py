# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Take and release a cluster's lock. The documentation is in plugins/modules/cluster_lock.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import holding, run_starts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.record import LOCK_KINDS
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.store import LockStore, NoBucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils.requester import requester


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        not_held = {"changed": False, "lock": {}, "version": "", "others_wrote": False, "bucket_exists": True}
        if self.check_mode:
            return not_held
        held = holding.held_lock({"lock": options["lock"]})
        if options["state"] == "free":
            version = self._release(held, options["version"])
            return not_held | {"version": version}
        aws = Aws.from_options(options)
        if options["state"] == "idle":
            return not_held | {"blocked": run_starts.blocking_sentence(aws, options["cluster"])}
        store = LockStore(aws, options["cluster"], LOCK_KINDS[options["kind"]])
        if options["state"] == "unchanged":
            self._fail_if_removed(store, options["version"])
            return not_held | {"version": options["version"]}
        if held is not None:
            holding.verify(held)
            return not_held | {"lock": holding.as_fact(held), "version": held.id}
        return not_held | self._take(aws, store, options)

    def _take(self, aws: Aws, store: LockStore, options: Mapping[str, Any]) -> dict[str, Any]:
        playbook_pid = holding.parent_playbook()
        request = holding.LockRequest(
            user=requester(),
            playbook=options["playbook"],
            playbook_pid=playbook_pid,
            wait_seconds=options["wait_seconds"],
            break_lock=options["break_lock"],
        )
        try:
            taken = holding.take(store, request, self._display.display)
        except NoBucket as problem:
            if options["bucket_may_vanish"]:
                return {"bucket_exists": False}
            raise UserError(f"{problem} To create the cluster: ansible-playbook deeplearning.aws.site") from None
        lock = holding.keep(store, aws, options, taken, playbook_pid)
        others_wrote = bool(options["version"]) and holding.has_changed(options["version"], taken.before)
        if others_wrote and options["must_be_unchanged"]:
            holding.release(store, lock)
            record = taken.before.record
            who = record.holder() if record else "Another playbook"
            raise UserError(
                f"{who} has changed the cluster {store.name.cluster} since this playbook began to wait for machines, "
                "so it stops here. Run it again."
            )
        return {"lock": holding.as_fact(lock), "version": taken.record.id, "others_wrote": others_wrote}

    def _release(self, held: holding.HeldLock | None, version: str) -> str:
        """Release the lock. A lock that cannot be released expires, so this never fails and hides a first failure."""
        if held is None:
            return version
        try:
            holding.release(held.store(), held)
        except NoBucket:
            return held.id
        except UserError as problem:
            self._display.warning(f"The lock of {held.name.subject} expires by itself in some minutes: {problem}")
        return held.id

    def _fail_if_removed(self, store: LockStore, version: str) -> None:
        change = holding.removal_since(store, version)
        if change:
            raise UserError(f"{change} while this playbook waited, so it stops here.")
