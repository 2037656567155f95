"""The copy of a run's data set on this node's own disk. A machine in the place of a lost one makes it again."""

from __future__ import annotations

from typing import Any

from deeplearning import programs
from deeplearning.contract import paths
from deeplearning.datasets import staging
from deeplearning.run.identity import as_root


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
    unit = f"deeplearning-copy-{run['run_id']}.service"
    state = programs.run("systemctl", "show", "--value", "--property=ActiveState", unit).stdout.strip()
    if state == "failed":
        printed = programs.run(*as_root("journalctl", "--output=cat", f"_SYSTEMD_UNIT={unit}")).stdout
        # The next start of the run tries again.
        programs.run(*as_root("systemctl", "reset-failed", unit))
        return "", f"{data} cannot be copied to its disk: {programs.last_line(printed)}"
    if state not in ("active", "activating"):
        words = [paths.PROGRAM, "data", "stage", data, "--on", "node"]
        words += ["--bucket", own_copy["bucket"], "--from", own_copy["source"]]
        started = programs.run(*as_root("systemd-run", "--quiet", f"--unit={unit}", *words))
        if started.returncode:
            return "", f"{data} cannot be copied to its disk: {programs.last_line(started.stderr)}"
    return f"{data} is copied to its disk", ""
