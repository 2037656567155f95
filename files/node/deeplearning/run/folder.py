"""A run's folder on the shared file system: what is where, written whole and read whole."""

from __future__ import annotations

import calendar
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from deeplearning import Refusal, files
from deeplearning.config import Config

SCHEMA = 1
RUN_ID = r"[a-z0-9][a-z0-9._-]{0,47}"
REPLACED = ("run.json", "environment.json", "state.json")
"""Written again while others read them. Other files appear once."""


def runs_root(config: Config) -> str:
    return f"{config.efs_mount}/runs/{config.cluster}"


def own_root(config: Config) -> None:
    """Create or check the folder of this cluster's runs. Other clusters have theirs next to it, as in /tmp."""
    root = runs_root(config)
    files.shared_folder(os.path.dirname(root))
    files.own_folder(root)


def check_place(config: Config, run_id: str) -> None:
    """Refuse folders in which another user could exchange the run, also those of its `runs_dir`."""
    own_root(config)
    link = f"{runs_root(config)}/{run_id}"
    if os.path.islink(link) and os.path.isdir(link):
        files.check_path(os.readlink(link))


class Folder:
    def __init__(self, path: str, run_id: str = "") -> None:
        self.path = path
        self.id = run_id or os.path.basename(path)

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def read(self, name: str) -> dict[str, Any] | None:
        """None if there is no such file."""
        try:
            record = files.settled(lambda: self._loaded(name)) if name in REPLACED else self._loaded(name)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Refusal(f"{self.file(name)} is no JSON ({error}).") from None
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise Refusal(f"{self.file(name)} was written by another version: it has not schema {SCHEMA}.")
        return record

    def _loaded(self, name: str) -> Any:
        with open(self.file(name), encoding="utf-8") as file:
            return json.load(file)

    def write(self, name: str, record: dict[str, Any], mode: int = 0o644) -> None:
        """Whole or not at all, for readers on other nodes too."""
        new = self.file(f".{name.replace('/', '-')}.new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, **record}, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, self.file(name))

    def is_there(self) -> bool:
        try:
            files.settled(lambda: os.stat(self.file("run.json")))
        except OSError:
            return False
        return True

    def run(self) -> dict[str, Any]:
        record = self.read("run.json")
        if record is None:
            raise Refusal(f"{self.path} has no run.json: it is no run's folder.")
        return record

    def state(self) -> dict[str, Any]:
        return self.read("state.json") or {}

    def result(self) -> dict[str, Any] | None:
        return self.read("result.json")

    def attempts(self) -> int:
        try:
            return sum(name.isdigit() for name in os.listdir(self.file("attempts")))
        except FileNotFoundError:
            return 0

    def checkpoints(self) -> list[str]:
        """Whole ones: a name that begins with a dot is one in the making."""
        try:
            return sorted(name for name in os.listdir(self.file("checkpoints")) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def events(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Those that are there: the last line may be in the making."""
        try:
            with open(self.file("events.jsonl"), encoding="utf-8") as file:
                for line in file:
                    if line.endswith("\n") and (event := json.loads(line))["n"] > after:
                        yield event
        except FileNotFoundError:
            return


def existing(config: Config, run_id: str) -> Folder:
    folder = Folder(f"{runs_root(config)}/{run_id}")
    if "/" in run_id or not folder.is_there():
        known = ", ".join(each.id for each in all_runs(config)[-5:])
        raise Refusal(f"There is no run {run_id}. {f'The latest are {known}.' if known else 'There is none at all.'}")
    return folder


def all_runs(config: Config) -> list[Folder]:
    """Oldest first."""
    root = runs_root(config)
    try:
        folders = [Folder(f"{root}/{name}") for name in os.listdir(root) if re.fullmatch(RUN_ID, name)]
    except FileNotFoundError:
        return []
    there = [folder for folder in folders if folder.is_there()]
    return sorted(there, key=lambda folder: (folder.run()["asked_at"], folder.id))


def seconds(moment: str) -> float:
    return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))


def moment(seconds: float | None = None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
