# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Rules between the options of a playbook. A rule looks only at options that are valid.

What only the cluster knows (how many nodes it has, whether a run exists) is not checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...module_utils.contract.errors import UserError
from ...module_utils.contract.run_request import MISSING_FRAMEWORK, conflicts
from ..runs import git_clone, requirements
from . import recipes
from .option import Validated, validate
from .readers import InvalidOption, is_empty
from .run_options import options_of
from .run_readers import DATASETS, code_folder, locate_script, module_file

Options = Mapping[str, Any]
Rule = Callable[[Options], Iterable[str]]


def check(
    playbook: str, variables: Mapping[str, Any], default_framework: str = "", efs_mount: str = "/efs"
) -> Validated:
    """Return the playbook's options. For train.yml those of the recipe are included."""
    table = options_of(playbook)
    values, problems = dict(variables), list[str]()
    if playbook == "train" and (variables.get("recipe") or variables.get("recipe_config")):
        values, problems = _with_recipe(variables)
    validated = validate(table.values(), values)
    options, problems = validated.values, problems + validated.problems
    if options.get("framework", "") is None and not options.get("resume"):
        options["framework"] = default_framework or None
    if options.get("image_frameworks") == []:
        options["image_frameworks"] = [default_framework] if default_framework else []
    for rule in _RULES.get(playbook, ()):
        problems += rule(options)
    if playbook == "train":
        problems += [*_script(options, efs_mount), *_requirements(options, efs_mount)]
    return Validated(options, problems, frozenset(name for name in table if not is_empty(values.get(name))))


def _with_recipe(variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the recipe's values overridden by the variables, and the problems."""
    options = options_of("train")
    name, changes = variables.get("recipe"), variables.get("recipe_config") or {}
    if not name:
        cure = "name the recipe that it changes, or leave it out"
        return dict(variables), [options["recipe_config"].problem(changes, cure)]
    if not isinstance(changes, Mapping):
        return dict(variables), []
    try:
        recipe = recipes.arguments(str(name), changes, options)
    except InvalidOption as invalid:
        return dict(variables), [options["recipe"].problem(name, str(invalid))]
    return {**recipe, **{key: value for key, value in variables.items() if value is not None}}, []


def _example(name: str, value: Any = None) -> str:
    return options_of("train")[name].argument(value)


def _image(options: Options) -> Iterable[str]:
    if options.get("image_state") == "present" and options.get("image_frameworks") == []:
        example = options_of("image")["image_frameworks"].argument()
        yield f"image_frameworks is empty: name the frameworks that the image is to contain. Example: {example}"


def _framework(options: Options) -> Iterable[str]:
    if options.get("framework", "") is None and not options.get("resume"):
        yield MISSING_FRAMEWORK


def _request(options: Options) -> Iterable[str]:
    """Yield the conflicts that the nodes would refuse, too."""
    nodes = options.get("nodes") or max(options.get("sweep") or [0]) or None
    yield from conflicts({**options, "nodes": nodes})


def _sweep(options: Options) -> Iterable[str]:
    for name in ("nodes", "resume", "detach"):
        if options.get("sweep") and options.get(name):
            yield f"{name} is given together with sweep, which follows several runs, each on other nodes: leave one out"


def _resume(options: Options) -> Iterable[str]:
    resume = options.get("resume")
    names = ("run_id", "framework", "distribution", "script", "module", "sync", "code_include", "recipe", "runs_dir")
    for name in names:
        if resume and options.get(name):
            yield f"{name} is given together with resume: {resume} continues as the run that it is, leave it out"


def _data_source(options: Options) -> Iterable[str]:
    dataset, source = options.get("dataset", ""), options.get("data_source")
    if not source or dataset == "":
        return
    if dataset == "generated":
        yield f"data_source is {source}: generated data is made and not taken from anywhere, leave it out"
    elif dataset and dataset not in DATASETS:
        yield (
            f"data_source is {source} and dataset {dataset}: only a named data set has a source. Example: "
            f"{_example('dataset', 'cifar10')}"
        )
    elif dataset is None and options.get("script"):
        yield f"data_source is {source}: say which data set it is. Example: {_example('dataset', 'cifar10')}"


def _script(options: Options, efs_mount: str) -> Iterable[str]:
    text, sync, module = options.get("script"), options.get("sync"), options.get("module")
    if module:
        yield from _module(module, text, sync)
        return
    if not text:
        if sync and "script" in options:
            yield f"sync is {sync}: it goes along with a script of this machine. Example: {_example('script')}"
        return
    script = locate_script(text, efs_mount)
    if script.kind == "file" and not Path(script.path).is_file():
        yield (
            f"script is {text}: there is no such file on this machine, and it is no path below {efs_mount}, where the "
            f"nodes have it. Example: {_example('script')}"
        )
    elif script.kind != "file" and sync:
        shown = git_clone.without_secret(text)
        yield f"sync is {sync}: it goes along with a script of this machine, and script is {shown}"


def _code_include(options: Options) -> Iterable[str]:
    include = options.get("code_include")
    if not include or options.get("resume"):
        return
    in_repository = git_clone.parse(options.get("script") or "") is not None
    if not in_repository and code_folder(options) is None:
        yield (
            f"code_include is {', '.join(include)}: no folder and no repository is sent that could have it. Name the "
            f"folder. Example: {_example('sync')}"
        )


def _requirements(options: Options, efs_mount: str) -> Iterable[str]:
    """Yield why the file with the requirements cannot be used. One in a repository is read when that is cloned."""
    try:
        if options.get("requirements"):
            in_repository = git_clone.parse(options.get("script") or "") is not None
            folder = code_folder(options)
            requirements.locate(options["requirements"], efs_mount, in_repository, folder)
    except UserError as error:
        yield str(error)


def _module(module: str, script: str | None, sync: str | None) -> Iterable[str]:
    files = [f"{module.replace('.', '/')}{end}" for end in (".py", "/__main__.py")]
    source = git_clone.parse(script) if script else None
    if script and not source:
        yield (
            f"module is {module} and script {git_clone.without_secret(script)}: leave script out, and name the folder "
            f"that holds the package. Example: {_example('sync')}"
        )
    elif source and sync:
        yield f"sync is {sync}: it goes along with a module of this machine, and script is in a repository"
    elif source and source.path not in files:
        yield (
            f"module is {module} and script the file {source.path} of its repository: name "
            f"{' or '.join(files)} there, or leave module out"
        )
    elif not source and not module_file(module, sync):
        yield (
            f"module is {module}: neither {' nor '.join(files)} is in {sync or 'the current folder'}. Name the folder "
            f"that holds the package. Example: {_example('sync')}"
        )


def _health_framework(options: Options) -> Iterable[str]:
    if options.get("health_scope") and options.get("framework", "") is None:
        yield MISSING_FRAMEWORK


_HEALTH: Sequence[Rule] = (_health_framework, _request)
_RULES: Mapping[str, Sequence[Rule]] = {
    "train": (_framework, _request, _sweep, _resume, _data_source, _code_include),
    "health": _HEALTH,
    "site": _HEALTH,
    "emr": _HEALTH,
    "image": (_image,),
}
