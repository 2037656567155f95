"""CIFAR-10 with MXNet, each of its key-value stores.

By hand: start it with DMLC_ROLE=scheduler, server and worker; the first two serve as soon as mxnet is imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import common
import mxnet as mx
import numpy as np
import visible_gpus
from mxnet import autograd, gluon
from mxnet.gluon import nn


def lenet() -> nn.HybridSequential:
    network = nn.HybridSequential()
    for width in (20, 50):
        network.add(nn.Conv2D(width, 5, padding=2, activation="relu"), nn.MaxPool2D(2))
    network.add(nn.Dense(256, activation="relu"), nn.Dense(10))
    return network


class Block(nn.HybridBlock):
    """Normalize groups and not batches, whose statistics the ranks would have to agree on."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(nn.Conv2D(width, 3, stride, 1, use_bias=False), nn.GroupNorm(8), nn.Activation("relu"))
        self.body.add(nn.Conv2D(width, 3, 1, 1, use_bias=False), nn.GroupNorm(8))
        self.shortcut = nn.Conv2D(width, 1, stride, use_bias=False) if before != width else nn.HybridSequential()

    def hybrid_forward(self, F, images):
        return F.relu(self.body(images) + self.shortcut(images))


def resnet(layers: int) -> nn.HybridSequential:
    network = nn.HybridSequential()
    network.add(nn.Conv2D(16, 3, 1, 1, use_bias=False), nn.GroupNorm(8), nn.Activation("relu"))
    before = 16
    for width in (16, 32, 64):
        for _unused in range((layers - 2) // 6):
            network.add(Block(before, width, 1 if before == width else 2))
            before = width
    network.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(10))
    return network


class MXNet(common.Learner):
    """local, device, dist_sync, dist_device_sync: the store sums gradients, and each rank changes its own weights."""

    ending = "params"

    def __init__(self, options, store: mx.kv.KVStore, image: tuple[int, ...]) -> None:
        self.store, self.rank, self.world = store, store.rank, store.num_workers
        self.devices = [mx.gpu(number) for number in range(mx.context.num_gpus())] or [mx.cpu()]
        mx.random.seed(options.seed)
        self.network = lenet() if options.network == "lenet" else resnet(options.num_layers)
        if options.mixed_precision and not mx.context.num_gpus():
            sys.exit("--mixed-precision is given, and MXNet computes with 16 bits on GPUs only: leave it out.")
        self.precision = "float16" if options.mixed_precision else "float32"
        self.network.initialize(mx.init.Xavier(), ctx=self.devices)
        self.network.cast(self.precision)
        self.network.hybridize()
        for device in self.devices:  # gives all weights their shapes
            self.network(mx.nd.zeros((1, image[2], *image[:2]), ctx=device, dtype=self.precision))
        self.weights = list(self.network.collect_params().values())
        settings = {"learning_rate": options.lr, "wd": options.weight_decay}
        if options.optimizer == "sgd":
            settings["momentum"] = options.momentum
        if options.mixed_precision:
            settings["multi_precision"] = True
        self.trainer = gluon.Trainer(self.weights, options.optimizer, settings, kvstore=None)
        self.exchange = not options.no_exchange
        self.gradients = self.store_of_gradients()
        for index, weight in enumerate(self.weights):
            # Not with the weight: that of a convolution may have oneDNN's layout, which servers do not get, and then
            # they take the first rank's gradient for it and wait for ever for another one.
            self.gradients.init(index, mx.nd.zeros(weight.shape, ctx=self.devices[0], dtype=self.precision))
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.total_key = len(self.weights)  # the numbers before it are the weights'
        self.store.init(self.total_key, mx.nd.zeros(1))

    def set_learning_rate(self, rate: float) -> None:
        self.trainer.set_learning_rate(rate)

    def store_of_gradients(self) -> mx.kv.KVStore:
        return self.store if self.exchange else mx.kv.create("device")

    def step(self, images, labels) -> tuple[int, float, int]:
        parts = self._parts(images, labels)
        with autograd.record():
            scores = [self.network(part).astype("float32") for part, _unused in parts]
            losses = [self.loss(score, classes) for score, (_unused, classes) in zip(scores, parts, strict=True)]
        autograd.backward(losses)
        self.update(len(labels))
        loss = sum(loss.sum().asscalar() for loss in losses)
        return len(labels), float(loss), sum(map(_right, scores, (classes for _unused, classes in parts)))

    def update(self, samples: int) -> None:
        # Not by Gluon's own trainer: its `pushpull` in 1.9.1 loses gradients where machines are busy, so that dist_sync
        # learned nothing in four runs of five. Push and pull one after the other was right in all.
        for index, weight in enumerate(self.weights):
            self.gradients.push(index, weight.list_grad(), priority=-index)
            self.gradients.pull(index, out=weight.list_grad(), priority=-index)
        self.trainer.update(samples * self.world if self.exchange else samples)

    def right(self, images, labels) -> int:
        return sum(_right(self.network(part), classes) for part, classes in self._parts(images, labels))

    def _parts(self, images, labels) -> list[tuple[mx.nd.NDArray, mx.nd.NDArray]]:
        """Return a part of the batch for each device."""
        arrays = mx.nd.array(common.scaled(images).transpose(0, 3, 1, 2), dtype=self.precision), mx.nd.array(labels)
        split = [gluon.utils.split_and_load(array, self.devices, even_split=False) for array in arrays]
        return list(zip(*split, strict=True))

    def total(self, number: float) -> float:
        summed = mx.nd.array([number])
        if self.world > 1:
            self.store.push(self.total_key, summed)
            self.store.pull(self.total_key, out=summed)
        return float(summed.asscalar())

    def save(self, path: Path) -> None:
        self.trainer.save_states(str(path))  # the way to the optimizer's state is by a file
        arrays = {str(index): weight.data(self.devices[0]) for index, weight in enumerate(self.weights)}
        optimizer = mx.nd.array(np.fromfile(path, np.uint8), dtype="uint8")
        mx.nd.save(str(path), arrays | {"optimizer": optimizer})

    def export(self, folder: Path) -> None:
        """Write model-symbol.json and model-0000.params, which Module, SymbolBlock and other languages read."""
        folder.mkdir(parents=True, exist_ok=True)
        self.network.export(str(folder / "model"))

    def load(self, path: Path) -> None:
        saved = mx.nd.load(str(path))
        for index, weight in enumerate(self.weights):
            weight.set_data(saved[str(index)])
        with tempfile.NamedTemporaryFile() as states:
            saved["optimizer"].asnumpy().tofile(states.name)
            self.trainer.load_states(states.name)


class Asynchronous(MXNet):
    """dist_async: each rank takes its step alone, the servers add up all ranks' changes, without waiting.

    The optimizer is the worker's, not the server's as MXNet has it: a server's state could not be saved.
    """

    summed = 0.0
    shared = False

    def __init__(self, options, store: mx.kv.KVStore, image: tuple[int, ...]) -> None:
        if store.rank == 0:
            store.set_optimizer(mx.optimizer.create("test", rescale_grad=1.0))  # it adds what it is given
        store._barrier()
        super().__init__(options, store, image)

    def store_of_gradients(self) -> mx.kv.KVStore:
        return mx.kv.create("device")

    def update(self, samples: int) -> None:
        if self.exchange and not self.shared:  # only now, since weights may have been loaded
            for index, weight in enumerate(self.weights):
                self.store.init(index, mx.nd.array(weight.data(self.devices[0]).asnumpy(), dtype=self.precision))
            self.shared = True
        before = [weight.data(self.devices[0]).copy() for weight in self.weights]
        super().update(samples)
        if self.exchange:
            for index, weight in enumerate(self.weights):
                self.store.push(index, weight.data(self.devices[0]) - before[index], priority=-index)
                self.store.pull(index, out=weight.list_data(), priority=-index)

    def total(self, number: float) -> float:
        total = mx.nd.array([number])
        self.store.push(self.total_key, total)
        self.store.pull(self.total_key, out=total)
        total.wait_to_read()  # what this rank gave has been added
        self.store._barrier()
        self.store.pull(self.total_key, out=total)
        before, self.summed = self.summed, float(total.asscalar())
        self.store._barrier()
        return self.summed - before


def _right(scores: mx.nd.NDArray, classes: mx.nd.NDArray) -> int:
    return int((scores.argmax(axis=1) == classes).sum().asscalar())


def load(folder: Path) -> tuple[common.Samples, common.Samples]:
    """Load MXNet's record files too."""
    packed = [next(folder.glob(f"*_{name}.rec"), None) for name in ("train", "val")]
    if None in packed:
        return common.load(folder)
    return _unpacked(packed[0]), _unpacked(packed[1])


def _unpacked(path: Path) -> common.Samples:
    reader, images, labels = mx.recordio.MXRecordIO(str(path), "r"), [], []
    while record := reader.read():
        head, image = mx.recordio.unpack(record)
        images.append(mx.image.imdecode(image).asnumpy())
        labels.append(int(head.label))
    return common.Samples(np.stack(images), np.array(labels))


def main() -> None:
    gpus = mx.context.num_gpus()
    visible_gpus.require("mxnet", lambda: gpus)
    alone = "device" if gpus >= 4 else "local"
    together = "dist_device_sync" if gpus else "dist_sync"
    stores = ("local", "device", "dist_sync", "dist_device_sync", "dist_async")
    options = common.arguments(__doc__, stores, together if "DMLC_ROLE" in os.environ else alone)
    if options.distribution.startswith("dist") and "DMLC_ROLE" not in os.environ:
        sys.exit(f"--distribution is {options.distribution}, and there is no DMLC_ROLE: start it by train.yml.")
    data = load(options.data_dir)
    kind = Asynchronous if options.distribution == "dist_async" else MXNet
    common.run(kind(options, mx.kv.create(options.distribution), data[0].images.shape[1:]), options, data)


if __name__ == "__main__":
    main()
