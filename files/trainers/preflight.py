"""A run of half a minute before one of days: do all ranks add up the same numbers, and how fast?

It exchanges what a training run would, by the very means of the run's framework and distribution, and says in
preflight.json in the run's folder what came of it. `health.yml -e for=training` starts it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

LENGTH = 4 * 2**20
"""Numbers that are summed at once, of four bytes each."""
SECONDS = 3.0

Exchange = Callable[[np.ndarray], np.ndarray]
"""What this rank has → the sum over all ranks."""


def torch_ddp() -> tuple[int, int, Exchange]:
    import torch
    import torch.distributed as group

    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    group.init_process_group("nccl" if device.type == "cuda" else "gloo")

    def exchange(values: np.ndarray) -> np.ndarray:
        tensor = torch.from_numpy(values.copy()).to(device)
        group.all_reduce(tensor)
        return tensor.cpu().numpy()

    return group.get_rank(), group.get_world_size(), exchange


def horovod(module: str) -> tuple[int, int, Exchange]:
    from importlib import import_module

    hvd = import_module(f"horovod.{module}")
    hvd.init()
    if module == "torch":
        import torch

        device = f"cuda:{hvd.local_rank()}" if torch.cuda.is_available() else "cpu"
        return (
            hvd.rank(),
            hvd.size(),
            lambda values: hvd.allreduce(torch.from_numpy(values).to(device), op=hvd.Sum).cpu().numpy(),
        )
    import tensorflow as tf

    for index, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        if index == hvd.local_rank():
            tf.config.set_visible_devices(gpu, "GPU")
    return hvd.rank(), hvd.size(), lambda values: hvd.allreduce(tf.constant(values), op=hvd.Sum).numpy()


def tensorflow() -> tuple[int, int, Exchange]:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    told = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {})

    def exchange(values: np.ndarray) -> np.ndarray:
        own = strategy.experimental_distribute_values_from_function(lambda _context: tf.constant(values))
        return np.asarray(strategy.reduce(tf.distribute.ReduceOp.SUM, own, axis=None))

    return int(told.get("index", 0)), strategy.num_replicas_in_sync, exchange


def mxnet(kind: str) -> tuple[int, int, Exchange]:
    import mxnet as mx

    store = mx.kvstore.create(kind)
    here = mx.gpu(0) if mx.context.num_gpus() else mx.cpu()
    store.init(0, mx.nd.zeros(LENGTH, ctx=here))

    def exchange(values: np.ndarray) -> np.ndarray:
        out = mx.nd.zeros(LENGTH, ctx=here)
        store.push(0, mx.nd.array(values, ctx=here))
        store.pull(0, out)
        return out.asnumpy()

    return store.rank, store.num_workers, exchange


def exchange_of(framework: str, distribution: str) -> tuple[int, int, Exchange]:
    if framework == "mxnet":
        # An asynchronous store adds what comes whenever it comes: what is tried is the way there.
        return mxnet(distribution.replace("async", "sync"))
    if distribution == "horovod":
        return horovod("torch" if framework == "pytorch" else "tensorflow")
    return torch_ddp() if framework == "pytorch" else tensorflow()


def tried(rank: int, world: int, exchange: Exchange) -> dict:
    """Numbers that tell every rank apart, so that a sum that lacks one of them is seen."""
    mine = np.full(LENGTH, 2.0**rank if world <= 20 else rank + 1.0, np.float32)
    due = 2.0**world - 1 if world <= 20 else world * (world + 1) / 2
    right = bool(np.all(exchange(mine) == due))
    times = []
    deadline = time.monotonic() + SECONDS
    for _unused in range(50):
        started = time.monotonic()
        exchange(mine)
        times.append(time.monotonic() - started)
        # All ranks must agree on the end: the first one's clock decides.
        if exchange(np.full(LENGTH, float(rank == 0 and time.monotonic() > deadline), np.float32))[0] > 0:
            break
    seconds = sorted(times)[len(times) // 2]
    moved = 2 * (world - 1) / world * LENGTH * 4 if world > 1 else 0
    return {
        "right": right,
        "ranks": world,
        "megabytes": LENGTH * 4 / 1e6,
        "seconds": seconds,
        "gbits": moved * 8 / seconds / 1e9,
    }


def main() -> None:
    framework, distribution = (os.environ[f"DEEPLEARNING_{name}"] for name in ("FRAMEWORK", "DISTRIBUTION"))
    rank, world, exchange = exchange_of(framework, distribution)
    expected = int(os.environ["DEEPLEARNING_WORLD"])
    said = tried(rank, world, exchange)
    said["right"] = said["right"] and world == expected
    said["expected_ranks"] = expected
    print(json.dumps(said), flush=True)
    if rank == 0:
        Path(os.environ["DEEPLEARNING_RUN_DIR"], "preflight.json").write_text(json.dumps(said))
    if not said["right"]:
        sys.exit(f"the sum over {expected} ranks is wrong")


if __name__ == "__main__":
    main()
