"""A run's script: the example trainer, a file on the master, or a file of code that was sent.

Code that is sent with a request is unpacked next to the runs, until the run that is created takes it over.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from deeplearning.config import Config
from deeplearning.contract import paths, run_request
from deeplearning.contract.errors import UserError
from deeplearning.programs import last_line
from deeplearning.runs.folder import Folder, create_incoming, runs_root

FASTERRCNN = f"{paths.TRAINERS}/fasterrcnn.py"
CODE = "code"
"""The folder of a run that holds code which was sent."""
KEEP_SECONDS = 3600.0


def example_trainer(framework: str) -> str:
    return f"{paths.TRAINERS}/cifar10_{framework}.py"


@contextlib.contextmanager
def receive(request: Any, config: Config) -> Iterator[dict[str, Any]]:
    """Unpack the tar.gz on standard input. Yield the request with the folder as its `code`."""
    runs_dir = run_request.validate(request).get("runs_dir") or runs_root(config)
    folder = f"{runs_dir}/.incoming"
    create_incoming(folder, config)
    _remove_leftovers(folder)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        code = f"{temporary}/code"
        os.mkdir(code)
        argv = ["tar", "-xzf", "-", "--no-same-owner", "-C", code]
        unpacked = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False)
        if unpacked.returncode:
            reason = last_line(unpacked.stderr, f"tar ended with {unpacked.returncode}")
            raise UserError(f"The code on standard input cannot be unpacked in {folder}: {reason}.")
        yield {**request, "code": code}


def _remove_leftovers(folder: str) -> None:
    """Remove what processes that were killed have left."""
    for entry in os.scandir(folder):
        if entry.stat(follow_symlinks=False).st_mtime < time.time() - KEEP_SECONDS:
            # What cannot be removed is tried again with the next run, and stops none.
            shutil.rmtree(entry.path, ignore_errors=True)


def install(folder: Folder, request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Put code that was sent into the run's folder. Return the script's path and its version."""
    script = request.get("script") or example_trainer(request["framework"])
    code = folder.file(CODE)
    if "code" in request:
        incoming = request["code"]
        if not os.path.isdir(incoming):
            raise UserError(f"code is {incoming}, and there is no such folder on the master: send the script again.")
        if not os.path.isfile(f"{incoming}/{script}"):
            raise UserError(f"script is {script}, and the folder that was copied has no such file.")
        os.rename(incoming, code)
        return f"{code}/{script}", {**hashed(code), **request.get("repository", {})}
    if not script.startswith("/"):
        raise UserError("script is no absolute path: train.yml sends scripts of other machines and of repositories.")
    return check(script), hashed(script)


def hashed(path: str) -> dict[str, Any]:
    """Return the SHA-256 of a file, or of all files under a folder with their names."""
    total = hashlib.sha256()
    if os.path.isfile(path):
        _add(total, path)
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            file = os.path.join(folder, name)
            total.update(os.path.relpath(file, path).encode() + b"\0")
            if os.path.isfile(file):
                _add(total, file)
    return {"sha256": total.hexdigest()}


def _add(total: hashlib._Hash, path: str) -> None:
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            total.update(block)


def check(path: str) -> str:
    """Return the path of a script that can be started."""
    if not os.path.isfile(path):
        raise UserError(f"script is {path}, and there is no such file on the master.")
    if not path.endswith((".py", ".sh")) and not os.access(path, os.X_OK):
        raise UserError(f"script is {path}, which is neither .py nor .sh, and cannot be executed: chmod +x it.")
    return path


def check_processes(script: str, count: int) -> None:
    """Raise UserError if a script of the collection cannot train with this number of workers."""
    if script == FASTERRCNN and count % 8 and 8 % count:
        raise UserError(
            f"{count} processes would train, and TensorPack's FasterRCNN trains with 1, 2, 4 or a multiple of 8: set "
            "nodes or processes_per_node. Example: -e nodes=2"
        )


def is_same(folder: Folder, run: dict[str, Any], request: dict[str, Any]) -> bool:
    """Return True if a request means the script and the code that a run was created with."""
    script = request.get("script") or example_trainer(request["framework"])
    if "code" in request:
        script, version = folder.file(f"{CODE}/{script}"), hashed(request["code"])
        repository = request.get("repository", {})
        version |= repository
        # A branch may have moved since.
        if repository and all(run["code"].get(key) == repository[key] for key in ("url", "ref")):
            version = run["code"]
    else:
        version = hashed(script)
    return bool(run["script"] == script and run["code"] == version)


def command(run: dict[str, Any]) -> list[str]:
    """Return the words that start a run's script, without its arguments."""
    python, script = run["python"], run["script"]
    # A run of an earlier version has no such key.
    if run.get("as_module"):
        file = os.path.relpath(script, working_folder(script))
        return [python, "-m", file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")]
    if script.endswith(".py"):
        return [python, script]
    return ["/bin/bash", script] if script.endswith(".sh") else [script]


def arguments(run: dict[str, Any]) -> list[str]:
    """Return the script's arguments. The example trainers also get the paths of data and run."""
    is_example = run["script"].startswith(f"{paths.TRAINERS}/")
    return [*(["--data-dir", "{data}", "--run-dir", "{run}"] if is_example else []), *run["script_args"]]


def working_folder(script: str) -> str:
    """Return the root of the code in a run's folder, of this run or of the one that it evaluates; or of the script."""
    roots = (str(parent) for parent in reversed(PurePath(script).parents) if parent.name == CODE)
    return next((root for root in roots if os.path.isfile(f"{root}/../run.json")), os.path.dirname(script))
