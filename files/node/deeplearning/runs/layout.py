"""The layout of a run's folder: what is created with a run, and what is moved away when it is resumed."""

from __future__ import annotations

import contextlib
import os
import shutil

from deeplearning import safe_paths
from deeplearning.config import Config
from deeplearning.contract.errors import UserError
from deeplearning.runs.folder import Folder, create_runs_root, runs_root

SUBFOLDERS = ("logs", "metrics", "checkpoints", "tensorboard", "attempts")
LEAST_FREE_BYTES = 64 * 2**20


def create_folder(run_id: str, runs_dir: str | None, config: Config) -> Folder:
    """Create a run's folder, in `runs_dir` with a link in the usual place if that is set."""
    usual_path = f"{runs_root(config)}/{run_id}"
    path = f"{runs_dir}/{run_id}" if runs_dir else usual_path
    try:
        create_runs_root(config)
        if runs_dir:
            safe_paths.check_path(runs_dir, create=True)
            if os.path.lexists(usual_path) or os.path.lexists(path):
                raise FileExistsError
        os.mkdir(path)
        if runs_dir:
            os.symlink(path, usual_path)
        for name in SUBFOLDERS:
            os.mkdir(f"{path}/{name}")
    except FileExistsError:
        raise _name_conflict(Folder(usual_path), path) from None
    except OSError as error:
        raise _creation_error(path, error) from None
    return Folder(usual_path)


def _name_conflict(folder: Folder, path: str) -> UserError:
    if folder.exists():
        return UserError(
            f"There is a run {folder.id} already: set another run_id, or resume it. Example: -e resume={folder.id}"
        )
    return UserError(
        f"{path} exists without a run.json: a run of this id is being created, or its creation was interrupted. Set "
        f"another run_id, or remove the folder. Example: rm -r {path}"
    )


def _creation_error(path: str, error: OSError) -> UserError:
    return UserError(f"{path} cannot be created: {error.strerror}. Is EFS mounted, and is there room on it?")


def create_incoming(path: str, config: Config) -> None:
    """Create or check the folder that scripts are sent into, inside the folder that runs are created in."""
    parent = os.path.dirname(path)
    try:
        create_runs_root(config)
        if parent != runs_root(config):
            safe_paths.check_path(parent, create=True)
        safe_paths.own_folder(path, mode=0o700)
    except OSError as error:
        raise _creation_error(path, error) from None


def remove_folder(folder: Folder) -> None:
    shutil.rmtree(os.path.realpath(folder.path), ignore_errors=True)
    if os.path.islink(folder.path):
        os.remove(folder.path)


def check_free_space(folder: Folder) -> None:
    file_system = os.statvfs(folder.path)
    free = file_system.f_bavail * file_system.f_frsize
    if free < LEAST_FREE_BYTES:
        raise UserError(
            f"There is no room on {folder.path} for a run: {free >> 20} MiB are free, and it needs "
            f"{LEAST_FREE_BYTES >> 20} MiB. Remove runs or data that are not needed."
        )


def archive_last_end(folder: Folder) -> None:
    """Move the events and the result of an ended run next to its last attempt, and remove its state."""
    last = folder.attempts() - 1
    for name in ("events.jsonl", "result.json"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder.file(name), folder.file(f"attempts/{last}/{name}"))
    for name in ("stop.json", "state.json"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(folder.file(name))
