"""Before the machines end at a scheduled time, runs save a checkpoint and stop. The next master resumes them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence

from deeplearning.config import Config
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.schema import format_time
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.run import identity, units
from deeplearning.run.folder import CHECKPOINT_REQUEST, Folder, find_run
from deeplearning.run.unit import recover

CHECKPOINT_SECONDS, STOP_SECONDS = 300.0, 120.0
"""Before the end: when runs are asked for a checkpoint, and when they are stopped."""
FILES_SECONDS = 10.0


def prepare(config: Config, seconds_left: float | None, run_ids: Sequence[str]) -> None:
    """Do what is due so long before the end. `run_ids`: the active runs."""
    folders = _folders(config, run_ids)
    if seconds_left is None or seconds_left > CHECKPOINT_SECONDS:
        for folder in folders:
            if _is_asked(folder):
                _as_user(config, folder, lambda asked: atomic_file.remove(asked.file(CHECKPOINT_REQUEST)))
        if atomic_file.remove(paths.STOPPED_RUNS):
            # The end was postponed after the runs had been stopped.
            recover(config)
        return
    for folder in folders:
        if not _is_asked(folder):
            _as_user(config, folder, lambda asked: asked.write(CHECKPOINT_REQUEST, {"requested": format_time()}))
    if folders and seconds_left <= STOP_SECONDS:
        # Without a request in its folder, a run that is stopped is resumed later.
        atomic_file.write_if_changed(paths.STOPPED_RUNS, "\n".join(run_ids))
        units.control("stop", *(units.supervisor_unit(folder.id) for folder in folders))


def _is_asked(folder: Folder) -> bool:
    return os.path.lexists(folder.file(CHECKPOINT_REQUEST))


def _as_user(config: Config, folder: Folder, change: Callable[[Folder], object]) -> None:
    """Change a run's folder as the cluster's user. It may be a link of this user's to where only root may write."""

    def changed() -> None:
        identity.become(config.user)
        change(folder)

    try:
        within(FILES_SECONDS, changed)
    except (OSError, DeadlineExceeded) as error:
        reason = str(error) or "it did not work in time"
        print(f"run {folder.id} cannot be asked for a checkpoint: {reason}", file=sys.stderr)


def _folders(config: Config, run_ids: Sequence[str]) -> list[Folder]:
    folders = []
    for run_id in run_ids:
        # The folder of a run may have been removed.
        with contextlib.suppress(UserError):
            folders.append(find_run(config, run_id))
    return folders
