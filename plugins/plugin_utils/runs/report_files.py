# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The files of runs that a report needs: how a node is asked for them, and where they are put on this machine."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...module_utils.contract.identifiers import RUN_ID
from . import node_files

FILES = ("run.json", "result.json", "state.json")
METRICS = "metrics/rank[0-9]{1,5}[.]jsonl"
_FILE = re.compile(rf"(?P<run>{RUN_ID})/(?:{'|'.join(map(re.escape, FILES))}|{METRICS})")

MOST_PACKED = 128 << 20
MOST_UNPACKED = 1 << 30
"""Of all runs of a report."""
LARGEST_FILE = 32 << 20
SECONDS = 600.0


def collect_command(root: str, runs: Sequence[str]) -> str:
    """Return the shell command that prints the files of some runs."""
    metrics = f"find -L metrics -maxdepth 1 -type f -regextype posix-extended -regex {shlex.quote(METRICS)}"
    commands = [node_files.functions(LARGEST_FILE)]
    for run in runs:
        folder = f"{root}/{run}"
        listing = f"cd {shlex.quote(folder)} && {{ ls -d {' '.join(FILES)}; {metrics}; }} 2>/dev/null"
        commands.append(node_files.send_each(listing, folder, f"{run}/"))
    return "\n".join(commands)


def write(lines: Iterable[str], runs: Sequence[str], folder: Path) -> None:
    """Replace the folder. Raise InvalidValue for more than is expected."""
    if folder.exists():
        shutil.rmtree(folder)
    for name, content in node_files.read(lines, lambda name: _run_of(name) in runs, LARGEST_FILE, MOST_UNPACKED):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _run_of(name: str) -> str:
    file = _FILE.fullmatch(name)
    return file["run"] if file else ""
