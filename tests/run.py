#!/usr/bin/env python3
"""Run layers of tests, each to its end, and close with a table of their results and costs.

Without names, the gate runs, and the layers that the change needs since the base of the comparison. A layer that
fails does not keep the next from running; one failure fails the whole.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import models  # noqa: E402
from tests.layers import catalogue, changes  # noqa: E402
from tests.layers.catalogue import IMAGE, LANE_NICENESS, LAYER_NAME, MACHINES, Layer, forms_file  # noqa: E402
from tests.layers.commands import COMMANDS, NICENESS, OUTPUT, command, environment, report  # noqa: E402
from tests.layers.cost import measured  # noqa: E402
from tests.layers.pythons import PYTHONS, UserError, newest_python, venv_of  # noqa: E402
from tests.layers.results import REPORTS, Outcome, Result  # noqa: E402

GATE_CPU_MINUTES = 55
"""The layers that run for every change may need this CPU time together, that of their machines included."""


@dataclass(frozen=True)
class Chosen:
    """A layer that is to run."""

    layer: Layer
    in_gate_form: bool = False

    @property
    def name(self) -> str:
        return self.layer.name


@dataclass(frozen=True)
class Plan:
    """What a run consists of."""

    chosen: tuple[Chosen, ...]
    base: changes.Base | None = None
    selection: changes.Selection | None = None
    changed: int = 0
    """the number of changed files"""


@contextmanager
def nothing_left(venv: Path) -> Iterator[None]:
    """End the local cloud that a test has left up because it was ended itself."""

    def is_up() -> bool:
        words = ["python", "-m", "localcloud", "status"]
        asked = subprocess.run(words, cwd=ROOT, env=environment(venv), capture_output=True, check=False)
        return asked.returncode == 0

    before = is_up()
    try:
        yield
    finally:
        if not before and is_up():
            command("python", "-m", "localcloud", "down", venv=venv)


class Run:
    """A run of layers, in lanes if there are several."""

    def __init__(self, chosen: Iterable[Chosen], python: str) -> None:
        self.chosen = list(chosen)
        self.python = python
        self.outcomes: dict[str, Outcome] = {}
        self._ended = {each.name: threading.Event() for each in self.chosen}

    def in_sequence(self, chosen: Iterable[Chosen]) -> None:
        for each in chosen:
            if each.layer.after in self._ended:
                self._ended[each.layer.after].wait()
            try:
                self.outcomes[each.name] = self._run(each)
            finally:
                self._ended[each.name].set()

    def in_lanes(self, chosen: Iterable[Chosen]) -> None:
        """Run the first lane here, and each other in a thread, whose output is printed when all have ended."""
        lanes: dict[str, list[Chosen]] = {}
        for each in sorted(chosen, key=lambda each: each.layer.lane != MACHINES):
            lanes.setdefault(each.layer.lane, []).append(each)
        (_, first), *others = lanes.items()
        threads = [threading.Thread(target=self._lane, args=lane) for lane in others]
        for thread in threads:
            thread.start()
        try:
            self.in_sequence(first)
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            COMMANDS.stop()
            raise
        for name, _ in others:
            print(f"\n=== the lane {name}\n{_lane_log(name).read_text(encoding='utf-8', errors='replace')}", flush=True)

    def _lane(self, name: str, chosen: Sequence[Chosen]) -> None:
        log = _lane_log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as output, suppress(KeyboardInterrupt):
            OUTPUT.set(output)
            NICENESS.set(LANE_NICENESS[name])
            self.in_sequence(chosen)

    def _run(self, chosen: Chosen) -> Outcome:
        layer = chosen.layer
        report(f"\n==> {layer.name}")
        if layer.root and os.geteuid() != 0:
            return Outcome(Result(False, "needs root, as it boots machines"))
        if layer.needs and not os.environ.get(layer.needs):
            return Outcome(Result(False, f"not run: {layer.needs} names no folder; docs/testing.md says of what"))
        try:
            venv = venv_of(self.python or (newest_python() if layer.newest else ""))
        except UserError as error:
            return Outcome(Result(False, str(error)))
        run = layer.gate if chosen.in_gate_form and layer.gate else layer.run
        started = time.monotonic()
        LAYER_NAME.set(layer.name)
        forms_file(layer.name).unlink(missing_ok=True)
        leaves_nothing = nothing_left(venv) if layer.root and layer.lane != IMAGE else nullcontext()
        with measured(layer.name) as meter, leaves_nothing:
            result = catalogue.with_models(run(venv), layer.name)
        wall_seconds = time.monotonic() - started
        return Outcome(result, wall_seconds, max(meter.seconds, result.command_seconds))


def _lane_log(name: str) -> Path:
    return REPORTS / f"{name}.log"


def change_plan(wanted: str) -> Plan:
    """Plan the gate, and what the change needs since the base of the comparison."""
    base = changes.find_base(ROOT, wanted, os.environ.get("CI_BASE", ""))
    if base.commit:
        paths = changes.changed_paths(ROOT, base)
        selection = changes.select(paths)
    else:
        paths = []
        selection = changes.everything(catalogue.path_layers(), catalogue.NIGHTLY)
    chosen = [
        Chosen(layer, in_gate_form=layer.name not in selection.layers)
        for layer in catalogue.LAYERS.values()
        if layer.gate or layer.name in selection.layers
    ]
    chosen = with_image(chosen)
    return Plan(tuple(chosen), base=base, selection=selection, changed=len(paths))


def with_image(chosen: list[Chosen]) -> list[Chosen]:
    """Leave out the build of the machines' image if no layer waits for it."""
    if any(each.layer.after == "image" for each in chosen):
        return chosen
    return [each for each in chosen if each.name != "image"]


def plan_of(options: argparse.Namespace) -> Plan:
    if options.names:
        return Plan(tuple(Chosen(catalogue.ALL[name], in_gate_form=options.gate) for name in options.names))
    if options.nightly:
        every = [*catalogue.LAYERS.values(), *catalogue.NIGHTLY.values()]
        return Plan(tuple(map(Chosen, every)))
    return change_plan(options.base)


HEADINGS = ("minutes", "CPU min", "machines")


def table(run: Run) -> list[str]:
    """Describe each layer in a line: minutes by the clock and of CPU, and how many of these are the machines'."""
    lines = [_row("layer", "result", HEADINGS, "details")]
    for each in run.chosen:
        outcome = run.outcomes[each.name]
        has_smaller_form = each.in_gate_form and each.layer.gate is not each.layer.run
        details = outcome.result.detail + (" (the gate's part)" if has_smaller_form else "")
        verdict = "ok" if outcome.result.ok else "FAILED"
        minutes = _minutes(outcome.wall_seconds, outcome.cpu_seconds, outcome.background_seconds)
        lines.append(_row(each.name, verdict, minutes, details))
    return lines


def _minutes(*seconds: float) -> list[str]:
    return [f"{value / 60:.1f}" for value in seconds]


def _row(name: str, verdict: str, minutes: Sequence[str], details: str) -> str:
    columns = " ".join(f"{value:>8}" for value in minutes)
    return f"{name:<16} {verdict:<7} {columns}  {details}"


def total_line(run: Run, wall_seconds: float) -> str:
    cpu_seconds = sum(outcome.cpu_seconds for outcome in run.outcomes.values())
    background_seconds = sum(outcome.background_seconds for outcome in run.outcomes.values())
    return _row("all", "", _minutes(wall_seconds, cpu_seconds, background_seconds), f"on {os.cpu_count()} cores")


def slowest_tests(run: Run) -> Iterator[str]:
    for name, outcome in run.outcomes.items():
        if outcome.result.slowest:
            yield f"\nslowest tests of {name}"
            yield from (f"  {seconds:6.1f} s  {test}" for seconds, test in outcome.result.slowest)


def gate_cpu_minutes(run: Run) -> float:
    """Return the CPU time of the layers that run for every change. The image is kept from one run to the next."""
    gate = [each for each in run.chosen if each.in_gate_form and each.name != "image"]
    return sum(run.outcomes[each.name].cpu_seconds for each in gate) / 60


def closing_lines(plan: Plan, run: Run) -> Iterator[str]:
    """Say what the run was compared with, what was left out, and why."""
    if plan.base is None or plan.selection is None:
        return
    files = f", {plan.changed} changed files" if plan.base.commit else ""
    yield f"base of the comparison: {plan.base}{files}"
    for name, path in plan.selection.layers.items():
        yield f"run in full: {name}, because of {path}"
    left_out = [name for name in catalogue.path_layers() if name not in plan.selection.layers]
    without_gate = [name for name in left_out if catalogue.LAYERS[name].gate is None]
    with_gate = [name for name in left_out if catalogue.LAYERS[name].gate is not None]
    if without_gate:
        yield f"left out, as no changed path needs them: {', '.join(without_gate)}"
    if with_gate:
        yield f"only the gate's part, as no changed path needs the rest: {', '.join(with_gate)}"
    if plan.selection.parts:
        parts = " ".join(plan.selection.parts)
        yield f'nightly parts for this change, not run: make test-nightly PARTS="{parts}"'


def description_of_layers() -> str:
    """Describe all layers, and when each of them runs."""
    lines = []
    tiers = (
        ("make test", catalogue.LAYERS),
        ("make test-nightly, after all of these", catalogue.NIGHTLY),
        ("only by name", catalogue.ON_DEMAND),
    )
    for title, layers in tiers:
        lines.append(title)
        for layer in layers.values():
            lines.append(f"  {layer.name:<16} {', '.join(_remarks(layer))}".rstrip())
    return "\n".join(lines)


def _remarks(layer: Layer) -> Iterator[str]:
    if layer.gate is not None:
        yield "gate" if layer.gate is layer.run else "gate: a part of it"
    if layer.root:
        yield "root"
    if layer.newest:
        yield "newest Python"


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/run.py",
        description=__doc__,
        epilog=description_of_layers(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="LAYER", help="only these layers, in full")
    parser.add_argument("--gate", action="store_true", help="with names: these layers as they are in the gate")
    parser.add_argument("--nightly", action="store_true", help="all layers in full, then the nightly parts")
    parser.add_argument("--base", default="", metavar="REVISION", help="what the change is compared with, such as main")
    parser.add_argument("--python", default="", metavar="VERSION", help=f"one of {', '.join(PYTHONS)}")
    parser.add_argument("--list", action="store_true", help="print the layers")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    options = parse(words)
    if options.list:
        print(description_of_layers())
        return 0
    unknown = [name for name in options.names if name not in catalogue.ALL]
    if unknown:
        print(f"unknown layer '{', '.join(unknown)}'; choose from {', '.join(catalogue.ALL)}", file=sys.stderr)
        return 2
    try:
        plan = plan_of(options)
        if options.python:
            venv_of(options.python)
    except (UserError, changes.UnknownBase) as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell's background jobs ignore it, and so would all that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = Run(plan.chosen, options.python)
    started = time.monotonic()

    needy = [each.name for each in run.chosen if each.layer.root]
    if needy and os.geteuid() != 0:
        print(f"Not root: {' and '.join(needy)} boot machines, so they will fail. Run as root, or name other layers.")

    side_by_side = [each for each in run.chosen if each.name in catalogue.LAYERS]
    others = [each for each in run.chosen if each.name not in catalogue.LAYERS]
    if side_by_side:
        run.in_lanes(side_by_side)
    run.in_sequence(others)
    return print_results(plan, run, time.monotonic() - started)


def print_results(plan: Plan, run: Run, wall_seconds: float) -> int:
    """Print the table and the closing lines, and return the exit status."""
    print("\n".join(slowest_tests(run)))
    print()
    print("\n".join(table(run)))
    print(total_line(run, wall_seconds))
    seen = models.read(*(forms_file(each.name) for each in run.chosen))
    if seen.operations:
        print(f"models: {seen}")
    print("\n".join(closing_lines(plan, run)))
    failures = sum(not outcome.result.ok for outcome in run.outcomes.values())
    cpu_minutes = gate_cpu_minutes(run)
    is_too_expensive = cpu_minutes > GATE_CPU_MINUTES
    if cpu_minutes:
        verdict = "more than" if is_too_expensive else "of at most"
        print(f"gate: {cpu_minutes:.1f} CPU minutes, {verdict} {GATE_CPU_MINUTES}")
    print(f"{len(run.outcomes) - failures} passed, {failures} failed", flush=True)
    return 1 if failures or is_too_expensive else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
