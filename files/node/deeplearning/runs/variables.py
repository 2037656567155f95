"""The environment variables of a plan's processes, and the placeholders in their arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from deeplearning.contract.frameworks import RECORDS
from deeplearning.runs import efa
from deeplearning.runs.plan import CHIEF, PS, SCHEDULER, SERVER, WORKER, Plan, Process


def variables(start: Mapping[str, Any], plan: Plan, process: Process) -> dict[str, str]:
    """Return the variables of a process. `start`: the attempt's plan.json."""
    common = {
        "EFS_MOUNT": start["efs_mount"],
        "DEEPLEARNING_RUN_ID": start["run_id"],
        "DEEPLEARNING_RUN_DIR": start["run_dir"],
        "DEEPLEARNING_DATA_DIR": start["data"],
        "DEEPLEARNING_FRAMEWORK": plan.framework,
        "DEEPLEARNING_DISTRIBUTION": plan.distribution,
        "DEEPLEARNING_RANK": str(process.rank),
        "DEEPLEARNING_WORLD": str(len(plan.of(WORKER))),
        "DEEPLEARNING_LOCAL_RANK": str(process.local_rank),
        "DEEPLEARNING_ROLE": process.role,
        "DEEPLEARNING_RESTART": str(start["attempt"]),
        "DEEPLEARNING_GPUS": str(gpu_count(start, plan, process)),
        # Lines are logged when they are printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
    }
    record = RECORDS[plan.framework]
    common |= {name: text.replace("{run_dir}", start["run_dir"]) for name, text in record.variables.items()}
    # A master that was not updated yet does not write it.
    if start.get("processor"):
        common |= {"CUDA_VISIBLE_DEVICES": "", **record.processor_variables}
    elif process.gpus is not None:
        common["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, process.gpus))
    for own in VARIABLES[plan.distribution]:
        common |= own(start, plan, process)
    return common


def gpu_count(start: Mapping[str, Any], plan: Plan, process: Process) -> int:
    """Return how many GPUs a process has to see. Some see all of the node, and choose by their local rank."""
    if start.get("processor"):
        return 0
    return plan.node(process.node).gpus if process.gpus is None else len(process.gpus)


def tensorflow(start: Mapping[str, Any], plan: Plan, process: Process) -> dict[str, str]:
    cluster = {role: [plan.host(each) for each in plan.of(role)] for role in (CHIEF, WORKER, PS)}
    config = {
        "cluster": {role: hosts for role, hosts in cluster.items() if hosts},
        "task": {"type": process.role, "index": process.rank},
    }
    return {"TF_CONFIG": json.dumps(config)}


def mxnet(start: Mapping[str, Any], plan: Plan, process: Process) -> dict[str, str]:
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


def torchrun(start: Mapping[str, Any], plan: Plan, process: Process) -> dict[str, str]:
    """Return what torchrun sets for its workers, which many libraries read: all of them are of one role."""
    first, names = plan.nodes[0], [node.name for node in plan.nodes]
    rank, world = str(process.rank), str(len(plan.of(WORKER)))
    local_workers = [each for each in plan.on(process.node) if each.role == WORKER]
    return {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": str(process.local_rank),
        "LOCAL_WORLD_SIZE": str(len(local_workers)),
        "MASTER_ADDR": first.address,
        "MASTER_PORT": str(first.ports[-1] if first.ports else 0),
        "GROUP_RANK": str(names.index(process.node)),
        "GROUP_WORLD_SIZE": str(len(names)),
        # Not torchrun's: some libraries read the number of the node by this name only.
        "NODE_RANK": str(names.index(process.node)),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "TORCHELASTIC_RUN_ID": start["run_id"],
        "TORCHELASTIC_RESTART_COUNT": str(start["attempt"]),
        # Likewise.
        "TORCHELASTIC_MAX_RESTARTS": str(start.get("max_restarts", 0)),
        # The process of rank 0 opens the store at MASTER_PORT, as no agent does.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        # Accelerate's own launcher sets it. Without it, and without GPUs, each process takes itself for the only one.
        **({} if gpu_count(start, plan, process) else {"ACCELERATE_USE_CPU": "true"}),
    }


def horovod(start: Mapping[str, Any], plan: Plan, process: Process) -> dict[str, str]:
    """Ranks come from Open MPI. The numbers are those of the Mask R-CNN recipe."""
    return {
        # Look for gradients every half millisecond, because layers end quickly on GPUs.
        "HOROVOD_CYCLE_TIME": "0.5",
        # Sum small gradients together, up to 64 MiB, because networks are faster with large messages.
        "HOROVOD_FUSION_THRESHOLD": str(64 * 1024 * 1024),
    }


def networks(start: Mapping[str, Any], plan: Plan, process: Process) -> dict[str, str]:
    """Use the members' network, never docker0 or lo. Without =, NCCL takes ens5 as a prefix, so ens50 as well."""
    interface = plan.node(process.node).interface
    names = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"} if interface else {}
    return {**names, **efa.variables(plan)}


VARIABLES = {
    "multi_worker_mirrored": (tensorflow, networks),
    "parameter_server": (tensorflow,),
    "local": (),
    "device": (),
    "dist_sync": (mxnet,),
    "dist_device_sync": (mxnet,),
    "dist_async": (mxnet,),
    "ddp": (networks, torchrun),
    "horovod": (horovod, networks),
}

PLACEHOLDERS = ("data", "run", "rank", "world", "job_name", "task_index", "ps_hosts", "worker_hosts")
_PLACEHOLDER = re.compile("{(" + "|".join(PLACEHOLDERS) + ")}")


def fill_in(start: Mapping[str, Any], plan: Plan, process: Process) -> list[str]:
    """Return the script's arguments without placeholders. Other words in braces, quotes and $ stay as they are."""
    values = {
        "data": start["data"],
        "run": start["run_dir"],
        "rank": str(process.rank),
        "world": str(len(plan.of(WORKER))),
        "job_name": process.role,
        "task_index": str(process.rank),
        "ps_hosts": ",".join(plan.host(each) for each in plan.of(PS)),
        "worker_hosts": ",".join(plan.host(each) for each in plan.of(WORKER)),
    }
    return [_PLACEHOLDER.sub(lambda match: values[match[1]], argument) for argument in start["arguments"]]
