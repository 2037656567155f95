"""Compare what our code sends and the local cloud answers with the models of AWS's services, while tests run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from botocore import xform_name

from localcloud.testing.models import VARIABLE, Origin, origins_variable

__all__ = ["VARIABLE"]

ROOT = Path(__file__).resolve().parents[1]
SUFFIX = ".forms"
"""Of the file that a layer records in."""
DEVIATIONS = ROOT / "tests/deviations.yml"
OLDEST = ROOT / "tests/unit/node/oldest_botocore.json"
"""What the oldest botocore of a node's system knows of the node program's calls. tools/node_calls.py makes it."""

COLLECTION, NODE, BOOT = "collection", "node", "boot"
"""Where a request comes from: modules and plugins, the node program, or its first stage, which has no SDK."""
ORIGINS = origins_variable(
    Origin(COLLECTION, r".*(Ansible/|deeplearning\.aws)"),
    Origin(NODE, "Botocore/", on_instances=True),
    Origin(BOOT, "Python-urllib/", on_instances=True),
)
"""The variable of the environment that lets the local cloud compare the requests of our code alone. Other programs on
nodes have boto3 or AWS's CLI."""


class Problem(NamedTuple):
    call: str
    """as `ec2:DescribeVpcs`"""
    side: str
    """request or answer"""
    problem: str

    def __str__(self) -> str:
        return f"{self.call}, {self.side}: {self.problem}"


@dataclass
class Seen:
    """What a layer has recorded."""

    requests: set[str] = field(default_factory=set)
    """lines of the record, each of them a form"""
    answers: set[str] = field(default_factory=set)
    operations: set[str] = field(default_factory=set)
    problems: set[Problem] = field(default_factory=set)
    of_nodes: dict[str, set[str]] = field(default_factory=dict)
    """the members that requests of the node program have, by call"""

    def __str__(self) -> str:
        operations, requests, answers = len(self.operations), len(self.requests), len(self.answers)
        return (
            f"{operations} operations, {requests} forms of requests and {answers} of answers compared with AWS's models"
        )


def read(*files: Path) -> Seen:
    seen = Seen()
    for line in (line for file in files if file.exists() for line in file.read_text(encoding="utf-8").splitlines()):
        form = json.loads(line)
        seen.operations.add(form["call"])
        seen.problems |= {Problem(form["call"], form["side"], problem) for problem in form["problems"]}
        if form["side"] == "answer":
            seen.answers.add(line)
            continue
        seen.requests.add(line)
        if form["origin"] == NODE:
            seen.of_nodes.setdefault(form["call"], set()).update(form["members"])
    return seen


def problems(seen: Seen) -> list[str]:
    """Return a line for each problem that is not accepted."""
    accepted = deviations(DEVIATIONS.read_text(encoding="utf-8"))
    return [
        *(str(problem) for problem in sorted(seen.problems - accepted)),
        *too_new(seen.of_nodes, json.loads(OLDEST.read_text(encoding="utf-8"))),
    ]


OF_BOTOCORE = {"s3": {"ChecksumAlgorithm", "ChecksumMode"}}
"""What botocore 1.36 and later add to a service's requests by themselves: Debian 13 has such a one."""


def too_new(of_nodes: Mapping[str, Iterable[str]], oldest: Mapping[str, Any]) -> Iterator[str]:
    """Yield what nodes send and the oldest botocore does not know."""
    for call, members in sorted(of_nodes.items()):
        service, operation = call.split(":")
        known = oldest["operations"].get(f"{service} {xform_name(operation)}")
        if known is None:
            yield f"{call}: nodes call it, and {_name(OLDEST)} does not have it. Renew it with tools/node_calls.py"
            continue
        for member in sorted(set(members) - set(known["input"]) - OF_BOTOCORE.get(service, set())):
            yield f"{call}, request: {member}: botocore {oldest['botocore']} of nodes does not know it"


def deviations(text: str) -> set[Problem]:
    """Read the accepted problems. Each entry needs a reason."""
    accepted: set[Problem] = set()
    for entry in yaml.safe_load(text):
        if set(entry) != {"calls", "side", "problems", "reason"} or not entry["reason"]:
            raise ValueError(f"{entry}: a deviation has calls, side, problems and reason")
        accepted |= {Problem(call, entry["side"], problem) for call in entry["calls"] for problem in entry["problems"]}
    return accepted


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))
