"""Figures of the cluster and its runs for Prometheus: a file that the node exporter's textfile collector reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deeplearning.config import Config
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.report import READY
from deeplearning.contract.run_request import ACTIVE_STATES
from deeplearning.contract.run_stall import STALLED
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.members.member_list import Members, read_applied
from deeplearning.views.curves import FIGURES, step_seconds
from deeplearning.views.snapshot import active_runs

SECONDS = 20.0

Sample = tuple[str, Mapping[str, str], float]
"""A name, labels, and a figure."""

HELP = {
    "deeplearning_members": "Machines in the member list.",
    "deeplearning_members_desired": "Machines that the Auto Scaling groups should have.",
    "deeplearning_member_ready": "1 if the member has reported no fault and is not held, with its state.",
    "deeplearning_run_state": "1 for the state that an active run is in.",
    "deeplearning_run_nodes": "Nodes that the run uses.",
    "deeplearning_run_epoch": "Epoch of the run's slowest rank.",
    "deeplearning_run_step": "Step of the run's slowest rank.",
    "deeplearning_run_step_seconds": "Seconds that a step took, during the last minute.",
    "deeplearning_run_loss": "Loss of the newest step, averaged over ranks.",
    "deeplearning_run_accuracy": "Accuracy on the training data, averaged over ranks.",
    "deeplearning_run_val_accuracy": "Accuracy of the newest evaluation.",
    "deeplearning_run_samples_per_second": "Throughput, summed over ranks.",
    "deeplearning_run_seconds_left": "Estimated seconds until the run ends.",
    "deeplearning_run_silent": "1 for each process that is named for the stall of a run.",
    "deeplearning_run_stall_usd_per_hour": "What the machines of a stalled run cost, if that is known.",
    "deeplearning_run_progress_timestamp_seconds": "Time of the newest progress.",
}
"""All are gauges."""


def write(config: Config) -> None:
    """Write the file. If the runs cannot be read, it keeps its figures, and its age shows that."""
    try:
        runs = within(SECONDS, lambda: active_runs(config))
    except DeadlineExceeded:
        raise UserError(f"{config.efs_mount} does not answer within {SECONDS:g} s.") from None
    text = render([*of_members(read_applied()), *of_runs(runs)])
    # Written even if nothing has changed: an alert watches its age.
    atomic_file.replace(paths.METRICS, text.encode("utf-8"))


def of_members(members: Members) -> Iterator[Sample]:
    yield "deeplearning_members", {}, len(members.members)
    yield "deeplearning_members_desired", {}, members.desired
    for member in members.members:
        labels = {"member": member.alias, "state": member.state}
        yield "deeplearning_member_ready", labels, float(member.state == READY)


def of_runs(runs: Sequence[Mapping[str, Any]]) -> Iterator[Sample]:
    for run in runs:
        for name, labels, value in _of_run(run):
            yield f"deeplearning_run_{name}", {"run": run["run_id"], **labels}, value


def _of_run(run: Mapping[str, Any]) -> Iterator[Sample]:
    if run["state"] in ACTIVE_STATES:
        yield "state", {"framework": run["framework"], "state": run["state"]}, 1
    yield "nodes", {}, run["nodes"]
    if run["state"] == STALLED and run["stall"]:
        for process in run["stall"]["silent"]:
            labels = {"node": process["node"], "role": process["role"], "process_rank": str(process["rank"])}
            yield "silent", labels, 1
        if run["stall"]["hourly"] is not None:
            yield "stall_usd_per_hour", {}, run["stall"]["hourly"]
    points = run["points"]
    if points:
        yield "progress_timestamp_seconds", {}, points[-1]["time"]
        figures = {**{name: points[-1][name] for name in FIGURES}, "step_seconds": step_seconds(points)}
        yield from ((name, {}, value) for name, value in figures.items() if value is not None)


def render(samples: Iterable[Sample]) -> str:
    """Return Prometheus' text format. No label's value needs an escape: they are ids, aliases and words of our own."""
    figures: dict[str, list[str]] = {}
    for name, labels, value in samples:
        figures.setdefault(name, []).append(f"{name}{_labels(labels)} {value:.10g}")
    lines = []
    for name, purpose in HELP.items():
        if name in figures:
            lines += [f"# HELP {name} {purpose}", f"# TYPE {name} gauge", *figures[name]]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else ""
