# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""From valid options to what train.yml and evaluate.yml do: the node program's request, and the plan of the play."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ...module_utils.contract import paths
from ...module_utils.contract.frameworks import ON_ONE_NODE
from ...module_utils.contract.run_request import FIELDS, node_range
from ...module_utils.plan.gpus import GpuTable, check_members
from ..runs import requirements
from .run_readers import code_folder, locate_script, module_file

Options = Mapping[str, Any]


def complete(options: Options, efs_mount: str) -> dict[str, Any]:
    """Return train.yml's options together with those that follow from others."""
    result = dict(options)
    if result["distribution"] in ON_ONE_NODE and not result["sweep"]:
        result["nodes"] = result["nodes"] or 1
    if result["module"] and not result["script"]:
        result["sync"] = result["sync"] or str(Path.cwd())
        result["script"] = str(module_file(result["module"], result["sync"]))
    result["module"] = bool(result["module"])
    if not result["script"] and not result["dataset"] and not result["resume"]:
        result["dataset"] = "cifar10"
    script = locate_script(result["script"], efs_mount) if result["script"] else None
    # The nodes have it, or this machine sends it.
    result["script"] = script.path if script and script.kind == "node" else None
    result["script_file"] = script.path if script and script.kind != "node" else ""
    result["requirements"], result["requirements_file"] = None, ""
    if options["requirements"]:
        in_repository = script is not None and script.kind == "git"
        folder = code_folder(options)
        result |= requirements.locate(options["requirements"], efs_mount, in_repository, folder)
    return result


def request(options: Options, specified: Iterable[str], requested_by: str) -> dict[str, Any]:
    """Return the request of completed options. A resumed run keeps its own value of what is not specified."""
    # The values of these may follow from other options.
    names = {*specified, "framework", "nodes", "script"}
    result = {key: options[name] for key, field in FIELDS.items() if (name := field.option or key) in names}
    if result.get("processes_per_node") == "auto":
        del result["processes_per_node"]
    return {**{key: value for key, value in result.items() if value is not None}, "requested_by": requested_by}


def run_plan(
    checked: Mapping[str, Any], members: Sequence[Options], resumed: Options, gpu_tables: Mapping[str, GpuTable]
) -> dict[str, Any]:
    """Return what train.yml does: on which nodes, with which framework, as which runs.

    `checked`: the result of check_input. `members`: the cluster's members. `resumed`: the run to resume, or empty.
    `gpu_tables`: for which GPUs the frameworks have kernels.
    """
    options, cluster = checked["options"], checked["cluster"]
    training = _training_nodes(members, cluster["master_trains"])
    held = [member["name"] for member in members if member["name"] in training and member.get("held")]
    available = [name for name in training if name not in held]
    gpus = {member["name"]: member.get("gpus") for member in members}
    sweep = options["sweep"] or []
    nodes = options["nodes"] or 0
    names = nodes if isinstance(nodes, list) else []
    least, most = (max(sweep),) * 2 if sweep else node_range(nodes) or ((0, 0) if names else (nodes, nodes))
    framework = options["framework"] or resumed.get("framework")
    chosen = names or available[: most or None]
    processor = resumed.get("processor", False) if options["processor"] is None else options["processor"]
    with_gpus = all(gpus.get(name) for name in chosen) and not processor
    preflight = with_gpus if options["preflight"] is None else options["preflight"]
    connected = len(chosen) > 1 or (with_gpus and any((gpus[name] or 0) > 1 for name in chosen))
    foreign_python = resumed.get("python") and not paths.is_in_environment(resumed["python"])
    installs_framework = not (options["python"] or foreign_python)
    gpu_problem = ""
    notes: list[str] = []
    if installs_framework and not processor and framework and framework in gpu_tables:
        chosen_members = [member for member in members if member["name"] in chosen]
        gpu_problem, notes = check_members(gpu_tables[framework], framework, chosen_members)
    value = f"sweep is {most}" if sweep else f"nodes is {nodes}"
    return {
        "problem": _too_many(value, least, available, held, cluster["name"])
        or _no_members(names, training)
        or _held([name for name in names if name in held])
        or gpu_problem,
        "notes": notes,
        "nodes": chosen,
        "preflight": preflight and connected,
        "framework": framework,
        "installs_framework": installs_framework,
        "processor": processor,
        "runs": [_run_of_sweep(options["run_id"], number) for number in sweep] or [{}],
    }


def evaluation_request(shown: Options, checked: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
    """Return `request` for a run that evaluates a checkpoint of another one: the same script on the same data.

    `shown`: the answer to `run show`. `problem`: a sentence if there is no such checkpoint.
    """
    options, run = checked["options"], shown["run"]
    problem, checkpoint = _checkpoint(shown["checkpoints"], options)
    # A run without data has an empty text there.
    reused = {key for key, field in FIELDS.items() if field.evaluated_with}
    result = {key: value for key, value in run.items() if key in reused and value != ""}
    if options["nodes"]:
        result["nodes"] = options["nodes"]
    added = options["evaluate_args"]
    if options["checkpoint"] and not any("{checkpoint}" in word for word in added):
        added = [*added, "--checkpoint", "{checkpoint}"]
    values = {"{run}": run_dir, "{checkpoint}": f"{run_dir}/checkpoints/{checkpoint}"}
    ours = run["script"].startswith(f"{paths.TRAINERS}/cifar10_")
    result |= {
        "script": None if ours else run["script"],
        # The collection's trainers use the last --run-dir.
        "script_args": [*run["script_args"], *options["script_args"], *(_filled_in(word, values) for word in added)],
        "busy": options["on_busy"],
        "requested_by": checked["requested_by"],
    }
    if run.get("requirements"):
        # They add to the environment's Python, which the record names as well.
        result["requirements"] = f"{run_dir}/requirements.txt"
        result.pop("python", None)
    return {"problem": problem, "request": result}


def _checkpoint(names: Sequence[str], options: Options) -> tuple[str, str]:
    """Return a problem and the name of the newest checkpoint, or of the one with the requested name or number."""
    run_id, requested = options["run_id"], options["checkpoint"]
    if not names:
        return f"run_id is {run_id}, which has no checkpoint to evaluate: train it first.", ""
    if not requested:
        return "", names[-1]
    for name in reversed(names):
        numbers = re.findall(r"\d+", PurePosixPath(name).name)
        if requested == name or (requested.isdecimal() and numbers and int(requested) == int(numbers[-1])):
            return "", name
    known = ", ".join(names[-5:])
    return f"checkpoint is {requested}, which {run_id} does not have: give one of {known}, or its number.", ""


def _filled_in(word: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word


def _training_nodes(members: Sequence[Options], master_trains: bool) -> list[str]:
    ranked = sorted((member for member in members if member["rank"] > 0), key=lambda member: int(member["rank"]))
    return [member["name"] for member in ranked if master_trains or member["role"] != "master"]


def _run_of_sweep(run_id: str | None, nodes: int) -> dict[str, Any]:
    return {"nodes": nodes, "run_id": f"{run_id}-{nodes}"} if run_id else {"nodes": nodes}


def _too_many(value: str, count: int, available: Sequence[str], held: Sequence[str], cluster: str) -> str:
    if count <= len(available):
        return ""
    has = f"{cluster} has {len(available)} nodes that train"
    if count <= len(available) + len(held):
        return f"{value}: {has}, and {_held(held)} Or give fewer. Example: -e nodes={len(available)}"
    return f"{value}: {has}. Give so many or fewer, or add some with site.yml. Example: -e nodes={len(available)}"


def _no_members(names: Sequence[str], training: Sequence[str]) -> str:
    unknown = [name for name in names if name not in training]
    if not unknown:
        return ""
    return f"nodes names {', '.join(unknown)}: the nodes that train are {', '.join(training)}."


def _held(names: Sequence[str]) -> str:
    """Return a sentence about nodes that are kept out of runs; empty if there is none."""
    if not names:
        return ""
    return (
        f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} held, as a GPU has failed: status.yml has the reason "
        "and the command that replaces it. Or reboot it, or release it on the node: sudo deeplearning gpus release."
    )
