"""Read the state of this node's GPUs from NVIDIA's library, within a time limit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from deeplearning import programs
from deeplearning.contract import bounded_program
from deeplearning.gpus.reading import Gpu, Reading

SECONDS = 60.0
"""Without the persistence daemon, the driver initializes the GPUs first: up to 30 s for eight."""
ANSWER_SECONDS = 30.0
"""For those who have to answer the master, which waits for 40 s."""
QUERY = Path(__file__).with_name("query.py")


def read(seconds: float = SECONDS) -> Reading:
    """Return what NVML reports; a reading with an error if it fails or does not answer in time."""
    command = [sys.executable, "-IS", str(QUERY)]
    try:
        done = bounded_program.run(command, seconds)
    except subprocess.TimeoutExpired:
        return Reading(error=f"NVIDIA's library gives no answer within {seconds:g} s")
    except bounded_program.TooMuchOutput as error:
        return Reading(error=f"the process that uses NVIDIA's library {error}")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        reason = programs.last_line(done.stderr, f"code {done.returncode}")
        return Reading(error=f"NVIDIA's library has ended the process that uses it: {reason}")
    gpus = [Gpu(**{**fields, "processes": tuple(fields.get("processes", ()))}) for fields in answer.get("gpus", ())]
    return Reading(**{**answer, "gpus": tuple(gpus)})
