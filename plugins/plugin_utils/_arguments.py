# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What train.yml and its like take on the command line, as a table; and what is wrong with it, all at once.

What only the cluster can know (whether there are so many nodes, whether a run exists) is not asked here.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _argument_values as a
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _recipes
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _values as v
from ansible_collections.deeplearning.aws.plugins.plugin_utils._settings import settings_in
from ansible_collections.deeplearning.aws.plugins.plugin_utils._values import Wrong

DISTRIBUTIONS: Mapping[str, Sequence[str]] = {
    "tensorflow": ("multi_worker_mirrored", "parameter_server", "horovod"),
    "mxnet": ("local", "device", "dist_sync", "dist_device_sync", "dist_async"),
    "pytorch": ("ddp", "horovod"),
    "tensorpack": ("horovod",),
}
ON_ONE_NODE = ("local", "device")
WITH_SERVERS = ("parameter_server", "dist_sync", "dist_device_sync", "dist_async")


@dataclass(frozen=True)
class Argument:
    name: str
    read: Callable[[Any], Any]
    """from what was given to the value, or Wrong"""
    example: Any
    help: str
    playbooks: Sequence[str] = ("train",)
    default: Any = None


TABLE: Sequence[Argument] = (
    Argument(
        "framework",
        v.choice(*DISTRIBUTIONS),
        "pytorch",
        "What trains. Without it, `cluster_default_framework`.",
    ),
    Argument(
        "distribution",
        v.choice(*dict.fromkeys(name for names in DISTRIBUTIONS.values() for name in names)),
        "dist_sync",
        "How ranks work together. tensorflow: multi_worker_mirrored (default), parameter_server, horovod; mxnet: "
        "local, device, dist_sync, dist_device_sync, dist_async; pytorch: ddp (default), horovod; tensorpack: horovod.",
    ),
    Argument(
        "script",
        a.script,
        "train.py",
        f"Your own script: a file on this machine, a path on the nodes, or `{a.GIT_FORM}`. Without it, our CIFAR-10 "
        "trainer of the framework.",
    ),
    Argument(
        "recipe",
        v.text,
        "maskrcnn",
        "A recipe: these arguments in a file, ours by its name or one of your own by its path. What is given beside it "
        "wins.",
    ),
    Argument(
        "recipe_config",
        a.settings,
        {"BACKBONE.NORM": "GN"},
        "Other values for single settings of the recipe's script.",
        default={},
    ),
    Argument("sync", a.folder, "src", "A folder of this machine that is copied beside a script of this machine."),
    Argument(
        "script_args",
        a.words,
        ["--epochs", "2"],
        "The script's arguments: a list, or a text that is split as a shell does. `{data}`, `{run}`, `{rank}`, "
        "`{world}`, `{job_name}`, `{task_index}`, `{ps_hosts}` and `{worker_hosts}` are filled in.",
        ("train", "evaluate"),
        [],
    ),
    Argument(
        "nodes",
        a.nodes,
        2,
        "How many nodes, or which. Without it, all that train; those of the run for evaluate.yml.",
        ("train", "evaluate"),
    ),
    Argument(
        "processes_per_node",
        a.processes,
        2,
        "Worker processes on each node. auto: one for each GPU, or one.",
        default="auto",
    ),
    Argument(
        "servers", v.integer(1, 1024), 2, "Parameter servers, for distributions that have them. Usually one a node."
    ),
    Argument(
        "data",
        a.data,
        "generated",
        "What to train on: cifar10, mnist, generated (made for trying, and always labelled as such) or "
        "s3://bucket/prefix, which are staged once; a folder's name in `$EFS_MOUNT/data`, or a path on the nodes. "
        "Without it, cifar10 for our trainers, nothing for a script.",
    ),
    Argument(
        "data_on",
        v.choice("efs", "node"),
        "node",
        "Where data is staged: on the shared file system, or on each node's own disk.",
        default="efs",
    ),
    Argument(
        "data_source",
        a.data_source,
        "~/cifar-10-binary.tar.gz",
        "Where a named data set is taken from, if not from its publisher: a file of this machine, https:// or s3://.",
    ),
    Argument("run_id", a.run_id, "lenet-1", "The run's name. Without it, it gets one of framework and time."),
    Argument(
        "resume",
        a.run_id,
        "lenet-1",
        "A run that has ended: it goes on from its newest checkpoint, in its own folder and as it was asked for. What "
        "is given beside it replaces that.",
    ),
    Argument(
        "python",
        a.node_folder,
        "/efs/env/bin/python",
        "The Python of an environment of your own on the nodes. Without it, the framework's is installed and used.",
    ),
    Argument("detach", v.boolean, True, "Do not follow the run.", ("train", "evaluate"), False),
    Argument(
        "max_restarts",
        v.integer(0, 100),
        0,
        "How often a run is started again after a member was lost. A script's own failure is not repeated.",
        default=3,
    ),
    Argument(
        "busy",
        v.choice("refuse", "wait"),
        "refuse",
        "What to do if another run is on these nodes.",
        ("train", "evaluate"),
        "wait",
    ),
    Argument("env", a.environment, {"SEED": "7"}, "Environment variables for the script.", default={}),
    Argument("runs_dir", a.node_folder, "/efs/mine", "Another place for the run's folder than `$EFS_MOUNT/runs`."),
    Argument("sweep", a.sweep, [1, 2, 4], "Train on these numbers of nodes, one after another, and report."),
    Argument("run_id", a.run_or_all, "lenet-1", "Which run, or all.", ("stop", "tensorboard", "status")),
    Argument("run_id", a.run_id, "lenet-1", "Which run.", ("follow", "evaluate")),
    Argument(
        "run_id", a.run_ids, ["lenet-1", "lenet-2"], "Which runs. Without it, all that have ended.", ("report",), []
    ),
    Argument("tunnel", v.boolean, True, "Open the tunnel, and keep it until Ctrl-C.", ("tensorboard",), False),
    Argument("state", v.choice("present", "absent"), "absent", "absent: end it.", ("tensorboard",), "present"),
)
PLAYBOOKS = tuple(dict.fromkeys(playbook for argument in TABLE for playbook in argument.playbooks))
_REQUIRED = {"stop": ("run_id",), "follow": ("run_id",), "evaluate": ("run_id",)}


@dataclass(frozen=True)
class Checked:
    values: dict[str, Any]
    """all arguments; None is what was not given and has no default"""
    problems: list[str]
    given: frozenset[str] = frozenset()
    """the names of those that were given, by a recipe too"""


def of_playbook(playbook: str) -> dict[str, Argument]:
    return {argument.name: argument for argument in TABLE if playbook in argument.playbooks}


def check(playbook: str, given: Mapping[str, Any], default_framework: str = "", efs_mount: str = "/efs") -> Checked:
    """Arguments by their names to what was given, checked."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    if playbook == "train" and (given.get("recipe") or given.get("recipe_config")):
        given, problems = _with_recipe(given)
    given = {name: value for name, value in given.items() if value is not None and str(value).strip()}
    for argument in of_playbook(playbook).values():
        value = given.get(argument.name)
        if value is None:
            values[argument.name] = argument.default
            if argument.name in _REQUIRED.get(playbook, ()):
                problems.append(f"{argument.name} is not given: say which run. Example: {as_option(argument)}")
            continue
        try:
            values[argument.name] = argument.read(value)
        except Wrong as wrong:
            problems.append(sentence(argument, value, str(wrong)))
    if playbook == "train":
        if values.get("framework", "") is None and not values.get("resume"):
            values["framework"] = default_framework or None
        for rule in _RULES:
            problems += rule(values)
        problems += _script(values, efs_mount)
    return Checked(values, problems, frozenset(given))


def _with_recipe(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """What the recipe says stands below what was given by hand."""
    arguments = of_playbook("train")
    name, changes = given.get("recipe"), given.get("recipe_config") or {}
    if not name:
        return given, [sentence(arguments["recipe_config"], changes, "say of which recipe, or leave it out")]
    if not isinstance(changes, Mapping):
        return given, []
    try:
        recipe = _recipes.arguments(str(name), changes, arguments)
    except Wrong as wrong:
        return given, [sentence(arguments["recipe"], name, str(wrong))]
    return {**recipe, **{key: value for key, value in given.items() if value is not None}}, []


def unknown(playbook: str, extra_vars: Mapping[str, Any], foreign: Iterable[str]) -> list[str]:
    """What the command line lost or misnamed. `foreign`: how names begin that others see to."""
    known, begins = of_playbook(playbook), tuple(foreign)
    found = []
    for name in sorted(extra_vars):
        if name in known or name == "_raw_params" or name.startswith(begins):
            continue
        near = difflib.get_close_matches(name, known, 1, 0.7)
        elsewhere = [other for other in PLAYBOOKS if name in of_playbook(other)]
        if near:
            hint = f"{near[0]} is meant, perhaps"
        elif elsewhere:
            hint = f"{' and '.join(f'{other}.yml' for other in elsewhere)} has it"
        elif playbook == "train":
            option = as_option(known["script_args"], [f"--{name.replace('_', '-')}", v.shown(extra_vars[name])])
            hint = f"what is meant for the script is given as its arguments. Example: {option}"
        else:
            hint = f"it takes {', '.join(known)}"
        found.append(f"{name} is no setting of {playbook}.yml: {hint}")
    dropped = extra_vars.get("_raw_params")
    if dropped:
        found.append(
            f"-e was given words that belong to no setting: {dropped}. Lists and maps are given in JSON and within "
            """quotes, or in a file. Example: -e '{"script_args": ["--lr", "0.1"]}'"""
        )
    return found


def sentence(argument: Argument, value: Any, what: str) -> str:
    return f"{argument.name} is {v.shown(value)}: {what}. Example: {as_option(argument)}"


def as_option(argument: Argument, value: Any = None) -> str:
    """How a value is given on the command line."""
    value = argument.example if value is None else value
    if isinstance(value, list | dict):
        return f"-e '{json.dumps({argument.name: value})}'"
    return f"-e {argument.name}={str(value).lower() if isinstance(value, bool) else value}"


# --- Rules between arguments. Each looks only at what is there: what is wrong by itself is absent. -------------------


def _example(name: str, value: Any = None) -> str:
    return as_option(of_playbook("train")[name], value)


def _framework(values: Mapping[str, Any]) -> Iterable[str]:
    if values.get("framework", "") is None and not values.get("resume"):
        yield f"framework is not given: say what trains. Example: {_example('framework')}"


def _distribution(values: Mapping[str, Any]) -> Iterable[str]:
    framework, distribution, among = values.get("framework"), values.get("distribution"), values.get("nodes")
    if not distribution:
        return
    if framework and distribution not in DISTRIBUTIONS[framework]:
        known = ", ".join(DISTRIBUTIONS[framework])
        option = _example("distribution", DISTRIBUTIONS[framework][0])
        yield f"distribution is {distribution}: {framework} has {known}. Example: {option}"
    several = len(among) if isinstance(among, list) else among or max(values.get("sweep") or [0])
    if distribution in ON_ONE_NODE and several > 1:
        yield (
            f"distribution is {distribution}, which trains on one node, and {several} are asked for: give one node, or "
            f"another distribution. Example: {_example('distribution')}"
        )


def _servers(values: Mapping[str, Any]) -> Iterable[str]:
    servers, distribution, framework = (values.get(name) for name in ("servers", "distribution", "framework"))
    without = distribution and distribution not in WITH_SERVERS
    if servers and (without or (not distribution and framework in ("tensorflow", "pytorch", "tensorpack"))):
        yield (
            f"servers is {servers}: {distribution or framework} has no parameter servers unless distribution says so. "
            f"Example: {_example('distribution', 'parameter_server')}"
        )


def _sweep(values: Mapping[str, Any]) -> Iterable[str]:
    if not values.get("sweep"):
        return
    for name in ("nodes", "resume", "detach"):
        if values.get(name):
            yield f"{name} is given together with sweep, which follows several runs, each on other nodes: leave one out"


def _resume(values: Mapping[str, Any]) -> Iterable[str]:
    resume = values.get("resume")
    for name in ("run_id", "framework", "distribution", "script", "sync", "recipe", "runs_dir"):
        if resume and values.get(name):
            yield f"{name} is given together with resume: {resume} goes on as the run that it is, leave it out"


def _data(values: Mapping[str, Any]) -> Iterable[str]:
    wanted, source = values.get("data", ""), values.get("data_source")
    if source and wanted == "generated":
        yield f"data_source is {source}: generated data is made and not taken from anywhere, leave it out"
    elif source and wanted and wanted not in a.DATA_SETS:
        yield f"data_source is {source} and data {wanted}: only a named data set has a source. Example: -e data=cifar10"
    elif source and wanted is None and values.get("script"):
        yield f"data_source is {source}: say which data set it is. Example: -e data=cifar10"
    on_s3 = [word for word in values.get("script_args") or () if "s3://" in word]
    if on_s3 and values.get("framework") == "mxnet":
        bucket = on_s3[0].partition("s3://")[2].split("/")[0] or "bucket"
        yield (
            f"script_args has {on_s3[0]}: this MXNet cannot read S3. Have it staged, and write {{data}} in its place. "
            f"Example: -e data=s3://{bucket}/…"
        )


def _script(values: Mapping[str, Any], efs_mount: str) -> Iterable[str]:
    given, beside = values.get("script"), values.get("sync")
    if not given:
        if beside and "script" in values:
            yield f"sync is {beside}: it goes along with a script of this machine. Example: {_example('script')}"
        return
    found = a.script_of(given, efs_mount)
    if found.kind == "file" and not Path(found.path).is_file():
        yield (
            f"script is {given}: there is no such file on this machine, and it is no path below {efs_mount}, where the "
            f"nodes have it. Example: {_example('script')}"
        )
    elif found.kind != "file" and beside:
        yield f"sync is {beside}: it goes along with a script of this machine, and script is {given}"


_RULES: Sequence[Callable[[Mapping[str, Any]], Iterable[str]]] = (
    _framework,
    _distribution,
    _servers,
    _sweep,
    _resume,
    _data,
)


# --- What is made of them --------------------------------------------------------------------------------------------


_ASKED_AS_GIVEN = (
    *("framework", "distribution", "script_args", "processes_per_node", "servers", "max_restarts", "run_id", "resume"),
    *("python", "busy", "runs_dir"),
)


def finished(checked: Checked, efs_mount: str) -> dict[str, Any]:
    """train.yml's arguments, with what follows from others."""
    done = dict(checked.values)
    if done["distribution"] in ON_ONE_NODE and not done["sweep"]:
        done["nodes"] = done["nodes"] or 1
    if not done["script"] and not done["data"] and not done["resume"]:
        done["data"] = "cifar10"
    done["stages"] = bool(done["data"]) and (a.is_staged(done["data"]) or done["data_on"] == "node")
    done["script"] = vars(a.script_of(done["script"], efs_mount)) if done["script"] else None
    return done


def request(done: Mapping[str, Any], given: Iterable[str], asked_by: str) -> dict[str, Any]:
    """What the nodes' program is asked for: what was given, so that a resumed run keeps what was not."""
    found = {name: done[name] for name in _ASKED_AS_GIVEN if name in given}
    if done["framework"]:
        found["framework"] = done["framework"]
    if found.get("processes_per_node") == "auto":
        del found["processes_per_node"]
    if done["nodes"]:
        found["nodes"] = done["nodes"]
    script = done["script"]
    if script and script["kind"] == "node":
        found["script"] = script["path"]
    elif script and script["kind"] == "git":
        found["script"] = f"git+{script['url']}@{script['ref']}:{script['path']}"
    if done["data"] and not done["stages"]:
        found["data"] = done["data"]
    return {**found, "asked_by": asked_by}


def repeated(options: Iterable[str], run_id: str = "") -> str:
    """Of the -e of this command line those that say which cluster, for another command about a run of it."""
    kept = [f"run_id={run_id}"] if run_id else []
    for option in map(str, options):
        if option.startswith("@"):
            kept += [option] if _says_which_cluster(option[1:]) else []
        else:
            kept.append(settings_in(option))
    return "".join(f" -e {shlex.quote(option)}" for option in kept if option)


_CLUSTER = ("cluster_", "ansible_")


def _says_which_cluster(file: str) -> bool:
    try:
        given = yaml.safe_load(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(given, dict) and all(str(name).startswith(_CLUSTER) for name in given)
