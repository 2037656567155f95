"""The copy of a run's data set on this node's own disk. A machine in the place of a lost one makes it again."""

from __future__ import annotations

from typing import Any

from deeplearning.contract import paths
from deeplearning.data import staging
from deeplearning.runs import units


def make_if_missing(run: dict[str, Any]) -> tuple[str, str]:
    """Return what the node is doing and its problem, each a part of a sentence, and both empty if the copy is there.

    A copy takes longer than a survey, so a unit of its own makes it, and the next survey asks again.
    """
    own_copy = run.get("own_copy")
    if not own_copy:
        return "", ""
    data = own_copy["data"]
    if staging.has_own_copy(data):
        return "", ""
    argv = [paths.PROGRAM, "data", "stage", data, "--on", "node"]
    argv += ["--bucket", own_copy["bucket"], "--from", own_copy["source"]]
    problem = units.run_once(f"deeplearning-copy-{run['run_id']}.service", argv)
    if problem:
        return "", f"{data} cannot be copied to its disk: {problem}"
    return f"{data} is copied to its disk", ""
