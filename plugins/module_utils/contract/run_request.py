# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The request for a run: a JSON object that the operator's side sends, and that the master checks key by key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import run_cost, schema
from .errors import UserError
from .frameworks import FRAMEWORKS, ON_ONE_NODE, RECORDS, distribution_problem, may_have_servers
from .identifiers import ALL_RUNS, RUN_ID
from .member_list import MAX_MACHINES
from .schema import Check, InvalidValue, matching

ACTIVE_STATES = ("waiting", "starting", "running", "stalled", "recovering", "stopping")
"""The states of a run that the master supervises."""
ENDED_STATES = ("finished", "failed", "stopped", "lost")
STATES = ("created", *ACTIVE_STATES, *ENDED_STATES)

_NODES = "a number, a range of numbers like 6-8, or a list of members' names"
_RANGE = re.compile(r"([1-9][0-9]{0,5})-([1-9][0-9]{0,5})")


text = matching(r"[^\0]+", "a text")
argument = matching(r"[^\0]*", "a list of strings")
_node_count = schema.between(1, MAX_MACHINES)
_node_names = schema.list_of(schema.host_name)
absolute_path = matching(r"/.+", "an absolute path")
run_id = matching(f"(?!{ALL_RUNS}$){RUN_ID}", "a run's id: up to 48 of a-z 0-9 . _ - that begin with a letter or digit")


def node_range(value: Any) -> tuple[int, int] | None:
    """Return the least and the greatest number of a range like 6-8, or None if the value is none."""
    match = _RANGE.fullmatch(value) if isinstance(value, str) else None
    least, most = (int(match[1]), int(match[2])) if match else (1, 0)
    return (least, most) if least <= most else None


def nodes(value: Any) -> int | str | list[str]:
    if value == [] or (isinstance(value, str) and not node_range(value)):
        raise InvalidValue(_NODES)
    if isinstance(value, list):
        if len(set(_node_names(value))) < len(value):
            raise InvalidValue("a list that names each member once")
    elif not isinstance(value, str):
        _node_count(value)
    return value  # type: ignore[no-any-return]


def most_nodes(value: int | str | list[str] | None) -> int | None:
    """Return the greatest number of nodes that a request allows, or None if it is for all."""
    if isinstance(value, list):
        return len(value)
    numbers = node_range(value)
    return numbers[1] if numbers else value  # type: ignore[return-value]


def environment(value: Any) -> dict[str, str]:
    try:
        return _environment(value)
    except InvalidValue:
        raise InvalidValue('a map of strings like {"NCCL_DEBUG": "INFO"}') from None


_environment = schema.map_of(matching(r"[^=\0]+", "a name"), argument)
repository = schema.fields_of(url=text, ref=text, commit=text)
local_copy = schema.fields_of(data=schema.text(4096, least=1), source=schema.text(4096), bucket=schema.text(4096))

MOST_PROCESSES = 1024
MOST_REQUIREMENTS = 2**18
"""Bytes of a file."""
DEFAULT_STOP_SECONDS, MOST_STOP_SECONDS = 4, 600


@dataclass(frozen=True)
class Field:
    """A key of a request."""

    check: Check
    default: Any = None
    """Of a new run. A value that is None follows from others, or is optional."""
    option: str = ""
    """The option of train.yml that sets it, if that has another name."""
    fixed_on_resume: bool = False
    recorded: bool = True
    """run.json has it. The environment may hold secrets, and has a file of its own."""
    compared: bool = False
    """Has to be the same in two requests for one run, like the code, the environment and the folder."""
    evaluated_with: bool = False
    """An evaluation of the run has the run's value."""


FIELDS = {
    "run_id": Field(run_id, fixed_on_resume=True),
    "framework": Field(schema.one_of(*FRAMEWORKS), fixed_on_resume=True, compared=True, evaluated_with=True),
    "distribution": Field(schema.word, fixed_on_resume=True, compared=True, evaluated_with=True),
    "script": Field(text, fixed_on_resume=True),
    "as_module": Field(
        schema.boolean, False, option="module", fixed_on_resume=True, compared=True, evaluated_with=True
    ),
    "code": Field(absolute_path, fixed_on_resume=True),
    "repository": Field(repository, recorded=False),
    "script_args": Field(schema.list_of(argument), [], compared=True),
    "python": Field(absolute_path, compared=True, evaluated_with=True),
    "requirements": Field(matching(rf"[^\0]{{1,{MOST_REQUIREMENTS}}}", "a text"), compared=True),
    "data": Field(text, compared=True, evaluated_with=True),
    "local_copy": Field(local_copy, evaluated_with=True),
    "nodes": Field(nodes, compared=True, evaluated_with=True),
    "processes_per_node": Field(schema.between(1, MOST_PROCESSES), compared=True, evaluated_with=True),
    "servers": Field(schema.between(1, MOST_PROCESSES), compared=True, evaluated_with=True),
    "max_restarts": Field(schema.uint32, 3, compared=True),
    "stop_seconds": Field(schema.between(1, MOST_STOP_SECONDS), DEFAULT_STOP_SECONDS, compared=True),
    "processor": Field(schema.boolean, False, compared=True, evaluated_with=True),
    "environment": Field(environment, {}, recorded=False),
    "busy": Field(schema.one_of("wait", "refuse"), "wait", option="on_busy"),
    "resume": Field(run_id, recorded=False),
    "runs_dir": Field(absolute_path, fixed_on_resume=True, recorded=False),
    "requested_by": Field(text, compared=True),
    "prices": Field(run_cost.prices, {}),
}
UNKNOWN_KEY = "A run has no"
"""Begins the refusal of a key. If the operator's version has that key, the master's is another one."""
MISSING_FRAMEWORK = f"framework is missing: give one of {', '.join(FRAMEWORKS)}. Example: -e framework=pytorch"
DEFAULTS = {key: field.default for key, field in FIELDS.items()}
RECORDED = (
    *(key for key, field in FIELDS.items() if field.recorded),
    *("cluster", "cluster_id", "versions", "generated", "requested_at"),
)
"""The keys of run.json in addition to its schema: the request with all defaults filled in and all paths resolved, and
what the master adds."""


def stop_seconds(run: Mapping[str, Any]) -> int:
    """Return the seconds that a run's processes have to save between SIGTERM and SIGKILL.

    A record of an earlier version has none, and training code may have changed it.
    """
    try:
        return int(FIELDS["stop_seconds"].check(run.get("stop_seconds")))
    except InvalidValue:
        return DEFAULT_STOP_SECONDS


def validate(request: Any) -> dict[str, Any]:
    """Return the request without the keys that are null. Defaults are not filled in."""
    if not isinstance(request, dict):
        raise UserError("A run's request is a JSON object, and this is none.")
    values = {key: value for key, value in request.items() if value is not None}
    for key, value in values.items():
        _check(key, value)
    if "requested_by" not in values:
        raise UserError("requested_by is missing: name the user who requests the run.")
    if "resume" not in values:
        require_consistent(values)
        return values
    fixed = sorted(key for key in values if FIELDS[key].fixed_on_resume)
    if fixed:
        raise UserError(f"{', '.join(fixed)} cannot be changed when a run is resumed: start a new run instead.")
    return values


def _check(key: str, value: Any) -> None:
    if key not in FIELDS:
        similar = difflib.get_close_matches(key, FIELDS, 1)
        advice = f"is {similar[0]} meant?" if similar else f"it has {', '.join(FIELDS)}."
        raise UserError(f"{UNKNOWN_KEY} {key}: {advice}")
    try:
        FIELDS[key].check(value)
    except InvalidValue as invalid:
        raise UserError(f"{key} is {schema.quoted(key, value)}: give {invalid}.") from None


def require_consistent(values: Mapping[str, Any]) -> None:
    """Raise UserError for the first conflict between keys of a whole request."""
    if values.get("framework") is None:
        raise UserError(MISSING_FRAMEWORK)
    for problem in conflicts(values):
        raise UserError(problem)
    if "code" in values and "script" not in values:
        raise UserError("code is given without script: name the file of it that is started. Example: script=train.py")


def conflicts(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each conflict between keys. Keys that are missing or None conflict with nothing."""
    framework, distribution = values.get("framework"), values.get("distribution")
    problem = distribution_problem(framework, distribution) if framework and distribution else ""
    if problem:
        yield problem
    if values.get("python") and values.get("requirements"):
        yield (
            "requirements and python are given together: requirements add to the framework's environment, and a Python "
            "of your own has packages of its own. Leave one out"
        )
    requested = values.get("nodes")
    number = most_nodes(requested) or 1
    if distribution in ON_ONE_NODE and number > 1:
        yield (
            f"distribution is {distribution}, which trains on one node, and nodes is {requested}: give nodes=1, or "
            "another distribution. Example: -e distribution=dist_sync"
        )
    servers = values.get("servers")
    if servers and not may_have_servers(framework, distribution):
        yield (
            f"servers is {servers}, and {distribution or framework} has no parameter servers: leave it out, or give a "
            "distribution that has them. Example: -e distribution=parameter_server"
        )
    from_s3 = [word for word in values.get("script_args") or () if "s3://" in word]
    record = RECORDS.get(framework or "")
    if record and not record.reads_s3 and from_s3 and not values.get("python"):
        bucket = from_s3[0].partition("s3://")[2].split("/")[0] or "bucket"
        yield (
            f"script_args has {from_s3[0]}, and this {framework} cannot read S3: let the data be staged, and write "
            f"{{data}} in its place. Example: -e dataset=s3://{bucket}/folder"
        )
