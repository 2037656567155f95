#!/usr/bin/env python3
"""Change the product at random places, one at a time, and count how many changes the unit tests notice.

A sample is chosen by its seed: a file by its lines, then a kind of change, then a place. It stays nearly the same when
the code changes little. The checkout is copied, and only the copy is changed. Accepted changes that nothing can notice
are in tests/mutations.yml, each with its reason.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TypeVar

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.mutation.changes import Change, Places  # noqa: E402
from tools.mutation.trial import OURS, Outcome, Trial, Unusable  # noqa: E402

RESULTS = "bench/results/mutations.md"
ACCEPTED = "tests/mutations.yml"
TESTS = ("tests/unit",)
IGNORED = (
    "tests/unit/project",
    "tests/unit/trainers",
    "tests/unit/monitoring/test_prometheus.py",
    "tests/unit/monitoring/test_page.py::test_a_browser_shows_it",
    "tests/unit/plugins/runs/test_report.py::test_a_browser_shows_the_page_with_its_plots",
)
"""They test no product code, or install programs."""
Item = TypeVar("Item")


@dataclass(frozen=True)
class Row:
    change: Change
    outcome: Outcome
    reason: str = ""
    """why nothing can notice it"""


def product_files(root: Path, places: Sequence[str]) -> list[str]:
    """Return the Python files of the product, or those below the places, without links."""
    words = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--", *(places or OURS)]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = sorted(name for name in set(listed) if name.endswith(".py") and name.startswith(OURS))
    return [name for name in ours if (root / name).is_file() and not (root / name).is_symlink()]


def candidates(root: Path, places: Sequence[str] = ()) -> dict[str, list[Change]]:
    changes_by_file = {
        name: list(Places(name, (root / name).read_bytes()).all()) for name in product_files(root, places)
    }
    return {name: changes for name, changes in changes_by_file.items() if changes}


def sample(root: Path, seed: int, count: int, places: Sequence[str] = ()) -> list[Change]:
    """Choose changes. A draw compares random numbers that belong to the items, so one item more changes few draws."""
    by_file = candidates(root, places)
    sources = {name: (root / name).read_bytes() for name in by_file}
    weights = {name: sum(bool(line.strip()) for line in source.splitlines()) for name, source in sources.items()}
    chosen: dict[str, Change] = {}
    for draw in range(count * 5):
        if len(chosen) == count:
            break

        def number(item: str, draw: int = draw) -> float:
            return random.Random(f"{seed} {draw} {item}").random()

        name = max(by_file, key=lambda path: number(path) ** (1 / weights[path]))
        family = max({change.family for change in by_file[name]}, key=number)
        alike = (change for change in by_file[name] if change.family == family)
        change = max(alike, key=lambda change: number(change.identity))
        if change.place not in chosen and change.changes(sources[name]):
            chosen[change.place] = change
    return list(chosen.values())


def named(root: Path, places: Sequence[str]) -> list[Change]:
    """Return the changes with these places, as the report names them: path:line[:column[:kind]]."""
    selected: list[Change] = []
    for place in places:
        parts = place.split(":")
        changes = [
            change
            for change in candidates(root, parts[:1]).get(parts[0], [])
            if change.place.split(":")[: len(parts)] == parts and change.changes((root / parts[0]).read_bytes())
        ]
        if not changes:
            raise Unusable(f"{place}: there is no change to make")
        selected += changes
    return selected


def accepted(root: Path) -> dict[tuple[str, str], str]:
    """Return the reasons of the changes that nothing can notice, by file and identity."""
    file = root / ACCEPTED
    rows = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    keys = ("line", "kind", "before", "after", "occurrence")
    return {(row["path"], "\n".join(str(row[key]) for key in keys)): row["reason"] for row in rows or []}


def accept(root: Path, changes: Sequence[Change], reason: str) -> None:
    rows = [
        {
            "path": change.path,
            "line": change.text,
            "kind": change.kind,
            "before": change.before,
            "after": change.after,
            "occurrence": change.occurrence,
            "reason": reason,
        }
        for change in changes
    ]
    with (root / ACCEPTED).open("a", encoding="utf-8") as file:
        yaml.safe_dump(rows, file, allow_unicode=True, sort_keys=False, width=110)


def line_of(row: Row) -> str:
    verdict = f"{row.outcome.verdict} by {row.outcome.by}" if row.outcome.by else row.outcome.verdict
    if row.reason:
        verdict = f"equivalent: {row.reason}"
    elif row.outcome.verdict == "survived":
        verdict = f"SURVIVED {row.outcome.tests} tests{', none of which runs it' * row.outcome.near}"
    return f"{row.change.place}: {row.change.description}: {verdict}"


def folder_of(path: str) -> str:
    """Return the folder that a row of the table is about: plugins/modules, files/node/deeplearning/runs."""
    depth = 4 if path.startswith("files/") else 3
    return "/".join(path.split("/")[:-1][:depth])


def table(rows: Sequence[Row]) -> str:
    by_folder: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        what = "equivalent" if row.reason else "survived" if row.outcome.verdict == "survived" else "killed"
        for key in (folder_of(row.change.path), "**all**"):
            by_folder[key][what] += 1
    lines = ["| folder | changes | killed | equivalent | survived |", "| --- | --- | --- | --- | --- |"]
    for name in sorted(by_folder, key=lambda name: (name == "**all**", name)):
        counts = by_folder[name]
        cells = [counts.total(), *(counts[what] for what in ("killed", "equivalent", "survived"))]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def rate(rows: Sequence[Row]) -> float:
    """Return the share that was killed, of those that can be noticed."""
    real = [row for row in rows if not row.reason]
    return sum(row.outcome.verdict != "survived" for row in real) / len(real) if real else 1.0


def report(root: Path, seed: int, rows: Sequence[Row], minutes: float) -> str:
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    survivors = [row for row in rows if not row.reason and row.outcome.verdict == "survived"]
    equivalent = [row for row in rows if row.reason]
    killed = len(rows) - len(survivors) - len(equivalent)

    def listed(title: str, some: Sequence[Row], text: Callable[[Row], str]) -> list[str]:
        return [f"\n## {title}\n", *(f"* `{row.change.place}`: `{row.change.description}`{text(row)}" for row in some)]

    lines = [
        "# Faults that unit tests notice\n",
        "`tools/mutate.py --record` wrote this: it changes the product at random places, one at a time "
        "([how](../../docs/testing.md)).\n",
        f"Measured on {date.today()} at {commit.stdout.strip() or 'no commit'} in {minutes:.1f} minutes.\n",
        "| seed | changes | killed | equivalent | survived | rate |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| {seed} | {len(rows)} | {killed} | {len(equivalent)} | {len(survivors)} | {rate(rows):.3f} |\n",
        table(rows),
        *listed("Survivors", survivors, lambda row: ", which no test runs" * row.outcome.near),
        *listed("Equivalent", equivalent, lambda row: f": {row.reason}"),
    ]
    return "\n".join(lines) + "\n"


def recorded(root: Path) -> tuple[int, int, float]:
    """Return the seed, the number of changes and the rate of the last record."""
    file = root / RESULTS
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    row = re.search(r"^\| (\d+) \| (\d+) \|.*\| ([\d.]+) \|$", text, re.MULTILINE)
    if not row:
        raise Unusable(f"{RESULTS} has no record to compare with")
    return int(row[1]), int(row[2]), float(row[3])


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/mutate.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help=f"only files below these, of {' and '.join(OURS)}")
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--count", type=int, default=80, help="how many changes (80)")
    parser.add_argument("--minutes", type=float, default=30, help="stop after this time, and fail (30)")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    parser.add_argument("--only", nargs="+", metavar="PLACE", help="these changes: path:line[:column[:kind]]")
    parser.add_argument(
        "--tests", nargs="+", metavar="TEST", help="run exactly these files of tests; nothing is recorded beforehand"
    )
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS}")
    parser.add_argument("--check", action="store_true", help=f"the sample of {RESULTS}; fail if its rate is higher")
    parser.add_argument("--patience", type=float, default=20, help="a test may take ten times as long, and this (20 s)")
    parser.add_argument("--accept", metavar="REASON", help=f"add the changes of --only to {ACCEPTED} as equivalent")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.accept and not options.only:
        parser.error("--accept needs --only")
    if options.record and (options.only or options.paths or options.tests):
        parser.error("--record needs the sample of the whole product, and all tests")
    return options


def run(options: argparse.Namespace, chosen: Sequence[Change]) -> list[Row]:
    """Try one change after another, until the time is over."""
    root: Path = options.root.resolve()
    started = time.monotonic()
    reasons = accepted(root)
    ignored = [place for place in IGNORED if (root / place.partition("::")[0]).exists()]
    trial = Trial(root, list(TESTS), ignored, options.patience)
    rows: list[Row] = []
    try:
        trial.prepare()
        if not options.tests:
            trial.record_tests(root / ".cache/mutations.pickle")
            for name in trial.record.failed:
                print(f"fails without a change, so it is left out: {name}")
            print(f"{len(trial.record.seconds)} tests recorded in {time.monotonic() - started:.0f} s", flush=True)
        proved = False
        for change in chosen:
            if time.monotonic() - started > options.minutes * 60:
                break
            reason = reasons.get((change.path, change.identity), "")
            proved = proved or trial.prove(change, options.tests)
            outcome = Outcome("survived", "", 0) if reason else trial.try_change(change, options.tests)
            rows.append(Row(change, outcome, reason))
            print(line_of(rows[-1]), flush=True)
    finally:
        trial.close()
    return rows


def main(words: Sequence[str]) -> int:
    options = parse(words)
    root: Path = options.root.resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    try:
        least = 0.0
        if options.check:
            options.seed, options.count, least = recorded(root)
        chosen = named(root, options.only) if options.only else sample(root, options.seed, options.count, options.paths)
        if options.list:
            print("\n".join(f"{change.place}: {change.description}" for change in chosen))
            return 0
        if options.accept:
            accept(root, chosen, options.accept)
            return 0
        rows = run(options, chosen)
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    minutes = (time.monotonic() - started) / 60
    print(f"\n{table(rows)}\n\n{rate(rows):.1%} of those that can be noticed were killed, in {minutes:.1f} minutes")
    if len(rows) < len(chosen):
        print(f"The time is over: {len(rows)} of {len(chosen)} were tried")
        return 1
    if options.record:
        (root / RESULTS).write_text(report(root, options.seed, rows, minutes), encoding="utf-8")
    if rate(rows) < round(least, 3) - 0.0005:
        print(f"{RESULTS} has {least:.1%}: the tests notice less than they did")
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        sys.exit(130)
