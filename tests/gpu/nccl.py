"""The preflight on NCCL with one rank, and NCCL between ranks that share a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deeplearning.runs import efa

from tests.gpu.launch import Launch
from tests.gpu.session import SCRIPTS, TRAINERS, Session
from tests.steps import Failed, require

PREFLIGHT_SECONDS = 120.0
NCCL = {"NCCL_DEBUG": "INFO"}


def one_rank(session: Session) -> str:
    """Run the preflight as `train.yml` does before a run: on NCCL with 1 GiB, or on Gloo with 17 MB."""
    with Launch(session, "nccl", TRAINERS / "preflight.py", environment=NCCL) as launch:
        launch.wait(PREFLIGHT_SECONDS)
        result = preflight_of(launch, 0)
    check(result, 1, session)
    return f"{backend(session)} sums {result['megabytes']:.0f} MB in {result['seconds'] * 1000:.2f} ms"


def several_ranks(session: Session) -> str:
    """Run 2 and 4 ranks. They are of different hosts for NCCL, which refuses two of one host on a GPU."""
    figures = [_ranks(session, count) for count in (2, 4)]
    return "; ".join(figures)


def _ranks(session: Session, count: int) -> str:
    arguments = (TRAINERS / "preflight.py", backend(session).lower())
    with Launch(session, f"ranks-{count}", SCRIPTS / "ranks.py", arguments, ranks=count, environment=NCCL) as launch:
        launch.wait(PREFLIGHT_SECONDS)
        for rank in range(count):
            trained = launch.result(rank)
            require(trained["equal"], f"DDP's weights differ between {count} ranks")
            require(trained["recorded"] > 0, f"the flight recorder of rank {rank} holds no all-reduce")
        result = preflight_of(launch, 0)
        lines = [line for each in launch.lines.values() for line in each]
    check(result, count, session)
    pairs = {(a, b): speed for a, b, speed in result["pairs"]}
    require(len(pairs) == (1 if count == 2 else count), f"{len(pairs)} pairs of {count} ranks were compared")
    require(min(pairs.values()) > 0, "an all-reduce between two ranks took no time")
    networks = {efa.fallback(line) for line in lines} - {""}
    if not session.on_processor:
        require(
            networks == {"Socket"},
            f"NCCL's log names {networks or 'no network'}, and not Socket, between {count} ranks",
        )
    network = f" over {', '.join(networks)}" if networks else ""
    slowest, fastest = min(pairs.values()), max(pairs.values())
    speeds = f"{result['gbits']:.1f} Gbit/s, pairs {slowest:.1f} to {fastest:.1f}"
    return f"{count} ranks{network}: {speeds}, DDP's weights equal"


def preflight_of(launch: Launch, rank: int) -> dict[str, Any]:
    """Return what the preflight has printed: NCCL's lines are around it."""
    for line in launch.lines[rank]:
        if line.startswith('{"right"'):
            return dict(json.loads(line))
    raise Failed(f"the preflight of rank {rank} printed no result")


def check(result: Mapping[str, Any], ranks: int, session: Session) -> None:
    require(result["right"], f"the sum over {ranks} ranks is wrong")
    require(result["ranks"] == ranks, f"{result['ranks']} of {ranks} ranks took part")
    require(result["nccl"] is not session.on_processor, f"the preflight used {'NCCL' if result['nccl'] else 'no NCCL'}")
    require(result["seconds"] > 0, "an all-reduce took no time")


def backend(session: Session) -> str:
    return "Gloo" if session.on_processor else "NCCL"
