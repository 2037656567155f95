"""Compare what our code sends and the local cloud answers with the models of AWS's services, while tests run.

python -m tests.models      merge the operations that build/tests has recorded into tests/operations.json
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from botocore import xform_name

from localcloud.models import NODE, VARIABLE

__all__ = ["VARIABLE"]

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "build/tests"
SUFFIX = ".forms"
"""Of the file that a layer records in."""
OPERATIONS = ROOT / "tests/operations.json"
"""The operations that our code calls, with the layers that have seen it."""
DEVIATIONS = ROOT / "tests/deviations.yml"
OLDEST = ROOT / "tests/unit/node/oldest_botocore.json"
"""What the oldest botocore of a node's system knows of the node program's calls. tools/node_calls.py makes it."""
UPDATE = ".venv/bin/python -m tests.models"


class Problem(NamedTuple):
    call: str
    """as `ec2:DescribeVpcs`"""
    side: str
    """request or answer"""
    problem: str

    def __str__(self) -> str:
        return f"{self.call}, {self.side}: {self.problem}"


@dataclass(frozen=True)
class Deviation:
    """A problem that is accepted, in a layer that always has it."""

    problem: Problem
    layer: str


@dataclass
class Seen:
    """What a layer has recorded."""

    requests: set[str] = field(default_factory=set)
    """lines of the record, each of them a form"""
    answers: set[str] = field(default_factory=set)
    operations: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    """by our own code"""
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
        seen.called.add(form["call"])
        if form["origin"] == NODE:
            seen.of_nodes.setdefault(form["call"], set()).update(form["members"])
    return seen


def problems(seen: Seen, layer: str) -> list[str]:
    """Return a line for each problem of a layer. Without its name, the record may lack what is always seen."""
    accepted = deviations(DEVIATIONS.read_text(encoding="utf-8"))
    known = {deviation.problem for deviation in accepted}
    always = {deviation.problem for deviation in accepted if deviation.layer == layer}
    return [
        *(str(problem) for problem in sorted(seen.problems - known)),
        *(
            f"{finding}: not seen any more. Remove it from {_name(DEVIATIONS)}"
            for finding in sorted(always - seen.problems)
        ),
        *too_new(seen.of_nodes, json.loads(OLDEST.read_text(encoding="utf-8"))),
    ]


def unlisted(seen: Seen) -> list[str]:
    """Return a line for each operation that the list lacks. It fails nothing, as what is called when things go wrong is
    seen in one run and not in the next."""
    return [
        f"{call}: not in {_name(OPERATIONS)}. Update it: {UPDATE}" for call in sorted(seen.called - set(operations()))
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


def deviations(text: str) -> list[Deviation]:
    """Read the accepted problems. Each entry needs a reason."""
    read_ones = []
    for entry in yaml.safe_load(text):
        if set(entry) != {"calls", "side", "problems", "layer", "reason"} or not entry["reason"]:
            raise ValueError(f"{entry}: a deviation has calls, side, problems, layer and reason")
        read_ones += [
            Deviation(Problem(call, entry["side"], problem), entry["layer"])
            for call in entry["calls"]
            for problem in entry["problems"]
        ]
    return read_ones


def operations() -> dict[str, list[str]]:
    known: dict[str, list[str]] = json.loads(OPERATIONS.read_text(encoding="utf-8"))
    return known


def merge() -> None:
    """Replace what each recorded layer has seen, and drop the operations that no layer has seen."""
    known = {call: set(layers) for call, layers in operations().items()}
    for file in RECORDS.glob(f"*{SUFFIX}"):
        for layers in known.values():
            layers.discard(file.stem)
        for call in read(file).called:
            known.setdefault(call, set()).add(file.stem)
    lines = [f' "{call}": {json.dumps(sorted(layers))}' for call, layers in sorted(known.items()) if layers]
    OPERATIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


if __name__ == "__main__":
    merge()
