"""A run's folder on the shared file system: how it is created, written and read, and what moves when it is resumed.

Its files are written by a rename, so readers see them whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from deeplearning import safe_files, safe_paths
from deeplearning.config import Config
from deeplearning.contract import atomic_file, paths, schema
from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import FRAMEWORKS
from deeplearning.contract.identifiers import RUN_ID
from deeplearning.runs import checkpoints

SCHEMA = 1
EVENTS_BYTES = 1024 * 1024 * 1024
"""More than the events of a run of a year, at one every three seconds."""
CHECKPOINT_REQUEST = "checkpoint-request.json"
"""A new file of this name asks the trainer for a checkpoint, as the run is going to be stopped."""
RESULT = "result.json"
REPLACED = ("run.json", "environment.json", "state.json")
"""Files that are replaced while others read them. Other files appear once."""
MALFORMED = (KeyError, TypeError, AttributeError, ValueError, ArithmeticError)
"""What files in another form than ours cause."""
FORMER_KEYS = {"asked_by": "requested_by", "asked_at": "requested_at", "own_copy": "local_copy"}
"""Keys of run.json by the names that an earlier version wrote."""
SUBFOLDERS = ("logs", "metrics", "checkpoints", "tensorboard", "attempts")
LEAST_FREE_BYTES = 64 * 2**20


def runs_root(config: Config) -> str:
    return paths.runs(config.efs_mount, config.cluster)


def create_runs_root(config: Config) -> None:
    """Create or check the folder of this cluster's runs. Other clusters have theirs next to it, as in /tmp."""
    root = runs_root(config)
    safe_paths.shared_folder(os.path.dirname(root))
    safe_paths.own_folder(root)


def check_folder_safety(config: Config, run_id: str) -> None:
    """Raise UserError if another user could exchange the run in its folder or in its `runs_dir`."""
    create_runs_root(config)
    link = f"{runs_root(config)}/{run_id}"
    if os.path.islink(link) and os.path.isdir(link):
        safe_paths.check_path(os.readlink(link))


class Folder:
    def __init__(self, path: str, run_id: str = "") -> None:
        self.path = path
        self.id = run_id or os.path.basename(path)

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def read(self, name: str) -> dict[str, Any] | None:
        """Return None if there is no such file. Training code can write in the folder, and root reads from it too."""
        read = partial(safe_files.read, self.file(name))
        try:
            record = json.loads(atomic_file.retry_while_replaced(read) if name in REPLACED else read())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.file(name)} is not JSON ({error}).") from None
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise UserError(f"{self.file(name)} has another schema than {SCHEMA}: start a new run with this version.")
        return record

    def write(self, name: str, record: dict[str, Any], mode: int = 0o644) -> None:
        text = json.dumps({"schema": SCHEMA, **record}, indent=1)
        atomic_file.replace(self.file(name), f"{text}\n".encode(), mode)

    def exists(self) -> bool:
        try:
            atomic_file.retry_while_replaced(lambda: os.stat(self.file("run.json")))
        except OSError:
            return False
        return True

    def run(self) -> dict[str, Any]:
        record = self.read("run.json")
        if record is None:
            raise UserError(f"{self.path} has no run.json, so it is not a run: `deeplearning run list` shows all runs.")
        return {FORMER_KEYS.get(key, key): value for key, value in record.items()}

    def state(self) -> dict[str, Any]:
        return self.read("state.json") or {}

    def result(self) -> dict[str, Any] | None:
        return self.read(RESULT)

    def environment(self) -> dict[str, str]:
        """Return the variables of the option `env`. They are removed with the end of a run that cannot be resumed."""
        environment: dict[str, str] = (self.read("environment.json") or {}).get("environment", {})
        return environment

    def attempts(self) -> int:
        return sum(name.isdigit() for name in _names(self.file("attempts")))

    def checkpoints(self) -> list[str]:
        """Return the names of complete checkpoints, oldest first."""
        return checkpoints.complete(self.file("checkpoints"))

    def events(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the events with a higher number. An incomplete last line is left for the next call.

        What is no event was written by training code, and is left out.
        """
        with contextlib.suppress(FileNotFoundError):
            for line in safe_files.lines(self.file("events.jsonl"), EVENTS_BYTES):
                event = schema.json_object(line)
                if isinstance(event.get("n"), int) and event["n"] > after:
                    yield event

    def remove(self) -> None:
        # The error that prevented the run is the one to report.
        shutil.rmtree(os.path.realpath(self.path), ignore_errors=True)
        if os.path.islink(self.path):
            os.remove(self.path)

    def check_free_space(self) -> None:
        file_system = os.statvfs(self.path)
        free = file_system.f_bavail * file_system.f_frsize
        if free < LEAST_FREE_BYTES:
            raise UserError(
                f"There is no room on {self.path} for a run: {free >> 20} MiB are free, and it needs "
                f"{LEAST_FREE_BYTES >> 20} MiB. Remove runs or data that are not needed."
            )

    def archive_last_end(self) -> None:
        """Move the events and the result of an ended run next to its last attempt, and remove its state."""
        last = self.attempts() - 1
        for name in ("events.jsonl", RESULT):
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.file(name), self.file(f"attempts/{last}/{name}"))
        for name in ("stop.json", "state.json"):
            atomic_file.remove(self.file(name))


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
        if Folder(usual_path).exists():
            problem = f"There is a run {run_id} already: set another run_id, or resume it. Example: -e resume={run_id}"
        else:
            problem = (
                f"{path} exists without a run.json: a run of this id is being created, or its creation was "
                f"interrupted. Set another run_id, or remove the folder. Example: rm -r {path}"
            )
        raise UserError(problem) from None
    except OSError as error:
        raise _creation_error(path, error) from None
    return Folder(usual_path)


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


def reserved_nodes(state: Mapping[str, Any]) -> list[str]:
    """Return the nodes in the state of a run. Training code may have written something else there."""
    nodes = state.get("nodes")
    return [node for node in nodes if isinstance(node, str)] if isinstance(nodes, list) else []


def find_run(config: Config, run_id: str) -> Folder:
    folder = Folder(f"{runs_root(config)}/{run_id}")
    if "/" in run_id or not folder.exists():
        known = ", ".join(each.id for each in all_runs(config)[-5:])
        raise UserError(f"There is no run {run_id}. {f'The latest are {known}.' if known else 'There is none at all.'}")
    return folder


def unfinished_frameworks(config: Config) -> list[dict[str, Any]]:
    """Return the frameworks that runs without a result use from this collection's environments, and the runs.

    `processor`: all of them train on the processor. The packages for GPUs serve other runs as well.
    Runs that cannot be read do not count: a machine that joins must not fail because of them.
    """
    runs: dict[str, dict[str, bool]] = {}
    for folder in runs_without_result(config):
        with contextlib.suppress(UserError, OSError, KeyError):
            run = folder.run()
            name = run["framework"]
            if run["cluster_id"] == config.cluster_id and uses_our_environment(run):
                runs.setdefault(name, {})[folder.id] = bool(run.get("processor"))
    return [
        {"framework": name, "runs": sorted(runs[name]), "processor": all(runs[name].values())} for name in sorted(runs)
    ]


def uses_our_environment(run: Mapping[str, Any]) -> bool:
    """Return whether a run's record, which training code can write, names an environment of this collection."""
    name = run["framework"]
    return name in FRAMEWORKS and run["python"] == f"{paths.ENVIRONMENTS}/{name}/bin/python"


def runs_without_result(config: Config) -> Iterator[Folder]:
    """Yield the folders of runs that have not ended. They may be unreadable."""
    for folder in _folders(config):
        with contextlib.suppress(OSError):
            if not is_listed(folder.file(RESULT)):
                yield folder


def all_runs(config: Config) -> list[Folder]:
    """Return the runs of this cluster that can be read, oldest first. Training code can write in their folders."""
    runs = []
    for folder in _folders(config):
        if folder.exists():
            with skip_unreadable(folder):
                runs.append((str(folder.run()["requested_at"]), folder.id, folder))
    return [folder for _time, _id, folder in sorted(runs, key=lambda item: item[:2])]


def print_reason(reason: str) -> None:
    print(f"deeplearning: {reason}", file=sys.stderr)


@contextlib.contextmanager
def expected_form(folder: Folder) -> Iterator[None]:
    """Raise UserError in place of what files in another form than ours cause: training code can write them."""
    try:
        yield
    except MALFORMED as error:
        raise UserError(f"the files in {folder.path} are not in the expected form ({error!r})") from None


@contextlib.contextmanager
def skip_unreadable(folder: Folder, report: Callable[[str], None] = print_reason) -> Iterator[None]:
    """Report why a run cannot be read, instead of raising that: other runs must not suffer from one."""
    try:
        with expected_form(folder):
            yield
    except (UserError, OSError) as error:
        report(str(error))


def newest_runs(config: Config, count: int) -> list[Folder]:
    """Return the runs whose folders changed last, oldest first. They may be unreadable."""
    changed = []
    for folder in _folders(config):
        with contextlib.suppress(OSError):
            changed.append((os.stat(folder.path).st_mtime, folder.id, folder))
    return [folder for _time, _id, folder in sorted(changed, key=lambda item: item[:2])[-count:]]


def _folders(config: Config) -> list[Folder]:
    root = runs_root(config)
    if not is_listed(os.path.dirname(root)) or not is_listed(root):
        return []
    return [Folder(f"{root}/{name}") for name in _names(root) if re.fullmatch(RUN_ID, name)]


def is_listed(path: str) -> bool:
    """Return whether a path exists. NFS remembers for half a minute that a name was missing, but not what it lists."""
    return os.path.basename(path) in _names(os.path.dirname(path))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
