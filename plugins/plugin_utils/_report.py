# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""From the folders of training runs to a table and plots: one page of HTML that needs nothing else, and PNG.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils import _answers
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _untrusted as u
from ansible_collections.deeplearning.aws.plugins.plugin_utils._plot import Plot, Series

DEFAULT_BATCH = 128
"""of the example trainers"""
GENERATED = "The data was generated: its accuracies say that training works, and nothing of any other data."


class Unreportable(Exception):
    """Says in a sentence why."""


@dataclass(frozen=True)
class Run:
    id: str
    framework: str
    distribution: str
    arguments: tuple[str, ...]
    example: bool
    """one of our own trainers, whose arguments we know"""
    data: str
    generated: bool
    nodes: int
    processes: int
    """that train"""
    state: str
    ranks: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """what each of them wrote"""

    @property
    def epochs(self) -> list[Mapping[str, Any]]:
        """Of the first rank, the last line of each epoch: for accuracy is the same on all."""
        last = {line["epoch"]: line for line in self._first if line.get("epoch") is not None}
        return [last[epoch] for epoch in sorted(last)]

    @property
    def _first(self) -> Sequence[Mapping[str, Any]]:
        return self.ranks[min(self.ranks)] if self.ranks else ()

    @property
    def seconds(self) -> float | None:
        return _number(self._first[-1].get("seconds")) if self._first else None

    @property
    def throughput(self) -> float | None:
        """Of all ranks. The first epoch has the start in it, so it counts only if there is no other."""
        speeds = [speed for lines in self.ranks.values() if (speed := _speed(lines)) is not None]
        return sum(speeds) if speeds else None

    @property
    def accuracy(self) -> float | None:
        found = [_number(line.get("val_accuracy")) for line in self._first]
        return next((value for value in reversed(found) if value is not None), None)

    @property
    def global_batch(self) -> int | None:
        """Samples to a change of the weights. Parameter servers change them with each worker's batch."""
        if not self.example:
            return None
        sizes = [
            value for name, value in zip(self.arguments, self.arguments[1:], strict=False) if name == "--batch-size"
        ]
        sizes += [word.partition("=")[2] for word in self.arguments if word.startswith("--batch-size=")]
        size = int(sizes[-1]) if sizes and re.fullmatch("[0-9]{1,9}", sizes[-1]) else DEFAULT_BATCH
        alone = self.distribution in ("parameter_server", "dist_async") or "--no-exchange" in self.arguments
        return size if alone else size * max(self.processes, 1)

    @property
    def comparable(self) -> tuple[object, ...]:
        """Runs that agree in this differ in the number of nodes alone."""
        return self.framework, self.example, self.arguments, self.data

    @property
    def name(self) -> str:
        return f"{self.framework} {self.distribution}, {self.nodes} node{'s' if self.nodes != 1 else ''}"


def _speed(lines: Sequence[Mapping[str, Any]]) -> float | None:
    of_epochs = [line for line in lines if line.get("val_accuracy") is not None] or list(lines)
    later = [line for line in of_epochs if line.get("epoch") != of_epochs[0].get("epoch")] or of_epochs
    speeds = [speed for line in later if (speed := _number(line.get("samples_per_second"))) is not None]
    return median(speeds) if speeds else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


# What a node has written into a run's folder, in the types that a report needs.
_REQUEST = u.record(
    run_id=_answers.run_id,
    framework=_answers.framework,
    distribution=_answers.distribution,
    script=u.optional(u.words),
    script_args=u.optional(u.list_of(u.words)),
    data=u.optional(u.words),
    generated=u.optional(u.flag),
)
_RESULT = u.record(state=u.choice(*_answers.STATES))
_STATE = u.record(processes=_answers.processes)
_FIGURES = ("epoch", "loss", "seconds", "samples_per_second", "val_accuracy")
_LINE = u.record(**dict.fromkeys(_FIGURES, u.lenient(u.number)))
MOST_LINES = 2_000_000
"""Of metrics, of one run: each takes memory here."""


def read(folder: Path) -> Run:
    """A user's own script may have written no metrics: that is a run without figures."""
    try:
        run = _REQUEST(u.from_json((folder / "run.json").read_bytes()))
        result = _if_there(folder / "result.json", _RESULT)
        processes = _if_there(folder / "state.json", _STATE).get("processes", [])
    except (OSError, u.Malformed) as error:
        raise Unreportable(f"{folder} is no folder of a run: {error}. Give runs that `status.yml` shows.") from error
    if run["run_id"] != folder.name:
        raise Unreportable(f"{folder} holds another run, {run['run_id']}. Give runs that `status.yml` shows.")
    return Run(
        id=run["run_id"],
        framework=run["framework"],
        distribution=run["distribution"],
        arguments=tuple(run["script_args"] or ()),
        example=Path(run["script"] or "").parent.name == "trainers" or not run["script"],
        data=run["data"] or "",
        generated=bool(run["generated"]),
        nodes=len({process["node"] for process in processes}),
        processes=sum(process["role"] == "worker" for process in processes),
        state=result.get("state", "running"),
        ranks=_metrics(folder / "metrics"),
    )


def _if_there(file: Path, parse: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    return parse(u.from_json(file.read_bytes())) if file.exists() else {}


def _metrics(folder: Path) -> dict[int, list[Mapping[str, Any]]]:
    files = {path.stem.removeprefix("rank"): path for path in folder.glob("rank*.jsonl")}
    found: dict[int, list[Mapping[str, Any]]] = {}
    count = 0
    for rank, path in files.items():
        lines = [] if not rank.isdecimal() else list(islice(_lines(path), MOST_LINES + 1 - count))
        count += len(lines)
        if count > MOST_LINES:
            raise Unreportable(f"{folder} has more than {MOST_LINES} lines of metrics: let the script write fewer.")
        if lines:
            found[int(rank)] = lines
    return found


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Those with a figure. A line that was not written to its end is left out."""
    with path.open("rb") as file:
        for line in file:
            try:
                figures = _LINE(u.from_json(line))
            except u.Malformed:
                continue
            if any(value is not None for value in figures.values()):
                yield figures


COLUMNS = (
    "run",
    "nodes",
    "processes",
    "global batch",
    "time (s)",
    "samples/s of each",
    "samples/s in all",
    "accuracy",
    "speed-up",
    "efficiency",
)


def table(runs: Sequence[Run]) -> list[list[str]]:
    return [[_shown(value, places) for value, places in _row(run, _base(run, runs))] for run in runs]


def _base(run: Run, runs: Sequence[Run]) -> Run | None:
    """The one on the fewest nodes that this is compared with."""
    alike = [other for other in runs if other.comparable == run.comparable and other.throughput and other.nodes]
    return min(alike, key=lambda other: other.nodes, default=None)


def _row(run: Run, base: Run | None) -> list[tuple[object, int]]:
    speed = run.throughput
    faster = speed / base.throughput if speed and base and base.throughput and base.id != run.id else None
    if base and base.id == run.id:
        faster = 1.0
    efficiency = faster / (run.nodes / base.nodes) if faster and base and run.nodes else None
    state = "" if run.state == "finished" else f" ({run.state})"
    return [
        (f"{run.id}{state}", 0),
        (run.nodes or None, 0),
        (run.processes or None, 0),
        (run.global_batch, 0),
        (run.seconds, 1),
        (speed / len(run.ranks) if speed else None, 1),
        (speed, 1),
        (run.accuracy, 3),
        (faster, 2),
        (efficiency, 2),
    ]


def _shown(value: object, places: int) -> str:
    number = _number(value)
    return ("" if value is None else str(value)) if number is None else f"{number:,.{places}f}"


def plots(runs: Sequence[Run]) -> dict[str, Plot]:
    """By the name of their file; none that would be empty."""
    with_lines = [run for run in runs if run.epochs]
    names = [run.name for run in with_lines]
    named = {run.id: run.name if names.count(run.name) == 1 else run.id for run in with_lines}
    curves = {
        "accuracy": ("Accuracy on the test set", "epoch", "accuracy", "epoch", "val_accuracy"),
        "accuracy-by-time": ("Accuracy by time", "seconds of training", "accuracy", "seconds", "val_accuracy"),
        "loss": ("Loss in training", "epoch", "loss", "epoch", "loss"),
    }
    found = {}
    for name, (title, across, up, x, y) in curves.items():
        series = [Series(named[run.id], points) for run in with_lines if (points := _points(run, x, y))]
        if series:
            found[name] = Plot(title, across, up, series)
    return found | _scaling(runs)


def _points(run: Run, across: str, up: str) -> list[tuple[float, float]]:
    pairs = [(_number(line.get(across)), _number(line.get(up))) for line in run.epochs]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _scaling(runs: Sequence[Run]) -> dict[str, Plot]:
    """Throughput and speed-up by nodes, where there are runs that differ in these alone."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        if run.throughput and run.nodes:
            groups.setdefault(run.comparable, []).append(run)
    swept = [sorted(group, key=lambda run: run.nodes) for group in groups.values()]
    swept = [group for group in swept if group[0].nodes != group[-1].nodes]
    if not swept:
        return {}
    nodes = sorted({run.nodes for group in swept for run in group})
    speeds, faster = [], []
    for group in swept:
        points = [(float(run.nodes), run.throughput or 0.0) for run in group]
        speeds.append(Series(group[0].framework, points))
        faster.append(Series(group[0].framework, [(count, speed / points[0][1]) for count, speed in points]))
    least = nodes[0]
    ideal = Series("ideal", [(count, count / least) for count in nodes], dashed=True)
    marks = [0.0, *map(float, nodes)]
    return {
        "throughput": Plot("Throughput", "nodes", "samples/s in all", speeds, marks),
        "scaling": Plot("Scaling", "nodes", "speed-up", [*faster, ideal], marks),
    }


STYLE = """
body { font-family: sans-serif; color: #333; max-width: 74rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
td { white-space: nowrap; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; margin: 2rem 0; }
"""


def page(runs: Sequence[Run]) -> str:
    """Nothing in it is fetched from anywhere."""
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    rows = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table(runs)]
    asked = [
        f"<li>{escape(run.id)}: {escape(run.name)}, data {escape(run.data or 'none')}, "
        f"arguments <code>{escape(' '.join(run.arguments) or 'none')}</code></li>"
        for run in runs
    ]
    note = f"<p><strong>{GENERATED}</strong></p>" if any(run.generated for run in runs) else ""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Training runs</title><style>{STYLE}</style></head><body>
<h1>Training runs</h1>
{note}
<table><thead><tr>{head}</tr></thead><tbody>
{chr(10).join(rows)}
</tbody></table>
<p>Time is that of training, without start and evaluation. Samples per second are the median of all epochs but the
first. Speed-up and efficiency are by samples per second, against the run on the fewest nodes with the same
arguments.</p>
<div class="plots">
{chr(10).join(plot.svg() for plot in plots(runs).values())}
</div>
<h2>What was asked</h2>
<ul>
{chr(10).join(asked)}
</ul>
</body></html>
"""


def text(runs: Sequence[Run]) -> list[str]:
    """The table for a terminal."""
    rows = [list(COLUMNS), *table(runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)) for row in rows]
    named = [f"{row[0]:<{widths[0]}}  {line}".rstrip() for row, line in zip(rows, lines, strict=True)]
    return named + ([GENERATED] if any(run.generated for run in runs) else [])


def written(folders: Sequence[Path], folder: Path) -> tuple[list[str], list[Path]]:
    """Makes report.html and the plots as PNG in a folder; returns lines for a terminal, and the files."""
    runs = sorted((read(one) for one in folders), key=lambda run: (run.framework, run.nodes, run.id))
    files = [folder / "report.html"]
    files[0].write_text(page(runs), encoding="utf-8")
    lines = text(runs)
    for name, plot in plots(runs).items():
        image = plot.png()
        if image is None:
            return [*lines, "No PNG was made, since Pillow is missing: pip install pillow."], files
        files.append(folder / f"{name}.png")
        files[-1].write_bytes(image)
    return lines, files
