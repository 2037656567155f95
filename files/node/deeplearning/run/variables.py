"""What a process of a plan finds in its environment, and the words that are filled into its arguments."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from deeplearning.run import efa
from deeplearning.run.plan import CHIEF, PS, SCHEDULER, SERVER, WORKER, Node, Plan, Process


@dataclass(frozen=True)
class Run:
    """What holds for all processes of a start."""

    run_id: str
    folder: str
    data: str
    attempt: int


def variables(run: Run, plan: Plan, process: Process) -> dict[str, str]:
    common = {
        "DEEPLEARNING_RUN_ID": run.run_id,
        "DEEPLEARNING_RUN_DIR": run.folder,
        "DEEPLEARNING_DATA_DIR": run.data,
        "DEEPLEARNING_FRAMEWORK": plan.framework,
        "DEEPLEARNING_DISTRIBUTION": plan.distribution,
        "DEEPLEARNING_RANK": str(process.rank),
        "DEEPLEARNING_WORLD": str(len(plan.of(WORKER))),
        "DEEPLEARNING_LOCAL_RANK": str(process.local_rank),
        "DEEPLEARNING_ROLE": process.role,
        "DEEPLEARNING_RESTART": str(run.attempt),
        # Lines are worth having when they are printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
    }
    if plan.framework == "tensorflow":
        # Keras 3 cannot train under MultiWorkerMirroredStrategy, and Horovod is older than it.
        common["TF_USE_LEGACY_KERAS"] = "1"
    if process.gpus is not None:
        common["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, process.gpus))
    return {**common, **MAKERS[plan.distribution](plan, process)}


def tensorflow(plan: Plan, process: Process) -> dict[str, str]:
    cluster = {role: [plan.host(one) for one in plan.of(role)] for role in (CHIEF, WORKER, PS)}
    config = {
        "cluster": {role: hosts for role, hosts in cluster.items() if hosts},
        "task": {"type": process.role, "index": process.rank},
    }
    return {"TF_CONFIG": json.dumps(config)}


def alone(plan: Plan, process: Process) -> dict[str, str]:
    return {}


def mxnet(plan: Plan, process: Process) -> dict[str, str]:
    node, scheduler = plan.node(process.node), plan.of(SCHEDULER)[0]
    return {
        "DMLC_ROLE": process.role,
        "DMLC_NUM_WORKER": str(len(plan.of(WORKER))),
        "DMLC_NUM_SERVER": str(len(plan.of(SERVER))),
        "DMLC_PS_ROOT_URI": plan.node(scheduler.node).address,
        "DMLC_PS_ROOT_PORT": str(scheduler.port),
        "DMLC_NODE_HOST": node.address,
        **({"DMLC_INTERFACE": node.interface} if node.interface else {}),
    }


def pytorch(plan: Plan, process: Process) -> dict[str, str]:
    first = plan.nodes[0]
    here = [one for one in plan.on(process.node) if one.role == WORKER]
    return {
        "RANK": str(process.rank),
        "WORLD_SIZE": str(len(plan.of(WORKER))),
        "LOCAL_RANK": str(process.local_rank),
        "LOCAL_WORLD_SIZE": str(len(here)),
        "MASTER_ADDR": first.address,
        "MASTER_PORT": str(first.ports[-1] if first.ports else 0),
        **interfaces(plan.node(process.node)),
        **efa.variables(plan),
    }


def horovod(plan: Plan, process: Process) -> dict[str, str]:
    """Ranks are Open MPI's own. The numbers are those of the Mask R-CNN recipe."""
    return {
        # Gradients are looked for every half millisecond, since layers end quickly on GPUs,
        "HOROVOD_CYCLE_TIME": "0.5",
        # and small ones are summed together, up to 64 MiB, as a network likes large messages.
        "HOROVOD_FUSION_THRESHOLD": str(64 * 1024 * 1024),
        **interfaces(plan.node(process.node)),
        **efa.variables(plan),
    }


def interfaces(node: Node) -> dict[str, str]:
    """The members' own network, never docker0 or lo."""
    return {"GLOO_SOCKET_IFNAME": node.interface, "NCCL_SOCKET_IFNAME": node.interface} if node.interface else {}


MAKERS = {
    "multi_worker_mirrored": tensorflow,
    "parameter_server": tensorflow,
    "local": alone,
    "device": alone,
    "dist_sync": mxnet,
    "dist_device_sync": mxnet,
    "dist_async": mxnet,
    "ddp": pytorch,
    "horovod": horovod,
}

WORDS = ("data", "run", "rank", "world", "job_name", "task_index", "ps_hosts", "worker_hosts")
_WORD = re.compile("{(" + "|".join(WORDS) + ")}")


def filled(arguments: list[str], run: Run, plan: Plan, process: Process) -> list[str]:
    """Only these words in braces are replaced: all else, quotes and $ too, stays as it was given."""
    values = {
        "data": run.data,
        "run": run.folder,
        "rank": str(process.rank),
        "world": str(len(plan.of(WORKER))),
        "job_name": process.role,
        "task_index": str(process.rank),
        "ps_hosts": ",".join(plan.host(one) for one in plan.of(PS)),
        "worker_hosts": ",".join(plan.host(one) for one in plan.of(WORKER)),
    }
    return [_WORD.sub(lambda found: values[found[1]], argument) for argument in arguments]
