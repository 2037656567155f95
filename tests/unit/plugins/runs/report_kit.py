"""Folders of runs that have ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit import prices


def a_run(root: Path, name: str, nodes: int, speed: float, epochs: int = 3, **more: Any) -> Path:
    folder = root / name
    (folder / "metrics").mkdir(parents=True)
    run = {
        "run_id": name,
        "framework": "pytorch",
        "distribution": "ddp",
        "script": "/opt/deeplearning/trainers/cifar10_pytorch.py",
        "script_args": ["--batch-size", "64"],
        "python": "/opt/deeplearning/env/pytorch/bin/python",
        "data": "/efs/data/generated",
        "generated": True,
    }
    (folder / "run.json").write_text(json.dumps(run | more))
    (folder / "result.json").write_text(json.dumps({"state": "finished"}))
    processes = [{"node": f"deeplearning-worker{n + 1}", "role": "worker", "rank": n, "gpus": []} for n in range(nodes)]
    (folder / "state.json").write_text(json.dumps({"state": "finished", "processes": processes}))
    for rank in range(nodes):
        lines = [line for epoch in range(1, epochs + 1) for line in an_epoch(epoch, speed)]
        (folder / f"metrics/rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def an_epoch(epoch: int, speed: float) -> list[dict[str, Any]]:
    measured = speed / 3 if epoch == 1 else speed
    line = {"epoch": epoch, "step": epoch * 10, "loss": 2 / epoch, "accuracy": 0.1, "samples_per_second": 1.0}
    end = {"seconds": epoch * 10.0, "samples_per_second": measured, "val_accuracy": 1 - 0.5**epoch}
    return [line | {"seconds": 1.0, "val_accuracy": None}, line | end]


PRICES = prices.LIST
