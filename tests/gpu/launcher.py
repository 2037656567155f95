"""A run's own launcher, with the real mpirun, against plain torchrun: the same script, at least as fast."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from tests.gpu.launch import Launch
from tests.gpu.session import SCRIPTS, Session
from tests.steps import require

ROUNDS = 3
LEAST_SHARE = 0.99
"""of torchrun's samples a second, on a GPU. Two busy processors do not measure to one percent."""
SECONDS = 120.0
SCRIPT = SCRIPTS / "throughput.py"


def compare(session: Session) -> str:
    """Return the medians. They are judged on a GPU alone."""
    sizes = ("8", "8", "10") if session.on_processor else ("512", "128", "100")
    rounds = 1 if session.on_processor else ROUNDS
    ours, theirs = [], []
    for _unused in range(rounds):
        ours.append(by_the_launcher(session, sizes))
        theirs.append(by_torchrun(session, sizes))
    launcher, torchrun = (
        statistics.median(each["samples_per_second"] for each in results) for results in (ours, theirs)
    )
    share = launcher / torchrun
    text = f"{launcher:.0f} samples/s, torchrun {torchrun:.0f}: {share:.3f} of it"
    if session.on_processor:
        return f"{text}, not judged"
    require(
        all(each["device"] == "cuda" for each in ours + theirs), f"a rank trained on the processor: {ours} {theirs}"
    )
    require(share >= LEAST_SHARE, f"{text}, less than {LEAST_SHARE}")
    return text


def by_the_launcher(session: Session, sizes: tuple[str, ...]) -> Any:
    with Launch(session, "launcher", SCRIPT, sizes, environment={"NCCL_DEBUG": "INFO"}, through_mpirun=True) as launch:
        launch.wait(SECONDS)
        lines = [line for line in launch.lines[0] if "NCCL INFO" in line]
        require(lines or session.on_processor, "no line of NCCL's came through mpirun")
        return launch.result(0)


def by_torchrun(session: Session, sizes: tuple[str, ...]) -> Any:
    words: tuple[str | Path, ...] = (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "1",
        SCRIPT,
        *sizes,
    )
    return session.result(*words, seconds=SECONDS, environment={"NCCL_DEBUG": "WARN"})
