"""Code that is sent with a request: unpacked next to the runs, until the run that is created takes it over."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from deeplearning.config import Config
from deeplearning.contract import run_request
from deeplearning.contract.errors import UserError
from deeplearning.programs import last_line
from deeplearning.runs.folder import runs_root
from deeplearning.runs.layout import create_incoming

KEEP_SECONDS = 3600.0


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
            shutil.rmtree(entry.path, ignore_errors=True)
