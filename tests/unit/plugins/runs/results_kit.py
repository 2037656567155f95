"""A run on a master that is this machine: the node's own program lists and sends its files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program

NODE = Path(__file__).resolve().parents[4] / "files/node"
PROGRAM = """#!{python}
import json, sys
sys.path.insert(0, {node!r})
from deeplearning.contract import run_files
from deeplearning.runs import results
from deeplearning.runs.folder import Folder
results.state_of = lambda folder: {state!r}
action, run_id, *what = sys.argv[2:]
run = Folder({runs!r} + "/" + run_id)
if action == "files":
    print(json.dumps(results.listing(run, *what)))
else:
    results.send(run, run_files.requested(sys.stdin.read()), sys.stdout.buffer)
"""
"""The commands of the node's program, of runs in a folder of this machine."""
MODEL = {
    "model.pt": b"weights" * 500_000,
    "config.json": b"{}",
    "variables/v.data-00000-of-00001": b"",
    "a b": b"x",
}


def program_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the node's program."""
    file = tmp_path / "deeplearning"
    monkeypatch.setattr(node_program, "PROGRAM", str(file))
    return file


def install(program: Path, text: str) -> None:
    program.write_text(text)
    program.chmod(0o755)


def run_in(tmp_path: Path, program: Path) -> Path:
    """Return the folder of a run on the master."""
    folder = tmp_path / "efs/r1"
    write(folder / "model", MODEL)
    values = {"python": sys.executable, "node": str(NODE), "runs": str(folder.parent), "state": "finished"}
    install(program, PROGRAM.format(**values))
    return folder


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def here(files: dict[str, bytes], place: str = "model") -> dict[str, bytes]:
    return {f"{place}/{name}": content for name, content in files.items()}


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if not path.is_dir()}
