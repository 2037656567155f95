# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The lock of a cluster while its resources are deleted. The lock is in the bucket, which is deleted last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...module_utils.aws.client import Aws
from ...module_utils.contract.errors import UserError
from ..lock import holding
from ..lock.store import LockStore, NoBucket, NoLocking


class DestroyLock:
    """The lock that destroy.yml holds, or an earlier task of another playbook, or none: destroy always works."""

    def __init__(self, held: holding.HeldLock | None) -> None:
        self._held = held
        self._ends_with_bucket = False

    @classmethod
    def of_fact(cls, lock: Mapping[str, Any]) -> DestroyLock:
        return cls(holding.held_lock({"lock": lock}))

    @classmethod
    def take(
        cls,
        store: LockStore,
        aws: Aws,
        options: Mapping[str, Any],
        request: holding.LockRequest,
        display: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> DestroyLock:
        """Wait for the lock, and warn where there can be none."""
        try:
            taken = holding.take(store, request, display)
        except NoBucket as problem:
            warn(f"Nothing prevents another playbook from changing the cluster while it is removed. {problem}")
            return cls(None)
        except NoLocking as problem:
            warn(f"Nothing prevents another playbook from changing the cluster while it is removed. {problem}")
            return cls(None)
        return cls(holding.keep(store, aws, options, taken, request.playbook_pid))

    def verify(self) -> None:
        """Raise UserError if another playbook has taken the lock over."""
        if self._held is not None and not self._ends_with_bucket:
            holding.verify(self._held)

    def give_up_bucket(self) -> None:
        """Let the lock end with the bucket, which is deleted now."""
        if self._held is not None:
            holding.end_keeper(self._held)
            self._ends_with_bucket = True

    def holds(self, store: LockStore) -> bool:
        """Return whether no other playbook has the lock that is in the bucket now."""
        observed = store.read()
        if not observed.exists:
            return True
        is_ours = self._held is not None and observed.id == self._held.id
        return is_ours or not holding.is_live(observed)

    def release(self, warn: Callable[[str], None]) -> None:
        """Release the lock if the bucket is still there. This never fails, so that it hides no first failure."""
        if self._held is None:
            return
        try:
            holding.release(self._held.store(), self._held)
        except NoBucket:
            return
        except UserError as problem:
            warn(f"The lock of the cluster {self._held.cluster} expires by itself in some minutes: {problem}")
