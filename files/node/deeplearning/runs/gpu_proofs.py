"""The proofs that frameworks use this node's GPUs (see gpu_proof.py in the contract), kept until the next boot."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from deeplearning.contract import atomic_file, gpu_proof, paths, schema
from deeplearning.contract.errors import UserError
from deeplearning.gpus import nvml
from deeplearning.runs import units
from deeplearning.runs.folder import Folder
from deeplearning.safe_paths import json_object

NAME = "gpu-proofs"
PROOF = {"problem": schema.string, "run": schema.string}
UNIT_SECONDS = gpu_proof.SECONDS + nvml.SECONDS + 60


def require(run: dict[str, Any], folder: Folder, python: str, gpus: int) -> None:
    """Raise Preparing or Unfit if this node has no proof.

    The import of a framework takes longer than a survey, so a unit of its own makes the proof, as the run's user.
    """
    if not gpus or run.get("processor"):
        return
    key = key_of(run, folder, python, gpus)
    proof = _read(key)
    if proof and not proof["problem"]:
        return
    # What another run has found may be repaired by now.
    if proof and proof["run"] == start_of(run):
        raise units.Unfit(proof["problem"])
    units.prepare(
        f"deeplearning-gpus-{run['run_id']}.service",
        [paths.PROGRAM, "run", "prove", folder.path, python, str(gpus), key],
        f"its GPUs are tested with {run['framework']}",
        f"its GPUs cannot be tested with {run['framework']}",
        f"--uid={os.geteuid()}",
        f"--property=RuntimeDirectory={Path(paths.RUNTIME).name}/{NAME}",
        "--property=RuntimeDirectoryPreserve=yes",
        f"--property=RuntimeMaxSec={UNIT_SECONDS:g}",
    )


def key_of(run: dict[str, Any], folder: Folder, python: str, gpus: int) -> str:
    """Return a name for what a proof is about. What the user brings may change, so its proof is of one run alone."""
    is_ours = paths.is_in_environment(python)
    brings = [] if is_ours and not folder.environment() else [start_of(run)]
    marker = atomic_file.read_or_none(str(Path(python).parents[1] / paths.MARKER)) if is_ours else None
    facts = [run["framework"], python, marker, gpus, gpu_proof.driver_version(), brings]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def main(argv: list[str]) -> None:
    """Make a proof, and write what it has shown: `deeplearning run prove FOLDER PYTHON GPUS KEY`."""
    path, python, gpus, key = argv
    folder = Folder(path)
    run, own, driver = folder.run(), folder.environment(), gpu_proof.driver_version()
    is_own = not paths.is_in_environment(python)
    node = gpu_proof.NodeGpus(run["framework"], python, int(gpus), driver, variables=own, own_python=is_own)
    # As the wrapper sets it for the run's processes.
    search = f"{os.path.dirname(python)}:{os.environ.get('PATH', os.defpath)}"
    answer = gpu_proof.prove(node, {**os.environ, "PATH": search, **own})
    problem = gpu_proof.problem_of(node, answer)
    if problem:
        mig = tuple(gpu.index for gpu in nvml.read().gpus if gpu.mig)
        problem = gpu_proof.problem_of(replace(node, mig=mig), answer)
    os.makedirs(os.path.dirname(_file(key)), exist_ok=True)
    # Without reading what is there: training code may have put a pipe or a link in its place.
    atomic_file.replace(_file(key), json.dumps({"problem": problem, "run": start_of(run)}).encode())
    print(problem or "nothing is wrong", file=sys.stderr)


def _read(key: str) -> dict[str, Any]:
    """Return a proof; empty if it is missing or malformed. Training code may write in the folder of the run's user."""
    try:
        return schema.validate_part(json_object(Path(_file(key))), PROOF, "the proof")
    except UserError:
        return {}


def start_of(run: dict[str, Any]) -> str:
    """Return what differs between two runs, and between a run and the same one after it was resumed."""
    return f"{run['run_id']} {run['requested_at']}"


def _file(key: str) -> str:
    return f"{paths.RUNTIME}/{NAME}/{key}.json"
