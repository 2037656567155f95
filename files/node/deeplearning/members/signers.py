"""Whose signature counts: the host keys that a machine with the master's role has reported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from deeplearning import Refusal, files, paths
from deeplearning.aws import Aws, Missing
from deeplearning.config import Config
from deeplearning.members import report, signing


def check_signature(record: dict[str, Any], config: Config, connect: Callable[[], Aws]) -> None:
    """Asks AWS only for a master that is new to this node, or whose signature fits no more."""
    master = record["published_by"]
    kept = f"{paths.STATE}/masters/{master}"
    keys = (files.text_of(kept) or "").splitlines()
    if keys and signing.verify(record, keys):
        return
    key = report.key_of(f"{config.master_role_id}:{master}")
    try:
        keys = report.read(connect(), config.bucket, key)["host_keys"]
    except Missing:
        raise Refusal(f"the member list is by {master}, which has never been this cluster's master.") from None
    if not signing.verify(record, keys):
        raise Refusal(f"the member list is not signed by the master that it names ({master}).")
    # Only root keeps them; a run asks again.
    with contextlib.suppress(PermissionError):
        files.put(kept, "".join(f"{key}\n" for key in keys))
