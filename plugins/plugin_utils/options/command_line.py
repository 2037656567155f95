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
from ansible.errors import AnsibleError
from ansible.parsing.splitter import split_args

from .settings import TABLE

HERE = os.path.join(os.getcwd(), "")
"""What absolute paths of files below the current folder begin with."""
HOME = Path(__file__).resolve().parents[3]
"""The collection's folder."""
_IN_FILES = ("cluster_", "ansible_", "deeplearning_")
"""A file whose variables all begin like this is repeated as a file."""

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


def _inventories() -> str:
    """Return the inventories that -i names, if they are not those of Ansible's configuration."""
    paths = list(context.CLIARGS.get("inventory") or ())
    named = [] if paths == list(C.DEFAULT_HOST_LIST) else paths
    return "".join(f" -i {shlex.quote(path.removeprefix(HERE))}" for path in named)


def is_of_this_collection() -> bool:
    """Return whether this command line runs playbooks of this collection alone."""
    arguments = context.CLIARGS.get("args")
    playbooks = [str(name) for name in arguments] if isinstance(arguments, list | tuple) else []
    return bool(playbooks) and all(_is_own(name) for name in playbooks)


def _is_own(playbook: str) -> bool:
    if playbook.startswith("deeplearning.aws."):
        return True
    path = Path(playbook).resolve()
    return path.is_file() and path.parent in (HOME, HOME / "playbooks")


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
