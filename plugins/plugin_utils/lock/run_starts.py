# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Runs take no lock, but none starts while another playbook creates, resizes or removes the cluster."""

from __future__ import annotations

from ...module_utils.aws.client import Aws
from ...module_utils.contract.errors import UserError
from .holding import is_live
from .record import ObservedLock
from .store import LockStore

PLAYBOOKS = ("train", "evaluate")
"""The playbooks that start runs."""
BLOCKING = ("site", "emr", "provision", "destroy")
"""The playbooks that may change the number of nodes, or remove the cluster, while they hold the lock."""


def is_blocked(observed: ObservedLock) -> bool:
    record = observed.record
    return record is not None and record.playbook in BLOCKING and is_live(observed)


def blocking_sentence(aws: Aws, cluster: str) -> str:
    """Return why a run must not start now; empty if it may.

    Whoever may not read the lock, or does not reach AWS at this moment, is not kept from training.
    """
    try:
        observed = LockStore(aws, cluster).read()
    except UserError:
        return ""
    record = observed.record
    if record is None or not is_blocked(observed):
        return ""
    return (
        f"{record.holder()} is changing the cluster {cluster}, so no run starts now. Run the playbook again when the "
        "other one has finished. status.yml shows the lock."
    )
