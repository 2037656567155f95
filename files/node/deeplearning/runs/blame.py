"""Whose fault a failed attempt is: the program's, or that of nodes with a bad GPU.

Each node answers for itself alone, so a hostile one can only have itself held.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deeplearning.concurrency import ask_nodes
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.gpus import evidence as evidences
from deeplearning.gpus.evidence import Evidence
from deeplearning.gpus.faults import MOST_TEXT, PROGRAM, Fault
from deeplearning.programs import printable
from deeplearning.runs.survey import GPU_SURVEY_SECONDS, Unanswered, output_of


@dataclass(frozen=True)
class Blame:
    at_fault: Mapping[str, str] = field(default_factory=dict)
    """The nodes to hold, each with the reason."""
    reason: str = ""
    """What the GPUs report, if no node is held for it."""
    notes: Sequence[str] = ()
    """Sentences about nodes that did not answer."""


def blame(evidence: Mapping[str, Sequence[Fault] | None]) -> Blame:
    """Judge a failed attempt. `evidence`: of each node with GPUs, the faults that are new since the attempt began, or
    None if it does not answer."""
    answers = {node: faults for node, faults in evidence.items() if faults is not None}
    own = {node: [fault.text for fault in faults if fault.is_the_nodes] for node, faults in answers.items()}
    faulty = {node: ", ".join(texts) for node, texts in own.items() if texts}
    if len(faulty) == len(answers) > 1:
        node, text = next(iter(faulty.items()))
        nodes = "nodes" if len(answers) == len(evidence) else "nodes that answer"
        return Blame(
            reason=f"the GPUs of all {len(faulty)} {nodes} report faults ({node}: {text}), which is more likely the "
            "program's or the driver's fault, so no node is held"
        )
    if faulty:
        return Blame(faulty)
    programs = [(node, fault) for node, faults in answers.items() for fault in faults if fault.level == PROGRAM]
    return Blame(reason=next((f"{node}: {fault.text}, the program's fault" for node, fault in programs), ""))


def of_attempt(before: Mapping[str, Evidence], stop_requested: Callable[[], bool]) -> Blame:
    """Ask the nodes of a failed attempt, and hold those at fault. `before`: what each with GPUs showed before it."""

    def new_faults(node: str, seconds: float) -> list[Fault] | str:
        """Return a sentence if there is no usable answer."""
        arguments = ["faults", "--after", str(before[node].message)]
        try:
            now = evidences.parse(json.loads(_ask(node, arguments, seconds)), f"the faults of {node}")
        except Unanswered as error:
            return f"{node} does not say what its GPUs report, so nothing is blamed on it: no answer{error}"
        except (UserError, ValueError, RecursionError) as error:
            return f"{node} does not say what its GPUs report, so nothing is blamed on it: {printable(str(error))}"
        return evidences.new_faults(before[node], now)

    def hold(node: str, seconds: float) -> str:
        """If this fails, the node may be selected again, as often as the run may be started again."""
        try:
            _ask(node, ["hold", verdict.at_fault[node][:MOST_TEXT]], seconds)
        except Unanswered as error:
            return f"{node} is at fault and cannot be held: no answer{error}"
        return ""

    answers = dict(zip(before, ask_nodes(new_faults, list(before), GPU_SURVEY_SECONDS, stop_requested)))
    verdict = blame({node: None if isinstance(answer, str) else answer for node, answer in answers.items()})
    failures = ask_nodes(hold, list(verdict.at_fault), GPU_SURVEY_SECONDS, stop_requested)
    return replace(verdict, notes=[text for text in (*answers.values(), *failures) if isinstance(text, str) and text])


def _ask(node: str, arguments: Sequence[str], seconds: float) -> str:
    return output_of(node, ["sudo", "-n", paths.PROGRAM, "gpus", *arguments], seconds)
