"""CIFAR-10 with TensorFlow: tf.distribute's workers that mirror each other, or its parameter servers.

By hand: set TF_USE_LEGACY_KERAS=1 (Keras is version 2), and TF_CONFIG, which says who is there and who this is.
"""

from __future__ import annotations

import collections
import json
import os
import socket
import sys
import time
from pathlib import Path

import common
import numpy as np
import tensorflow as tf
import visible_gpus


def lenet(image: tuple[int, ...]) -> tf.keras.Model:
    layers = tf.keras.layers
    network = tf.keras.Sequential([layers.Input(image)])
    for width in (20, 50):
        network.add(layers.Conv2D(width, 5, padding="same", activation="relu"))
        network.add(layers.MaxPool2D())
    for layer in (layers.Flatten(), layers.Dense(256, activation="relu"), layers.Dense(10)):
        network.add(layer)
    return network


def resnet(image: tuple[int, ...], depth: int) -> tf.keras.Model:
    """Normalize groups and not batches, whose statistics the ranks would have to agree on."""
    layers = tf.keras.layers

    def convolved(values: tf.Tensor, width: int, stride: int = 1) -> tf.Tensor:
        return layers.GroupNormalization(8)(layers.Conv2D(width, 3, stride, "same", use_bias=False)(values))

    inputs = layers.Input(image)
    values = layers.ReLU()(convolved(inputs, 16))
    for width in (16, 32, 64):
        for _unused in range((depth - 2) // 6):
            stride = 1 if values.shape[-1] == width else 2
            body = convolved(layers.ReLU()(convolved(values, width, stride)), width)
            shortcut = values if stride == 1 else layers.Conv2D(width, 1, stride, use_bias=False)(values)
            values = layers.ReLU()(layers.Add()([body, shortcut]))
    return tf.keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(values)))


class TensorFlow(common.Learner):
    """One process; with a strategy that has more of them, the optimizer sums their gradients by itself."""

    ending = "npz"

    def __init__(self, options, image: tuple[int, ...], strategy: tf.distribute.Strategy) -> None:
        tf.keras.utils.set_random_seed(options.seed)
        self.strategy = strategy
        self.build = lambda: lenet(image) if options.network == "lenet" else resnet(image, options.num_layers)
        self.decay = options.weight_decay
        if options.mixed_precision:
            for gpu in tf.config.list_physical_devices("GPU"):
                visible_gpus.require_bfloat16(tf.config.experimental.get_device_details(gpu)["compute_capability"])
            # bfloat16 has the range of 32 bits, so that losses need no scaling.
            tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
        with strategy.scope():
            self.network = self.build()
            if options.optimizer == "adam":
                self.optimizer = tf.keras.optimizers.Adam(options.lr)
            else:
                self.optimizer = tf.keras.optimizers.SGD(options.lr, options.momentum)
            self.optimizer.build(self.network.trainable_variables)
        batch = tf.TensorSpec((None, *image), tf.uint8), tf.TensorSpec((None,), tf.int64)
        self._train, self._right = tf.function(self._train, batch), tf.function(self._right, batch)

    def set_learning_rate(self, rate: float) -> None:
        self.optimizer.learning_rate.assign(rate)

    def step(self, images, labels) -> tuple[int, float, int]:
        loss, right = self._train(images, labels)
        return len(labels), float(loss), int(right)

    def right(self, images, labels) -> int:
        return int(self._right(images, labels))

    def _train(self, images, labels):
        def on_this_rank():
            with tf.GradientTape() as tape:
                scores = self._scores(images)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
                loss = tf.reduce_mean(losses) / self.strategy.num_replicas_in_sync
            weights = self.network.trainable_variables
            gradients = tape.gradient(loss, weights)
            if self.decay:
                # Once for all replicas, whose gradients are summed.
                share = self.decay / self.strategy.num_replicas_in_sync
                gradients = [gradient + share * weight for gradient, weight in zip(gradients, weights, strict=True)]
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return tf.reduce_sum(losses), _right(scores, labels)

        return self.strategy.run(on_this_rank)

    def _right(self, images, labels):
        return self.strategy.run(lambda: _right(self._scores(images), labels))

    def _scores(self, images):
        return tf.cast(self.network(tf.cast(images, tf.float32) / 127.5 - 1), tf.float32)

    @property
    def _variables(self) -> list[tf.Variable]:
        return [*self.network.variables, *self.optimizer.variables]

    def save(self, path: Path) -> None:
        np.savez(path, *(variable.numpy() for variable in self._variables))

    def export(self, folder: Path) -> None:
        """Write a SavedModel. Its function takes images of -1 … 1, and returns scores."""
        # A network without the strategy, which would have all ranks save.
        network = self.build()
        network.set_weights([variable.numpy() for variable in self.network.variables])
        tf.saved_model.save(network, str(folder))

    def load(self, path: Path) -> None:
        with np.load(path) as saved:
            for index, variable in enumerate(self._variables):
                variable.assign(saved[f"arr_{index}"])


def _right(scores, labels):
    return tf.math.count_nonzero(tf.argmax(scores, 1) == labels)


class Mirrored(TensorFlow):
    """MultiWorkerMirroredStrategy: each rank has the network, gradients are summed over all of them."""

    def __init__(self, options, image: tuple[int, ...]) -> None:
        strategy = tf.distribute.get_strategy() if options.no_exchange else tf.distribute.MultiWorkerMirroredStrategy()
        ranks, task = who_trains()
        self.rank, self.world = ranks.index(task), len(ranks)
        super().__init__(options, image, strategy)

    @tf.function(input_signature=[tf.TensorSpec((), tf.float32)])
    def _total(self, number):
        return self.strategy.reduce("SUM", self.strategy.run(lambda: tf.identity(number)), axis=None)

    def total(self, number: float) -> float:
        return float(self._total(float(number)))


class Servers(TensorFlow):
    """ParameterServerStrategy: the chief sends batches to workers that do not wait, and servers hold the weights."""

    def __init__(self, options, image: tuple[int, ...]) -> None:
        strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
        super().__init__(options, image, strategy)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.ahead = 2 * len(tf_config()["cluster"]["worker"])
        self.running: collections.deque = collections.deque()

    def step(self, images, labels) -> tuple[int, float, int]:
        self.running.append((len(labels), self.coordinator.schedule(self._train, (tf.constant(images), labels))))
        return self._ended() if len(self.running) > self.ahead else (0, 0.0, 0)

    def rest(self) -> tuple[int, float, int]:
        ended = [self._ended() for _unused in range(len(self.running))]
        return tuple(map(sum, zip(*ended, strict=True))) if ended else (0, 0.0, 0)

    def _ended(self) -> tuple[int, float, int]:
        samples, result = self.running.popleft()
        loss, right = result.fetch()
        return samples, float(loss), int(right)

    def right(self, images, labels) -> int:
        return int(self.coordinator.schedule(self._right, (tf.constant(images), labels)).fetch())


def serve(cluster: dict[str, list[str]], job: str, index: int) -> None:
    """Be a parameter server or worker: execute what the chief sends, and end when the chief is gone."""
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index)
    print(f"{job} {index} serves", flush=True)
    host, _unused, port = cluster["chief"][0].rpartition(":")
    was_there, missed = False, 0
    while missed < 3:
        time.sleep(1)
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            was_there, missed = True, 0
        except OSError:
            missed += was_there
    print("the chief has gone", flush=True)


def tf_config() -> dict:
    return json.loads(os.environ.get("TF_CONFIG", "{}"))


def who_trains() -> tuple[list[tuple[str, int]], tuple[str, int]]:
    """Return the processes that train, the chief first, and which of them this is."""
    config = tf_config()
    cluster = config.get("cluster", {"worker": [""]})
    task = config.get("task", {"type": "worker", "index": 0})
    ranks = [(job, index) for job in ("chief", "worker") for index in range(len(cluster.get(job, [])))]
    return ranks, (task["type"], int(task["index"]))


def main() -> None:
    if int(tf.__version__.split(".")[1]) >= 16 and os.environ.get("TF_USE_LEGACY_KERAS") != "1":
        sys.exit("TF_USE_LEGACY_KERAS is not 1: this needs Keras 2, since Keras 3 has no such workers.")
    config = tf_config()
    kinds = {"multi_worker_mirrored": Mirrored, "parameter_server": Servers}
    together = "parameter_server" if "ps" in config.get("cluster", {}) else "multi_worker_mirrored"
    options = common.arguments(__doc__, tuple(kinds), together)
    visible_gpus.require("tensorflow", lambda: len(tf.config.list_physical_devices("GPU")))
    if options.distribution == "parameter_server":
        if options.no_exchange:
            sys.exit("--no-exchange is given with parameter servers, which are the exchange: leave one of them out.")
        if config["task"]["type"] != "chief":
            serve(config["cluster"], config["task"]["type"], int(config["task"]["index"]))
            os._exit(0)  # its server does not end by itself
    data = common.load(options.data_dir)
    common.run(kinds[options.distribution](options, data[0].images.shape[1:]), options, data)


if __name__ == "__main__":
    main()
