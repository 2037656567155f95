"""`run create`: everything about a request is checked, and then its folder is made. `run plan` shows the plan alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import Any

from deeplearning import Refusal, files, paths
from deeplearning.config import Config
from deeplearning.members.reading import Members, read_applied
from deeplearning.run import plan as plans
from deeplearning.run import request as requests
from deeplearning.run import source, units
from deeplearning.run.folder import Folder, check_place, existing, moment, own_root, runs_root
from deeplearning.run.placing import candidates, chosen, in_use
from deeplearning.run.survey import count_gpus

LEAST_ROOM = 64 * 2**20
COMPARED = (
    *("framework", "distribution", "nodes", "data", "processes_per_node", "servers", "script_args", "max_restarts"),
    *("python", "cluster_id", "asked_by"),
)
"""What has to be the same in two requests for one run, in addition to the code, the environment and the folder."""


def created(request: Any, config: Config) -> dict[str, Any]:
    given = requests.checked(request)
    if config.role != "master":
        raise Refusal("Runs are started on the master: ssh deeplearning-master.")
    members = read_applied()
    if "resume" in given:
        return resumed(given, config, members)
    run = complete(given, config, members)
    plan = preview(run, members)
    begun = same_run(run, given, config)
    if begun:
        return answer(begun.run(), begun, plan, members)
    refuse_if_busy(run, config, members)
    folder = made(run["run_id"], given.get("runs_dir"), config)
    try:
        fill(folder, run, given)
    except OSError as error:
        undo(folder)
        raise Refusal(f"{folder.path} cannot be written: {error.strerror}.") from None
    except Refusal:
        undo(folder)
        raise
    return answer(run, folder, plan, members)


def complete(given: dict[str, Any], config: Config, members: Members) -> dict[str, Any]:
    """run.json as far as it is known before there is a folder."""
    framework = given["framework"]
    run = {**requests.DEFAULTS, **given}
    for key in ("data", "nodes", "processes_per_node", "servers"):
        run.setdefault(key, None)
    run["distribution"] = given.get("distribution") or default_distribution(run, members)
    if run["nodes"] is None and run["distribution"] in plans.ON_ONE_NODE:
        run["nodes"] = 1
    run["run_id"] = given.get("run_id") or f"{framework}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    run["python"], run["versions"] = interpreter(framework, given.get("python"))
    run["data"] = data_folder(run["data"], config)
    run["generated"] = bool(run["data"]) and os.path.exists(f"{run['data']}/GENERATED")
    run.update(cluster=config.cluster, cluster_id=config.cluster_id, launcher="mpirun", asked_at=moment())
    return run


def same_run(run: dict[str, Any], given: dict[str, Any], config: Config) -> Folder | None:
    """Return the run of this id if it has not ended and the same was asked for before.

    Whoever asked may have been killed since, and does not know how far it came: asked again, the run is theirs.
    """
    folder = Folder(f"{runs_root(config)}/{run['run_id']}")
    if "run_id" not in given or not folder.is_there() or folder.result() is not None:
        return None
    check_place(config, folder.id)
    before = folder.run()
    same = (
        all(before.get(key) == run[key] for key in COMPARED)
        and os.path.realpath(folder.path) == f"{given.get('runs_dir') or runs_root(config)}/{folder.id}"
        and (folder.read("environment.json") or {}).get("environment") == run["environment"]
        and same_code(folder, before, given)
    )
    return folder if same else None


def same_code(folder: Folder, before: dict[str, Any], given: dict[str, Any]) -> bool:
    script = given.get("script") or own_trainer(given["framework"])
    if script.startswith(source.GIT):
        wanted = source.git_source(script)
        place = {"url": source.without_login(source.split_login(wanted.url)[0]), "ref": wanted.ref}
        script, code = folder.file(f"code/{wanted.path}"), {**place, "commit": before["code"].get("commit")}
    elif "code" in given:
        script, code = folder.file(f"code/{script}"), source.hashed(given["code"])
    else:
        code = source.hashed(script)
    return bool(before["script"] == script and before["code"] == code)


def own_trainer(framework: str) -> str:
    return f"{paths.TRAINERS}/cifar10_{framework}.py"


def default_distribution(run: dict[str, Any], members: Members) -> str:
    there = chosen(run["nodes"], candidates(run["nodes"], members), set(), first=True)
    gpus = max((member.gpus for member in there), default=0)
    return plans.default_distribution(run["framework"], len(there), gpus)


def interpreter(framework: str, own: str | None) -> tuple[str, dict[str, Any]]:
    if own:
        if not os.access(own, os.X_OK) or not os.path.isfile(own):
            raise Refusal(f"python is {own}, and there is no such program on the master.")
        return own, {}
    environment = f"{paths.ENVIRONMENTS}/{framework}"
    try:
        with open(f"{environment}/.deeplearning.json", encoding="utf-8") as file:
            marker = json.load(file)
    except FileNotFoundError:
        raise Refusal(
            f"{framework} is not installed on the master: let train.yml install it, or give python, a path of your own."
        ) from None
    return f"{environment}/bin/python", marker.get("versions", {})


def data_folder(data: str | None, config: Config) -> str:
    if not data:
        return ""
    folder = data if data.startswith("/") else f"{config.efs_mount}/data/{data}"
    if not os.path.isdir(folder):
        raise Refusal(f"data is {data}, and there is no folder {folder}: stage it first, or give another.")
    return folder


def preview(run: dict[str, Any], members: Members) -> plans.Plan:
    """What would be started now, by the member list alone."""
    there = chosen(run["nodes"], candidates(run["nodes"], members), set(), first=True)
    nodes = [plans.Node(member.alias, member.private_ip, member.gpus) for member in there]
    return plans.made(options(run), nodes)


def options(run: dict[str, Any]) -> plans.Options:
    return plans.Options(
        run["framework"],
        run["distribution"],
        run["processes_per_node"],
        run["servers"],
        tuple(run["script_args"]),
    )


def refuse_if_busy(run: dict[str, Any], config: Config, members: Members) -> None:
    if run["busy"] == "refuse":
        chosen(run["nodes"], candidates(run["nodes"], members), in_use(config, run["run_id"]), first=True, refuse=True)


def made(run_id: str, runs_dir: str | None, config: Config) -> Folder:
    root = runs_root(config)
    place = f"{runs_dir or root}/{run_id}"
    try:
        own_root(config)
        if runs_dir:
            files.create_path(runs_dir)
            if os.path.lexists(f"{root}/{run_id}") or os.path.lexists(place):
                raise FileExistsError
        os.mkdir(place)
        if runs_dir:
            os.symlink(place, f"{root}/{run_id}")
        for name in ("logs", "metrics", "checkpoints", "tensorboard", "attempts"):
            os.mkdir(f"{place}/{name}")
    except FileExistsError:
        if not Folder(f"{root}/{run_id}").is_there():
            raise Refusal(
                f"{place} is there without a run.json: somebody makes a run of this id now, or was interrupted. Give "
                f"another run_id, or remove what is left. Example: rm -r {place}"
            ) from None
        raise Refusal(
            f"There is a run {run_id} already: give another run_id, or go on with it. Example: -e resume={run_id}"
        ) from None
    except OSError as error:
        raise cannot_be_made(place, error) from None
    return Folder(f"{root}/{run_id}")


def incoming(folder: str, config: Config) -> None:
    """Create or check the folder that scripts are sent into, below the folder that runs are made in."""
    parent = os.path.dirname(folder)
    try:
        own_root(config)
        if parent != runs_root(config):
            files.create_path(parent)
        files.own_folder(folder, mode=0o700)
    except OSError as error:
        raise cannot_be_made(folder, error) from None


def cannot_be_made(place: str, error: OSError) -> Refusal:
    return Refusal(f"{place} cannot be made: {error.strerror}. Is EFS mounted, and is there room on it?")


def undo(folder: Folder) -> None:
    """Of a run that was refused nothing stays."""
    shutil.rmtree(os.path.realpath(folder.path), ignore_errors=True)
    if os.path.islink(folder.path):
        os.remove(folder.path)


def fill(folder: Folder, run: dict[str, Any], given: dict[str, Any]) -> None:
    look_for_room(folder)
    run["script"], run["code"] = code(folder, run["framework"], given)
    run["environment_file"] = folder.file("environment.json")
    folder.write("environment.json", {"environment": run.pop("environment")}, mode=0o600)
    for key in ("resume", "runs_dir"):
        run.pop(key, None)
    folder.write("run.json", run)


def look_for_room(folder: Folder) -> None:
    left = os.statvfs(folder.path)
    if left.f_bavail * left.f_frsize < LEAST_ROOM:
        raise Refusal(f"There is no room on {folder.path} for a run: {LEAST_ROOM >> 20} MiB are the least.")


def code(folder: Folder, framework: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The script's path, and what exactly it is."""
    script = given.get("script")
    if script is None:
        return checked_script(own_trainer(framework))
    if script.startswith(source.GIT):
        wanted = source.git_source(script)
        came = source.cloned(wanted, folder.file("code"))
        return checked_script(folder.file(f"code/{wanted.path}"))[0], came
    if "code" in given:
        brought = given["code"]
        if not os.path.isdir(brought):
            raise Refusal(f"code is {brought}, and there is no such folder on the master.")
        if not os.path.isfile(f"{brought}/{script}"):
            raise Refusal(f"script is {script}, and the folder that was copied has no such file.")
        os.rename(brought, folder.file("code"))
        return folder.file(f"code/{script}"), source.hashed(folder.file("code"))
    if not script.startswith("/"):
        raise Refusal(f"script is {script}: give an absolute path, or git+URL@REF:PATH.")
    return checked_script(script)


def checked_script(path: str) -> tuple[str, dict[str, Any]]:
    if not os.path.isfile(path):
        raise Refusal(f"script is {path}, and there is no such file on the master.")
    if not path.endswith((".py", ".sh")) and not os.access(path, os.X_OK):
        raise Refusal(f"script is {path}, which is neither .py nor .sh, and cannot be executed: chmod +x it.")
    return path, source.hashed(path)


def resumed(given: dict[str, Any], config: Config, members: Members) -> dict[str, Any]:
    """In its own folder: logs, metrics and checkpoints go on where they were."""
    folder = existing(config, given["resume"])
    check_place(config, folder.id)
    if units.is_active(folder.id):
        raise Refusal(f"Run {folder.id} is going on: stop it first, or follow it.")
    if not folder.checkpoints():
        raise Refusal(
            f"Run {folder.id} has no checkpoint in {folder.file('checkpoints')}, so nothing can be gone on with: "
            "start a new run."
        )
    environment = (folder.read("environment.json") or {}).get("environment", {})
    run = {**folder.run(), **given, "environment": given.get("environment", environment)}
    run.pop("resume")
    requests.consistent({key: run[key] for key in ("framework", "distribution", "nodes", "script_args")})
    run["python"], run["versions"] = interpreter(run["framework"], given.get("python") or own_python(run))
    run["data"] = data_folder(run["data"], config)
    run["script"] = checked_script(run["script"])[0]
    run.update(cluster=config.cluster, cluster_id=config.cluster_id, asked_at=moment())
    plan = preview(run, members)
    refuse_if_busy(run, config, members)
    look_for_room(folder)
    try:
        folder.write("environment.json", {"environment": run.pop("environment")}, mode=0o600)
        folder.write("run.json", run)
    except OSError as error:
        raise Refusal(f"{folder.path} cannot be written: {error.strerror}.") from None
    forget_the_end(folder)
    return answer(run, folder, plan, members)


def own_python(run: dict[str, Any]) -> str | None:
    given: str = run["python"]
    return None if given.startswith(f"{paths.ENVIRONMENTS}/") else given


def forget_the_end(folder: Folder) -> None:
    """What it ended with stays beside its last start."""
    last = folder.attempts() - 1
    for name in ("events.jsonl", "result.json"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder.file(name), folder.file(f"attempts/{last}/{name}"))
    for name in ("stop.json", "state.json"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(folder.file(name))


def answer(run: dict[str, Any], folder: Folder, plan: plans.Plan, members: Members) -> dict[str, Any]:
    return {
        "schema": 1,
        "run_id": folder.id,
        "run_dir": folder.path,
        **{key: run[key] for key in ("framework", "distribution", "script", "code", "data", "generated")},
        "processes": [public(process) for process in plan.processes],
        "warnings": warnings(run, plan, members),
    }


def public(process: plans.Process) -> dict[str, Any]:
    return {"node": process.node, "role": process.role, "rank": process.rank, "gpus": process.gpus}


def warnings(run: dict[str, Any], plan: plans.Plan, members: Members) -> list[str]:
    said = []
    if run["generated"]:
        said.append(f"{run['data']} was generated: accuracies on it say nothing about real data.")
    if len(members.members) < members.wanted:
        said.append(f"{members.wanted} machines are wanted, and {len(members.members)} are members now.")
    if count_gpus() < next((node.gpus for node in plan.nodes if node.name == "deeplearning-worker1"), 0):
        said.append("The master's GPUs do not answer (`nvidia-smi -L`).")
    return said


def planned(request: Any, config: Config) -> plans.Plan:
    """Of a request that nothing is made of, or of a run by its id."""
    members = read_applied()
    if isinstance(request, str):
        folder = existing(config, request)
        made_before = folder.attempts()
        if made_before:
            record = folder.read(f"attempts/{made_before - 1}/plan.json")
            return plans.from_json((record or {})["plan"])
        return preview(folder.run(), members)
    given = requests.checked(request)
    if "resume" in given:
        run = {**existing(config, given["resume"]).run(), **given}
        return preview(run, members)
    run = {**requests.DEFAULTS, "nodes": None, "processes_per_node": None, "servers": None, **given}
    run["distribution"] = given.get("distribution") or default_distribution(run, members)
    return preview(run, members)
