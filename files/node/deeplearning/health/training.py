"""On the master: a short run of the same framework and distribution as a planned one, on all nodes that train."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeplearning import programs, safe_files
from deeplearning.contract.errors import UserError
from deeplearning.contract.paths import TRAINERS
from deeplearning.health import bandwidth, checks, pairs, probes
from deeplearning.health.checks import Check
from deeplearning.members.member_list import Member, Members

SECONDS = 300
PREFLIGHT_SECONDS = 60
"""The limit before a run, which waits for it. When it is exceeded, the all-reduce fails."""
# Parameter servers do not reduce over all ranks: the network between nodes is tested by the other distribution.
REPLACEMENTS = {"parameter_server": "multi_worker_mirrored"}


def run_checks(
    members: Members,
    framework: str,
    distribution: str,
    token: str,
    user: str,
    nodes: Sequence[str] = (),
    preflight: bool = False,
    processor: bool = False,
) -> list[Check]:
    """Check the nodes, or all that train.

    `preflight`: a run is about to start. It says itself why it is refused, and the checks have less time.
    `processor`: train on the processors of nodes with GPUs.
    """
    limit = PREFLIGHT_SECONDS if preflight else SECONDS
    deadline = time.monotonic() + limit
    chosen = [member for member in members.training if not nodes or set(nodes) & set(member.aliases)]
    run_id = f"preflight-{token.lower()}"
    request = {
        "run_id": run_id,
        "framework": framework,
        "distribution": REPLACEMENTS.get(distribution, distribution) or None,
        "script": f"{TRAINERS}/preflight.py",
        "nodes": [member.alias for member in chosen],
        "max_restarts": 0,
        "processor": processor,
        "busy": "refuse",
        "asked_by": "health",
    }
    created = _run(["create"], json.dumps(request))
    if created.returncode:
        reason = programs.last_line(created.stderr, "deeplearning run create failed")
        return [Check("all-reduce", preflight, f"not tested: {reason}" if preflight else reason, "refused")]
    folder = Path(json.loads(created.stdout)["run_dir"])
    space = checks.space(shutil.disk_usage(folder).free)
    results: list[Check] = []
    try:
        if len(chosen) > 1:
            results.append(pairs.check(probes.as_user(user), chosen))
        # A slow connection slows every rank down: the sum would take long and tell nothing more.
        if all(result.ok for result in results):
            results.append(_all_reduce(folder, run_id, chosen, deadline))
    except subprocess.TimeoutExpired:
        results.append(Check("all-reduce", False, f"it had not ended after {limit} s: see {folder}/logs", "late"))
    finally:
        _run(["stop", run_id])
    if not any(result.name == "all-reduce" and not result.ok for result in results):
        shutil.rmtree(folder)
    return [*results, space]


def _all_reduce(folder: Path, run_id: str, nodes: Sequence[Member], deadline: float) -> Check:
    """Raise TimeoutExpired if it has not ended at the deadline."""
    types = [member.instance_type for member in nodes]
    ended = _run(["start", run_id]).returncode
    ended = ended or _run(["wait", run_id], seconds=max(0.0, deadline - time.monotonic())).returncode
    measured = _record(folder / "preflight.json")
    if not measured or (ended and measured["right"]):
        sentence = _record(folder / "result.json").get("sentence", "it did not start")
        return Check("all-reduce", False, f"{sentence}: see {folder}/logs", "failed")
    expected = bandwidth.bus_floor(types) if measured.get("nccl") else None
    if expected is None:
        expected = min(map(bandwidth.floor, types), default=0.0)
    return checks.all_reduce(
        measured["right"], measured["ranks"], measured["gbits"], expected if measured["ranks"] > 1 else 0
    )


def _record(file: Path) -> dict[str, Any]:
    """Return a file's content, or an empty one if it cannot be read."""
    try:
        record: dict[str, Any] = json.loads(safe_files.read(str(file)))
    except (OSError, UserError, ValueError):
        return {}
    return record


def _run(words: list[str], stdin: str = "", seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    return programs.run("deeplearning", "run", *words, input=stdin, timeout=seconds)
