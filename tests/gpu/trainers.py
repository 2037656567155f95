"""The example trainer learns on this device, at a rate that is shown with what the device can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.gpu.launch import Launch
from tests.gpu.session import SCRIPTS, TRAINERS, Session
from tests.steps import Failed, require

SECONDS = 180.0


def train(session: Session) -> str:
    images, batch, side, layers = (200, 16, 128, 8) if session.on_processor else (20000, 512, 8192, 20)
    data = session.work("data")
    words = (TRAINERS / "generate.py", data, "--train", str(images), "--test", "200")
    made = session.run(*words, seconds=SECONDS)
    require(not made.returncode, f"generate.py ended with {made.returncode}: {made.stderr[-200:]}")
    options = ("--batch-size", batch, "--mixed-precision", "--log-steps", 4, "--epochs", 3)
    arguments = (side, layers, "--data-dir", data, *options)
    with Launch(session, "trainers", SCRIPTS / "trainer.py", arguments) as launch:
        launch.wait(SECONDS)
        figures = launch.result(0)
        lines = metrics(Path(launch.folder.file("metrics/rank0.jsonl")))
    first, last = lines[0]["loss"], lines[-1]["loss"]
    require(last < first, f"the loss did not fall: {first:.3f} at the beginning, {last:.3f} at the end")
    expected = "cpu" if session.on_processor else "cuda"
    require(figures["device"] == expected, f"the trainer ran on {figures['device']}, and not on {expected}")
    require(session.on_processor or figures["bytes_on_gpu"], "the trainer has used no memory of the GPU")
    rate = max(line["samples_per_second"] for line in lines)
    learned = f"loss {first:.2f} to {last:.2f}, {rate:.0f} samples/s"
    if session.on_processor:
        return learned
    possible = figures["operations_per_second"]
    share = rate * figures["operations_per_sample"] / possible
    return f"{learned}, {share:.2%} of a matrix product's {possible / 1e12:.0f} TFLOP/s in bfloat16"


def metrics(file: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    if not lines:
        raise Failed(f"the trainer has written no metrics to {file}")
    return lines
