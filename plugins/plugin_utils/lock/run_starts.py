# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Runs take no lock, but none starts while another playbook creates, resizes or removes the cluster."""

from __future__ import annotations

from ...module_utils.contract.errors import UserError
from .holding import is_live
from .record import ObservedLock
from .store import LockStore, NoBucket, NoLocking

PLAYBOOKS = ("train", "evaluate")
"""The playbooks that start runs."""
BLOCKING = ("site", "emr", "provision", "destroy")
"""The playbooks that may terminate nodes while they hold the lock."""


def is_blocked(observed: ObservedLock) -> bool:
    record = observed.record
    return record is not None and record.playbook in BLOCKING and is_live(observed)


def refuse_while_locked(store: LockStore) -> None:
    """Raise UserError if a run must not start now. Whoever may not read the lock is not kept from training."""
    try:
        observed = store.read()
    except (NoBucket, NoLocking):
        return
    if observed.record is not None and is_blocked(observed):
        raise UserError(
            f"{observed.record.holder()} is changing the cluster {store.cluster}, so no run starts now. Run the "
            "playbook again when the other one has finished. status.yml shows the lock."
        )
