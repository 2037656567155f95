"""`run create`: validates a request, and then creates the run's folder or prepares an ended run to be resumed."""

from __future__ import annotations

import os
from typing import Any

from deeplearning import machine
from deeplearning.config import Config
from deeplearning.contract import atomic_file, hosts, run_request
from deeplearning.contract.errors import UserError
from deeplearning.gpus import nvml
from deeplearning.members.member_list import Members, read_applied
from deeplearning.runs import packages, record, script, units
from deeplearning.runs import plan as plans
from deeplearning.runs.allocation import Situation, nodes_in_use, select
from deeplearning.runs.folder import Folder, check_folder_safety, create_folder, find_run, runs_root

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
    run = record.new_run(request, config, members)
    plan = record.preview(run, members)
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
    run = record.resumed_run(folder.run(), folder.environment(), request, config)
    script.check(run["script"])
    plan = record.preview(run, members)
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
