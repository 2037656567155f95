"""The proof that PyTorch uses the node's GPUs, and the sentences that it ends in if it cannot."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning.contract import gpu_proof

from tests import debian
from tests.gpu.session import SCRIPTS, Session, gpus
from tests.steps import Failed, require

OLD_CUDA = "11.4"
"""That the stub of the driver's library runs at most: older than PyTorch needs."""
SECONDS = 120.0


@dataclass(frozen=True)
class Case:
    name: str
    sentence: str
    """Words of the sentence on a machine with a GPU; empty if the proof succeeds there."""
    without_cuda: str = "CUDA of torch: none"
    """Words of the sentence with a build for processors."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the user gives the run."""
    libraries: Path | None = None
    """Where the loader looks first."""


def run(session: Session) -> str:
    """Return what was proved."""
    cases = (
        Case("as it is", ""),
        Case("no GPU visible", "CUDA_VISIBLE_DEVICES", variables={"CUDA_VISIBLE_DEVICES": ""}),
        Case("a wrong uuid", "CUDA_VISIBLE_DEVICES", variables={"CUDA_VISIBLE_DEVICES": "GPU-00000000"}),
        Case("an old driver", f"the driver runs CUDA {OLD_CUDA} at most", libraries=old_driver(session)),
    )
    # One after the other they would import PyTorch for a long time, and two processors do no more at once.
    with ThreadPoolExecutor(2) as executor:
        sentences = list(executor.map(lambda case: prove(session, case), cases))
    for case, sentence in zip(cases, sentences, strict=True):
        expected = case.without_cuda if session.on_processor else case.sentence
        if not expected:
            require(not sentence, f"{case.name}: {sentence}")
        elif expected not in sentence:
            raise Failed(f"{case.name}: the sentence has no {expected!r}: {sentence or 'the proof succeeded'}")
    refused = len(cases) if session.on_processor else len(cases) - 1
    return f"{len(cases) - refused} proved, {refused} refused in one sentence: {sentences[-1]}"


def prove(session: Session, case: Case) -> str:
    count = 1 if session.on_processor else len(gpus()[0])
    node = gpu_proof.NodeGpus(
        "pytorch", session.python, count, driver=gpu_proof.driver_version(), variables=case.variables
    )
    environment = {**os.environ, **case.variables}
    if case.libraries:
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(
            filter(None, (str(case.libraries), os.environ.get("LD_LIBRARY_PATH")))
        )
    return gpu_proof.problem_of(node, gpu_proof.prove(node, environment, SECONDS))


def old_driver(session: Session) -> Path:
    """Compile a stub of the driver's library, and return its folder."""
    compiler = debian.installed_program("cc", "gcc", "libc6-dev")
    folder = session.work("old-driver")
    words = [compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(SCRIPTS / "old_driver.c")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    require(not done.returncode, f"old_driver.c cannot be compiled: {done.stderr.strip()}")
    return folder
