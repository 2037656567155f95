"""Before a long run, on the master: a short one of the same framework and distribution, over all nodes that train."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from deeplearning.health import bandwidth, judging
from deeplearning.health.judging import Check
from deeplearning.members.reading import Members
from deeplearning.paths import TRAINERS

SECONDS = 300
# A parameter server adds up in its own way and at its own time: the nodes' way to each other is tried by the other one.
STANDS_FOR = {"parameter_server": "multi_worker_mirrored"}


def checks(members: Members, framework: str, distribution: str, token: str) -> list[Check]:
    run_id = f"preflight-{token.lower()}"
    request = {
        "run_id": run_id,
        "framework": framework,
        "distribution": STANDS_FOR.get(distribution, distribution) or None,
        "script": f"{TRAINERS}/preflight.py",
        "max_restarts": 0,
        "busy": "refuse",
        "asked_by": "health",
    }
    created = _run(["create"], json.dumps(request))
    if created.returncode:
        return [Check("all-reduce", False, _last(created), "refused")]
    folder = Path(json.loads(created.stdout)["run_dir"])
    space = judging.space(shutil.disk_usage(folder).free)
    try:
        summed = _all_reduce(folder, run_id, members)
    finally:
        _run(["stop", run_id])
    if summed.ok:
        shutil.rmtree(folder)
    return [summed, space]


def _all_reduce(folder: Path, run_id: str, members: Members) -> Check:
    due = min((bandwidth.floor(member.instance_type) for member in members.training), default=0.0)
    try:
        ended = _run(["start", run_id]).returncode or _run(["wait", run_id]).returncode
    except subprocess.TimeoutExpired:
        return Check("all-reduce", False, f"it had not ended after {SECONDS} s: see {folder}/logs", "failed")
    said = _record(folder / "preflight.json")
    if not said or (ended and said["right"]):
        sentence = _record(folder / "result.json").get("sentence", "it did not start")
        return Check("all-reduce", False, f"{sentence}: see {folder}/logs", "failed")
    return judging.all_reduce(said["right"], said["ranks"], said["gbits"], due if said["ranks"] > 1 else 0)


def _record(file: Path) -> dict[str, Any]:
    """What is there, if it is there."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _run(words: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["deeplearning", "run", *words], input=given, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def _last(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or ["deeplearning run create failed"])[-1]
