"""`run create`: validates a request, and then creates the run's folder or prepares an ended run to be resumed.

The record of a run, run.json, is its request with all defaults filled in and all paths resolved.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from deeplearning import machine
from deeplearning.config import Config
from deeplearning.contract import atomic_file, frameworks, hosts, paths, run_request
from deeplearning.contract.datasets import GENERATED_MARKER
from deeplearning.contract.errors import UserError
from deeplearning.contract.schema import format_time
from deeplearning.gpus import nvml
from deeplearning.members.member_list import Members, read_applied
from deeplearning.runs import packages, script, units
from deeplearning.runs import plan as plans
from deeplearning.runs.allocation import Situation, nodes_in_use, select
from deeplearning.runs.folder import Folder, check_folder_safety, create_folder, find_run, runs_root
from deeplearning.safe_paths import json_object

COMPARED = ("cluster_id", *(key for key, field in run_request.FIELDS.items() if field.compared))
"""What has to be the same in two requests for one run, in addition to the code, the environment and the folder."""


def create(request: Any, config: Config) -> dict[str, Any]:
    """Create a run or prepare one to be resumed. Return the answer for the caller."""
    request = run_request.validate(request)
    if config.role != "master":
        raise UserError(f"Runs are started on the master: ssh {hosts.MASTER_ALIAS}.")
    members = read_applied()
    if "resume" in request:
        return _resume(request, config, members)
    run = new_run(request, config, members)
    plan = preview(run, members)
    same = _find_same_run(run, request, config)
    if same:
        return _answer(same.run(), same, plan, members)
    _check_not_busy(run, config, members)
    folder = create_folder(run["run_id"], request.get("runs_dir"), config)
    try:
        folder.check_free_space()
        run["script"], run["code"] = script.install(folder, request)
        _write(folder, run, request)
    except UserError:
        folder.remove()
        raise
    except OSError as error:
        folder.remove()
        raise UserError(f"{folder.path} cannot be written: {error.strerror}.") from None
    return _answer(run, folder, plan, members)


def _resume(request: dict[str, Any], config: Config, members: Members) -> dict[str, Any]:
    """Prepare a run in its own folder: logs, metrics and checkpoints continue."""
    folder = find_run(config, request["resume"])
    check_folder_safety(config, folder.id)
    if units.is_active(folder.id):
        raise UserError(f"Run {folder.id} is still active: stop it first, or follow it.")
    if not folder.checkpoints():
        raise UserError(
            f"Run {folder.id} has no checkpoint in {folder.file('checkpoints')}, so it cannot be resumed: "
            "start a new run."
        )
    run = resumed_run(folder.run(), folder.environment(), request, config)
    script.check(run["script"])
    plan = preview(run, members)
    _check_not_busy(run, config, members)
    folder.check_free_space()
    try:
        _write(folder, run, request)
    except OSError as error:
        raise UserError(f"{folder.path} cannot be written: {error.strerror}.") from None
    folder.archive_last_end()
    return _answer(run, folder, plan, members)


def _find_same_run(run: dict[str, Any], request: dict[str, Any], config: Config) -> Folder | None:
    """Return the run of this id if it has not ended and was created from the same request.

    The caller may have been killed, and does not know whether the run was created: repeated, the request is that run's.
    """
    folder = Folder(f"{runs_root(config)}/{run['run_id']}")
    if "run_id" not in request or not folder.exists() or folder.result() is not None:
        return None
    check_folder_safety(config, folder.id)
    existing = folder.run()
    is_same = (
        all(existing.get(key) == run[key] for key in COMPARED)
        and os.path.realpath(folder.path) == f"{request.get('runs_dir') or runs_root(config)}/{folder.id}"
        and folder.environment() == run["environment"]
        and script.is_same(folder, existing, request)
    )
    return folder if is_same else None


def _check_not_busy(run: dict[str, Any], config: Config, members: Members) -> None:
    if run["busy"] == "refuse":
        select(run["nodes"], members, nodes_in_use(config, run["run_id"]), Situation.REFUSE_BUSY)


def _write(folder: Folder, run: dict[str, Any], request: dict[str, Any]) -> None:
    if run["requirements"] is None:
        atomic_file.remove(folder.file(packages.FILE))
    elif requirements := packages.text_of(request):
        atomic_file.replace(folder.file(packages.FILE), requirements.encode(), mode=0o600)
    folder.write("environment.json", {"environment": run["environment"]}, mode=0o600)
    folder.write("run.json", {key: run[key] for key in run_request.RECORDED})


def _answer(run: dict[str, Any], folder: Folder, plan: plans.Plan, members: Members) -> dict[str, Any]:
    return {
        "schema": 1,
        "run_id": folder.id,
        "run_dir": folder.path,
        **{key: run[key] for key in ("framework", "distribution", "script", "code", "data", "generated")},
        "processes": [process.summary() for process in plan.processes],
        "warnings": _warnings(run, plan, members),
    }


def _warnings(run: dict[str, Any], plan: plans.Plan, members: Members) -> list[str]:
    warnings = []
    if run["generated"]:
        warnings.append(f"{run['data']} was generated: accuracies on it say nothing about real data.")
    if len(members.members) < members.desired:
        warnings.append(f"{members.desired} machines are desired, and {len(members.members)} are members now.")
    if machine.gpus(nvml.ANSWER_SECONDS) < sum(node.gpus for node in plan.nodes if node.name == hosts.MASTER):
        warnings.append("The master's GPUs do not answer: run `nvidia-smi -L` there.")
    return warnings


def new_run(request: dict[str, Any], config: Config, members: Members) -> dict[str, Any]:
    """Return the record without the script and its code, which need the run's folder."""
    run = with_defaults(request, members)
    default_id = f"{run['framework']}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    run["run_id"] = request.get("run_id") or default_id
    run["python"], run["versions"] = find_interpreter(run["framework"], request.get("python"))
    run["requirements"] = packages.checksum(packages.text_of(request))
    run["data"] = find_data(run["data"], config, bool(run["local_copy"]))
    run["generated"] = bool(run["data"]) and os.path.exists(f"{run['data']}/{GENERATED_MARKER}")
    run.update(cluster=config.cluster, cluster_id=config.cluster_id, requested_at=format_time())
    return run


def resumed_run(
    run: dict[str, Any], environment: dict[str, str], request: dict[str, Any], config: Config
) -> dict[str, Any]:
    """Return the record of an ended run with the values of a request that resumes it."""
    resumed = {**run_request.DEFAULTS, **run, "environment": environment, **request}
    if "requirements" in request or request.get("python"):
        resumed["requirements"] = packages.checksum(packages.text_of(request))
    if "data" in request:
        resumed["local_copy"] = request.get("local_copy")
    python = request.get("python") or (None if paths.is_in_environment(run["python"]) else run["python"])
    checked = {key: resumed[key] for key in ("framework", "distribution", "nodes", "script_args")}
    run_request.require_consistent({**checked, "python": python, "requirements": resumed.get("requirements")})
    resumed["python"], resumed["versions"] = find_interpreter(resumed["framework"], python)
    resumed["data"] = find_data(resumed["data"], config, bool(resumed["local_copy"]))
    resumed.update(cluster=config.cluster, cluster_id=config.cluster_id, requested_at=format_time())
    return resumed


def with_defaults(request: dict[str, Any], members: Members) -> dict[str, Any]:
    run = {**run_request.DEFAULTS, **request}
    if "distribution" not in request:
        nodes = select(run["nodes"], members, {})
        gpus = 0 if run["processor"] else max((node.gpus for node in nodes), default=0)
        run["distribution"] = frameworks.default_distribution(run["framework"], len(nodes), gpus)
    if run["nodes"] is None and run["distribution"] in frameworks.ON_ONE_NODE:
        run["nodes"] = 1
    return run


def find_interpreter(framework: str, python: str | None) -> tuple[str, dict[str, Any]]:
    """Return the user's own Python, or that of the framework's environment with its package versions."""
    if python:
        if not os.access(python, os.X_OK) or not os.path.isfile(python):
            raise UserError(f"python is {python}, and there is no such program on the master.")
        return python, {}
    environment = f"{paths.ENVIRONMENTS}/{framework}"
    marker = json_object(Path(environment, paths.MARKER))
    if not marker:
        raise UserError(
            f"{framework} is not installed on the master: let train.yml install it, or set python to one of your own."
        )
    return f"{environment}/bin/python", marker.get("versions", {})


def find_data(data: str | None, config: Config, is_local_copy: bool = False) -> str:
    """Return the folder of a data set, or an empty string if none is requested.

    A node that lacks its own copy makes it before an attempt.
    """
    if not data:
        return ""
    folder = paths.dataset(config.efs_mount, data)
    if not is_local_copy and not os.path.isdir(folder):
        raise UserError(f"data is {data}, and there is no folder {folder}: stage it first, or choose other data.")
    return folder


def preview(run: dict[str, Any], members: Members) -> plans.Plan:
    """Return what would be started now, by the member list alone."""
    selected = select(run["nodes"], members, {})
    nodes = [plans.Node(member.alias, member.private_ip, member.gpus) for member in selected]
    plan = plans.make(run, nodes)
    script.check_processes(run.get("script") or "", len(plan.of(plans.WORKER)))
    return plan


def plan_of_run(run_id: str, config: Config) -> plans.Plan:
    """Return the plan of a run's last attempt, or a preview if it has none."""
    folder = find_run(config, run_id)
    attempts = folder.attempts()
    if not attempts:
        return preview(folder.run(), read_applied())
    start = folder.read(f"attempts/{attempts - 1}/plan.json")
    return plans.from_json((start or {})["plan"])


def plan_of_request(request: Any, config: Config) -> plans.Plan:
    request, members = run_request.validate(request), read_applied()
    if "resume" in request:
        return preview({**find_run(config, request["resume"]).run(), **request}, members)
    return preview(with_defaults(request, members), members)
