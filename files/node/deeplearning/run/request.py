"""What a run is asked to be: one JSON object, checked key by key before anything else is looked at."""

from __future__ import annotations

import difflib
from typing import Any

from deeplearning import Refusal, records
from deeplearning.records import Check, Wrong, matching
from deeplearning.run.folder import RUN_ID
from deeplearning.run.plan import DISTRIBUTIONS, ON_ONE_NODE
from deeplearning.run.source import without_secret


def a_text(value: Any) -> None:
    if not isinstance(value, str) or not value or "\0" in value:
        raise Wrong("a text")


def an_argument(value: Any) -> None:
    if not isinstance(value, str) or "\0" in value:
        raise Wrong("a list of strings")


def count(value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Wrong("a whole number, 1 or more")


def places(value: Any) -> None:
    if isinstance(value, list):
        if not value:
            raise Wrong("a number, or a list of members' names")
        for name in value:
            records.host_name(name)
        if len(set(value)) < len(value):
            raise Wrong("a list that names each member once")
    else:
        count(value)


def an_environment(value: Any) -> None:
    if not isinstance(value, dict):
        raise Wrong('a map of strings like {"NCCL_DEBUG": "INFO"}')
    for name, text in value.items():
        if not isinstance(name, str) or not name or "=" in name or not isinstance(text, str) or "\0" in name + text:
            raise Wrong('a map of strings like {"NCCL_DEBUG": "INFO"}')


FIELDS: dict[str, Check] = {
    "run_id": matching(RUN_ID, "a run's id: up to 48 of a-z 0-9 . _ - that begin with a letter or digit"),
    "framework": records.one_of(*DISTRIBUTIONS),
    "distribution": records.word,
    "script": a_text,
    "code": matching(r"/.+", "an absolute path"),
    "script_args": records.a_list(an_argument),
    "python": matching(r"/.+", "an absolute path"),
    "data": a_text,
    "nodes": places,
    "processes_per_node": count,
    "servers": count,
    "max_restarts": records.number,
    "environment": an_environment,
    "busy": records.one_of("wait", "refuse"),
    "resume": matching(RUN_ID, "a run's id"),
    "runs_dir": matching(r"/.+", "an absolute path"),
    "asked_by": a_text,
}
DEFAULTS: dict[str, Any] = {"script_args": [], "max_restarts": 3, "environment": {}, "busy": "wait"}
OF_A_RESUMED_RUN = {
    "script_args",
    "data",
    "nodes",
    "processes_per_node",
    "servers",
    "max_restarts",
    "environment",
    "busy",
    "python",
    "resume",
    "asked_by",
}


def checked(request: Any) -> dict[str, Any]:
    """The request, whole and without what is null; defaults are not filled in."""
    if not isinstance(request, dict):
        raise Refusal("A run's request is a JSON object, and this is none.")
    given = {key: value for key, value in request.items() if value is not None}
    for key, value in given.items():
        if key not in FIELDS:
            near = difflib.get_close_matches(key, FIELDS, 1)
            advice = f"is {near[0]} meant?" if near else f"it has {', '.join(FIELDS)}."
            raise Refusal(f"A run has no {key}: {advice}")
        try:
            FIELDS[key](value)
        except Wrong as wrong:
            raise Refusal(f"{key} is {without_secret(records.quoted(key, value))}: give {wrong}.") from None
    if "asked_by" not in given:
        raise Refusal("asked_by is missing: say who asks for the run.")
    if "resume" in given:
        other = sorted(given.keys() - OF_A_RESUMED_RUN)
        if other:
            raise Refusal(f"{', '.join(other)} cannot be changed when a run is resumed: start a new run instead.")
    else:
        consistent(given)
    return given


def consistent(given: dict[str, Any]) -> None:
    """Of a whole request: keys that say something about one another."""
    framework = given.get("framework")
    if framework is None:
        raise Refusal(f"framework is missing: give one of {', '.join(DISTRIBUTIONS)}. Example: -e framework=pytorch")
    distribution = given.get("distribution")
    known = DISTRIBUTIONS[framework]
    if distribution is not None and distribution not in known:
        raise Refusal(f"distribution is {distribution}, which {framework} has not: give one of {', '.join(known)}.")
    nodes = given.get("nodes")
    if distribution in ON_ONE_NODE and nodes is not None and (len(nodes) if isinstance(nodes, list) else nodes) > 1:
        raise Refusal(f"distribution is {distribution}, which is for one node, and nodes is {nodes!r}: give nodes=1.")
    if "code" in given and "script" not in given:
        raise Refusal("code is given without script: say which of its files is started. Example: script=train.py")
    from_s3 = [word for word in given.get("script_args", ()) if "s3://" in word]
    if framework == "mxnet" and from_s3 and "python" not in given:
        raise Refusal(
            f"script_args has {from_s3[0]}, and this MXNet cannot read S3: let the data be staged. "
            "Example: -e data=s3://bucket/folder, and {data} in script_args"
        )
