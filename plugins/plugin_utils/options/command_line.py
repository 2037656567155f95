# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The options of this command line that another command about the same cluster needs as well."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.manager import split_host_pattern
from ansible.parsing.splitter import split_args
from ansible.utils.context_objects import CLIArgs

from .play_selection import COMMAND_LINE, PlayOptions, Tag
from .settings import TABLE

HERE = os.path.join(os.getcwd(), "")
"""What absolute paths of files below the current folder begin with."""
HOME = Path(__file__).resolve().parents[3]
"""The collection's folder."""
_IN_FILES = ("cluster_", "ansible_", "deeplearning_")
"""A file whose variables all begin like this is repeated as a file."""
_TAKEN_LIMIT = "deeplearning_limit"
"""Where this command line keeps the patterns of a --limit that the playbook applies itself."""
_LISTINGS = ("listhosts", "listtasks", "listtags", "syntax")
"""The options of ansible-playbook with which it runs nothing."""

_COLLECTION = "deeplearning.aws."
_COMMAND = re.compile(r"ansible-playbook deeplearning\.aws\.\w+")


def repeat_in(text: str, options: str) -> str:
    """Return a text with these options in each of its commands, before the command's own, which take precedence."""
    return _COMMAND.sub(lambda command: f"{command[0]}{options}", text)


REGION = ("cluster_region",)
PLACE = (*REGION, "cluster_profile", "cluster_role_arn")
"""The settings that say in which region and account the cluster is."""


def repeat_options(run_id: str = "", without: Collection[str] = ()) -> str:
    """Return the options of this command line that select the cluster, and the run. `without`: settings to omit."""
    return _inventories() + settings_among(context.CLIARGS.get("extra_vars") or (), run_id, without)


def inventories() -> list[str]:
    """Return the sources of the inventory: paths, and lists of hosts with commas."""
    return [str(source) for source in context.CLIARGS.get("inventory") or ()]


def _inventories() -> str:
    """Return the inventories that -i names, if they are not those of Ansible's configuration."""
    paths = inventories()
    named = [] if paths == list(C.DEFAULT_HOST_LIST) else paths
    return "".join(f" -i {shlex.quote(path.removeprefix(HERE))}" for path in named)


def is_of_this_collection() -> bool:
    """Return whether this command line runs playbooks of this collection alone."""
    playbooks = _arguments()
    return bool(playbooks) and all(_is_own(name) for name in playbooks)


def own_playbooks() -> list[str]:
    """Return the names of the playbooks of this command line, such as `site`, if all are of this collection."""
    if not is_of_this_collection():
        return []
    return [_name_in_collection(playbook) for playbook in _arguments()]


def _arguments() -> list[str]:
    arguments = context.CLIARGS.get("args")
    return [str(name) for name in arguments] if isinstance(arguments, list | tuple) else []


def _is_own(playbook: str) -> bool:
    if playbook.startswith(_COLLECTION):
        return True
    path = Path(playbook).resolve()
    return path.is_file() and path.parent in (HOME, HOME / "playbooks")


def _name_in_collection(playbook: str) -> str:
    if playbook.startswith(_COLLECTION):
        return playbook.removeprefix(_COLLECTION)
    return Path(playbook).stem


def play_options() -> PlayOptions:
    """Return the options that leave out plays or tasks. There are none if this command line only lists things."""
    if any(context.CLIARGS.get(name) for name in _LISTINGS):
        return PlayOptions()
    return PlayOptions(
        limit=tuple(_limit_patterns(context.CLIARGS.get("subset") or "")),
        run_tags=_tags("tags", "TAGS_RUN"),
        skip_tags=_tags("skip_tags", "TAGS_SKIP"),
        start_at_task=context.CLIARGS.get("start_at_task") or "",
    )


def _limit_patterns(limit: str) -> list[str]:
    """Return the patterns of --limit. `@file` stands for the lines of the file, as Ansible reads it."""
    patterns = []
    for pattern in split_host_pattern(limit):
        if pattern.startswith("@"):
            patterns += _lines_of(pattern.removeprefix("@"))
        else:
            patterns.append(pattern)
    return patterns


def _lines_of(file: str) -> list[str]:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise AnsibleParserError(f"The file of --limit cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def _tags(option: str, setting: str) -> tuple[Tag, ...]:
    """Return the tags of an option. Ansible adds those of its configuration to those of the command line."""
    configured, origin = C.config.get_config_value_and_origin(setting)
    origin = str(origin).removeprefix("env: ")
    in_configuration = {name.strip() for names in configured or () for name in str(names).split(",")}
    return tuple(
        Tag(name, origin if name in in_configuration else COMMAND_LINE)
        for name in sorted(context.CLIARGS.get(option) or ())
    )


def take_limit(patterns: Iterable[str]) -> None:
    """Let the playbook apply --limit itself.

    Ansible would leave out the plays for localhost and for the master as well. It reads the option only after the
    inventory, and an inventory plugin is the only part of a collection that runs before.
    """
    context.CLIARGS = CLIArgs({**context.CLIARGS, "subset": None, _TAKEN_LIMIT: list(patterns)})


def taken_limit() -> list[str]:
    """Return the patterns of a --limit that the playbook applies itself, also when the inventory is read again."""
    return list(context.CLIARGS.get(_TAKEN_LIMIT) or ())


def settings_among(options: Iterable[str], run_id: str = "", without: Collection[str] = ()) -> str:
    """Return the settings among -e options, quoted for a shell.

    Only settings are printed: none holds a secret (keys are given by their paths), but other variables may. The consent
    to `destroy` is no setting either, so it is typed each time.
    """
    repeated = [f"run_id={run_id}"] if run_id else []
    names = set(TABLE) - set(without)
    for option in map(str, options):
        repeated.append(_of_file(option) if option.startswith("@") else _settings_in(option, names))
    return "".join(f" -e {shlex.quote(option)}" for option in repeated if option)


def _settings_in(option: str, names: Collection[str]) -> str:
    try:
        if option.lstrip().startswith("{"):
            return _as_json(yaml.safe_load(option), names)
        return " ".join(word for word in split_args(option) if word.partition("=")[0] in names)
    except (AnsibleError, yaml.YAMLError):
        return ""


def _of_file(option: str) -> str:
    """Return the option as it is typed here, unless its file also has variables for this playbook only."""
    # Ansible makes its path absolute.
    option = f"@{option[1:].removeprefix(HERE)}"
    try:
        variables = yaml.safe_load(Path(option[1:]).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return option
    if not isinstance(variables, dict) or all(str(name).startswith(_IN_FILES) for name in variables):
        return option
    return _as_json(variables, TABLE)


def _as_json(variables: Mapping[str, Any], names: Collection[str]) -> str:
    settings = {name: value for name, value in variables.items() if name in names}
    return json.dumps(settings, default=str) if settings else ""
