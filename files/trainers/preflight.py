"""Test for half a minute whether all ranks compute the same sum, and how fast, before a run of days.

It exchanges data as a training run would, with the run's framework and distribution, and writes the result to
preflight.json in the run's folder. `train.yml` and `health.yml -e health_scope=training` start it.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import visible_gpus

LENGTH = 4 * 2**20
"""How many numbers of four bytes are summed at once."""
NCCL_LENGTH = 2**28
"""The same for NCCL: 1 GiB, which is what published figures are of."""
SECONDS = 3.0

Exchange = Callable[[np.ndarray], np.ndarray]
"""Takes this rank's values and returns the sum over all ranks."""
Reduce = Callable[[], object]
"""One all-reduce of 1 GiB between GPUs."""
Ranks = tuple[int, int, Exchange, "Reduce | None"]
"""This rank, their number, the sum, and the all-reduce if NCCL does it."""


def torch_ddp() -> Ranks:
    import torch
    import torch.distributed as group

    visible_gpus.require("torch", lambda: torch.cuda.device_count() if torch.cuda.is_available() else 0)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    group.init_process_group("nccl" if device.type == "cuda" else "gloo")

    def exchange(values: np.ndarray) -> np.ndarray:
        tensor = torch.from_numpy(values.copy()).to(device)
        group.all_reduce(tensor)
        return tensor.cpu().numpy()

    def reduce() -> None:
        group.all_reduce(resident)
        torch.cuda.synchronize()

    resident = torch.zeros(NCCL_LENGTH if device.type == "cuda" else 0, device=device)
    return group.get_rank(), group.get_world_size(), exchange, reduce if device.type == "cuda" else None


def horovod() -> Ranks:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    visible_gpus.require("tensorflow", lambda: len(gpus))
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    zeros = tf.zeros(NCCL_LENGTH if gpus else 0)

    def exchange(values: np.ndarray) -> np.ndarray:
        return hvd.allreduce(tf.constant(values), op=hvd.Sum).numpy()

    def reduce() -> None:
        # To copy a number of the sum waits for it.
        hvd.allreduce(zeros, op=hvd.Sum)[0].numpy()

    return hvd.rank(), hvd.size(), exchange, reduce if gpus and hvd.nccl_built() else None


def tensorflow() -> Ranks:
    import tensorflow as tf

    visible_gpus.require("tensorflow", lambda: len(tf.config.list_physical_devices("GPU")))
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {})

    def exchange(values: np.ndarray) -> np.ndarray:
        own = strategy.experimental_distribute_values_from_function(lambda _context: tf.constant(values))
        return np.asarray(strategy.reduce(tf.distribute.ReduceOp.SUM, own, axis=None))

    return int(task.get("index", 0)), strategy.num_replicas_in_sync, exchange, None


def mxnet(kind: str) -> Ranks:
    import mxnet as mx

    visible_gpus.require("mxnet", mx.context.num_gpus)
    store = mx.kvstore.create(kind)
    device = mx.gpu(0) if mx.context.num_gpus() else mx.cpu()
    store.init(0, mx.nd.zeros(LENGTH, ctx=device))

    def exchange(values: np.ndarray) -> np.ndarray:
        out = mx.nd.zeros(LENGTH, ctx=device)
        store.push(0, mx.nd.array(values, ctx=device))
        store.pull(0, out)
        return out.asnumpy()

    return store.rank, store.num_workers, exchange, None


def exchange_of(framework: str, distribution: str) -> Ranks:
    if framework == "mxnet":
        # An asynchronous store does not sum over all ranks: test the network with the synchronous one.
        return mxnet(distribution.replace("async", "sync"))
    if framework == "tensorpack":
        return horovod()
    return torch_ddp() if framework == "pytorch" else tensorflow()


def share(rank: int, world: int) -> float:
    """Return what a rank adds. All sums stay below 2**24, so float32 has them exactly in any order."""
    return 2.0**rank if world <= 20 else rank % 2000 + 1.0


def measure(rank: int, world: int, exchange: Exchange, reduce: Reduce | None = None) -> dict:
    """Sum numbers that differ between ranks, so that a missing one is noticed."""
    mine = np.full(LENGTH, share(rank, world), np.float32)
    expected = sum(share(each, world) for each in range(world))
    right = bool(np.all(exchange(mine) == expected))
    length = NCCL_LENGTH if reduce else LENGTH
    if reduce:
        # The first one sets up NCCL's connections.
        reduce()
    times = []
    deadline = time.monotonic() + SECONDS
    for _unused in range(50):
        started = time.monotonic()
        reduce() if reduce else exchange(mine)
        times.append(time.monotonic() - started)
        # All ranks must agree on the end: the first one's clock decides.
        if exchange(np.full(LENGTH, float(rank == 0 and time.monotonic() > deadline), np.float32))[0] > 0:
            break
    seconds = sorted(times)[len(times) // 2]
    # What NCCL's tests call bus bandwidth.
    moved = 2 * (world - 1) / world * length * 4 if world > 1 else 0
    return {
        "right": right,
        "ranks": world,
        "nccl": reduce is not None,
        "megabytes": length * 4 / 1e6,
        "seconds": seconds,
        "gbits": moved * 8 / seconds / 1e9,
    }


def main() -> None:
    framework, distribution = (os.environ[f"DEEPLEARNING_{name}"] for name in ("FRAMEWORK", "DISTRIBUTION"))
    rank, world, exchange, reduce = exchange_of(framework, distribution)
    expected = int(os.environ["DEEPLEARNING_WORLD"])
    result = measure(rank, world, exchange, reduce)
    result["right"] = result["right"] and world == expected
    result["expected_ranks"] = expected
    print(json.dumps(result), flush=True)
    if rank == 0:
        Path(os.environ["DEEPLEARNING_RUN_DIR"], "preflight.json").write_text(json.dumps(result))
    if distribution == "ddp":
        # At Python's own end gloo's thread now and then aborts the process, or waits for Python's lock for ever.
        atexit.register(os._exit, int(not result["right"]))
    if not result["right"]:
        sys.exit(f"the sum over {expected} ranks is wrong")


if __name__ == "__main__":
    main()
