# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The report on training runs, made from their folders: a page of HTML with a table and plots, and no other files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from ...module_utils.contract import html_page, schema
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.run_cost import CURRENCY
from ...module_utils.contract.run_request import STATES
from ...module_utils.contract.tables import text_table
from ...module_utils.plan import offers
from ...module_utils.plan.prices import PriceList
from .. import untrusted as u
from . import answers
from .plot import Plot, Series

DEFAULT_BATCH = 128
"""Of the example trainers."""
EXAMPLE = (
    "An example trainer's network is small: its speed is that of Python and of the exchange more than that of a GPU, "
    "and its speed-up is not that of another model. Measure with a script of your own."
)
GENERATED = "The data was generated: its accuracies show that training works, and say nothing about real data."


@dataclass(frozen=True)
class ReportedRun:
    """A run as its folder describes it."""

    id: str
    framework: str
    distribution: str
    arguments: tuple[str, ...]
    example: bool
    """The script is one of the example trainers, whose arguments are known."""
    data: str
    generated: bool
    nodes: int
    processes: int
    """Without parameter servers and the like."""
    state: str
    ranks: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The metrics of each rank, line by line. A figure that a line does not have is None."""
    machine_hours: Mapping[str, float] = field(default_factory=dict)
    """Of all attempts, by instance type."""
    gpu_busy: float | None = None
    """Percent, of the last attempt on GPUs."""

    def cost(self, prices: PriceList) -> float | None:
        """Return what the machines cost while the attempts ran; None if that is not known."""
        amounts = [(prices.amount(offers.machine(kind)), hours) for kind, hours in self.machine_hours.items()]
        known = [price * hours for price, hours in amounts if price is not None]
        return sum(known) if amounts and len(known) == len(amounts) else None

    @property
    def epochs(self) -> list[Mapping[str, Any]]:
        """Return the last line of each epoch of the first rank: accuracy is the same on all ranks."""
        last = {line["epoch"]: line for line in self._first if line["epoch"] is not None}
        return [last[epoch] for epoch in sorted(last)]

    @property
    def _first(self) -> Sequence[Mapping[str, Any]]:
        return self.ranks[min(self.ranks)] if self.ranks else ()

    @property
    def seconds(self) -> float | None:
        return self._first[-1]["seconds"] if self._first else None

    @property
    def throughput(self) -> float | None:
        """Return samples/s of all ranks. The first epoch includes the start, so it counts only if there is no other."""
        speeds = [speed for lines in self.ranks.values() if (speed := _speed(lines)) is not None]
        return sum(speeds) if speeds else None

    def evaluated(self, figure: str) -> float | None:
        """Return the last value of a figure that only the lines after an evaluation have."""
        return next((line[figure] for line in reversed(self._first) if line[figure] is not None), None)

    @property
    def reporting(self) -> int:
        """Return the number of ranks that the figures are of. A line may have the figures of several."""
        return sum(max(1, int(lines[-1]["ranks"] or 1)) for lines in self.ranks.values())

    def _option(self, name: str, pattern: str, default: str) -> str:
        """Return an option of an example trainer."""
        values = [value for word, value in zip(self.arguments, self.arguments[1:], strict=False) if word == name]
        values += [word.partition("=")[2] for word in self.arguments if word.startswith(f"{name}=")]
        return values[-1] if values and re.fullmatch(pattern, values[-1]) else default

    @property
    def _batch(self) -> int:
        return int(self._option("--batch-size", "[0-9]{1,9}", str(DEFAULT_BATCH)))

    @property
    def global_batch(self) -> int | None:
        """Return the samples per update of the weights. Parameter servers update them with each worker's batch."""
        if not self.example:
            return None
        independent = self.distribution in ("parameter_server", "dist_async") or "--no-exchange" in self.arguments
        return self._batch if independent else self._batch * max(self.processes, 1)

    @property
    def measured(self) -> str:
        """Return the model, batch and precision of an example trainer; nothing of a script that is not known."""
        if not self.example:
            return ""
        network = self._option("--network", "lenet|resnet", "lenet")
        layers = f" of {self._option('--num-layers', '[0-9]{1,4}', '20')} layers" if network == "resnet" else ""
        bits = 16 if "--mixed-precision" in self.arguments else 32
        return f"{self.framework}: {network}{layers}, batches of {self._batch} in each process, {bits} bits"

    @property
    def comparable(self) -> tuple[object, ...]:
        """Return what is equal in runs that differ only in their number of nodes."""
        return self.framework, self.example, self.arguments, self.data

    @property
    def name(self) -> str:
        return f"{self.framework} {self.distribution}, {self.nodes} node{'s' if self.nodes != 1 else ''}"


def _speed(lines: Sequence[Mapping[str, Any]]) -> float | None:
    of_epochs = [line for line in lines if line["val_accuracy"] is not None] or list(lines)
    later = [line for line in of_epochs if line["epoch"] != of_epochs[0]["epoch"]] or of_epochs
    speeds = [line["samples_per_second"] for line in later if line["samples_per_second"] is not None]
    return median(speeds) if speeds else None


def _time(value: Any) -> float:
    try:
        return schema.parse_time(schema.timestamp(value))
    except ValueError:
        raise u.InvalidValue("a time") from None


_ATTEMPT = u.record(
    started=_time,
    # An attempt that a master's outage interrupted may have none.
    ended=u.optional(_time),
    machines=u.optional(u.map_of(schema.instance_type, u.between(1, u.MOST_ITEMS), 16)),
    gpu_busy_percent=u.optional(u.between(0, 100)),
)
_RESULT = u.record(state=u.one_of(*STATES), attempts=u.optional(u.list_of(_ATTEMPT)))
_STATE = u.record(processes=answers.processes)
_LINE = u.record(
    **answers.figures("epoch", "loss", "seconds", "samples_per_second", "val_accuracy", "average_precision", "ranks")
)
MOST_LINES = 2_000_000
"""Of the metrics of a report: each line takes memory."""
MOST_POINTS = 500
"""Of a curve: a picture has fewer dots."""


def read(folder: Path, most_lines: int = MOST_LINES) -> ReportedRun:
    """Read a run from its folder. A user's own script may have written no metrics: the run has no figures then."""
    try:
        run = answers.recorded_run(u.from_json((folder / "run.json").read_bytes()))
        result = _read_optional(folder / "result.json", _RESULT)
        processes = _read_optional(folder / "state.json", _STATE).get("processes", [])
    except (OSError, u.InvalidValue) as error:
        raise UserError(f"{folder} is no folder of a run ({error}): name runs that `status.yml` shows.") from error
    if run["run_id"] != folder.name:
        raise UserError(f"{folder} holds another run, {run['run_id']}. Name runs that `status.yml` shows.")
    attempts = result.get("attempts") or ()
    return ReportedRun(
        id=run["run_id"],
        framework=run["framework"],
        distribution=run["distribution"],
        arguments=tuple(map(u.words, run["script_args"])),
        example=bool(re.search(r"/trainers/cifar10_\w+\.py$", run["script"])),
        data=run["data"] or "",
        generated=run["generated"],
        nodes=len({process["node"] for process in processes}),
        processes=sum(process["role"] == "worker" for process in processes),
        state=result.get("state", "running"),
        ranks=_metrics(folder / "metrics", most_lines),
        machine_hours=_machine_hours(attempts),
        gpu_busy=next((busy for each in reversed(attempts) if (busy := each["gpu_busy_percent"]) is not None), None),
    )


def _machine_hours(attempts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for attempt in attempts:
        for kind, number in (attempt["machines"] or {}).items() if attempt["ended"] else ():
            seconds = max(attempt["ended"] - attempt["started"], 0.0)
            total[kind] = total.get(kind, 0.0) + number * seconds / 3600
    return total


def _read_optional(file: Path, parse: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    return parse(u.from_json(file.read_bytes())) if file.exists() else {}


def _metrics(folder: Path, most_lines: int) -> dict[int, list[Mapping[str, Any]]]:
    files = {path.stem.removeprefix("rank"): path for path in folder.glob("rank*.jsonl")}
    ranks: dict[int, list[Mapping[str, Any]]] = {}
    count = 0
    for rank, path in files.items():
        lines = [] if not rank.isdecimal() else list(islice(_lines(path), most_lines + 1 - count))
        count += len(lines)
        if count > most_lines:
            raise UserError(
                f"With {folder} the report has more than {MOST_LINES} lines of metrics: let scripts write fewer, or "
                "name fewer runs."
            )
        if lines:
            ranks[int(rank)] = lines
    return ranks


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the lines that have a figure. A line that was not written to its end is skipped."""
    with path.open("rb") as file:
        for line in file:
            try:
                figures = _LINE(u.from_json(line))
            except u.InvalidValue:
                continue
            if any(value is not None for value in figures.values()):
                yield figures


def table(runs: Sequence[ReportedRun], prices: PriceList) -> list[dict[str, str]]:
    """Return a row for each run: its cells by their columns."""
    rows = [_row(run, _base(run, runs), prices) for run in runs]
    return [{column: _shown(value, places) for column, (value, places) in row.items()} for row in rows]


def _base(run: ReportedRun, runs: Sequence[ReportedRun]) -> ReportedRun | None:
    """Return the run that this one is compared with: the one on the fewest nodes."""
    alike = [other for other in runs if other.comparable == run.comparable and other.throughput and other.nodes]
    return min(alike, key=lambda other: other.nodes, default=None)


def _row(run: ReportedRun, base: ReportedRun | None, prices: PriceList) -> dict[str, tuple[str | float | None, int]]:
    """Return the value and the decimal places of each column."""
    speed = run.throughput
    faster = speed / base.throughput if speed and base and base.throughput else None
    efficiency = faster / (run.nodes / base.nodes) if faster and base and run.nodes else None
    state = "" if run.state == "finished" else f" ({run.state})"
    return {
        "run": (f"{run.id}{state}", 0),
        "nodes": (run.nodes or None, 0),
        "processes": (run.processes or None, 0),
        "global batch": (run.global_batch, 0),
        "time (s)": (run.seconds, 1),
        "samples/s of each": (speed / run.reporting if speed else None, 1),
        "samples/s in all": (speed, 1),
        "accuracy": (run.evaluated("val_accuracy"), 3),
        "average precision": (run.evaluated("average_precision"), 3),
        "speed-up": (faster, 2),
        "efficiency": (efficiency, 2),
        "GPU busy (%)": (run.gpu_busy, 0),
        f"cost ({CURRENCY})": (run.cost(prices), 2),
    }


def _shown(value: str | float | None, places: int) -> str:
    return f"{value:,.{places}f}" if isinstance(value, (int, float)) else value or ""


def plots(runs: Sequence[ReportedRun]) -> dict[str, Plot]:
    """Return the plots that have points, by name."""
    with_lines = [run for run in runs if run.epochs]
    names = [run.name for run in with_lines]
    named = {run.id: run.name if names.count(run.name) == 1 else run.id for run in with_lines}
    curves = {
        "accuracy": ("Accuracy on the test set", "epoch", "accuracy", "epoch", "val_accuracy"),
        "accuracy-by-time": ("Accuracy by time", "seconds of training", "accuracy", "seconds", "val_accuracy"),
        "average-precision": (
            *("Average precision on the validation set", "epoch", "average precision"),
            *("epoch", "average_precision"),
        ),
        "loss": ("Loss in training", "epoch", "loss", "epoch", "loss"),
    }
    plots_by_name = {}
    for name, (title, x_label, y_label, x, y) in curves.items():
        series = [Series(named[run.id], points) for run in with_lines if (points := _points(run, x, y))]
        if series:
            plots_by_name[name] = Plot(title, x_label, y_label, series)
    return plots_by_name | _scaling(runs)


def _points(run: ReportedRun, x_key: str, y_key: str) -> list[tuple[float, float]]:
    pairs = [(line[x_key], line[y_key]) for line in run.epochs]
    points = [pair for pair in pairs if None not in pair]
    # The last one counts most.
    return points[:: min(-1, len(points) // -MOST_POINTS)][::-1]


def _scaling(runs: Sequence[ReportedRun]) -> dict[str, Plot]:
    """Return plots of throughput and speed-up by nodes, if there are runs that differ only in their number of nodes."""
    groups: dict[tuple[object, ...], list[ReportedRun]] = {}
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
    x_ticks = [0.0, *map(float, nodes)]
    return {
        "throughput": Plot("Throughput", "nodes", "samples/s in all", speeds, x_ticks),
        "scaling": Plot("Scaling", "nodes", "speed-up", [*faster, ideal], x_ticks),
    }


STYLE = """
body { font-family: sans-serif; color: #333; max-width: 74rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
td { white-space: nowrap; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; margin: 2rem 0; }
"""


def notes(runs: Sequence[ReportedRun], prices: PriceList) -> list[str]:
    """Return what the figures and the costs in the table are."""
    examples = sorted({run.measured for run in runs if run.measured})
    sentences = [f"Measured: {'; '.join(examples)}. {EXAMPLE}"] if examples else []
    if any(run.gpu_busy is not None for run in runs):
        sentences.append(
            "GPU busy is the median of what the run's nodes report every ten seconds, each the average of its GPUs: "
            "how much of the time a GPU computes anything."
        )
    if any(run.cost(prices) is not None for run in runs):
        source = prices.source([offers.machine(kind) for run in runs for kind in run.machine_hours])
        sentences.append(
            "Cost is that of the run's machines while its attempts ran, at on-demand prices, without disks, network "
            f"and storage. Prices: {source}."
        )
    return sentences


def page(runs: Sequence[ReportedRun], prices: PriceList) -> str:
    """Return the page. It refers to no other file or address."""
    rows = table(runs, prices)
    cells = [[html_page.text(cell) for cell in row.values()] for row in rows]
    requests = [
        f"{html_page.text(run.id)}: {html_page.text(run.name)}, data {html_page.text(run.data or 'none')}, "
        f"arguments <code>{html_page.text(' '.join(run.arguments) or 'none')}</code>"
        for run in runs
    ]
    note = f"<p><strong>{GENERATED}</strong></p>" if any(run.generated for run in runs) else ""
    body = f"""<h1>Training runs</h1>
{note}
{html_page.table(rows[0], cells)}
<p>Time is that of training, without start and evaluation. Samples per second are the median of all epochs but the
first. Speed-up and efficiency are by samples per second, against the run on the fewest nodes with the same
arguments. {html_page.text(" ".join(notes(runs, prices)))}</p>
<div class="plots">
{chr(10).join(plot.svg() for plot in plots(runs).values())}
</div>
<h2>Requests</h2>
{html_page.bullets(requests)}"""
    return html_page.document("Training runs", STYLE, body)


def text(runs: Sequence[ReportedRun], prices: PriceList) -> list[str]:
    """Return the table for a terminal, line by line."""
    generated = [GENERATED] if any(run.generated for run in runs) else []
    rows = table(runs, prices)
    table_lines = text_table([list(rows[0]), *(list(row.values()) for row in rows)], numbers=True)
    return table_lines + generated + notes(runs, prices)


def read_all(folders: Iterable[Path]) -> list[ReportedRun]:
    """Return the runs in some folders, in the order of a report."""
    runs, most_lines = [], MOST_LINES
    for folder in folders:
        runs.append(read(folder, most_lines))
        most_lines -= sum(map(len, runs[-1].ranks.values()))
    return sorted(runs, key=lambda run: (run.framework, run.nodes, run.id))


def write(runs: Sequence[ReportedRun], prices: PriceList, file: Path) -> list[str]:
    """Write the report. Return the table for a terminal."""
    file.write_text(page(runs, prices), encoding="utf-8")
    return text(runs, prices)
