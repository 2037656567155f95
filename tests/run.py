#!/usr/bin/env python3
"""Run layers of tests, each to its end, and close with a line for each.

`make test` runs all layers, those that boot machines beside the others, and keeps what they took in
build/test-times.json. `make test-long` runs all parts of the long size and records them in bench/results/test-long.md.
A layer that fails does not keep the next from running; one failure fails the whole.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from localcloud.models import VARIABLE as FORMS  # noqa: E402
from tests import models  # noqa: E402
from tests.images import FRAMEWORKS  # noqa: E402
from tests.layers.commands import (  # noqa: E402
    COMMANDS,
    GRACE_SECONDS,
    HANG_SECONDS,
    LONG_HANG_SECONDS,
    NICENESS,
    OUTPUT,
    SILENCE_SECONDS,
    command,
    environment,
    report,
)
from tests.layers.pythons import PYTHONS, UserError, newest_python, venv_of, version_of  # noqa: E402
from tests.layers.records import (  # noqa: E402
    LONG,
    RECORDED,
    REPORTS,
    TIMES,
    Outcome,
    Result,
    Times,
    commit,
    counted,
    processor_minutes,
    record_part,
    recorded_runs,
)
from tests.played import UPDATE, VARIABLE, stale  # noqa: E402
from tests.published.programs import VARIABLE as SOURCES  # noqa: E402

COLLECTION = "collections/ansible_collections/deeplearning/aws"
TYPED = (f"{COLLECTION}/plugins", "files/node")
"""mypy is strict there. Plugins are reached through the link, by which they have full names."""

LONG_SCENARIOS = ("framework", "horovod_build", "monitoring")
"""Molecule scenarios of the long size; `make test` runs the others."""

MACHINES, PROCESSOR, IMAGE = "machines", "processor", "image"
"""Lanes of `make test`: layers of one lane run one after the other, and lanes side by side. The first mostly waits for
machines, so the second, which works, gives way to it: but not so far that other programs of a busy machine stop it."""
LANE_NICENESS = {MACHINES: 0, PROCESSOR: 4, IMAGE: 0}

NAME = ContextVar("NAME", default="tests")
"""The layer that runs: pytest's report is named after it."""


@dataclass(frozen=True)
class Layer:
    name: str
    run: Callable[[Path], Result]
    """It gets the virtual environment to use."""
    lane: str = PROCESSOR
    after: str = ""
    """A layer of another lane that has to end first."""
    root: bool = False
    """It boots machines."""
    newest: bool = False
    """It runs on the newest Python that is installed."""
    needs: str = ""
    """A variable of the environment, without which it does not run."""


def existing(*places: str) -> list[str]:
    """Those that are a file, or hold any Python."""
    return [place for place in places if (ROOT / place).is_file() or next((ROOT / place).rglob("*.py"), None)]


def lint(venv: Path) -> Result:
    checks: dict[str, list[str | Path]] = {
        "ansible-lint": ["ansible-lint", "--offline"],
        "yamllint": ["yamllint", "--strict", "."],
        "ruff": ["ruff", "check"],
        "mypy": [
            *("mypy", "tests/run.py", "tests/layers", "tests/forking", "tests/deprecations.py", "conftest.py"),
            "tests/lint",
            *existing(*TYPED),
        ],
        "policies": ["python", "-m", "tests.lint.policies"],
        "packaging": ["python", "-m", "tests.lint.packaging"],
        "docs": ["make", "-s", "docs", f"VENV={venv.relative_to(ROOT)}"],
    }
    # They print nothing while they work, which a busy machine makes long.
    ended = {name: command(*words, venv=venv, silence=LONG_HANG_SECONDS) for name, words in checks.items()}
    failed = [name for name, check in ended.items() if not check.ok]
    detail = f"failed: {', '.join(failed)}" if failed else f"{len(checks)} checks passed"
    return Result(not failed, detail, sum(check.processor_seconds for check in ended.values()))


def program(*words: str, detail: str, silence: float = SILENCE_SECONDS) -> Callable[[Path], Result]:
    """A layer that is one command."""

    def run(venv: Path) -> Result:
        ended = command(*words, venv=venv, silence=silence)
        return Result(ended.ok, detail, ended.processor_seconds)

    return run


def pytest(*places: str, processes: int = 1, long: bool = False) -> Callable[[Path], Result]:
    """Choose tests by the marker `long`. More than one process is for tests that share nothing outside their file."""

    def run(venv: Path) -> Result:
        paths = existing(*places)
        if not paths:
            return Result(False, f"no tests in {', '.join(places)}")
        several = ["-n", str(processes), "--dist", "loadfile" if processes > 1 else "load"]
        marker, hang = ("long", LONG_HANG_SECONDS) if long else ("not long", HANG_SECONDS)
        return run_and_count(venv, "-m", marker, *several, *paths, hang=hang)

    return run


def on_debian(suite: str, *tests: str) -> Callable[[Path], Result]:
    """Choose tests whose machines boot another release of Debian."""
    variables = [f"LOCALCLOUD_SUITE={suite}"]
    return lambda venv: run_and_count(venv, "-n", "1", *tests, variables=variables, hang=LONG_HANG_SECONDS)


def run_and_count(venv: Path, *arguments: str, hang: float, variables: Sequence[str] = ()) -> Result:
    """Run pytest in processes of pytest-xdist: one that is ended, as its test hangs, takes no other's result along."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    file = REPORTS / f"{NAME.get()}.xml"
    file.unlink(missing_ok=True)
    limit = ["-o", f"faulthandler_timeout={hang:g}", "-o", "faulthandler_exit_on_timeout=true"]
    plays = REPORTS / f"{NAME.get()}.jsonl"
    plays.unlink(missing_ok=True)
    recorded = [f"{VARIABLE}={plays}", f"{FORMS}={forms_file(NAME.get())}"]
    words = ["env", *variables, *recorded, "pytest", "-q", "--durations=5", f"--junit-xml={file}", *limit]
    ended = command(*words, *arguments, venv=venv, silence=hang + GRACE_SECONDS)
    result = counted(ended.code or len(ended.deprecations), file, ended.processor_seconds)
    if result.ok and (tests := stale(plays)):
        report(f"tests/played.json has more than {', '.join(tests)} played. Update it: {UPDATE}")
        return replace(result, ok=False, detail=f"{result.detail}, tests/played.json is stale: {UPDATE}")
    return result


def forms_file(layer: str) -> Path:
    """Return the file that the local cloud of a layer records in."""
    return REPORTS / f"{layer}{models.SUFFIX}"


def with_models(result: Result, layer: str) -> Result:
    """Fail a layer whose requests or answers AWS's models do not have."""
    seen = models.read(forms_file(layer))
    if not seen.operations:
        return result
    report(f"models: {seen}")
    problems = models.problems(seen, layer if result.ok else "")
    for line in [*problems, *models.unlisted(seen)]:
        report(f"models: {line}")
    detail = f"{result.detail}, {len(problems)} problems with AWS's models" if problems else result.detail
    return replace(result, ok=result.ok and not problems, detail=detail)


def scenarios() -> list[str]:
    """Return those that `make test` runs."""
    return sorted({place.parent.name for place in ROOT.glob("molecule/*/molecule.yml")} - set(LONG_SCENARIOS))


def molecule(names: Callable[[], Sequence[str]], *tests: str, long: bool = False) -> Callable[[Path], Result]:
    """One run for all scenarios, as they share the local cloud: the first that fails ends it."""

    def run(venv: Path) -> Result:
        chosen = [word for name in names() for word in ("-s", name)]
        recorded = f"{FORMS}={forms_file(NAME.get())}"
        ended = command("env", recorded, "molecule", "test", *chosen, venv=venv)
        detail = f"{len(names())} passed" if ended.ok else "a scenario failed"
        return Result(ended.ok, detail, ended.processor_seconds) + pytest(*tests, long=long)(venv)

    return run


def chaos(*parts: str) -> Callable[[Path], Result]:
    words = ("python", "bench/chaos", *parts)
    return program(*words, detail="bench/results/chaos.md", silence=LONG_HANG_SECONDS)


def mutations() -> Callable[[Path], Result]:
    words = ("python", "tools/mutate.py", "--check")
    return program(*words, detail="bench/results/mutations.md", silence=LONG_HANG_SECONDS)


def gpu(venv: Path) -> Result:
    """The steps of `make gpu` on the processor, with the interpreter and the Open MPI of the machines' image."""
    built = command("python", *IMAGE_BUILD, venv=venv)
    steps = command("python", "-S", "tests/gpu/run.py", "--processor", venv=venv)
    detail = "all steps on the processor" if steps.ok else "a step failed"
    return Result(built.ok and steps.ok, detail, built.processor_seconds + steps.processor_seconds)


UNIT = ("tests/unit", "localcloud/tests/unit")
ACCOUNT = ("tests/account",)
LOCALCLOUD = ("localcloud/tests/integration",)
INTEGRATION = ("tests/integration",)
MOLECULE = ("tests/molecule",)
GPU = ("tests/gpu",)
EMR = ("tests/integration/test_emr.py",)
SMOKE = ("tests/integration/test_smoke.py",)
RUNS = (
    *(f"tests/integration/test_{name}.py" for name in ("bad_gpu", "staging", "tensorpack")),
    *sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("tests/integration/test_training*.py")),
)
CLUSTERS = tuple(
    sorted({str(file.relative_to(ROOT)) for file in ROOT.glob("tests/integration/test_*.py")} - {*EMR, *SMOKE, *RUNS})
)
"""The other files of the layer integration. Its long tests are several parts, each of at most an hour or so."""
PUBLISHED = ("tests/published",)
DEBIAN_11 = ("tests/debian_11",)
DEBIAN_13 = (
    *(f"tests/integration/test_{name}.py" for name in ("launcher", "training")),
    *(
        f"tests/integration/test_{name}]"
        for name in (
            "training_by_hand.py::test_an_old_way_by_hand_on_the_master_works[mpirun",
            "training_by_hand.py::test_an_old_way_by_hand_on_the_master_works[tensorflow",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[generate_trainer",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[run.sh",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[health",
        )
    ),
    # Last: it leaves a worker less.
    "tests/integration/test_training_recovery.py",
)

IMAGE_BUILD = ("-m", "localcloud", "image", "build", "--with", FRAMEWORKS["bookworm"])

LAYERS = {
    layer.name: layer
    for layer in (
        Layer("lint", lint),
        Layer("sanity", program("tests/sanity/run", detail="ansible-test")),
        Layer("unit", pytest(*UNIT, processes=2)),
        Layer("account", pytest(*ACCOUNT, processes=2)),
        Layer("image", program("python", *IMAGE_BUILD, detail="built, if it was missing"), IMAGE, root=True),
        Layer("localcloud", pytest(*LOCALCLOUD), MACHINES, root=True),
        # It installs the wheel of Horovod that the build of the image made.
        Layer("molecule", molecule(scenarios, *MOLECULE), MACHINES, after="image", root=True),
        # Last, as the image takes minutes where it is missing.
        Layer("integration", pytest(*INTEGRATION), MACHINES, after="image", root=True),
    )
}
"""What `make test` runs."""

PARTS = {
    part.name: part
    for part in (
        Layer("newest-lint", lint, newest=True),
        Layer("newest-sanity", program("tests/sanity/run", detail="ansible-test"), newest=True),
        Layer("newest-unit", pytest(*UNIT, processes=2), newest=True),
        Layer("newest-account", pytest(*ACCOUNT, processes=2), newest=True),
        Layer("chaos-calls", chaos("task", "write", "emr")),
        Layer("chaos-machines", chaos("machines"), root=True),
        Layer("chaos-soak", chaos("soak"), root=True),
        Layer("account", pytest(*ACCOUNT, long=True)),
        Layer("localcloud", pytest(*LOCALCLOUD, long=True), root=True),
        Layer("clusters", pytest(*CLUSTERS, long=True), root=True),
        Layer("runs", pytest(*RUNS, long=True), root=True),
        Layer("emr", pytest(*EMR, long=True), root=True),
        Layer("smoke", pytest(*SMOKE, long=True), root=True),
        Layer("debian-11", on_debian("bullseye", *DEBIAN_11), root=True),
        Layer("debian-13", on_debian("trixie", *DEBIAN_13), root=True),
        # It mounts the machines' image and boots none, so it leaves a local cloud alone that starts beside it.
        Layer("gpu-environments", pytest(*GPU, long=True), IMAGE, root=True),
        Layer("molecule", molecule(lambda: LONG_SCENARIOS, *MOLECULE, long=True), root=True),
        Layer("published", pytest(*PUBLISHED, long=True), root=True, needs=SOURCES),
        Layer("mutations", mutations()),
        Layer("gpu", gpu, root=True),
    )
}
"""What `make test-long` runs."""

SHORT = {"unit": UNIT, "account": ACCOUNT, "localcloud": LOCALCLOUD, "integration": INTEGRATION, "molecule": MOLECULE}
"""The folders of layers. Those of parts with the marker `long`:"""
MARKED_LONG = {
    "account": ACCOUNT,
    "localcloud": LOCALCLOUD,
    "clusters": CLUSTERS,
    "runs": RUNS,
    "emr": EMR,
    "smoke": SMOKE,
    "molecule": MOLECULE,
    "debian-11": DEBIAN_11,
    "gpu-environments": GPU,
    "published": PUBLISHED,
}


def layers_of(test: str, long: bool) -> list[str]:
    """Return what runs a scenario, or a test without its parameters: layers by their names, parts as `long …`."""
    if test.startswith("molecule/"):
        return ["long molecule" if test.removeprefix("molecule/") in LONG_SCENARIOS else "molecule"]
    table, prefix = (MARKED_LONG, "long ") if long else (SHORT, "")
    file = test.partition("::")[0]
    layers = [prefix + name for name, places in table.items() if {file, *map(str, Path(file).parents)} & set(places)]
    on_debian_13 = {test, file} & {place.partition("[")[0] for place in DEBIAN_13}
    return [*layers, *["long debian-13"] * bool(on_debian_13)]


def tables() -> str:
    """Describe both sizes."""
    runs = recorded_runs()
    lines = []
    for title, layers, prefix in (("make test", LAYERS, ""), ("make test-long", PARTS, "long ")):
        lines.append(f"{title}: minutes of the last recorded run")
        for layer in layers.values():
            run = runs.get(prefix + layer.name)
            last = f"{run.minutes:g} min" if run else "not recorded"
            remarks = [last, *["root"] * layer.root, *["newest Python"] * layer.newest]
            lines.append(f"  {layer.name:<15} {', '.join(remarks)}")
    return "\n".join(lines)


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

    def __init__(self, layers: Iterable[Layer], python: str) -> None:
        self.layers = list(layers)
        self.python = python
        self.outcomes: dict[str, Outcome] = {}
        self.on_end: Callable[[Layer, Outcome], None] = lambda _layer, _outcome: None
        self._ended = {layer.name: threading.Event() for layer in self.layers}

    def in_sequence(self, layers: Iterable[Layer]) -> None:
        for layer in layers:
            if layer.after in self._ended:
                self._ended[layer.after].wait()
            try:
                self.outcomes[layer.name] = self._run(layer)
            finally:
                self._ended[layer.name].set()
            self.on_end(layer, self.outcomes[layer.name])

    def in_lanes(self) -> None:
        """Run the first lane here, and each other in a thread, whose output is printed when all have ended."""
        lanes: dict[str, list[Layer]] = {}
        for layer in sorted(self.layers, key=lambda layer: layer.lane != MACHINES):
            lanes.setdefault(layer.lane, []).append(layer)
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

    def _lane(self, name: str, layers: Sequence[Layer]) -> None:
        log = _lane_log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as output, suppress(KeyboardInterrupt):
            OUTPUT.set(output)
            NICENESS.set(LANE_NICENESS[name])
            self.in_sequence(layers)

    def _run(self, layer: Layer) -> Outcome:
        report(f"\n==> {layer.name}")
        if layer.root and os.geteuid() != 0:
            return Outcome(Result(False, "needs root: sudo make test"), 0.0)
        if layer.needs and not os.environ.get(layer.needs):
            return Outcome(Result(False, f"not run: {layer.needs} names no folder; docs/testing.md says of what"), 0.0)
        try:
            venv = venv_of(self.python or (newest_python() if layer.newest else ""))
        except UserError as error:
            return Outcome(Result(False, str(error)), 0.0)
        started = time.monotonic()
        NAME.set(layer.name)
        forms_file(layer.name).unlink(missing_ok=True)
        with nothing_left(venv) if layer.root and layer.lane != IMAGE else nullcontext():
            result = with_models(layer.run(venv), layer.name)
        minutes = (time.monotonic() - started) / 60
        return Outcome(result, minutes, os.getloadavg()[2], version_of(venv / "bin/python"))


def _lane_log(name: str) -> Path:
    return REPORTS / f"{name}.log"


def closing_line(name: str, outcome: Outcome) -> str:
    verdict = "ok" if outcome.result.ok else "FAILED"
    processor = outcome.result.processor_seconds / 60
    took = f"{outcome.minutes:5.1f} min, {processor:5.1f} of processor, load {outcome.load:4.1f}"
    return f"{name:<15} {verdict:<7} {took}  {outcome.result.detail}"


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/run.py",
        description=(__doc__ or "").partition("\n\n")[0],
        epilog=tables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="LAYER", help="only these layers, or parts of the long size")
    parser.add_argument("--long", action="store_true", help="run the long size, and record it in bench/results")
    parser.add_argument("--record", action="store_true", help="record a run of all layers in bench/results")
    parser.add_argument("--python", default="", metavar="VERSION", help=f"one of {', '.join(PYTHONS)}")
    parser.add_argument("--list", action="store_true", help="print the layers of both sizes")
    return parser.parse_args(words)


def times_of(run: Run, started: float, processor: float, conditions: str) -> Times:
    times = Times(
        commit=commit(),
        date=str(date.today()),
        python=version_of(sys.executable),
        processors=os.cpu_count() or 1,
        conditions=conditions,
        minutes=round((time.time() - started) / 60, 1),
        processor_minutes=round(processor_minutes() - processor, 1),
    )
    for layer in run.layers:
        times.add(layer.name, run.outcomes[layer.name])
    return times


def main(words: Sequence[str]) -> int:
    options = parse(words)
    if options.list:
        print(tables())
        return 0
    size = PARTS if options.long else LAYERS
    unknown = [name for name in options.names if name not in size]
    if unknown:
        print(f"{', '.join(unknown)}: no such layer. There are: {', '.join(size)}", file=sys.stderr)
        return 2
    if options.python:
        try:
            venv_of(options.python)
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell's background jobs ignore it, and so would all that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = Run((size[name] for name in options.names or size), options.python)

    needy = [layer.name for layer in run.layers if layer.root]
    if needy and os.geteuid() != 0:
        print(f"Not root: {' and '.join(needy)} boot machines, so they will fail. Run it as root (sudo make test).")

    # make passes on when it began.
    started, processor = float(os.environ.get("TEST_STARTED") or time.time()), processor_minutes()
    load = f"load {os.getloadavg()[0]:.1f} at the beginning"
    if options.long:
        run.on_end = lambda part, outcome: record_part(part.name, PARTS, outcome, LONG)
        run.in_sequence(run.layers)
    else:
        run.in_lanes()
        times = times_of(run, started, processor, load)
        times.write(TIMES)
        if options.record and not options.names:
            times.write(RECORDED)
        print("\n".join(times.lines()))

    print()
    for layer in run.layers:
        print(closing_line(layer.name, run.outcomes[layer.name]))
    if (seen := models.read(*(forms_file(layer.name) for layer in run.layers))).operations:
        print(f"models: {seen}")
    failures = sum(not outcome.result.ok for outcome in run.outcomes.values())
    print(f"{len(run.outcomes) - failures} passed, {failures} failed", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
