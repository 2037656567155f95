"""Test for half a minute whether all ranks compute the same sum, and how fast, before a run of days.

It exchanges data as a training run would, with the run's framework and distribution, and writes the result to
preflight.json in the run's folder. With PyTorch it then compares the nodes: each with the next, and inside each.
`train.yml` and `health.yml -e health_scope=training` start it.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import visible_gpus

LENGTH = 4 * 2**20
"""How many numbers of four bytes are summed at once."""
NCCL_LENGTH = 2**28
"""The same for NCCL: 1 GiB, which is what published figures are of."""
GROUP_LENGTH = 2**26
"""The same for NCCL between two nodes, and inside one. These figures are compared with each other only."""
GROUP_REPEATS = 3
SECONDS = 3.0
CONNECTED = "preflight-connected"
"""A file in the run's folder: the framework is imported and all ranks are connected."""

Exchange = Callable[[np.ndarray], np.ndarray]
"""Takes this rank's values and returns the sum over all ranks."""
Reduce = Callable[[], object]
"""One all-reduce of 1 GiB between GPUs."""


class Ranks(NamedTuple):
    rank: int
    world: int
    exchange: Exchange
    reduce: Reduce | None = None
    """None unless NCCL does it."""
    reduce_among: Callable[[Sequence[int]], Reduce] | None = None
    """Returns an all-reduce among some ranks, this one included; each of them has to call it."""


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
        wait()

    def reduce_among(ranks: Sequence[int]) -> Reduce:
        some = group.new_group(list(ranks), use_local_synchronization=True)
        part = resident[:GROUP_LENGTH]

        def reduce_part() -> None:
            group.all_reduce(part, group=some)
            wait()

        return reduce_part

    on_gpu = device.type == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    resident = torch.zeros(NCCL_LENGTH if on_gpu else LENGTH, device=device)
    return Ranks(group.get_rank(), group.get_world_size(), exchange, reduce if on_gpu else None, reduce_among)


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

    return Ranks(hvd.rank(), hvd.size(), exchange, reduce if gpus and hvd.nccl_built() else None)


def tensorflow() -> Ranks:
    import tensorflow as tf

    visible_gpus.require("tensorflow", lambda: len(tf.config.list_physical_devices("GPU")))
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {})

    def exchange(values: np.ndarray) -> np.ndarray:
        own = strategy.experimental_distribute_values_from_function(lambda _context: tf.constant(values))
        return np.asarray(strategy.reduce(tf.distribute.ReduceOp.SUM, own, axis=None))

    return Ranks(int(task.get("index", 0)), strategy.num_replicas_in_sync, exchange)


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

    return Ranks(store.rank, store.num_workers, exchange)


EXCHANGES = {
    "ddp": torch_ddp,
    "horovod": horovod,
    "multi_worker_mirrored": tensorflow,
    "parameter_server": tensorflow,
}


def exchange_of(distribution: str) -> Ranks:
    if distribution in EXCHANGES:
        return EXCHANGES[distribution]()
    # An asynchronous store does not sum over all ranks: test the network with the synchronous one.
    return mxnet(distribution.replace("async", "sync"))


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
    return {
        "right": right,
        "ranks": world,
        "nccl": reduce is not None,
        "megabytes": length * 4 / 1e6,
        "seconds": seconds,
        "gbits": gbits(world, length, seconds),
    }


def gbits(ranks: int, length: int, seconds: float) -> float:
    """Return what NCCL's tests call bus bandwidth."""
    return 2 * (ranks - 1) / ranks * length * 4 * 8 / seconds / 1e9


def nodes_of(ranks: Ranks) -> list[list[int]]:
    """Return the ranks of each node, by the number of their node that each has."""
    numbers = np.zeros(LENGTH, np.float32)
    numbers[ranks.rank] = int(os.environ.get("GROUP_RANK", "0"))
    nodes: dict[int, list[int]] = {}
    for rank, number in enumerate(ranks.exchange(numbers)[: ranks.world]):
        nodes.setdefault(int(number), []).append(rank)
    return [nodes[number] for number in sorted(nodes)]


def rounds_of_pairs(count: int) -> list[list[tuple[int, int]]]:
    """Return a ring of so many nodes, as rounds in each of which a node is in one pair only."""
    ring = [(node, (node + 1) % count) for node in range(count)] if count > 2 else [(0, 1)]
    even = len(ring) // 2 * 2 or len(ring)
    return [pairs for pairs in (ring[0:even:2], ring[1:even:2], ring[even:]) if pairs]


def compare_nodes(ranks: Ranks) -> dict:
    """Return the Gbit/s of each pair of neighbours, and inside each node. A node is named by its first rank."""
    nodes = nodes_of(ranks) if ranks.reduce_among else []
    if len(nodes) < 2:
        return {}
    several = [node for node in nodes if len(node) > 1]
    result = {"inside": [[node[0], speed] for node, speed in zip(several, measure_groups(ranks, several), strict=True)]}
    result["pairs"] = []
    for pairs in rounds_of_pairs(len(nodes)):
        speeds = measure_groups(ranks, [sorted(nodes[a] + nodes[b]) for a, b in pairs])
        result["pairs"] += [[nodes[a][0], nodes[b][0], speed] for (a, b), speed in zip(pairs, speeds, strict=True)]
    return result


def measure_groups(ranks: Ranks, groups: Sequence[Sequence[int]]) -> list[float]:
    """Return the Gbit/s of an all-reduce inside each of the groups, all at the same time."""
    # A rank of none is a group by itself: PyTorch takes part of a group's name from how many its ranks have made.
    own = next((group for group in groups if ranks.rank in group), [ranks.rank])
    reduce = ranks.reduce_among(own)
    # The first one connects the group, and the sum over all ranks has the groups begin together.
    reduce()
    figures = np.zeros(LENGTH, np.float32)
    ranks.exchange(figures)
    seconds = median_seconds(reduce)
    if own in groups and ranks.rank == own[0]:
        figures[groups.index(own)] = gbits(len(own), GROUP_LENGTH if ranks.reduce else LENGTH, seconds)
    return ranks.exchange(figures)[: len(groups)].tolist()


def median_seconds(reduce: Reduce) -> float:
    times = []
    for _unused in range(GROUP_REPEATS):
        started = time.monotonic()
        reduce()
        times.append(time.monotonic() - started)
    return sorted(times)[len(times) // 2]


def main() -> None:
    distribution = os.environ["DEEPLEARNING_DISTRIBUTION"]
    ranks = exchange_of(distribution)
    folder = Path(os.environ["DEEPLEARNING_RUN_DIR"])
    if ranks.rank == 0:
        (folder / CONNECTED).touch()
    result = measure(ranks.rank, ranks.world, ranks.exchange, ranks.reduce)
    compared = compare_nodes(ranks)
    expected = int(os.environ["DEEPLEARNING_WORLD"])
    result["right"] = result["right"] and ranks.world == expected
    result["expected_ranks"] = expected
    if ranks.rank == 0:
        result |= compared
        (folder / "preflight.json").write_text(json.dumps(result))
    print(json.dumps(result), flush=True)
    if distribution == "ddp":
        # At Python's own end gloo's thread now and then aborts the process, or waits for Python's lock for ever.
        atexit.register(os._exit, int(not result["right"]))
    if not result["right"]:
        sys.exit(f"the sum over {expected} ranks is wrong")


if __name__ == "__main__":
    main()
