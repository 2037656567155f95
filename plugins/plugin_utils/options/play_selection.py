# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Decide whether an option of ansible-playbook, such as --limit or --tags, leaves out a part of a playbook of ours.

Ansible skips a play without hosts, and a task without the requested tags, and still returns 0. So an option that leaves
out one of our tasks is refused: people would believe that a cluster is gone, for example.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...module_utils.contract.names import MASTER
from ...module_utils.contract.tables import join_names
from .run_options import PLAYBOOKS, name_of

LOCALHOST = ("localhost", "127.0.0.1", "::1")
"""Ansible's names for the operator's machine. It is in no group, not even in `all`."""
ON_MACHINES = (
    "configure",
    "emr",
    "evaluate",
    "follow",
    "get",
    "health",
    "report",
    "site",
    "stage",
    "status_page",
    "stop",
    "tensorboard",
    "train",
)
"""The playbooks with plays for machines. All playbooks have plays for localhost."""
CREATE_MACHINES = ("emr", "site")
"""These also work on machines that do not exist when they start."""
TAKE_LIMIT = ("configure",)
"""The playbooks that work on the machines that --limit selects."""
MOST_NAMES = 5
COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Tag:
    """A tag that Ansible runs or skips, and where it was requested."""

    name: str
    origin: str
    """`command line`, the name of an environment variable, or the path of a configuration file"""


@dataclass(frozen=True)
class PlayOptions:
    """The options of ansible-playbook that leave out plays or tasks."""

    limit: tuple[str, ...] = ()
    """the patterns of --limit; empty if it is not set"""
    run_tags: tuple[Tag, ...] = ()
    skip_tags: tuple[Tag, ...] = ()
    start_at_task: str = ""


@dataclass(frozen=True)
class PlayTarget:
    """A host that a playbook works on."""

    name: str
    groups: frozenset[str]


NEW_MACHINES = (
    PlayTarget("the machines that it creates", frozenset({"all", "cluster", MASTER})),
    PlayTarget("the machines that it creates", frozenset({"all", "cluster", "workers"})),
)


def refusals(playbooks: Iterable[str], options: PlayOptions, has_localhost: bool = False) -> list[str]:
    """Return a sentence for each option that leaves out something, as far as it is known without the machines.

    `has_localhost`: the inventory has a host localhost, so that `all` selects it.
    """
    sentences = []
    for playbook in _entries(playbooks):
        sentences += _tag_refusals(playbook, options)
        if options.start_at_task:
            sentences.append(
                f"--start-at-task {options.start_at_task} leaves out the tasks before it, and later tasks of "
                f"{name_of(playbook)} need their results. Run all of it: it continues from what exists."
            )
        if options.limit and playbook not in TAKE_LIMIT and not selects_localhost(options.limit, has_localhost):
            sentences.append(
                f"--limit {','.join(options.limit)} leaves out localhost, where {name_of(playbook)} runs. This "
                "playbook always works on the whole cluster: run it without --limit."
            )
    return sentences


def machine_refusals(playbooks: Iterable[str], limit: Sequence[str], machines: Sequence[PlayTarget]) -> list[str]:
    """Return a sentence for each playbook whose plays for machines --limit leaves out, in part or altogether."""
    if not limit:
        return []
    sentences = []
    for playbook in _entries(playbooks):
        if playbook not in ON_MACHINES or playbook in TAKE_LIMIT:
            continue
        targets = [*machines, *(NEW_MACHINES if playbook in CREATE_MACHINES else ())]
        missing = [target.name for target in targets if not _selects(limit, target)]
        if missing:
            names = join_names(list(dict.fromkeys(missing)), MOST_NAMES)
            sentences.append(
                f"--limit {','.join(limit)} leaves out {names}, and {name_of(playbook)} works on the whole cluster: "
                "run it without --limit."
            )
    return sentences


def takes_limit(playbooks: Sequence[str]) -> bool:
    """Return whether all these playbooks work on the machines that --limit selects."""
    return bool(playbooks) and all(playbook in TAKE_LIMIT for playbook in playbooks)


def selects_localhost(limit: Sequence[str], has_localhost: bool = False) -> bool:
    """Return whether --limit selects the operator's machine, which only a host of the inventory is in `all`."""
    if has_localhost:
        return _selects(limit, PlayTarget("localhost", frozenset({"all", "ungrouped"})))
    regular, required, excluded = _by_kind(limit)
    is_named = any(pattern in LOCALHOST for pattern in regular)
    is_required = all(pattern in LOCALHOST for pattern in required)
    is_excluded = any(pattern in LOCALHOST for pattern in excluded)
    return is_named and is_required and not is_excluded


def _entries(playbooks: Iterable[str]) -> list[str]:
    """Return the playbooks that people start. Others, such as node.yml, are parts of these."""
    return [playbook for playbook in dict.fromkeys(playbooks) if playbook in PLAYBOOKS]


def _tag_refusals(playbook: str, options: PlayOptions) -> list[str]:
    """Return the refusals of tags. None of our tasks has a tag, so `untagged` selects all of them."""
    sentences = []
    run = [tag.name for tag in options.run_tags]
    if run and not {"all", "untagged"} & set(run):
        sentences.append(_tag_refusal(playbook, "tags", options.run_tags))
    # Other tags are ignored: Molecule skips `notest` in every playbook, for example.
    skipping = [tag for tag in options.skip_tags if tag.name in ("all", "untagged")]
    if skipping:
        sentences.append(_tag_refusal(playbook, "skip-tags", skipping))
    return sentences


def _tag_refusal(playbook: str, option: str, tags: Sequence[Tag]) -> str:
    names = ",".join(tag.name for tag in tags)
    origins = join_names(list(dict.fromkeys(_origin(option, tag.origin) for tag in tags)))
    return (
        f"--{option} {names} ({origins}) leaves out all tasks of {name_of(playbook)}, which have no tags. "
        "Run it without these tags."
    )


def _origin(option: str, origin: str) -> str:
    if origin == COMMAND_LINE:
        return "from the command line"
    if origin.startswith("ANSIBLE_"):
        return f"from the environment variable {origin}"
    key = "run" if option == "tags" else "skip"
    return f"from {key} in the section [tags] of {origin}"


def _by_kind(limit: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the patterns of which a host must match one, those that it must match, and those that it must not."""
    regular = [pattern for pattern in limit if not pattern.startswith(("&", "!"))]
    required = [pattern[1:] for pattern in limit if pattern.startswith("&")]
    excluded = [pattern[1:] for pattern in limit if pattern.startswith("!")]
    return regular or ["all"], required, excluded


def _selects(limit: Sequence[str], target: PlayTarget) -> bool:
    """Return whether --limit selects a host. A pattern with a subscript, such as `workers[0]`, selects none here."""
    regular, required, excluded = _by_kind(limit)
    is_selected = any(_matches(pattern, target) for pattern in regular)
    is_required = all(_matches(pattern, target) for pattern in required)
    is_excluded = any(_matches(pattern, target) for pattern in excluded)
    return is_selected and is_required and not is_excluded


def _matches(pattern: str, target: PlayTarget) -> bool:
    expression = pattern[1:] if pattern.startswith("~") else fnmatch.translate(pattern)
    try:
        compiled = re.compile(expression)
    except re.error:
        return False
    return any(compiled.match(name) for name in (target.name, *target.groups))
