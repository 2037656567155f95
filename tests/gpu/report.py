"""What a run of the steps leaves: its facts, and the page of a run on a GPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from deeplearning.contract import gpu_proof

from tests.git import commit
from tests.gpu.session import Session
from tests.steps import last_line

STATEMENT = """
import json, torch
gpus = torch.cuda.is_available()
nccl = ".".join(map(str, torch.cuda.nccl.version())) if gpus else None
name = torch.cuda.get_device_name(0) if gpus else None
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "nccl": nccl, "device": name}))
"""
PAGE = """# On a real GPU

`make gpu` on {date}, commit {commit}: {count} × {device}, driver {driver}, torch {torch}, CUDA {cuda}, NCCL {nccl}.

| step | outcome | seconds | result |
| --- | --- | --- | --- |
{rows}

{passed} passed, {failed} failed. Not seen on a GPU: TensorFlow, MXNet, TensorPack, Horovod, EFA, NVLink, DCGM, and more
than one GPU in a run. This PyTorch is the machine's, and not necessarily the one that nodes install.
"""


def facts_of(session: Session, devices: Sequence[str]) -> dict[str, Any]:
    """Return what the results depend on. What cannot be read is unknown: the results are not lost for it."""
    done = session.run("-c", STATEMENT, seconds=120)
    try:
        facts = dict(json.loads(last_line(done.stdout)))
    except ValueError:
        facts = dict.fromkeys(("torch", "cuda", "nccl", "device"))
    return {
        "commit": commit() if shutil.which("git") else "no commit",
        "python": session.python,
        "on_processor": session.on_processor,
        "gpus": list(devices),
        "driver": gpu_proof.driver_version() or None,
        **facts,
    }


def page(record: Mapping[str, Any]) -> str:
    rows = []
    for step in record["steps"]:
        outcome, detail = "ok" if step["ok"] else "FAILED", step["detail"].replace("|", "/")
        rows.append(f"| {step['step']} | {outcome} | {step['seconds']} | {detail} |")
    passed = sum(step["ok"] for step in record["steps"])
    return PAGE.format(
        **{**record, "count": len(record["gpus"])},
        rows="\n".join(rows),
        passed=passed,
        failed=len(record["steps"]) - passed,
    )
