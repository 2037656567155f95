"""On the master: a short run of the same framework and distribution as a planned one, on all nodes that train."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from deeplearning import programs
from deeplearning.contract import gpu_proof
from deeplearning.contract.paths import TRAINERS
from deeplearning.health import bandwidth, checks, losses, nccl, pairs, probes
from deeplearning.health.checks import Check
from deeplearning.members.member_list import Member, Members
from deeplearning.runs import gpu_proofs, survey
from deeplearning.safe_paths import json_object

SECONDS = 300.0
"""For a command, and for the sum unless a run waits for it."""
PREFLIGHT_SECONDS, RANKS_SECONDS = 90.0, 0.1
"""For the sum before a run, with the comparison of the nodes, and more of it for each node: all ranks connect."""
FRAMEWORK_SECONDS = gpu_proof.SECONDS
"""For the start of the framework on all nodes: gigabytes that a machine may have to read for the first time."""
CONNECTED = "preflight-connected"
"""The file that the preflight writes when the framework has started."""
START_SECONDS, DAEMON_SECONDS = 30.0, 0.25
"""For mpirun, and more of it for each node: it starts the daemons of all nodes from this machine."""
WAIT_SECONDS = 30.0
"""Until the run has its nodes, in addition to the survey."""
POLL_SECONDS = 0.5
# Parameter servers do not reduce over all ranks: the network between nodes is tested by the other distribution.
REPLACEMENTS = {"parameter_server": "multi_worker_mirrored"}

Limits = Mapping[str, tuple[float, str]]
"""By the state of the run, of which "summing" is the second part of "running": how many seconds it may be in it, and
what had not happened then."""


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

    `preflight`: a run is about to start. It says itself why it is refused, and the sum has less time.
    `processor`: train on the processors of nodes with GPUs.
    """
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
        "requested_by": "health",
    }
    created = _run(["create"], json.dumps(request))
    if created.returncode:
        reason = programs.last_line(created.stderr, "deeplearning run create failed")
        return [Check("all-reduce", preflight, f"not tested: {reason}" if preflight else reason, "refused")]
    folder = Path(json.loads(created.stdout)["run_dir"])
    space = checks.space(shutil.disk_usage(folder).free)
    # A node may first have to prove that the framework uses its GPUs.
    tests_gpus = not processor and any(member.gpus for member in chosen)
    ssh, aliases = probes.as_user(user), [member.alias for member in chosen]
    results: list[Check] = []
    try:
        # Only NCCL uses EFA, and only between nodes.
        before = losses.read(ssh, aliases) if len(chosen) > 1 and tests_gpus else {}
        if len(chosen) > 1:
            results.append(pairs.judge(pairs.measure(ssh, aliases)))
        # A slow connection slows every rank down: the sum would take long and tell nothing more.
        if all(result.ok for result in results):
            results += _all_reduce(folder, run_id, chosen, limits(chosen, preflight, tests_gpus))
        if before:
            results.append(losses.check(before, losses.read(ssh, aliases)))
    except subprocess.TimeoutExpired as error:
        results.append(_late(folder, "a command had not ended", error.timeout))
    finally:
        _run(["stop", run_id])
    if not any(result.name == "all-reduce" and not result.ok for result in results):
        shutil.rmtree(folder)
    return [*results, space]


def limits(nodes: Sequence[Member], preflight: bool, tests_gpus: bool) -> Limits:
    proof, test = (gpu_proofs.UNIT_SECONDS, ", with the test of their GPUs,") if tests_gpus else (0.0, "")
    waiting, starting = WAIT_SECONDS + survey.longest(nodes) + proof, START_SECONDS + DAEMON_SECONDS * len(nodes)
    ranks = RANKS_SECONDS * len(nodes)
    running, summing = (FRAMEWORK_SECONDS, PREFLIGHT_SECONDS) if preflight else (SECONDS, SECONDS)
    return {
        "waiting": (waiting, f"the survey of the nodes{test} had not ended"),
        "starting": (starting, "not all processes had started"),
        "running": (running + ranks, "the framework had not started on all nodes"),
        "summing": (summing + ranks, "the sum had not ended"),
    }


def _all_reduce(folder: Path, run_id: str, nodes: Sequence[Member], limits: Limits) -> list[Check]:
    types = [member.instance_type for member in nodes]
    ended = _run(["start", run_id]).returncode
    if late := not ended and _exceeded(folder, limits):
        return [late]
    ended = ended or _run(["wait", run_id]).returncode
    measured = json_object(folder / "preflight.json")
    if not measured or (ended and measured["right"]):
        sentence = json_object(folder / "result.json").get("sentence", "it did not start")
        return [Check("all-reduce", False, f"{sentence}: see {folder}/logs", "failed")]
    expected = bandwidth.bus_floor(types) if measured.get("nccl") else None
    if expected is None:
        expected = min(map(bandwidth.floor, types), default=0.0)
    # What is expected is of the network.
    summed = checks.all_reduce(
        measured["right"], measured["ranks"], measured["gbits"], expected if len(nodes) > 1 else 0
    )
    # Nodes of different types differ.
    if len(set(types)) > 1:
        return [summed]
    return [summed, *nccl.checks(measured, json_object(folder / "state.json").get("processes", []))]


def _exceeded(folder: Path, limits: Limits) -> Check | None:
    """Wait for the end of a run. Return what has failed if it is in a state for longer than its limit."""
    state, since = "", 0.0
    while not json_object(folder / "result.json"):
        current = str(json_object(folder / "state.json").get("state"))
        # Other states, such as "stopping", count as the one before.
        current = current if current in limits else state or next(iter(limits))
        if current == "running" and CONNECTED in os.listdir(folder):
            current = "summing"
        if current != state:
            state, since = current, time.monotonic()
        seconds, what = limits[state]
        if time.monotonic() - since > seconds:
            return _late(folder, what, seconds)
        time.sleep(POLL_SECONDS)
    return None


def _late(folder: Path, what: str, seconds: float) -> Check:
    return Check("all-reduce", False, f"{what} after {seconds:.0f} s: see {folder}/logs", "late")


def _run(arguments: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    return programs.run("deeplearning", "run", *arguments, input=stdin, timeout=SECONDS)
