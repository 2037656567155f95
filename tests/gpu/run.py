#!/usr/bin/env -S python3 -S
"""Prove on one GPU what no test without one can: `make gpu`.

Each step prints a line; the last line counts. The results are in build/gpu/gpu.json, and those of a run of all steps on
a GPU also in bench/results/gpu.md. With --processor the same steps run on the processor, with Gloo and small sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import date
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Started with -S: no package of the interpreter's own hides these.
# The local cloud is not installed for this interpreter: `make gpu` needs nothing but Python.
sys.path[:0] = [str(ROOT), str(ROOT / "files/node"), str(ROOT.joinpath("localcloud", "src"))]

from tests.gpu import drills, facts, launcher, nccl, probe, trainers  # noqa: E402
from tests.gpu.report import facts_of, page  # noqa: E402
from tests.gpu.session import NoPython, Session, gpus, interpreter, unpacked_mpi  # noqa: E402
from tests.steps import Outcome, end_by_exception, outcome_of  # noqa: E402

FOLDER = ROOT / "build/gpu"
PAGE = ROOT / "bench/results/gpu.md"

Step = Callable[[Session], str]
STEPS: dict[str, Step] = {
    "facts": facts.compare,
    "probe": probe.run,
    "nccl": nccl.one_rank,
    "ranks": nccl.several_ranks,
    "launcher": launcher.compare,
    "trainers": trainers.train,
    "drills": drills.run,
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/gpu/run.py", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="STEP", help=f"only these steps of {', '.join(STEPS)}")
    parser.add_argument("--processor", action="store_true", help="run without a GPU, with Gloo and small sizes")
    parser.add_argument("--python", default="", metavar="PATH", help="an interpreter that has torch")
    parser.add_argument("--mpi", default="", metavar="FOLDER", help="where Open MPI's Debian packages are unpacked")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    options = parse(words)
    unknown = [name for name in options.names if name not in STEPS]
    if unknown:
        print(f"{', '.join(unknown)}: no such step. There are: {', '.join(STEPS)}", file=sys.stderr)
        return 2
    devices: list[str] = []
    if not options.processor:
        devices, reason = gpus()
        if not devices:
            print(f"not run: no GPU: {reason}. On the processor: tests/gpu/run.py --processor")
            return 0
    try:
        python = interpreter(options.python, options.processor)
    except NoPython as error:
        print(error, file=sys.stderr)
        return 2
    session = Session(FOLDER, python, unpacked_mpi(options.mpi, options.processor), options.processor)
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for name in options.names or STEPS:
        outcomes.append(outcome_of(name, partial(STEPS[name], session), FOLDER))
        print(outcomes[-1].line(), flush=True)
    record = {"date": str(date.today()), **facts_of(session, devices), "steps": [asdict(each) for each in outcomes]}
    (FOLDER / "gpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if devices and not options.names:
        PAGE.write_text(page(record), encoding="utf-8")
    failures = sum(not each.ok for each in outcomes)
    print(f"{len(outcomes) - failures} passed, {failures} failed", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    end_by_exception()
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
