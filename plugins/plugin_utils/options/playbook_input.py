# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Names on the command line: which ones a playbook takes, and what was probably meant by the others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.option import Option
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.readers import shown
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import PLAYBOOKS, name_of, options_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import PREFIX, TABLE

PROVISIONING = ("site", "emr", "plan", "provision", "image")
"""They need all settings; other playbooks need those that say which cluster is meant."""
NEEDS_MEMBERS = ("train", "evaluate", "follow", "stop", "report", "tensorboard", "status_page")
"""They can do nothing if the inventory could not read the members. Others have their own way to report that."""
NO_RECORD = ("audit", "destroy")
"""They take no settings of the cluster but those that they are given. The others leave it as it is."""
NOT_SETTINGS = ("cluster_plan",)
"""Variables of playbooks that begin like settings."""
TIMING = ("provision_settle_seconds", "emr_poll_seconds", "destroy_stuck_seconds")
"""Waiting times that tests shorten. Every playbook accepts them."""
_FOREIGN = ("ansible_", "deeplearning_")


def is_setting(name: str, roles: Iterable[str]) -> bool:
    """Return whether a variable is meant as a setting, known or not. A role's name may begin like one."""
    return name.startswith(PREFIX) and name not in NOT_SETTINGS and not name.startswith(_prefixes(roles))


def unknown_names(playbook: str, extra_vars: Mapping[str, Any], roles: Iterable[str]) -> list[str]:
    """Return a sentence for each name that the playbook does not take, and for words that belong to no name."""
    table = options_of(playbook)
    problems = [
        f"{name} is no option of {name_of(playbook)}: {_hint(playbook, name, extra_vars[name], table)}"
        for name in sorted(extra_vars)
        if name not in table
        and name not in TIMING
        and not name.startswith(("_raw_params", *_FOREIGN, *_prefixes(roles)))
        if not name.startswith(PREFIX)
    ]
    dropped = extra_vars.get("_raw_params")
    if dropped:
        example = table["script_args"] if "script_args" in table else TABLE["cluster_availability_zones"]
        problems.append(
            f"-e has words that belong to no option: {dropped}. Lists and maps are given in JSON and within quotes, or "
            f"in a file. Example: {example.argument()}"
        )
    return problems


_NOT_ON_EMR = {
    "fleet": "instance fleets are not supported, as the nodes of a run have one type: cluster_instance_type says which",
    "task": "task groups are not supported, as EMR takes their machines back at any time: cluster_worker_count is the "
    "number of core nodes",
    "hdfs": "HDFS is not supported for data and results, as it goes with the cluster: use EFS or S3",
    "queue": "runs are not submitted to YARN, they run next to it: cluster_emr_yarn_percent is YARN's share",
}
"""What people may ask of EMR, by a word in the name of the setting that they invent."""


def unknown_setting(name: str) -> str:
    refusals = [why for word, why in _NOT_ON_EMR.items() if name.startswith(f"{PREFIX}emr_") and word in name]
    if refusals:
        return f"{name} is no setting: {refusals[0]}."
    close = difflib.get_close_matches(name, TABLE, 1, 0.7)
    hint = f"{close[0]} is meant, perhaps" if close else "docs/settings.md lists them all"
    return f"{name} is no setting: {hint}."


def _hint(playbook: str, name: str, value: Any, table: Mapping[str, Option]) -> str:
    close = (
        difflib.get_close_matches(name, table, 1, 0.7)
        or [PREFIX + name] * (PREFIX + name in TABLE)
        or difflib.get_close_matches(name, TABLE, 1, 0.88)
    )
    if close:
        return f"{close[0]} is meant, perhaps"
    others = [other for other in PLAYBOOKS if name in options_of(other)]
    if others:
        return f"{' and '.join(map(name_of, others))} has it"
    if playbook == "train":
        option = table["script_args"].argument([f"--{name.replace('_', '-')}", shown(value)])
        return f"what is meant for the script is given as its arguments. Example: {option}"
    return f"it takes {', '.join(table)}" if table else "docs/settings.md lists what it takes"


def _prefixes(roles: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{role}_" for role in roles)
