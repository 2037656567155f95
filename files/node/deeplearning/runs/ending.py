"""Before the machines end at a scheduled time, runs save a checkpoint and stop. The next master resumes them."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Collection, Sequence

from deeplearning import identity
from deeplearning.config import Config
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import DEFAULT_STOP_SECONDS, stop_seconds
from deeplearning.contract.schema import format_time
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.runs import units
from deeplearning.runs.folder import CHECKPOINT_REQUEST, Folder, find_run
from deeplearning.runs.unit import recover

CHECKPOINT_SECONDS, STOP_SECONDS = 300.0, 120.0
"""Before the end: when a run is asked for a checkpoint, and when it is stopped. One that has longer than by default to
save then gets both earlier."""
FILES_SECONDS = 10.0


def prepare(config: Config, seconds_left: float | None, run_ids: Sequence[str]) -> None:
    """Do what is due so long before the end. `run_ids`: the active runs."""
    to_stop = []
    for folder in _folders(config, run_ids):
        left = _seconds_left(folder, seconds_left)
        is_asked = os.path.lexists(folder.file(CHECKPOINT_REQUEST))
        if is_asked and left > CHECKPOINT_SECONDS:
            _as_user(config, folder, lambda asked: atomic_file.remove(asked.file(CHECKPOINT_REQUEST)))
        elif not is_asked and left <= CHECKPOINT_SECONDS:
            _as_user(config, folder, lambda asked: asked.write(CHECKPOINT_REQUEST, {"requested": format_time()}))
        if left <= STOP_SECONDS:
            to_stop.append(folder.id)
    stopped = (atomic_file.read_or_none(paths.STOPPED_RUNS) or "").split()
    if to_stop:
        # Without a request in its folder, a run that is stopped is resumed later.
        _keep_stopped({*stopped, *to_stop})
        units.control("stop", *map(units.supervisor_unit, to_stop), options=["--no-block"])
    elif stopped and all(_seconds_left(each, seconds_left) > CHECKPOINT_SECONDS for each in _folders(config, stopped)):
        # The end was postponed after runs had been stopped. One that still saves is resumed after that.
        recover(config)
        _keep_stopped({*stopped} & {*run_ids})


def _seconds_left(folder: Folder, seconds_left: float | None) -> float:
    """Return the seconds before the end, less those that this run has to save in addition to the default."""
    if seconds_left is None:
        return math.inf
    with contextlib.suppress(UserError, OSError):
        return seconds_left + DEFAULT_STOP_SECONDS - stop_seconds(folder.run())
    return seconds_left


def _keep_stopped(run_ids: Collection[str]) -> None:
    if run_ids:
        atomic_file.write_if_changed(paths.STOPPED_RUNS, "\n".join(sorted(run_ids)))
    else:
        atomic_file.remove(paths.STOPPED_RUNS)


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
