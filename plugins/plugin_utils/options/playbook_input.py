# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Names on the command line: which ones a playbook takes, and what was probably meant by the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils.contract.tables import join_names
from . import readers
from .option import Option
from .readers import shown
from .run_options import PLAYBOOKS, name_of, options_of
from .settings import PREFIX, REMOVED, TABLE

PROVISIONING = ("site", "emr", "plan", "provision", "image")
"""Playbooks that need all settings. The others need those that identify the cluster."""
NEEDS_MEMBERS = ("train", "evaluate", "follow", "stop", "report", "tensorboard", "status_page", "get")
"""They can do nothing if the inventory could not read the members. Others have their own way to report that."""
NO_RECORD = ("audit", "destroy", "new_project")
"""Playbooks that use no recorded settings of the cluster."""
NO_FILES = ("audit", "destroy", "extend", "image", "new_project", "replace")
"""Playbooks that leave the cluster's files in the project as they are."""
NOT_SETTINGS = ("cluster_filter", "cluster_lock", "cluster_plan")
"""Variables of playbooks that begin like settings."""
TIMING = ("provision_settle_seconds", "emr_poll_seconds", "destroy_stuck_seconds", "destroy_scan_seconds")
"""Waiting times and limits that tests change. Every playbook accepts them."""
_FOREIGN = ("ansible_", "deeplearning_", "awx_", "tower_")
"""What variables of Ansible, of our inventory and of AWX begin with. AWX sets some two dozen in each job."""
_COMMON = ("image", "name", "profile", "public", "region", "tags")
"""Settings without their prefix that users' own playbooks have as well."""
_REGIONS = ("aws_region", "region")
"""What others call the region. If it is not the cluster's, a cluster of the same name in that region may be meant."""
LONG_NAME = 8
"""Letters from which on a name is misspelt also with two mistakes, or with another letter."""


def is_setting(name: str, roles: Iterable[str]) -> bool:
    """Return whether a variable is meant as a setting, known or not. A role's name may begin like one."""
    return name.startswith(PREFIX) and name not in NOT_SETTINGS and not name.startswith(_prefixes(roles))


def no_inventory(playbook: str, variables: Mapping[str, Any]) -> list[str]:
    """Return a sentence if no inventory of ours was read and no cluster is named: the defaults are another cluster."""
    if playbook == "new_project" or "deeplearning_folder" in variables or f"{PREFIX}name" in variables:
        return []
    return [
        "No inventory of the plugin deeplearning.aws.cluster was read, and no cluster is named: the name of the "
        "inventory file must end in .deeplearning.yml. Example: -i inventory/team.deeplearning.yml. "
        "In a folder without one: ansible-playbook deeplearning.aws.new_project"
    ]


def other_regions(region: str | None, read: str | None, extra_vars: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each region that is meant, perhaps, and is not the cluster's. `read`: the inventory's."""
    if not region:
        return []
    problems = []
    if read and read != region:
        problems.append(
            f"cluster_region is {region}, and the inventory has read the machines of {read}: files of variables cannot "
            "say which cluster is meant. Set it on the command line, or in the inventory file, over which AWS_REGION "
            f"and AWS_DEFAULT_REGION win. Example: -e cluster_region={region}"
        )
    problems += [
        f"{name} is {extra_vars[name]} and has no effect, and the cluster's region is {region}: cluster_region is "
        f"meant, perhaps. Example: -e cluster_region={extra_vars[name]}"
        for name in _REGIONS
        if _is_region(extra_vars.get(name)) and extra_vars[name] != region
    ]
    return problems


def _is_region(value: Any) -> bool:
    try:
        return bool(readers.region(value))
    except readers.InvalidOption:
        return False


def unknown_names(playbook: str, extra_vars: Mapping[str, Any], roles: Iterable[str]) -> list[str]:
    """Return a sentence for each name that is one of ours, misspelt, and for words without a name. Other names may be
    variables of the user's own playbooks."""
    table = options_of(playbook)
    problems = [
        f"{name} is no option of {name_of(playbook)}: {known} is meant, perhaps"
        for name, known in _unknown(table, extra_vars, roles).items()
        if known
    ]
    dropped = extra_vars.get("_raw_params")
    if dropped:
        example = table["script_args"] if "script_args" in table else TABLE["cluster_availability_zones"]
        problems.append(
            f"-e has words that belong to no option: {dropped}. Lists and maps are given in JSON and within quotes, or "
            f"in a file. Example: {example.argument()}"
        )
    return problems


def foreign_names(playbook: str, extra_vars: Mapping[str, Any], roles: Iterable[str]) -> list[str]:
    """Return a warning for each other name that has no effect here."""
    table = options_of(playbook)
    warnings = []
    for name in [name for name, known in _unknown(table, extra_vars, roles).items() if not known]:
        others = [name_of(other) for other in PLAYBOOKS if name in options_of(other)]
        hint = f"it takes {', '.join(table)}" if table else "docs/settings.md lists what it takes"
        if others:
            hint = f"{join_names(others)} {'have' if len(others) > 1 else 'has'} it"
        elif name in _COMMON:
            hint = f"{PREFIX}{name} is meant, perhaps"
        elif playbook == "train":
            option = table["script_args"].argument([f"--{name.replace('_', '-')}", shown(extra_vars[name])])
            hint = f"what is meant for the script is given as its arguments. Example: {option}"
        warnings.append(f"{name} is no option of {name_of(playbook)} and has no effect here: {hint}")
    return warnings


def _unknown(table: Mapping[str, Option], extra_vars: Mapping[str, Any], roles: Iterable[str]) -> dict[str, str]:
    """Return the names that the playbook does not take, each with the name of ours that was probably meant."""
    ours = (PREFIX, "_raw_params", *_FOREIGN, *_prefixes(roles))
    names = [name for name in sorted(extra_vars) if name not in (*table, *TIMING) and not name.startswith(ours)]
    return {name: _meant(name, table) for name in names}


_NOT_ON_EMR = {
    "fleet": "instance fleets are not supported, as the nodes of a run have one type: cluster_instance_type says which",
    "task": "task groups are not supported, as EMR takes their machines back at any time: cluster_worker_count is the "
    "number of core nodes",
    "hdfs": "HDFS is not supported for data and results, as it goes with the cluster: use EFS or S3",
    "queue": "runs are not submitted to YARN, they run next to it: cluster_emr_yarn_percent is YARN's share",
}
"""What people may ask of EMR, by a word in the name of the setting that they invent."""


def misspelt_setting(name: str) -> str:
    """Return a sentence if a variable that is no setting is meant as one; empty if it may be the user's own."""
    if name in REMOVED:
        return f"{name} is no setting any more: {REMOVED[name]}. Leave it out."
    refusals = [why for word, why in _NOT_ON_EMR.items() if name.startswith(f"{PREFIX}emr_") and word in name]
    if refusals:
        return f"{name} is no setting: {refusals[0]}."
    # All begin alike, so only what follows is compared.
    own = name.removeprefix(PREFIX)
    close = [setting for setting in TABLE if is_misspelt(own, setting.removeprefix(PREFIX))]
    return f"{name} is no setting: {close[0]} is meant, perhaps." if close else ""


def foreign_setting(name: str) -> str:
    return f"{name} is no setting and has no effect here: docs/settings.md lists them all."


def _meant(name: str, table: Mapping[str, Option]) -> str:
    """Return which of our names was probably meant; empty if none is close."""
    names = [*table, *TABLE]
    close = [known for known in names if is_misspelt(name, known)]
    close += [PREFIX + name] * (PREFIX + name in TABLE and name not in _COMMON)
    return close[0] if close else ""


def is_misspelt(name: str, known: str) -> bool:
    """Return whether a letter or two are missing, doubled or swapped, or another one in a long name: `stage` is not
    `state`."""
    is_long = len(known) >= LONG_NAME
    return _edits(name, known, 1 if is_long else 2) <= (2 if is_long else 1)


def _edits(name: str, known: str, substitution: int) -> int:
    """Return how many letters differ, by the optimal string alignment. A swap of neighbours counts as one."""
    rows = [list(range(len(known) + 1))]
    for i, letter in enumerate(name, 1):
        row = [i]
        for j, other in enumerate(known, 1):
            costs = [rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (substitution if letter != other else 0)]
            if i > 1 and j > 1 and (letter, name[i - 2]) == (known[j - 2], other):
                costs.append(rows[-2][j - 2] + 1)
            row.append(min(costs))
        rows.append(row)
    return rows[-1][-1]


def _prefixes(roles: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{role}_" for role in roles)
